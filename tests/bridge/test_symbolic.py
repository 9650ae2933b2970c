"""Sizes that are symbols: one capture serves other sizes, and says for which."""

import pytest
import torch
from bridge_support import Captured, bridge, compare
from torch import nn
from torch.nn import functional as F


def dynamic(fn, args, others, bits=None, symbols=None):
    """Captures with symbolic sizes (all of the first axis by default) and runs with each of `others` too."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    c = Captured(fn, *args, dynamic=tuple(bits or [1] * len(tensors)))
    for a in (args, *others):
        assert c.graph.check(*[t for t in a if isinstance(t, torch.Tensor)]) == ""
        compare(c(*a), fn(*a))
    if symbols is not None:
        assert [b for b in c.graph.dims[: len(tensors)]] == symbols, (c.graph.dims, c.graph.guards)
    return c


def test_pointwise():
    sizes = [(5, 4), (9, 4), (2, 4), (64, 4)]
    args = [tuple(torch.randn(*s) for _ in range(2)) for s in sizes]
    c = dynamic(lambda x, y: (x * y + 1).relu(), args[0], args[1:], symbols=[1, 1])
    assert "s0" in c.text and c.graph.counts()["kernels"] == 1


def test_broadcast():
    args = [(torch.randn(n, m), torch.randn(m), torch.randn(n, 1)) for n, m in ((5, 7), (6, 9), (3, 2))]
    dynamic(lambda x, y, z: x * y + z, args[0], args[1:], bits=[3, 1, 1], symbols=[3, 1, 1])


def test_equal_sizes_share_a_symbol_and_are_guarded():
    c = Captured(lambda x, y: x + y, torch.randn(5), torch.randn(5), dynamic=(1, 1))
    assert c.graph.check(torch.randn(8), torch.randn(8)) == ""
    assert "expected" in c.graph.check(torch.randn(8), torch.randn(9))


def test_sizes_that_must_agree_are_guarded():
    # 6 and 3 * 2 agree by chance of the trace
    c = Captured(lambda x, y: x.view(-1) + y, torch.randn(3, 2), torch.randn(6), dynamic=(1, 1))
    compare(c(torch.randn(4, 2), torch.randn(8)).shape, torch.Size([8]))
    assert c.graph.check(torch.randn(4, 2), torch.randn(8)) == ""
    assert "expected" in c.graph.check(torch.randn(4, 2), torch.randn(9))


def test_views():
    def f(x):
        n, m, k = x.shape
        return (
            x.view(n * m, k),
            x.reshape(n, -1),
            x.transpose(0, 1),
            x.permute(2, 0, 1)[1:],
            x[:, 1:],
            x[-1],
            x.unsqueeze(1).expand(n, 3, m, k),
            x.flatten(),
            x[:, :-1, ::2],
            x.split(2, dim=2),
            x.unbind(2)[1],
        )

    args = [(torch.randn(n, m, 4),) for n, m in ((5, 7), (6, 9), (3, 2))]
    dynamic(f, args[0], args[1:], bits=[3], symbols=[3])


def test_reductions():
    def f(x):
        return (
            x.sum(0),
            x.mean(-1, keepdim=True),
            x.amax(1),
            x.softmax(-1),
            x.sum(),
            x.max(0),
            x.var(1),
            x.argmax(1),
            F.layer_norm(x, (8,)),
        )

    args = [(torch.randn(n, 8),) for n in (5, 6, 33)]
    dynamic(f, args[0], args[1:], symbols=[1])


def test_matmul_and_attention():
    lin = nn.Linear(16, 16)

    def f(x):
        q = lin(x).view(x.shape[0], x.shape[1], 4, 4).transpose(1, 2)
        o = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        return (
            o.transpose(1, 2).reshape(x.shape[0], -1, 16) @ lin.weight,
            torch.bmm(x, x.mT),
            torch.einsum("bij,bkj->bik", x, x),
        )

    args = [(torch.randn(n, m, 16),) for n, m in ((3, 7), (5, 9), (2, 40))]
    with torch.no_grad():
        dynamic(f, args[0], args[1:], bits=[3], symbols=[3])


def test_factories_and_sizes():
    def f(x):
        n = x.shape[0]
        return (
            torch.zeros(n, 2) + torch.arange(n)[:, None],
            torch.ones(n + 1),
            x.new_zeros(2 * n),
            torch.full((n,), 2.0),
            torch.arange(1, n),
        )

    args = [(torch.randn(n, 4),) for n in (5, 6, 33)]
    dynamic(f, args[0], args[1:], symbols=[1])


def test_structure_and_indexing():
    def f(x, i):
        return (
            torch.cat([x, x], 0),
            torch.stack([x, x]),
            x[i],
            F.embedding(i, x),
            F.pad(x, (0, 1, 2, 0)),
            x.gather(0, i[:, None].expand(-1, 4)),
            torch.where(x > 0, x, 0.0),
            x.repeat(2, 1),
        )

    args = [(torch.randn(n, 4), torch.randint(0, 5, (m,))) for n, m in ((6, 3), (7, 5), (33, 20))]
    dynamic(f, args[0], args[1:])


def test_convolution():
    m = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)).eval()
    args = [(torch.randn(n, 3, 12, 12),) for n in (3, 5, 8)]
    with torch.no_grad():
        dynamic(m, args[0], args[1:], symbols=[1])


def test_in_place():
    def f(x, y):
        x = x.clone()
        x.mul_(2).add_(y)
        x[1:] = 0
        return x

    args = [(torch.randn(n, 4), torch.randn(n, 4)) for n in (5, 6, 33)]
    dynamic(f, args[0], args[1:])


def test_size_results():
    def f(x):
        return x.shape[0] * 2 + 1, x.numel(), x.sum()

    args = [(torch.randn(n, 4),) for n in (5, 6)]
    c = Captured(f, args[0][0], dynamic=(1,))
    for a in args:
        assert c(*a)[:2] == f(*a)[:2]


def test_comparisons_become_guards():
    def f(x):
        return x * 2 if x.shape[0] > 4 else x * 3

    c = Captured(f, torch.randn(5), dynamic=(1,))
    assert c.graph.check(torch.randn(9)) == ""
    assert "expected" in c.graph.check(torch.randn(4))
    compare(c(torch.ones(9)), torch.ones(9) * 2)


def test_ranges_decide_without_guards():
    def f(x):
        if x.shape[0] == 1 or x.shape[0] == 0 or x.shape[0] < 0:
            return x
        return x + 1

    assert "!=" not in Captured(f, torch.randn(5), dynamic=(1,)).graph.guards


def test_numbers_fix_a_symbol():
    def f(x):
        return x * int(x.shape[0]) + float(x.shape[0]) ** 0.5

    c = Captured(f, torch.randn(5, 3), dynamic=(3,))
    assert c.graph.dims == [2]
    assert "expected" in c.graph.check(torch.randn(6, 3)) and c.graph.check(torch.randn(5, 8)) == ""


def test_operator_without_rule_fixes_its_sizes():
    c = Captured(lambda x: torch.linalg.inv(x), torch.eye(4), dynamic=(3,))
    assert c.graph.dims == [0]


def test_small_sizes_are_constants():
    assert Captured(lambda x: x + 1, torch.randn(1, 0, 3), dynamic=(7,)).graph.dims == [4]


def test_layouts():
    def f(x):
        return x.t().contiguous(), x.t() + 1, x.is_contiguous(), x.t().reshape(-1)

    args = [(torch.randn(n, m).t(),) for n, m in ((5, 7), (6, 9), (3, 2))]
    dynamic(f, args[0], args[1:], bits=[3])


def test_gradients():
    def f(x, w):
        return (F.gelu(x @ w).sum(0) / x.shape[0]).softmax(-1)

    def args(n):
        g = torch.Generator().manual_seed(n)
        return torch.randn(n, 4, generator=g).requires_grad_(), torch.randn(4, 3, generator=g).requires_grad_()

    c = Captured(f, *args(5), dynamic=(1, 0))
    for n in (5, 9):
        mine, theirs = args(n), args(n)
        compare(c(*mine), f(*theirs))
        compare(torch.autograd.grad(c(*mine)[0], mine), torch.autograd.grad(f(*theirs)[0], theirs))


def test_rope_and_masks():
    def f(x):
        b, s, d = x.shape
        pos = torch.arange(s)[None]
        freq = 1.0 / (10000 ** (torch.arange(0, d, 2).float() / d))
        angle = pos[..., None] * freq
        emb = torch.cat((angle, angle), -1)
        rotated = torch.cat((-x[..., d // 2 :], x[..., : d // 2]), -1)
        mask = torch.full((s, s), float("-inf")).triu(1)
        scores = x @ x.mT + mask
        return x * emb.cos() + rotated * emb.sin(), scores.softmax(-1)

    args = [(torch.randn(n, m, 8),) for n, m in ((3, 7), (5, 9), (2, 40))]
    dynamic(f, args[0], args[1:], bits=[3], symbols=[3])


def test_zero_division_is_the_users_error():
    with pytest.raises(ZeroDivisionError):
        Captured(lambda x: x * (x.shape[0] // 0), torch.randn(5), dynamic=(1,))
    assert bridge

"""Capture and replay of single features, against eager."""

import pytest
import torch
from bridge_support import Captured, bridge, check, compare, copies
from torch import nn
from torch.nn import functional as F


def test_pointwise():
    check(lambda x, y: (torch.sigmoid(x) * y + 2, x.exp() - 1.5), torch.randn(4, 5), torch.randn(5))


def test_scalars_are_constants():
    c = check(lambda x: x * 3 + True - 2.5, torch.arange(6))
    assert "aten::mul.Tensor" in c.text


def test_views():
    check(lambda x: (x.view(3, 8).t(), x[1:, ::2], x.unsqueeze(0).expand(5, 4, 6), x.permute(1, 0)), torch.randn(4, 6))


def test_views_of_inputs_share_memory():
    x = torch.randn(4, 6)
    c = Captured(lambda t: t.t()[1:], x)
    y = c(x)
    assert y.data_ptr() == x.data_ptr() + 4
    y.zero_()
    assert x[:, 1:].abs().sum() == 0


def test_outputs_that_share_memory():
    def f(x):
        y = x + 1
        return y, y[0], y.t()

    c = check(f, torch.randn(3, 4))
    y, row, t = c(torch.zeros(3, 4))
    row.fill_(9)
    assert t[0, 0] == 9 and y[0, 0] == 9


def test_in_place_on_intermediate():
    def f(x):
        y = x.clone()
        y[1:].mul_(3)
        y.add_(x).relu_()
        return y, y.sum()

    check(f, torch.randn(4, 3))


def test_mutated_input():
    def f(x, y):
        x.add_(1)
        y[0] = x[1]
        return x * 2

    c = check(f, torch.randn(3, 3), torch.randn(3, 3))
    assert c.graph.mutated == [0, 1]


def test_in_place_returns_the_same_object():
    def f(x):
        y = x + 1
        z = y.mul_(2)
        assert z is y
        return z

    check(f, torch.randn(3))


def test_output_is_input():
    x = torch.randn(3)
    c = Captured(lambda t: (t, t.add_(1)), x)
    assert c.graph.plan == (("input", 0), ("input", 0))
    a, b = c(x)
    assert a is x and b is x


def test_aliased_inputs():
    base = torch.zeros(8)

    def f(a, b):
        a.add_(1)
        return b * 2

    c = Captured(f, base[:6], base[2:])
    base.zero_()
    out = c(base[:6], base[2:])
    assert out.tolist() == [2, 2, 2, 2, 0, 0]


def test_factories():
    def f(x):
        n = x.shape[0]
        return (
            torch.zeros(n, 2) + torch.ones_like(x[:, :2]),
            torch.arange(n, dtype=torch.int32),
            torch.full((2, 2), 1.5),
            x.new_ones(3),
        )

    check(f, torch.randn(3, 4))


def test_tensor_constants():
    def f(x):
        c = torch.tensor([1.0, 2.0, 3.0])
        d = torch.tensor(4)
        c.add_(1)
        return x * c + d, c

    check(f, torch.randn(3), runs=3)


def test_item_of_a_constant_is_known():
    def f(x):
        return x + torch.tensor(3).item()

    check(f, torch.randn(3))


def test_lists():
    def f(x):
        a, b = x.split([1, 3], dim=1)
        u = x.unbind(0)
        c = x.chunk(2, dim=1)
        return torch.cat([a, b], 1), torch.stack(u), c[0] * c[1], list(u)

    check(f, torch.randn(3, 4))


def test_foreach():
    def f(x, y):
        torch._foreach_mul_([x, y], 2.0)
        return torch._foreach_add([x, y], 1.0)

    check(f, torch.randn(3), torch.randn(2))


def test_index():
    def f(x, i):
        y = x.clone()
        y[:, i] = 0
        y.index_put_((i, i), torch.ones(()), accumulate=True)
        return x[i], x[:, i], x[i, i], x[None, i], y

    check(f, torch.randn(4, 4), torch.tensor([0, 2, 3]))


def test_masked_assignment():
    def f(x):
        y = x.clone()
        y[x > 0] = 5
        return y, x.masked_fill(x < 0, -1), torch.where(x > 0, x, 0.0)

    check(f, torch.randn(4, 4))


def test_out_variants():
    def f(x, out):
        torch.add(x, 1, out=out)
        return out * 2

    c = check(f, torch.randn(3), torch.empty(3))
    assert c.graph.mutated == [1]


def test_metadata_in_place():
    def f(x):
        y = x + 1
        y.unsqueeze_(0)
        y.transpose_(1, 2)
        y.add_(1)
        z = y.squeeze_(0)
        return z, y

    check(f, torch.randn(3, 4))


def test_several_results():
    def f(x):
        v, i = x.max(1)
        s, j = x.sort(dim=0)
        var, mean = torch.var_mean(x, 1)
        return v, i, s, j, var, mean, x.topk(2)

    check(f, torch.randn(4, 5))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.complex64])
def test_dtypes(dtype):
    x = torch.randn(4, 4).mul(3).to(dtype)
    check(
        lambda x: (x + x * 2, x.sum(0), x.t() @ x, x.to(torch.float32 if not x.is_complex() else torch.complex128)), x
    )


def test_conjugate_views():
    x = torch.randn(3, 3, dtype=torch.complex64)
    check(lambda x: (x.conj() * 2, x.conj().imag + 1, x.mH @ x), x)


def test_random():
    def f(x):
        return (
            torch.rand(3),
            F.dropout(x, 0.5),
            torch.randn_like(x),
            torch.randint(0, 9, (4,)),
            x.clone().uniform_(),
            torch.randperm(5),
        )

    check(f, torch.randn(8), exact=True)


def test_generator():
    g = torch.Generator().manual_seed(3)
    c = Captured(lambda x: x + torch.rand(3, generator=g), torch.zeros(3))
    g.manual_seed(5)
    a = c(torch.zeros(3))
    assert a.equal(torch.rand(3, generator=torch.Generator().manual_seed(5)))


def test_batch_norm_updates_its_statistics():
    m = nn.BatchNorm1d(4)

    def f(x, mean, var, w, b):
        return F.batch_norm(x, mean, var, w, b, True, 0.1, 1e-5)

    c = check(f, torch.randn(8, 4), torch.zeros(4), torch.ones(4), m.weight.detach(), m.bias.detach())
    assert c.graph.mutated == [1, 2]


def test_parameters_reached_by_the_program_become_inputs():
    m = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8)).eval()
    x = torch.randn(2, 4)
    with torch.no_grad():
        c = Captured(m, x)
        compare(c(x), m(x))
        assert [id(t) for t in c.graph.inputs[1:]] == [id(p) for p in m.parameters()]
        m[0].weight.mul_(2)
        compare(c(x), m(x))


def test_fake_keeps_class_and_attributes():
    p = nn.Parameter(torch.randn(3))
    p.tag = "mine"
    seen = []

    def f(x):
        seen.append((type(x), x.tag, x.requires_grad, x.is_leaf, x.device, x.dtype, x.stride()))
        return x * 1

    Captured(f, p)
    assert seen == [(nn.Parameter, "mine", True, True, torch.device("cpu"), torch.float32, (1,))]


# ---- gradients


def grads(fn, args):
    out = fn(*args)
    total = sum(
        t.float().sum() * (k + 1)
        for k, t in enumerate(o for o in (out if isinstance(out, tuple) else (out,)) if o.requires_grad)
    )
    leaves = [a for a in args if a.requires_grad]
    return torch.autograd.grad(total, leaves, allow_unused=True)


def check_grads(fn, *args):
    c = Captured(fn, *copies(args))
    compare(c(*copies(args)), fn(*copies(args)))
    compare(grads(c, copies(args)), grads(fn, copies(args)))
    return c


def leaf(*size):
    return torch.randn(*size).requires_grad_()


def test_grad():
    check_grads(lambda x, w, b: F.layer_norm(F.gelu(F.linear(x, w, b)), (5,)), leaf(3, 4), leaf(5, 4), leaf(5))


def test_grad_stops_at_detach_and_no_grad():
    def f(x):
        with torch.no_grad():
            y = x * 3
        z = (x * 2).detach()
        w = x.data * 4
        u = (x * 5).detach_()
        return x * y + z, y, z, w, u, x.sin()

    check_grads(f, leaf(4))


def test_grad_through_in_place_and_views():
    def f(x):
        y = x * 2
        y[1:].mul_(x[0])
        y.t_()
        return y, y.t().view(-1)[::2]

    check_grads(f, leaf(3, 3))


def test_grad_of_frozen_program_is_not_needed():
    def f(x):
        with torch.no_grad():
            return x * 2

    c = check(f, leaf(3))
    assert not c(leaf(3)).requires_grad


def test_requires_grad_inside():
    def f(x):
        y = (x * 2).detach().requires_grad_()
        return y, y * x

    c = Captured(f, torch.randn(3))
    x = torch.randn(3)
    y, z = c(x)
    assert y.is_leaf and y.requires_grad
    z.sum().backward()
    compare(y.grad, x)


def test_backward_inside():
    def f(x, w):
        w = w.detach().requires_grad_()
        loss = ((x @ w).tanh() ** 2).mean()
        (g,) = torch.autograd.grad(loss, w)
        return loss.detach(), g

    check(f, torch.randn(4, 3), torch.randn(3, 2))


def test_func_grad_and_vmap():
    def f(x, w):
        g = torch.func.grad(lambda w: (x @ w).sin().sum())(w)
        v = torch.func.vmap(lambda r: (r @ w).cos())(x)
        return g, v, torch.func.jacrev(lambda w: (x @ w).sum(0))(w)

    check(f, torch.randn(4, 3), torch.randn(3, 2))


def test_custom_function_breaks(breaks):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 7

    assert "custom" in breaks("autograd", Double.apply, leaf(3))
    check(Double.apply, torch.randn(3))


def test_hook_breaks(breaks):
    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * 2)
        return y * 3

    breaks("autograd", f, leaf(3))


# ---- modes


def test_autocast():
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.linear(x, w), (x @ w.t()).softmax(-1)

    check(f, torch.randn(3, 4), torch.randn(5, 4))
    check_grads(f, leaf(3, 4), leaf(5, 4))


def test_inference_mode():
    def f(x, w):
        y = F.layer_norm(F.linear(x, w), (5,))
        return y, y.view(-1), x.reshape(-1)

    with torch.inference_mode():
        x, w = torch.randn(3, 4), torch.randn(5, 4)
        c = check(f, x, w)
        assert all(t.is_inference() for t in c(x, w)[:2])


def test_no_grad():
    with torch.no_grad():
        check(lambda x: (x * 2, x.t()), leaf(2, 3))


# ---- what breaks


def test_data_dependence_breaks(breaks):
    x = torch.randn(4)
    for f in (
        lambda x: x.sum().item(),
        lambda x: bool(x[0] > 0),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.unique(),
        lambda x: x.tolist(),
        lambda x: torch.equal(x, x),
        lambda x: x.masked_select(x > 0),
        lambda x: int(x[0]),
        repr,
    ):
        if f(x) is not None:
            with pytest.raises((bridge.GraphBreak, RuntimeError)):
                Captured(f, x)
    for f in (lambda x: x.sum().item(), lambda x: x.nonzero(), lambda x: x[x > 0], lambda x: torch.equal(x, x)):
        breaks("data-dependent", f, x)


def test_reading_data_raises(breaks):
    for f in (lambda x: x.numpy(), lambda x: x.data_ptr()):
        with pytest.raises(RuntimeError, match="traced"):
            Captured(f, torch.randn(3))


def test_unsupported_tensors_break(breaks):
    class Sub(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    identity = lambda x: x
    breaks("unsupported-tensor", identity, torch.eye(3).to_sparse())
    breaks("unsupported-tensor", identity, torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.qint8))
    breaks("unsupported-tensor", identity, torch.randn(3).as_subclass(Sub))
    breaks("unsupported-tensor", lambda x, y: x + y, torch.randn(3), torch.empty(3, device="meta"))


def test_meta_tensors():
    c = Captured(lambda x: (x * 2 + torch.arange(3.0, device="meta")).sum(), torch.empty(4, 3, device="meta"))
    result = c(torch.empty(4, 3, device="meta"))
    assert result.device.type == "meta" and result.shape == () and c.graph.counts()["kernels"] == 0


def test_metadata_changes_of_inputs_break(breaks):
    def set_data(x):
        x.data = x * 2

    breaks("tensor-attribute", lambda x: x.unsqueeze_(0), torch.randn(3))
    breaks("tensor-attribute", set_data, torch.randn(3))
    breaks("unsupported-op", lambda x: x.resize_(9), torch.randn(3))


def test_errors_of_operators_break(breaks):
    assert "cannot be multiplied" in breaks("operator-error", lambda x: x @ x, torch.randn(3, 4))
    breaks("operator-error", lambda x: x.index_select(3, torch.zeros(1, dtype=torch.int64)), torch.randn(3, 4))
    check(lambda x: x + 1, torch.randn(3))


def test_check_of_singularity_is_kept():
    c = Captured(torch.linalg.inv, torch.eye(3))
    with pytest.raises(RuntimeError, match="singular"):
        c(torch.zeros(3, 3))


def test_lazy_conjugate():
    check(lambda x: torch.fft.hfft(x), torch.randn(6, dtype=torch.complex64))


def test_scalars_of_constants_decide(breaks):
    x = torch.randn(3, 5)
    check(lambda x: (torch.cov(x), torch.corrcoef(x), torch.cov(x, correction=0)), x)

    def sign(x):
        small = torch.full((), 2) - 3 < 0
        return x * 2 if small else x

    assert "aten::mul" in check(sign, x).text
    breaks("data-dependent", lambda x: torch.cov(x, fweights=torch.arange(1, 6)), x)

    def written(x):
        total = torch.zeros((), dtype=torch.int64)
        total += 1
        return x * 2 if total > 0 else x

    breaks("data-dependent", written, x)


def test_results_whose_sizes_no_data_decides(breaks):
    a, b = torch.randn(2, 6, 3), torch.randn(2, 6, 4)
    for driver in (None, "gels", "gelsy"):
        check(lambda a, b, driver=driver: torch.linalg.lstsq(a, b, driver=driver), a, b)
    breaks("data-dependent", lambda a, b: torch.linalg.lstsq(a, b, driver="gelsd"), a, b)
    probabilities, targets = torch.randn(9, 2, 5).log_softmax(2), torch.tensor([[1, 2, 3], [2, 2, 1]])
    for reduction in ("none", "sum"):
        check(
            lambda p, t, reduction=reduction: F.ctc_loss(p, t, [9, 8], [3, 2], reduction=reduction),
            probabilities,
            targets,
        )


def test_histogram():
    x = torch.randn(30)
    check(lambda x: torch.histogram(x, 5, range=(-1.0, 1.0)), x)
    check(lambda x: torch.histogram(x, torch.tensor([-1.0, 0.0, 1.0])), x)
    check(lambda x: torch.histogramdd(x.view(15, 2), [3, 4]), x)


def test_layouts_that_meta_kernels_do_not_know():
    x = torch.arange(384.0).view(2, 8, 4, 6).to(memory_format=torch.channels_last)

    def f(x):
        y = torch.roll(x, 1, 1)
        z = F.pixel_shuffle(x, 2)
        w = torch.stack((x, x), 1)
        return y.as_strided((4, 5), (11, 2), 1), z.as_strided((4, 5), (11, 2), 1), w.as_strided((4, 5), (11, 2), 1), z

    check(f, x, exact=True)
    check(lambda x: torch.as_strided(torch.linalg.eig(x)[1], (5,), (2,)), torch.randn(3, 3))

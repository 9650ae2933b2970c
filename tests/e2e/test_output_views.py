"""Outputs that are views of other outputs, of arguments, or of one tensor, are made behind the compiled program, under autograd."""

import pytest
import torch
from support import assert_same

import braze


def leaf(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def compiled(f):
    """The function, compiled, and its kernels: a program that is run operator by operator has none."""
    braze.reset()
    return braze.compile(f, fullgraph=True)


def first_row(x, w):
    y = torch.tanh(x @ w)
    return y, y[:, 0]


def chain(x, w):
    y = torch.tanh(x @ w)
    t = y.transpose(0, 1)
    return t[1:], y, t, t.unsqueeze(0).expand(2, -1, -1), y.detach()


def of_an_argument(x, w):
    return x.view(-1), (x @ w).relu(), w.t(), x.detach()


def complex_parts(x, w):
    y = torch.sin(x @ w)
    c = torch.complex(y, y * 2)
    return c, torch.view_as_real(c), c.conj()


def of_another_dtype(x, w):
    y = x * 2 + w[:3, :4]
    return y, y.view(torch.int64)


def chunks(x, w):
    a, b = torch.tanh(x @ w).chunk(2)
    return a, b[:, 0]


def siblings(x, w):
    y = torch.tanh(x @ w)
    return y[0], y[1:].t(), x * 3


def of_several(x, w):
    y, z = torch.sin(x @ w), (x * 2).view(2, 6)
    return y[0], z[0], y[1], z[1], y[2].detach()


FUNCTIONS = [first_row, chain, of_an_argument, complex_parts, of_another_dtype, chunks, siblings, of_several]


def weighted(t):
    t = torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
    return (t * torch.arange(1.0, t.numel() + 1, dtype=t.dtype).view(t.shape)).sum()


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients_of_every_choice_of_outputs(f):
    c = compiled(f)
    for k in range(len(f(leaf(3, 4), leaf(4, 5, seed=1)))):
        for chosen in ({k}, set(range(k + 1))):
            results = []
            for g in (f, c):
                x, w = leaf(3, 4), leaf(4, 5, seed=1)
                outputs = g(x, w)
                losses = [weighted(o) for i, o in enumerate(outputs) if i in chosen and o.requires_grad]
                if losses:
                    sum(losses).backward()
                facts = [(o.requires_grad, o._is_view(), o.is_leaf, o.stride(), o.is_conj()) for o in outputs]
                results.append((outputs, x.grad, w.grad, facts))
            assert_same(results[0], results[1])
    assert braze.stats()["kernels"] > 0


# (chunks must not be written)
@pytest.mark.parametrize("f", [f for f in FUNCTIONS if f is not chunks], ids=lambda f: f.__name__)
def test_memory_versions_and_bases(f):
    c = compiled(f)
    facts = []
    for g in (f, c):
        x, w = leaf(3, 4), leaf(4, 5, seed=1)
        everything = [*g(x, w), x, w]
        pointers = [t.untyped_storage().data_ptr() for t in everything]
        shared = [[p == q for q in pointers] for p in pointers]
        with torch.no_grad():
            versions = []
            for t in everything[:2]:
                if t.is_leaf:
                    continue
                t.detach().zero_()
                versions.append([u._version for u in everything])
        names = [type(t.grad_fn).__name__ for t in everything if t._is_view() and t.grad_fn is not None]
        facts.append((shared, versions, names, everything))
    assert facts[0][0] == facts[1][0]
    assert facts[0][1] == facts[1][1]
    assert facts[0][2] == facts[1][2]
    assert_same(facts[0][3], facts[1][3])


def _linear(x, w):
    y = x @ w + 1
    return y, y[:, 0]


def test_a_view_is_written_later():
    def use(f):
        x, w = leaf(3, 4), leaf(4, 5, seed=1)
        y, row = f(x, w)
        row.mul_(3)  # autograd sees that the base changes
        loss = (y * y).sum()
        loss.backward()
        return y, row, x.grad, w.grad

    assert_same(use(_linear), use(compiled(_linear)))
    y, row = compiled(first_row)(leaf(3, 4), leaf(4, 5, seed=1))
    with torch.no_grad():
        row.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):  # tanh keeps its result
        y.sum().backward()


@pytest.mark.parametrize("written", [0, 1])
def test_a_sibling_is_written_later(written):
    def f(x, w):
        y = x @ w
        return y[0], y[:2]

    def use(f):
        x, w = leaf(3, 4), leaf(4, 5, seed=1)
        views = f(x, w)
        views[written].mul_(3)
        (views[0].square().sum() + views[1].sum()).backward()
        return views, x.grad, w.grad

    assert_same(use(f), use(compiled(f)))


def test_chunks_must_not_be_written():
    def f(x, w):
        return (x @ w).split(2)

    for g in (f, compiled(f)):
        a, _ = g(leaf(3, 4), leaf(4, 5, seed=1))
        with pytest.raises(RuntimeError, match="returns multiple views"):
            a.mul_(2)


def test_the_base_is_written_later():
    def use(f):
        x, w = leaf(3, 4), leaf(4, 5, seed=1)
        y, row = f(x, w)
        y.mul_(2)
        row.sum().backward()
        return y, row, x.grad, w.grad

    assert_same(use(_linear), use(compiled(_linear)))


@pytest.mark.parametrize("f", [first_row, chain, of_an_argument, siblings, of_several], ids=lambda f: f.__name__)
def test_retained_graphs_and_gradients_of_gradients(f):
    c = compiled(f)
    results = []
    for g in (f, c):
        x, w = leaf(3, 4), leaf(4, 5, seed=1)
        losses = [weighted(o.sin()) for o in g(x, w) if o.requires_grad]
        found = [torch.autograd.grad(loss, [x, w], retain_graph=True, allow_unused=True) for loss in losses]
        first = torch.autograd.grad(sum(losses), [x, w], create_graph=True, allow_unused=True)
        second = torch.autograd.grad(sum(weighted(g) for g in first if g.requires_grad), [x, w], allow_unused=True)
        results.append((found, first, second))
    assert_same(results[0], results[1])


def test_a_view_made_without_gradients():
    def f(x, w):
        y = torch.sigmoid(x @ w)
        with torch.no_grad():
            z = y[0]
        return y, z

    results = []
    for g in (f, compiled(f)):
        x, w = leaf(3, 4), leaf(4, 5, seed=1)
        y, z = g(x, w)
        y.sum().backward()
        results.append((y, z.detach(), z.requires_grad, z.grad_fn, x.grad, w.grad))
    assert_same(results[0], results[1])


def test_sizes_that_change():
    c = braze.compile(chain, dynamic=True)
    for n in (3, 5, 6):
        results = []
        for g in (chain, c):
            x, w = leaf(n, 4), leaf(4, 5, seed=1)
            outputs = g(x, w)
            sum(weighted(o) for o in outputs if o.requires_grad).backward()
            results.append((outputs, x.grad, w.grad))
        assert_same(results[0], results[1])


def test_a_hook_on_a_view_is_called():
    def hooked(x, w):
        y = torch.tanh(x @ w)
        row = y[:, 0]
        row.register_hook(lambda g: g * 10)
        return y, row

    results = []
    for g in (hooked, braze.compile(hooked)):
        x, w = leaf(3, 4), leaf(4, 5, seed=1)
        y, row = g(x, w)
        (y.sum() + row.sum()).backward()
        results.append((y, row, x.grad, w.grad))
    assert_same(results[0], results[1])


def test_views_of_what_the_program_writes_are_left_to_autograd():
    def f(x, w):
        y = x @ w
        row = y[:, 0]
        row.mul_(2)
        return y, row

    results = []
    for g in (f, compiled(f)):
        x, w = leaf(3, 4), leaf(4, 5, seed=1)
        y, row = g(x, w)
        (y.sum() + row.square().sum()).backward()
        results.append((y, row, x.grad, w.grad))
    assert_same(results[0], results[1])


@pytest.mark.parametrize("leaf", [True, False])
def test_detached_inputs_where_gradients_are_off(leaf):
    """torch says of a view made there that it requires a gradient like its base; of what is detached, that it doesn't."""

    def across_a_break(x):
        with torch.no_grad():
            if x.mean() > 100:
                return x
        return x.detach(), x.detach()[1:], x[1:].detach() + 1, x[1:]

    def inside(x):
        with torch.no_grad():
            return x.detach(), x.detach()[1:], x[1:].detach(), x[1:], x.detach().view(-1), x + 1

    for f in (across_a_break, inside, torch.no_grad()(lambda x: (x.detach(), x[1:]))):
        compiled = braze.compile(f)
        for requires_grad in (True, False, True):
            x = torch.randn(3, 4, requires_grad=requires_grad)
            x = x if leaf else x * 1
            for got, expected in zip(compiled(x), f(x), strict=True):
                assert got.requires_grad == expected.requires_grad
                assert torch.equal(got, expected)
                assert (got.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()) == (
                    expected.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
                )
    outside = braze.compile(lambda x: (x.detach(), x.view(-1)))
    with torch.no_grad():
        for r, e in zip(outside(x), (x.detach(), x.view(-1)), strict=True):
            assert r.requires_grad == e.requires_grad

"""Custom autograd.Functions in compiled code against eager: values, gradients, gradients of gradients."""

import pytest
import torch
from support import assert_same, compiles
from torch import nn
from torch.autograd.function import once_differentiable

import braze


def leaf(*sizes, seed=0, dtype=None):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * x  # not the derivative, so that nobody else can have computed it


class Scaled(torch.autograd.Function):
    """Arguments that are no tensors, an attribute of ctx, setup_context."""

    @staticmethod
    def forward(x, factor, name="unused"):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.factor, _ = inputs

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor * 5, None, None


class Two(torch.autograd.Function):
    """Several outputs, one of which isn't differentiable; an intermediate and an output are kept."""

    @staticmethod
    def forward(ctx, a, b):
        e = torch.exp(a)
        y = e * b
        ctx.e = e
        ctx.save_for_backward(b, y)
        index = y.argmax(dim=-1)
        ctx.mark_non_differentiable(index)
        return y, index, a + b

    @staticmethod
    def backward(ctx, gy, gi, gs):
        b, y = ctx.saved_tensors
        return gy * y + gs, (gy * ctx.e + gs) * 2 if ctx.needs_input_grad[1] else None


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos() * 2


class Straight(torch.autograd.Function):
    """Saves nothing."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


def check(fn, *makers, graphs=1, backward=lambda y: y.sum().backward(), calls=2):
    compiled = braze.compile(fn)
    before = braze.compilations()
    for _ in range(calls):
        mine, theirs = [m() for m in makers], [m() for m in makers]
        a, b = compiled(*mine), fn(*theirs)
        assert_same(a, b)
        for out in (a, b):
            total = sum(
                (t * (i + 1)).sum() for i, t in enumerate(out if isinstance(out, tuple) else (out,)) if t.requires_grad
            )
            backward(total)
        grads = [[t.grad for t in ts if isinstance(t, torch.Tensor)] for ts in (mine, theirs)]
        assert_same(*grads)
    if graphs is not None:
        assert braze.compilations() - before == graphs
    return compiled


def x():
    return leaf(4, 3)


def test_one_graph():
    check(lambda a: torch.tanh(Square.apply(a * 2)) + 1, x)


def test_gradient_is_compiled():
    out = braze.compile(lambda a: Square.apply(a) + 1)(x())
    assert out.grad_fn.name() == "BrazeBackward"


def test_arguments_and_setup_context():
    check(lambda a: Scaled.apply(a, 3) + Scaled.apply(a.sin(), 0.5, "name"), x)


def test_several_outputs():
    check(lambda a, b: Two.apply(a, b), x, x)
    check(lambda a, b: Two.apply(a, b)[0] * 2, x, x)
    check(lambda a, b: Two.apply(a, b)[2] * 2, x, lambda: leaf(4, 3).detach())


def test_once_differentiable():
    check(lambda a: Once.apply(a) * 2, x)
    out = braze.compile(lambda a: Once.apply(a) * a)(a := x())
    (g,) = torch.autograd.grad(out.sum(), a, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


def test_nothing_saved():
    check(lambda a: Straight.apply(a * 3) * a, x)


def test_gradients_of_gradients():
    def fn(a):
        return (Square.apply(torch.sin(a)) * a).sum() + Scaled.apply(a, 2.0).sum()

    results = []
    for f in (fn, braze.compile(fn)):
        a = leaf(4, 3)
        (g,) = torch.autograd.grad(f(a), a, create_graph=True)
        (h,) = torch.autograd.grad(g.square().sum(), a)
        results.append((g.detach(), h))
    assert_same(results[1], results[0])


def test_other_roots():
    """A backward pass from outputs that nobody expected is replayed."""

    def fn(a, b):
        y = Square.apply(a)
        z = Square.apply(b)
        return y, z, y * z, y + 1, z + 1

    compiled = braze.compile(fn)
    for chosen in ([0], [1], [2, 3], [4], [0]):
        results = []
        for f in (fn, compiled):
            a, b = x(), leaf(4, 3, seed=1)
            out = f(a, b)
            sum(out[k].sum() for k in chosen).backward()
            results.append([a.grad, b.grad])
        assert_same(results[1], results[0])


def test_aliased_results_are_replayed():
    def fn(a):
        y = Square.apply(a)
        return y, y.view(-1)

    results = []
    for f in (fn, braze.compile(fn)):
        a = x()
        y, v = f(a)
        (y.sum() + (v * 2).sum()).backward()
        results.append(a.grad)
    assert_same(*results)


def test_inside_a_step():
    def run(a, b):
        y, _, s = Two.apply(a, b)
        loss = (Square.apply(y) + s).sum()
        loss.backward()
        return loss.detach()

    compiled = braze.compile(run, fullgraph=True)
    mine, theirs = (x(), leaf(4, 3, seed=1)), (x(), leaf(4, 3, seed=1))
    for _ in range(3):
        assert_same(compiled(*mine), run(*theirs))
        assert_same([t.grad for t in mine], [t.grad for t in theirs])


def test_without_gradients():
    def fn(a):
        return Square.apply(a)

    compiled = braze.compile(fn, fullgraph=True)
    assert_same(compiled(torch.ones(3)), fn(torch.ones(3)))
    with torch.no_grad():
        assert_same(compiled(x()), fn(x()))


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


class View(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view(-1)

    @staticmethod
    def backward(ctx, g):
        return g.view(4, 3) * 7


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 7


class NotMaterialized(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        return (0 if a is None else a * 2) + (100 if b is None else b * 3)


class Materialized(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        return a * 2 + b * 3 + 1


calls_of_effects = []


class Effects(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        calls_of_effects.append(1)
        return g * 2


class NoBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2


class GradMode(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2 if torch.is_grad_enabled() else g * 3


class Nested(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        return Square.apply(ctx.saved_tensors[0]) * 3 * g


class Reversed(torch.autograd.Function):
    """As domain-adversarial training has it."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.factor, None


class Several(torch.autograd.Function):
    """Its results are its arguments, as module hooks have it."""

    @staticmethod
    def forward(ctx, *args):
        ctx.mark_non_differentiable(*[a for a in args if not a.requires_grad])
        return args

    @staticmethod
    def backward(ctx, *gs):
        return tuple(g * 3 for g in gs)


@pytest.mark.parametrize("function", [Dirty, View, Same, Effects, GradMode, Nested])
def test_all_kinds(function):
    """Right, whether it is compiled or not."""

    def fn(a):
        return function.apply(a * 1).view(4, 3) + a

    check(fn, x, graphs=None)
    del calls_of_effects[:]
    braze.compile(fn)(x()).sum().backward()
    assert len(calls_of_effects) == (function is Effects)
    results = []
    for f in (fn, braze.compile(fn)):
        a = x()
        (g,) = torch.autograd.grad(f(a).square().sum(), a, create_graph=True)
        results.append(torch.autograd.grad(g.sum(), a, allow_unused=True)[0])
    assert_same(*results)


def test_views_and_changed_arguments_are_in_the_graph():
    check(lambda a: Dirty.apply(a * 1) + a, x)
    check(lambda a: View.apply(a * 1) * 2, x)
    check(lambda a: Same.apply(a) * 2, x)
    check(lambda a: Reversed.apply(a.sin(), 0.5) * 2, x)
    check(lambda a, b: Several.apply(a * 2, b, a[0])[0] * 2, x, lambda: leaf(4, 3).detach())
    check(lambda a: Nested.apply(a), x)

    def changed(a):
        b = a * 1
        v = b[0]
        c = Dirty.apply(b)
        return c * 2 + v

    check(changed, x)


@pytest.mark.parametrize(
    "fn", [lambda a: Same.apply(a), lambda a: View.apply(a * 2), lambda a: Reversed.apply(a * 2, 3.0)[0]]
)
def test_views_that_are_returned(fn):
    """Nobody may write them, and they know what they are views of."""
    compiled = braze.compile(fn, fullgraph=True)
    check(fn, x)
    for f in (fn, compiled):
        out = f(x())
        assert out._is_view()
        with pytest.raises(RuntimeError, match="inplace"):
            out.mul_(2)


def test_views_of_what_is_written():
    def fn(a):
        b = a * 1
        v = Same.apply(b)
        b.mul_(2)
        return v * 2

    for f in (fn, braze.compile(fn)):
        with pytest.raises(RuntimeError, match="inplace"):
            f(x()).sum().backward()


def test_changed_leaf():
    for f in (Dirty.apply, braze.compile(Dirty.apply)):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            f(x())


def test_changed_argument_of_the_call():
    def fn(buffer, a):
        return DirtyOfTwo.apply(buffer, a) * 2

    compiled = braze.compile(fn)
    results = []
    for f in (fn, compiled):
        buffer, a = torch.ones(4, 3), x()
        f(buffer, a).sum().backward()
        results.append((buffer.detach().clone(), buffer.requires_grad, a.grad))
    assert_same(*results)


class DirtyOfTwo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, buffer, x):
        ctx.mark_dirty(buffer)
        ctx.save_for_backward(x)
        return buffer.add_(x * x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g, g * x * 5


class Three(torch.autograd.Function):
    """Tells apart which gradients are there."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        index = x.argmax()
        ctx.mark_non_differentiable(index)
        return x * 2, index, x * 3, x * 5

    @staticmethod
    def backward(ctx, *gs):
        (x,) = ctx.saved_tensors
        assert gs[1] is None
        found = [g * x * (k + 1) for k, g in enumerate(gs) if g is not None]
        return sum(found) if len(found) < 3 else found[0] - found[1] - found[2]


@pytest.mark.parametrize("chosen", [[0], [2], [3], [0, 2], [2, 3], [0, 2, 3]])
def test_gradients_that_are_told_apart(chosen):
    def fn(a):
        out = Three.apply(a * 1)
        return sum(out[k] for k in chosen)

    check(fn, x)

    def outside(a):
        return Three.apply(a * 1)

    results = []
    for f in (outside, braze.compile(outside)):
        a = x()
        out = f(a)
        (g,) = torch.autograd.grad(sum(out[k].sum() for k in chosen), a, create_graph=True)
        results.append([g.detach(), *torch.autograd.grad(g.sum(), a, allow_unused=True)])
    assert_same(*results)


class Twice(torch.autograd.Function):
    """Applies another in its backward, which applies another in its own."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return Nested.apply(x) * g + Reversed.apply(g, 2.0)


def test_functions_inside_backwards():
    check(lambda a: Twice.apply(a * 2) * a, x)
    results = []
    for f in (Twice.apply, braze.compile(Twice.apply)):
        a = x()
        (g,) = torch.autograd.grad(f(a).square().sum(), a, create_graph=True)
        (h,) = torch.autograd.grad(g.square().sum(), a, create_graph=True)
        (i,) = torch.autograd.grad(h.square().sum(), a)
        results.append([g.detach(), h.detach(), i])
    assert_same(*results)


@pytest.mark.parametrize("function", [NotMaterialized, Materialized])
@pytest.mark.parametrize("chosen", [0, 1])
def test_missing_gradients(function, chosen):
    check(lambda a: function.apply(a * 1)[chosen] * 1, x)


def test_no_backward():
    def fn(a):
        return NoBackward.apply(a) + 1

    compiled = braze.compile(fn)
    assert_same(compiled(x()), fn(x()))
    with pytest.raises(NotImplementedError):
        compiled(x()).sum().backward()


def test_saved_tensor_is_changed():
    def fn(a):
        b = a * 1
        y = Square.apply(b)
        b.add_(1)
        return y

    for f in (fn, braze.compile(fn)):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            f(x()).sum().backward()


def test_error_in_backward():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            raise ValueError("in backward")

    def fn(a):
        return Wrong.apply(a) + 1

    with pytest.raises(ValueError, match="in backward"):
        braze.compile(fn)(x()).sum().backward()


def test_backward_is_replaced():
    class Changing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    def fn(a):
        return Changing.apply(a) + 1

    compiled = braze.compile(fn)
    compiled(x())
    Changing.backward = staticmethod(lambda ctx, g: g * 11)
    a, b = x(), x()
    compiled(a).sum().backward()
    fn(b).sum().backward()
    assert_same(a.grad, b.grad)


class Gelu(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        return Square.apply(self.linear(x))


def test_module_with_several():
    model = nn.Sequential(*[Gelu() for _ in range(3)])
    compiled = braze.compile(model)
    with compiles(1):
        for _ in range(2):
            model.zero_grad()
            compiled(torch.ones(2, 6)).sum().backward()
            mine = [p.grad for p in model.parameters()]
            model.zero_grad()
            model(torch.ones(2, 6)).sum().backward()
            assert_same(mine, [p.grad for p in model.parameters()])


def test_dynamic_sizes():
    compiled = braze.compile(lambda a: Square.apply(a * 2) + Two.apply(a, a)[0], dynamic=True)
    for n in (3, 5, 8):
        a, b = leaf(n, 3), leaf(n, 3)
        out, expected = compiled(a), Square.apply(b * 2) + Two.apply(b, b)[0]
        assert_same(out, expected)
        (g,) = torch.autograd.grad(out.sum(), a, create_graph=True)
        (h,) = torch.autograd.grad(expected.sum(), b, create_graph=True)
        assert_same(g, h)
        g.sum().backward()
        h.sum().backward()
        assert_same(a.grad, b.grad)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backends(backend):
    compiled = braze.compile(lambda a: Square.apply(a * 2) + 1, backend=backend)
    a, b = x(), x()
    compiled(a).sum().backward()
    (Square.apply(b * 2) + 1).sum().backward()
    assert_same(a.grad, b.grad)


def test_anomaly_mode():
    compiled = braze.compile(lambda a: Square.apply(a * 2) + 1)
    a, b = x(), x()
    with torch.autograd.detect_anomaly(check_nan=False):
        compiled(a).sum().backward()
        (Square.apply(b * 2) + 1).sum().backward()
    assert_same(a.grad, b.grad)


def test_constants_in_backward():
    class Weighted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            return g * torch.tensor([1.0, 2.0, 3.0])

    check(lambda a: Weighted.apply(a) * 2, x)

"""Controls at single functions: what breaks a graph, what is taken as it is, what is replaced."""

import functools
import operator
import subprocess
import sys

import pytest
import torch
from support import assert_like_eager, assert_same, compiles
from torch import nn

import braze


@pytest.fixture
def rules():
    """Rules that a test sets are for its own functions; those on torch's are undone."""
    changed = []
    yield changed.append
    braze.allow_in_graph(changed)


def test_graph_break():
    def f(x):
        y = x * 2
        braze.graph_break("for the test")
        return y + 1

    assert braze.graph_break() is None
    assert_like_eager(f, torch.ones(3), graphs=2)
    told = braze.explain(f)(torch.ones(3)).break_reasons
    assert [(b.id, b.detail) for b in told] == [("requested", "for the test")]


def test_graph_break_keeps_a_frame_from_being_inlined():
    def inner(x):
        braze.graph_break()
        return x * 2

    assert_like_eager(lambda x: inner(x + 1) - 1, torch.ones(3), graphs=3)


def test_disallow_in_graph(rules):
    rules(torch.sub)
    assert braze.disallow_in_graph(torch.sub) is torch.sub

    def f(a, b):
        x = torch.add(a, 1)
        x = torch.sub(x, b)
        return x - b  # the function is disallowed, not the operator

    assert_like_eager(f, torch.ones(3), torch.ones(3), graphs=2)
    braze.reset()
    braze.allow_in_graph(torch.sub)
    assert_like_eager(f, torch.ones(3), torch.ones(3), graphs=1)


def test_disallow_a_method(rules):
    rules([torch.Tensor.sub, torch.Tensor.mul])
    braze.disallow_in_graph([torch.Tensor.sub, torch.Tensor.mul])

    def f(x):
        y = (x + 1).sub(1)
        bound = (y * 2).mul
        return bound(3)

    assert_like_eager(f, torch.ones(3), graphs=2)


def test_disallow_and_allow_a_function_of_the_program():
    def inner(x):
        return x * 2

    f = lambda x: inner(x + 1) - 1
    braze.disallow_in_graph(inner)
    assert_like_eager(f, torch.ones(3), graphs=3)  # in eager it is called, and compiled by itself
    braze.reset()
    assert braze.allow_in_graph([inner]) == [inner]
    assert_like_eager(f, torch.ones(3), graphs=1)


def test_allowed_function_is_opaque():
    seen = []

    @braze.allow_in_graph
    def inner(xs, scale, dtype=None):
        seen.append(len(xs))
        braze.graph_break()
        return [x * scale for x in xs], xs[0].to(dtype)

    def f(x, y):
        a, b = inner([x + 1, y], 3, dtype=torch.float64)
        return a[0] - a[1], b

    compiled = braze.compile(f, fullgraph=True)
    x, y = torch.randn(4), torch.randn(4)
    with compiles(1):
        for _ in range(3):
            assert_same(compiled(x, y), ((x + 1) * 3 - y * 3, (x + 1).double()))
    assert seen == [2]


def test_allowed_function_with_gradients():
    @braze.allow_in_graph
    def inner(x, w):
        return (x @ w).relu()

    w = torch.randn(3, 3, requires_grad=True)
    x = torch.randn(2, 3)
    got = torch.autograd.grad(braze.compile(lambda x, w: inner(x * 2, w).sum(), fullgraph=True)(x, w), w)
    assert_same(got, torch.autograd.grad(inner(x * 2, w).sum(), w))


def test_what_an_allowed_function_cannot_take_breaks_the_graph():
    class Thing:
        k = 2

    @braze.allow_in_graph
    def takes(x, thing):
        return x * thing.k

    @braze.allow_in_graph
    def returns(x):
        return {"x": x * 2}

    captured = torch.full((3,), 2.0)

    @braze.allow_in_graph
    def captures(x):
        return x * captured

    thing = Thing()
    for f, text in (
        (lambda x: takes(x + 1, thing) - 1, "takes is given a Thing"),
        (lambda x: returns(x + 1)["x"] - 1, "returns returns a dict"),
        (lambda x: captures(x + 1) - 1, "a tensor without a path"),
    ):
        braze.reset()
        assert_like_eager(f, torch.ones(3))
        with pytest.raises(braze.GraphBreakError, match=text):
            braze.compile(f, fullgraph=True)(torch.ones(3))


def test_data_dependence_in_an_allowed_function():
    @braze.allow_in_graph
    def inner(x):
        return x * 2 if x.sum() > 0 else x - 1

    for x in (torch.ones(3), -torch.ones(3)):
        assert_like_eager(lambda x: inner(x + 0.5) - 1, x)


def test_forbid_in_graph():
    @braze.forbid_in_graph
    def inner(x):
        return x * 2

    compiled = braze.compile(lambda x: inner(x + 1) - 1)
    for _ in range(2):
        with pytest.raises(braze.GraphBreakError, match=r"forbidden: .*inner.* at .*test_controls.py:\d+ in <lambda>"):
            compiled(torch.ones(3))
    assert_same(inner(torch.ones(3)), torch.full((3,), 2.0))


def test_nonstrict_trace():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.full((3,), 2.0))
            self.log = []

    @braze.nonstrict_trace
    def inner(module, x, more):
        braze.graph_break()
        module.log.append(1)
        return {"y": x * module.weight + more["k"]}

    module = Scale()
    compiled = braze.compile(lambda x: inner(module, x + 1, {"k": x})["y"] * 2, fullgraph=True)
    x = torch.ones(3)
    with compiles(1):
        for _ in range(3):
            y = compiled(x)
    assert_same(y.detach(), torch.full((3,), 10.0))
    assert module.log == [1, 1, 1]
    y.sum().backward()
    assert_same(module.weight.grad, torch.full((3,), 4.0))


def test_substitute_in_graph():
    called = []

    @braze.substitute_in_graph(operator.indexOf)
    def index_of(a, b, /):
        called.append(braze.is_compiling())
        for i, item in enumerate(a):
            if item is b or item == b:
                return i
        raise ValueError("sequence.index(x): x not in sequence")

    try:
        assert index_of([1, 2, 3], 3) == 2 and not called  # in eager it is the original
        f = lambda x, items: x * operator.indexOf(items, 3)
        assert_same(braze.compile(f, fullgraph=True)(torch.ones(2), [1, 2, 3]), torch.full((2,), 2.0))
        assert called == [True]
    finally:
        braze._C.set_rule(operator.indexOf, None)


def test_substitute_that_folds_constants():
    def original(k, x):
        return x

    seen = []

    @braze.substitute_in_graph(original, can_constant_fold_through=True)
    def polyfill(k, x):
        seen.append(k)
        return x * k

    x = torch.ones(2)
    assert_same(braze.compile(lambda x: original(2, x), fullgraph=True)(x), x * 2)
    assert_same(braze.compile(lambda x: x + original(2, 5), fullgraph=True)(x), x + 5)
    assert seen == [2]


def test_substitute_with_other_parameters():
    def original(a, b=1):
        return a

    with pytest.raises(braze.UserError, match=r"the parameters of other\(a\) differ from those of original\(a, b=1\)"):

        @braze.substitute_in_graph(original)
        def other(a):
            return a

    @braze.substitute_in_graph(original, skip_signature_check=True)
    def another(a):
        return a + 1

    assert_same(braze.compile(lambda x: original(x))(torch.ones(2)), torch.full((2,), 2.0))


def test_assume_constant_result():
    calls = []

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.k = 2
            self.table = torch.arange(3.0)

        @braze.assume_constant_result
        def scale(self, plus):
            calls.append(plus)
            print(end="")  # it isn't traced
            return self.k + plus

        @braze.assume_constant_result
        def rows(self):
            return self.table * 2

        def forward(self, x):
            return x * self.scale(1) + self.rows()

    net = Net()
    compiled = braze.compile(net, fullgraph=True)
    x = torch.ones(3)
    with compiles(1):
        assert_same(compiled(x), x * 3 + torch.arange(3.0) * 2)
        net.k = 5  # an assumption that nothing checks
        assert_same(compiled(x), x * 3 + torch.arange(3.0) * 2)
    assert calls == [1]


def test_constant_result_of_a_tensor_breaks_the_graph():
    @braze.assume_constant_result
    def total(x):
        return float(x.sum())

    assert_like_eager(lambda x: (x + 1) * total(x + 1), torch.ones(3))


def test_nested_compile_region():
    @braze.nested_compile_region
    def block(x, w):
        return (x @ w).relu()

    def f(x, ws):
        for w in ws:
            x = block(x, w)
        with braze.nested_compile_region():
            return x * 2

    assert_like_eager(f, torch.randn(2, 3), lambda: [torch.eye(3), torch.eye(3)], graphs=1)

    @braze.nested_compile_region(max_reuse_entries=4)
    def other(x):
        return x + 1

    assert_like_eager(other, torch.ones(3), graphs=1)


def test_questions_about_compiling():
    def f(x):
        answers = (braze.is_compiling(), braze.is_dynamo_compiling(), braze.is_exporting())
        more = (torch.compiler.is_compiling(), torch.compiler.is_dynamo_compiling(), torch.compiler.is_exporting())
        return x * 1, answers, more

    eager = f(torch.ones(1))
    assert eager[1:] == ((False,) * 3, (False,) * 3)
    assert braze.compile(f, fullgraph=True)(torch.ones(1))[1:] == ((True, True, False), (True, True, False))


def test_disable_with_a_reason():
    @braze.disable(reason="it writes a file")
    def inner(x):
        return x * 2

    told = braze.explain(lambda x: inner(x + 1))(torch.ones(3)).break_reasons
    assert [b.id for b in told] == ["disabled"] and told[0].detail.endswith("inner: it writes a file")


def test_disable_as_a_call_and_on_a_method():
    class Holder:
        k = 3

        def times(self, x):
            assert not braze.is_compiling()
            return x * self.k

        @braze.disable
        def decorated(self, x):
            assert not braze.is_compiling()
            return x + self.k

    h = Holder()
    times = braze.disable(h.times)
    assert_like_eager(lambda x: times(x + 1) - 1, torch.ones(3), graphs=2)
    assert_like_eager(lambda x: h.decorated(x + 1) - 1, torch.ones(3), graphs=2)


def test_controls_inside_compiled_functions():
    """They take effect between two graphs."""

    def f(x):
        y = x * 2
        g = braze.disable(lambda z: z + 1)
        with braze.set_stance("default"):
            y = g(y)
        braze.mark_dynamic(y, 0)
        return y - 1

    assert_like_eager(f, torch.ones(3))


# ---- breaks as errors


def breaks(x):
    print(end="")
    return x * 2


def test_error_on_graph_break():
    def f(x):
        x = breaks(x + 1)
        with braze.error_on_graph_break(True):
            x = x * 2
            with braze.error_on_graph_break(False):
                x = breaks(x)
        return x - 1

    assert_like_eager(f, torch.ones(3))

    def g(x):
        x = breaks(x + 1)
        with braze.error_on_graph_break(True):
            x = breaks(x * 2)
        return x - 1

    assert_same(g(torch.ones(3)), torch.full((3,), 15.0))
    compiled = braze.compile(g)
    for _ in range(2):
        with pytest.raises(
            braze.GraphBreakError, match=r"error_on_graph_break\(True\), but there is a graph break: io"
        ):
            compiled(torch.ones(3))


def test_error_on_graph_break_around_a_call():
    compiled = braze.compile(breaks)
    x = torch.ones(3)
    assert_same(compiled(x), x * 2)
    for _ in range(2):
        with pytest.raises(braze.GraphBreakError), braze.error_on_graph_break(True):
            compiled(x)
    assert_same(compiled(x), x * 2)


def test_error_on_graph_break_as_a_decorator():
    @braze.error_on_graph_break(True)
    def strict(x):
        return breaks(x)

    @braze.error_on_graph_break(True)
    def fine(x):
        return x * 2

    assert_same(strict(torch.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(braze.GraphBreakError):
        braze.compile(lambda x: strict(x + 1))(torch.ones(3))
    assert_like_eager(lambda x: fine(x + 1), torch.ones(3), graphs=1)
    # afterwards a break is none
    assert_like_eager(lambda x: breaks(fine(x + 1)), torch.ones(3))


def test_fullgraph_wins():
    def f(x):
        with braze.error_on_graph_break(False):
            return breaks(x)

    compiled = braze.compile(f, fullgraph=True)
    for _ in range(3):
        with pytest.raises(braze.GraphBreakError, match="fullgraph=True"):
            compiled(torch.ones(3))


# ---- marks that torch's own decorators leave


MARKED = """
import torch, torch._dynamo, braze
@torch._dynamo.disable(recursive=False)
def skipped(x):
    assert not torch.compiler.is_compiling()
    return inner(x)
def inner(x):
    assert torch.compiler.is_compiling() or x.numel() == 0
    return x * 2
@torch._dynamo.disable(reason="because")
def disabled(x):
    return x * 3
@torch._dynamo.allow_in_graph
def opaque(x):
    torch._dynamo.graph_break()
    return x * 5
@torch._dynamo.assume_constant_result
def constant():
    return 7
@torch._dynamo.forbid_in_graph
def forbidden(x):
    return x
def broken(x):
    torch._dynamo.graph_break()
    return x * 11
x = torch.ones(3)
def graphs(f, expected, count):
    braze.reset()
    got = braze.compile(f)(x)
    assert torch.equal(got, torch.full((3,), expected)), got
    assert braze.compilations() == count, (expected, braze.compilations())
graphs(lambda x: skipped(x + 1), 4.0, 2)
graphs(lambda x: disabled(x + 1) - 1, 5.0, 2)
graphs(lambda x: opaque(x + 1) - 1, 9.0, 1)
graphs(lambda x: (x + 1) * constant(), 14.0, 1)
graphs(lambda x: broken(x + 1), 22.0, 2)
told = braze.explain(lambda x: disabled(x + 1))(x)
assert told.break_reasons[0].detail.endswith("disabled: because"), told.break_reasons
try:
    braze.compile(lambda x: forbidden(x + 1))(x)
except braze.GraphBreakError as e:
    assert "forbidden" in str(e)
torch._dynamo.disallow_in_graph(torch.sub)
torch._dynamo.mark_dynamic(big := torch.ones(7), 0)
dynamic = braze.compile(lambda x: x * 2)
braze.reset()
dynamic(big), dynamic(torch.ones(9))
assert braze.compilations() == 1
print("fine")
"""


def test_torchs_own_decorators():
    done = subprocess.run([sys.executable, "-c", MARKED], capture_output=True, text=True)
    assert done.stdout == "fine\n", done.stderr


def test_wrapped_functions_keep_their_names():
    def f(x):
        """Doubles."""
        return x * 2

    wrappers = (
        braze.disable,
        functools.partial(braze.disable, recursive=False),
        braze.nonstrict_trace,
        braze.error_on_graph_break(False),
        braze.set_stance("default"),
        braze.run,
    )
    for wrap in wrappers:
        assert (wrap(f).__name__, wrap(f).__doc__) == ("f", "Doubles.")

"""Stances, `run`, limits of recompiling: when something is compiled at all."""

import logging

import pytest
import torch
from support import assert_same, compiles
from torch import nn

import braze


@pytest.fixture(autouse=True)
def default_stance():
    yield
    braze.set_stance("default")


def f(x):
    return x * 2 + x.shape[0]


def test_force_eager():
    compiled = braze.compile(f)
    x = torch.ones(3)
    with compiles(0), braze.set_stance("force_eager"):
        assert_same(compiled(x), f(x))

    @braze.set_stance("force_eager")
    def caller(x):
        return compiled(x)

    with compiles(0):
        assert_same(caller(x), f(x))
    with compiles(1):
        assert_same(compiled(x), f(x))
    braze.set_stance("force_eager")
    seen = []
    braze.compile(lambda: seen.append(braze.is_compiling()))()
    assert seen == [False]
    braze.set_stance()
    with compiles(1):
        braze.compile(lambda x: x * 5)(x)


def test_stances_nest():
    compiled = braze.compile(lambda x: x * 2)
    x = torch.ones(3)
    with braze.set_stance("force_eager"):
        with compiles(1), braze.set_stance("default"):
            compiled(x)
        braze.reset()
        with compiles(0):
            compiled(x)


def test_eager_on_recompile():
    compiled = braze.compile(f, dynamic=False)
    compiled(torch.ones(3))
    with compiles(0), braze.set_stance("eager_on_recompile"):
        for n in (3, 4, 3, 5):
            assert_same(compiled(torch.ones(n)), f(torch.ones(n)))
    with compiles(1):
        compiled(torch.ones(4))


def test_fail_on_recompile():
    compiled = braze.compile(f, dynamic=False)
    with braze.set_stance("fail_on_recompile"):
        with pytest.raises(braze.RecompileError, match="it has not been compiled before"):
            compiled(torch.ones(3))
    compiled(torch.ones(3))
    with braze.set_stance("fail_on_recompile"):
        assert_same(compiled(torch.ones(3)), f(torch.ones(3)))
        with pytest.raises(braze.RecompileError, match=r"f \(.*\) would be compiled again: L\['?x'?\].*3.*4"):
            compiled(torch.ones(4))
    assert_same(compiled(torch.ones(4)), f(torch.ones(4)))


def test_eager_then_compile():
    seen = []

    def g(x, k):
        seen.append(braze.is_compiling())
        return x * k

    compiled = braze.compile(g)
    with braze.set_stance("eager_then_compile"):
        with compiles(0):
            assert_same(compiled(torch.ones(3), 2), torch.full((3,), 2.0))
        assert seen == [False]
        with compiles(1):  # what differed between the first two calls varies
            for n, k in ((4, 3), (5, 4), (6, 5)):
                assert_same(compiled(torch.ones(n), k), torch.full((n,), float(k)))


def test_aot_eager_then_compile():
    compiled = braze.compile(f)
    with braze.set_stance("aot_eager_then_compile"):
        with compiles(1):
            assert_same(compiled(torch.ones(3)), f(torch.ones(3)))
        assert braze.stats()["kernels"] == 0
        with compiles(1):
            for n in (4, 5, 6):
                assert_same(compiled(torch.ones(n)), f(torch.ones(n)))
        assert braze.stats()["kernels"] > 0


def test_force_backend():
    compiled = braze.compile(lambda x: x * 2)
    x = torch.ones(3)
    used = []

    def backend(graph, inputs):
        used.append(len(inputs))
        return graph.forward

    with braze.set_stance(force_backend=backend):
        for _ in range(2):
            assert_same(compiled(x), x * 2)
    assert used == [1]
    with compiles(1):
        assert_same(compiled(x), x * 2)
    with compiles(1), braze.set_stance(force_backend="eager"):
        assert_same(compiled(x), x * 2)
    assert used == [1]


def test_stance_inside_a_compiled_function():
    def g(x):
        y = x * 2
        braze.set_stance("force_eager")
        return y + 1

    compiled = braze.compile(g)
    with compiles(1):
        assert_same(compiled(torch.ones(3)), torch.full((3,), 3.0))
    braze.set_stance("default")
    with pytest.raises(braze.GraphBreakError, match="compiler-control"):
        braze.compile(g, fullgraph=True)(torch.ones(3))


def test_run():
    compiled = braze.compile(f, dynamic=False)
    compiled(torch.ones(3))
    frozen = braze.run(compiled)
    with compiles(0):
        for n in (3, 4):
            assert_same(frozen(torch.ones(n)), f(torch.ones(n)))
        assert_same(braze.run(f)(torch.ones(4)), f(torch.ones(4)))  # what f was compiled to
        assert_same(braze.run(lambda x: x + 1)(torch.ones(4)), torch.full((4,), 2.0))
    with compiles(1):
        compiled(torch.ones(4))

    model = nn.Linear(3, 3).requires_grad_(False)
    compiled_model = braze.compile(model)
    with compiles(0):
        assert_same(braze.run(compiled_model)(torch.ones(2, 3)), model(torch.ones(2, 3)))

    @braze.run()
    @braze.compile
    def decorated(x):
        return x * 2

    with compiles(0):
        assert_same(decorated(torch.ones(3)), torch.full((3,), 2.0))


def test_recompile_limit(caplog):
    compiled = braze.compile(f, dynamic=False)
    with caplog.at_level(logging.WARNING, logger="braze"), braze.config.patch(recompile_limit=2), compiles(2):
        for n in (2, 3, 4, 5):
            assert_same(compiled(torch.ones(n)), f(torch.ones(n)))
    (message,) = [r.getMessage() for r in caplog.records if "limit" in r.getMessage()]
    assert message.startswith("recompile limit (2) reached for f (") and "expected" in message and "got" in message


def test_accumulated_recompile_limit():
    def g(x):
        x = x * 2
        print(end="")
        return x + 1

    compiled = braze.compile(g, dynamic=False)
    with braze.config.patch(accumulated_recompile_limit=3), compiles(3):
        for n in (2, 3, 4, 5):
            assert_same(compiled(torch.ones(n)), g(torch.ones(n)))


def test_fail_on_recompile_limit_hit():
    compiled = braze.compile(f, dynamic=False, recompile_limit=1)
    compiled(torch.ones(2))
    with braze.config.patch(fail_on_recompile_limit_hit=True):
        for _ in range(2):
            with pytest.raises(braze.LimitError, match=r"recompile limit \(1\) reached for f"):
                compiled(torch.ones(3))
    assert_same(compiled(torch.ones(3)), f(torch.ones(3)))


def test_message_of_a_recompilation(caplog):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.k = 2

        def forward(self, x):
            return x * self.k

    net = Net()
    compiled = braze.compile(net, dynamic=False)
    with caplog.at_level(logging.INFO, logger="braze.recompiles"):
        compiled(torch.ones(3))
        net.k = 5
        compiled(torch.ones(3))
        compiled(torch.ones(3, dtype=torch.float64))
    one, two = [r.getMessage() for r in caplog.records]
    assert "k" in one and one.endswith("expected 2, got 5")
    assert two.endswith("dtype: expected Float, got Double")


# ---- sizes that vary, by marks


def test_mark_dynamic():
    compiled = braze.compile(f)
    x = torch.ones(4)
    braze.mark_dynamic(x, 0)
    with compiles(1):
        assert_same(compiled(x), f(x))
        for n in (5, 6, 9):
            assert_same(compiled(torch.ones(n)), f(torch.ones(n)))


def test_mark_dynamic_of_a_size_that_the_program_fixes():
    def g(x):
        return x * 2 if x.shape[0] == 4 else x * 3

    x = torch.ones(4)
    braze.mark_dynamic(x, [0])
    with pytest.raises(braze.UserError, match=r"mark_dynamic: size 0 of L\['?x'?\] must not be a constant"):
        braze.compile(g)(x)
    y = torch.ones(4)
    braze.maybe_mark_dynamic(y, 0)
    compiled = braze.compile(g)
    for t in (y, torch.ones(5), torch.ones(6)):
        assert_same(compiled(t), g(t))


def test_mark_dynamic_with_a_range():
    compiled = braze.compile(f)
    x = torch.ones(4)
    braze.mark_dynamic(x, 0, min=3, max=8)
    with compiles(1):
        for t in (x, torch.ones(8), torch.ones(3)):
            assert_same(compiled(t), f(t))
    with compiles(1):
        assert_same(compiled(torch.ones(20)), f(torch.ones(20)))


def test_mark_static():
    compiled = braze.compile(f, dynamic=True)
    for n in (3, 4):
        x = torch.ones(n)
        braze.mark_static(x, 0)
        with compiles(1):
            assert_same(compiled(x), f(x))
    with compiles(1):
        for n in (5, 6):
            assert_same(compiled(torch.ones(n)), f(torch.ones(n)))


def test_mark_static_inside_a_compiled_function():
    def g(x):
        braze.mark_static(x)
        return x * x.shape[0]

    compiled = braze.compile(g, dynamic=True, fullgraph=True)
    for n in (3, 4):
        with compiles(1):
            assert_same(compiled(torch.ones(n)), g(torch.ones(n)))


def test_mark_static_of_a_class():
    @braze.mark_static
    class Net(nn.Module):
        def forward(self, x):
            return x * 2

    assert isinstance(Net, type)
    assert_same(braze.compile(Net())(torch.ones(2)), torch.full((2,), 2.0))


def test_mark_static_address():
    x, y = torch.ones(3), torch.ones(3)
    for t in (x, y):
        braze.mark_static_address(t, guard=True)
    compiled = braze.compile(lambda x: x * 2)
    for t in (x, y):
        with compiles(1):
            assert_same(compiled(t), t * 2)
    with compiles(0):
        compiled(x)

"""Graph breaks: the parts around what can't be in a graph are compiled, and the result is eager's."""

import contextlib

import pytest
import torch
from support import assert_like_eager, assert_same, compiles

import braze


def test_print(capsys):
    def f(x):
        y = x * 2
        print("between", y.shape[0])
        return y + 1

    compiled = assert_like_eager(f, torch.ones(3), calls=1, graphs=2)
    assert capsys.readouterr().out == "between 3\n" * 2
    compiled(torch.ones(3))
    assert capsys.readouterr().out == "between 3\n"
    assert braze.stats()["graph_breaks"] >= 1


def test_printing_a_tensor(capsys):
    def f(x):
        y = x * 2
        print(y)
        return y.sum()

    assert_like_eager(f, torch.ones(2), calls=1)
    assert capsys.readouterr().out == "tensor([2., 2.])\n" * 2


def test_data_dependent_branch():
    def f(x):
        y = x + 1
        if y.sum() > 0:
            return y * 2
        return y - 1

    compiled = braze.compile(f)
    up, down = torch.ones(3), torch.full((3,), -5.0)
    with compiles(2):
        assert_same(compiled(up), f(up))
    with compiles(1):
        assert_same(compiled(down), f(down))
    with compiles(0):
        assert_same(compiled(up), f(up))
        assert_same(compiled(down), f(down))


def test_item():
    def f(x):
        n = int((x * 2).sum().item())
        return x * n

    assert_like_eager(f, torch.ones(3))


def test_tolist_and_loop_over_it():
    def f(x):
        out = x
        for v in (x * 2).tolist():
            out = out + v
        return out

    assert_like_eager(f, torch.arange(3.0))


def test_data_dependent_shape():
    def f(x):
        chosen = x[x > 1]
        return chosen * 2

    assert_like_eager(f, torch.arange(4.0), calls=1)


def test_break_in_a_loop(capsys):
    def f(x):
        for i in range(4):
            x = x * 2 + i
            print(i)
        return x - 1

    compiled = assert_like_eager(f, torch.ones(3), calls=1)
    with compiles(0):
        compiled(torch.ones(3))
    capsys.readouterr()


@pytest.mark.parametrize("walk", ["values", "items", "keys", "zip", "enumerate"])
def test_break_in_a_loop_over_a_dict(walk, capsys):
    factors = {"a": 2.0, "b": 3.0, "c": 5.0}
    walks = {
        "values": lambda: factors.values(),
        "items": lambda: factors.items(),
        "keys": lambda: factors,
        "zip": lambda: zip(factors.values(), factors, strict=True),
        "enumerate": lambda: enumerate(factors.values()),
    }

    def f(x):
        view = factors.keys()
        for item in walks[walk]():
            x = x * 2 + (item if isinstance(item, float) else 1)
            print(item, list(view))
        return x - len(view)

    compiled = braze.compile(f)
    for _ in range(2):
        with compiles(0) if _ else contextlib.nullcontext():
            assert_same(compiled(torch.ones(3)), f(torch.ones(3)))
    assert "cannot-rebuild" not in {b["id"] for b in braze._C.explain(compiled)["breaks"]}
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == lines[3:6] == lines[6:9] == lines[9:]


def test_break_in_modules_that_are_called_in_turn(capsys):
    class Telling(torch.nn.Module):
        def forward(self, x):
            print("here")
            return x + 1

    for modules in ([torch.nn.Linear(3, 3), Telling(), torch.nn.Linear(3, 3)], [torch.nn.Linear(3, 3), Telling()]):
        model = torch.nn.Sequential(*modules)
        compiled = braze.compile(model)
        for _ in range(2):
            x = torch.randn(2, 3, requires_grad=True)
            y = x.detach().requires_grad_()
            assert_same(compiled(x), model(y))
            compiled(x).sum().backward()
            model(y).sum().backward()
            assert_same(x.grad, y.grad)
    assert set(capsys.readouterr().out.splitlines()) == {"here"}


def test_break_in_a_loop_over_a_dict_that_changes(capsys):
    def f(x):
        made = {"a": x, "b": x + 1}
        walk = iter(made.values())
        first = next(walk)
        made["c"] = first * 2
        print("changed")
        try:
            next(walk)
        except RuntimeError as error:
            return first, str(error)

    assert_like_eager(f, lambda: torch.ones(2), empty=True)
    capsys.readouterr()


def test_break_in_a_called_function(capsys):
    def inner(x, k):
        x = x * k
        print("inner", k)
        return x + k

    def f(x):
        x = x + 1
        x = inner(x, 2)
        x = inner(x, 3)
        return x * 2

    assert_like_eager(f, torch.ones(3), calls=2)
    assert capsys.readouterr().out == "inner 2\ninner 3\n" * 4


def test_break_under_with():
    states = []

    def f(x):
        with torch.no_grad():
            y = x * 2
            states.append(torch.is_grad_enabled())
            print(end="")
            y = y + 1
        return y * x

    x = torch.ones(3, requires_grad=True)
    compiled = braze.compile(f)
    for _ in range(2):
        assert_same(compiled(x), f(x))
    assert torch.is_grad_enabled()
    assert states == [False] * 4


def test_own_context_manager(capsys):
    log = []

    @contextlib.contextmanager
    def marked(name):
        log.append("enter " + name)
        try:
            yield 3
        finally:
            log.append("exit " + name)

    def f(x):
        with marked("a") as k:
            x = x * k
            print("inside")
            x = x + 1
        return x * 2

    assert_like_eager(f, torch.ones(3), calls=2)
    assert log == ["enter a", "exit a"] * 4
    assert capsys.readouterr().out == "inside\n" * 4


def test_break_in_try(capsys):
    def f(x, fail):
        try:
            y = x * 2
            print("try")
            if fail:
                raise ValueError("wanted")
            return y + 1
        except ValueError as e:
            return x - len(str(e))
        finally:
            print("finally")

    for fail in (False, True):
        assert_like_eager(f, torch.ones(3), fail)
    assert capsys.readouterr().out == "try\nfinally\n" * 8


def test_unknown_c_function():
    import json

    def f(x):
        y = x * 2
        text = json.dumps({"n": y.shape[0]})
        return y + len(text), text

    assert_like_eager(f, torch.ones(3))


def test_values_of_all_kinds_live_across_a_break(capsys):
    def f(x, *rest, **named):
        numbers = [1, 2]
        table = {"x": x * 2}

        def local(v):
            return v + numbers[0]

        lines = (n for n in [10, 20])
        first = next(lines)
        print("here")
        numbers.append(3)
        table["y"] = local(x) + first + next(lines)
        return table, numbers, [n * 2 for n in numbers], rest, named

    assert_like_eager(f, torch.ones(2), 5, calls=2)
    capsys.readouterr()


def test_generator_with_a_break(capsys):
    def parts(x):
        for i in range(3):
            print("part", i)
            yield x * i

    def f(x):
        total = x
        for part in parts(x):
            total = total + part
        return total

    assert_like_eager(f, torch.ones(2))
    assert capsys.readouterr().out == "part 0\npart 1\npart 2\n" * 4


def test_recursion():
    def f(x, n):
        return x if n == 0 else f(x * 2, n - 1) + 1

    assert_like_eager(f, torch.ones(2), 6, graphs=1)


def test_many_breaks(capsys):
    def f(x):
        for i in range(20):
            x = x + 1
            print(i)
        return x

    compiled = braze.compile(f)
    assert_same(compiled(torch.zeros(1)), torch.full((1,), 20.0))
    with compiles(0):
        assert_same(compiled(torch.zeros(1)), torch.full((1,), 20.0))
    capsys.readouterr()


def test_fullgraph_raises_with_reason_and_place():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            return y
        return y - 1

    with pytest.raises(braze.GraphBreakError) as caught:
        braze.compile(f, fullgraph=True)(torch.ones(3))
    line = f.__code__.co_firstlineno + 2
    assert f"{__file__}:{line}" in str(caught.value)


def test_fullgraph_of_one_graph():
    assert_like_eager(lambda x: (x * 2).relu(), torch.ones(3), compile={"fullgraph": True}, graphs=1)


def test_log_of_a_break_names_the_place(capsys):
    def f(x):
        y = x * 2
        print("here")
        return y + 1

    try:
        braze.set_logs(graph_breaks=True)
        braze.compile(f)(torch.ones(3))
    finally:
        braze.set_logs(graph_breaks=False)
    err = capsys.readouterr().err
    assert "[braze.graph_breaks]" in err
    assert f"{__file__}:{f.__code__.co_firstlineno + 2}" in err


def test_log_of_a_recompile_names_guard_and_values(capsys):
    def f(x):
        return x * 2

    compiled = braze.compile(f)
    try:
        braze.set_logs(recompiles=True)
        compiled(torch.ones(3))
        assert "recompile" not in capsys.readouterr().err
        compiled(torch.ones(3, dtype=torch.float64))
    finally:
        braze.set_logs(recompiles=False)
    err = capsys.readouterr().err
    assert "[braze.recompiles]" in err
    assert f"{__file__}:{f.__code__.co_firstlineno}" in err
    assert "dtype" in err and "x" in err


def test_custom_operator_with_gradient():
    @torch.library.custom_op("braze_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(lambda x: torch.empty_like(x))
    twice.register_autograd(lambda ctx, grad: grad * 2)

    def f(x):
        return twice(x.sin()).cos()

    compiled = braze.compile(f)
    mine, theirs = (torch.arange(3.0).requires_grad_() for _ in range(2))
    compiled(mine).sum().backward()
    f(theirs).sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)
    torch.testing.assert_close(compiled(mine.detach()), f(theirs.detach()))


def test_results_that_nobody_reads_are_not_guarded():
    answers = iter(range(100))

    @braze.disable
    def answer():
        return next(answers)

    def f(x):
        y = x + 1
        answer()
        kept = answer()
        return y * 2, kept

    compiled = braze.compile(f)
    compiled(torch.ones(2))
    before = braze.compilations()
    for i in range(1, 20):
        y, kept = compiled(torch.ones(2))
        assert kept == 2 * i + 1
        assert_same(y, torch.full((2,), 4.0))
    assert braze.compilations() - before <= 1  # `kept` becomes a dynamic number


def test_a_variable_that_is_bound_in_some_rounds_only():
    """The same segment begins with the variable bound in one round of the loop and unbound in another."""

    def local(x):
        for i in range(3):
            print(end="")
            try:
                x = x + v  # noqa: F821
            except UnboundLocalError:
                x = x * 10
            v = i + 1
        return x

    def cell(x):
        def reader():
            return v

        for i in range(3):
            print(end="")
            try:
                x = x + reader()
            except NameError:
                x = x * 10
            v = i + 1
        return x

    def deleted(x):
        v = x.shape[0]

        def reader():
            return v  # noqa: F821

        for _ in range(2):
            print(end="")
            try:
                del v
            except UnboundLocalError:
                x = x * 10
            x = x + 1
        return x

    for f in (local, cell, deleted):
        assert_like_eager(f, torch.ones(3))

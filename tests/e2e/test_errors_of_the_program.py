"""What the user's program raises is eager's exception, with eager's traceback; effects happen once."""

import pytest
import torch
from support import assert_like_eager, assert_same, traceback_lines
from torch import nn

import braze


def raised(fn, *args, **kwargs):
    with pytest.raises(BaseException) as caught:
        fn(*args, **kwargs)
    return caught.value


def assert_raises_like_eager(fn, *args):
    """The first call (which traces) and a later one raise what eager raises."""
    expected = raised(fn, *args)
    compiled = braze.compile(fn)
    for _ in range(2):
        error = raised(compiled, *args)
        assert type(error) is type(expected)
        assert str(error) == str(expected)
        assert traceback_lines(error) == traceback_lines(expected)
        assert type(error.__cause__) is type(expected.__cause__)
        assert type(error.__context__) is type(expected.__context__)
    return compiled


class Strange(Exception):
    def __init__(self, code, where):
        super().__init__(code, where)
        self.code = code


def test_raise():
    def inner(x):
        if x.shape[0] == 3:
            raise Strange(7, "inner")
        return x

    def f(x):
        y = x * 2
        return inner(y) + 1

    compiled = assert_raises_like_eager(f, torch.ones(3))
    assert_same(compiled(torch.ones(2)), torch.full((2,), 3.0))


def test_error_of_an_operator():
    def f(x, y):
        z = x + 1
        return z @ y

    assert_raises_like_eager(f, torch.ones(2, 3), torch.ones(2, 3))


def test_error_of_a_shape():
    assert_raises_like_eager(lambda x: x.view(7), torch.ones(2, 3))


def test_error_of_a_dtype():
    assert_raises_like_eager(lambda x: torch.bitwise_and(x, x), torch.ones(3))


@pytest.mark.parametrize(
    "body",
    [
        lambda x: {"a": x}["b"],
        lambda x: [x][3],
        lambda x: x.no_such_attribute,
        lambda x: undefined_name,  # noqa: F821
        lambda x: x * (1 // 0),
        lambda x: len(5),
        lambda x: x(1),
        lambda x: int("seven"),
        lambda x: next(iter([])),
        lambda x: (lambda a, b: a)(x),
        lambda x: None.shape,
    ],
    ids=["key", "index", "attribute", "name", "zero", "len", "call", "int", "stop", "arguments", "none"],
)
def test_error_of_python(body):
    def f(x):
        y = x + 1
        return body(y)

    assert_raises_like_eager(f, torch.ones(3))


def test_wrong_arguments_of_the_compiled_function():
    def f(x, *, k):
        return x * k

    compiled = braze.compile(f)
    for args, kwargs in [((), {}), ((1, 2), {}), ((torch.ones(1),), {}), ((torch.ones(1),), {"k": 1, "z": 2})]:
        expected, error = raised(f, *args, **kwargs), raised(compiled, *args, **kwargs)
        assert type(error) is type(expected) and str(error) == str(expected)


def test_cause():
    def f(x):
        try:
            {}["missing"]
        except KeyError as e:
            raise ValueError("no such thing") from e
        return x

    assert_raises_like_eager(f, torch.ones(3))


def test_assertion():
    def f(x):
        assert x.dim() == 1, f"expected 1 dimension, got {x.dim()}"
        return x * 2

    assert_raises_like_eager(f, torch.ones(3, 3))


def test_assertion_on_data():
    def f(x):
        y = x * 2
        if not (y > 0).all():
            raise AssertionError("not positive")
        return y

    assert_raises_like_eager(f, -torch.ones(3))
    assert_like_eager(f, torch.ones(3))


def test_in_a_module():
    class Failing(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            return self.linear(x)

    assert_raises_like_eager(Failing(), torch.ones(2, 5))


def test_caught_in_the_program():
    def f(x, k):
        try:
            y = x @ torch.ones(7)
        except RuntimeError as e:
            y = x * len(str(e))
        try:
            return y * [1, 2][k]
        except IndexError as e:
            return y * len(str(e))

    for k in (1, 2):
        assert_like_eager(f, torch.ones(3), k)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x.gather(0, torch.zeros(2, 2, 2, dtype=torch.int64)),
        lambda x: x + torch.ones(5),
        lambda x: torch.cat([x, torch.ones(2, 2, 2)]),
        lambda x: x.index_select(3, torch.tensor([0])),
        lambda x: nn.functional.conv2d(x, torch.ones(2, 2)),
        lambda x: x.view(7),
        lambda x: torch.linalg.inv(x),
        lambda x: nn.functional.layer_norm(x, (5,)),
    ],
)
def test_errors_of_operators_are_their_own(wrong):
    def f(x):
        try:
            return wrong(x * 2)
        except (RuntimeError, IndexError) as e:
            return str(e), x + 1

    assert_like_eager(f, torch.ones(3, 4), empty=True)
    assert_raises_like_eager(wrong, torch.ones(3, 4))


def test_raised_in_a_generator():
    def parts(x):
        yield x
        raise OSError("no more")

    def f(x):
        return sum(parts(x))

    assert_raises_like_eager(f, torch.ones(3))


def test_raised_after_a_break(capsys):
    def f(x):
        y = x * 2
        print("before")
        z = y + 1
        raise ValueError(f"shape {tuple(z.shape)}")

    assert_raises_like_eager(f, torch.ones(3))
    assert capsys.readouterr().out == "before\n" * 3


def test_effects_before_the_error_happen_once():
    log = []
    state = {"calls": 0}

    def f(x):
        log.append("called")
        state["calls"] += 1
        x.add_(1)
        raise ValueError("late")

    compiled = braze.compile(f)
    x = torch.zeros(2)
    for n in range(1, 4):
        with pytest.raises(ValueError, match="late"):
            compiled(x)
        assert len(log) == state["calls"] == n
        assert_same(x, torch.full((2,), float(n)))


def test_keyboard_interrupt_passes_through():
    def f(x):
        y = x * 2
        raise KeyboardInterrupt
        return y

    assert_raises_like_eager(f, torch.ones(3))


STAGES = ["capture", "compile", "run"]


@pytest.mark.internal_error
@pytest.mark.parametrize("stage", STAGES)
def test_internal_error_falls_back_to_eager_with_one_warning(stage):
    def f(x):
        return (x * 2).relu() + 1

    with braze.config.patch(fail_at=stage):
        compiled = braze.compile(f)
        with pytest.warns(braze.InternalErrorWarning) as caught:
            for _ in range(3):
                assert_same(compiled(torch.ones(3)), f(torch.ones(3)))
    assert len([w for w in caught if issubclass(w.category, braze.InternalErrorWarning)]) == 1
    assert "BRAZE_STRICT=1" in str(caught[0].message)


@pytest.mark.internal_error
@pytest.mark.parametrize("stage", STAGES)
def test_internal_error_raises_under_strict(stage):
    with braze.config.patch(fail_at=stage, strict=True):
        compiled = braze.compile(lambda x: (x * 2).relu())
        with pytest.raises(braze.InternalError, match=stage):
            compiled(torch.ones(3))


def test_strict_from_the_environment():
    import subprocess
    import sys

    program = (
        "import braze, torch\n"
        "braze.config.fail_at = 'compile'\n"
        "try: braze.compile(lambda x: x * 2)(torch.ones(2))\n"
        "except braze.InternalError as e: print('raised')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={"BRAZE_STRICT": "1", "PATH": ""}, capture_output=True, text=True
    )
    assert done.stdout == "raised\n", done.stderr


def test_random_numbers_after_an_error_are_eagers():
    def f(x, i):
        y = torch.rand(3)
        return x[i] + y[:1]

    compiled = braze.compile(f)
    before = braze.compilations()
    drawn = []
    for function in (f, compiled):
        torch.manual_seed(0)
        drawn.append(function(torch.ones(5), torch.tensor([1])))
        raised(function, torch.ones(5), torch.tensor([9]))
        drawn.append(torch.rand(1))
    assert torch.equal(drawn[0], drawn[2]) and torch.equal(drawn[1], drawn[3])
    assert braze.compilations() == before + 1


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.copy_(x.reshape(4, 3).T),
        lambda x: x.add_(x[0]),
        lambda x: x.view(-1)[1:].copy_(x.view(-1)[:-1]),
        lambda x: x.expand(2, 3, 4).add_(1),
    ],
)
def test_writing_what_overlaps(f):
    assert_raises_like_eager(f, torch.ones(3, 4))


def test_mask_of_another_shape_in_a_store_that_nobody_reads():
    def f(x):
        y = torch.zeros(3, 4)
        y[:, x[0] > 0] = 1
        y[x[0] > 0] = 1
        return x

    assert_raises_like_eager(f, torch.ones(3, 4))


def test_a_break_inside_an_except_block_leaves_the_rest_compiled():
    import sys

    seen = []

    def fn(x, d):
        y = x + 1
        try:
            y = y * d["a"]
        except KeyError as e:
            print(end="")
            seen.append((type(sys.exc_info()[1]), e.args, e.__traceback__ is not None))
            y = y + 2
            try:
                [][1]
            except IndexError:
                print(end="")
                y = y - 1
        finally:
            y = y * 2
        return y, sys.exc_info()

    compiled = braze.compile(fn)
    before = braze.compilations()
    for d in ({}, {}, {"a": 3}, {}):
        seen.clear()
        actual, mine = compiled(torch.ones(2), d), list(seen)
        seen.clear()
        expected = fn(torch.ones(2), d)
        assert torch.equal(actual[0], expected[0]) and actual[1] == expected[1] and mine == seen
    assert braze.compilations() - before >= 3
    assert sys.exc_info() == (None, None, None)


def test_an_exception_from_before_keeps_its_traceback():
    def length(e):
        n, tb = 0, e.__traceback__
        while tb:
            n, tb = n + 1, tb.tb_next
        return n

    def fn(x, e):
        try:
            raise e
        except ValueError as caught:
            return x + 1, caught

    compiled = braze.compile(fn)
    for _ in range(3):
        mine, theirs = ValueError(1), ValueError(1)
        assert compiled(torch.ones(2), mine)[1] is mine and fn(torch.ones(2), theirs)[1] is theirs
        assert length(mine) == length(theirs) == 1

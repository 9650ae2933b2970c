"""Sizes and numbers that differ from call to call become symbols after the first change."""

import math

import pytest
import torch
from support import assert_same, compiles

import braze


def check(function, calls, compilations, dynamic=None):
    """Runs each call in eager and compiled, compares everything, counts the graphs."""
    braze.reset()
    before = braze.compilations()
    compiled = braze.compile(function, dynamic=dynamic)
    for args in calls:
        compare(function(*args), compiled(*args))
    assert braze.compilations() - before == compilations


def compare(a, b):
    if isinstance(a, torch.Tensor):
        torch.testing.assert_close(b, a)
    elif isinstance(a, (tuple, list)):
        assert type(a) is type(b) and len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            compare(x, y)
    else:
        assert type(a) is type(b) and a == b


def rows(*sizes):
    return [(torch.randn(n, 3),) for n in sizes]


def numbers(*values):
    return [(torch.randn(4), v) for v in values]


def test_one_more_graph_serves_all_sizes():
    check(lambda x: x * 2 + x.shape[0], rows(5, 6, 7, 8, 99), 2)


def test_one_is_a_size_of_its_own():
    check(lambda x: x * 2 + x.shape[0], rows(5, 6, 1, 7), 3)


def test_dynamic_from_the_start():
    check(lambda x: x * 2 + x.shape[0], rows(5, 6, 7), 1, dynamic=True)


def test_never_dynamic():
    check(lambda x: x * 2 + x.shape[0], rows(5, 6, 7), 3, dynamic=False)


def test_views_with_sizes():
    def f(x):
        n, m, k = x.shape
        return x.view(n * m, -1).relu().sum(0), x.transpose(0, 1).reshape(m, n * k), x[: n - 1], len(x)

    check(f, [(torch.randn(n, m, 3),) for n, m in ((5, 2), (6, 4), (7, 5), (8, 9))], 2)


def test_sizes_that_the_program_returns():
    check(lambda x: (x.shape[0] * 2 + 1, x.shape, x.size(0), x.numel(), x + 1), rows(5, 6, 7, 8), 2)
    check(lambda x: x.shape[0] // 2 - 7, rows(5, 6, 7, 8), 1)


def test_sizes_that_are_kept():
    class Log:
        sizes = ()

    log = Log()

    def f(x):
        log.sizes = (*log.sizes, x.shape[0])
        return x + 1

    compiled = braze.compile(f)
    for n in (5, 6, 7):
        compiled(torch.ones(n))
    assert log.sizes == (5, 6, 7) and all(type(n) is int for n in log.sizes)


def test_comparisons_become_guards():
    def f(x):
        return x * 2 if x.shape[0] > 6 else x * 3

    check(f, [(torch.ones(n),) for n in (5, 6, 4, 3, 7, 8, 9)], 3)


def test_a_size_lives_across_a_graph_break():
    def f(x):
        n = x.shape[0]
        y = x * 2
        print(end="")
        return y.view(n, -1) + n

    check(f, rows(5, 6, 4, 3, 7, 8), 4)


def test_integer_argument():
    check(lambda x, n: x * n + n // 2, numbers(5, 6, 7, 8, 1000), 2)


def test_integers_that_are_no_symbols():
    check(lambda x, n: x * n, numbers(5, 6, 1, 0, -3), 5)


def test_float_argument():
    check(lambda x, s: x * s + s / 2, numbers(0.5, 1.5, 2.25, -3.0, 0.125, math.inf), 2)


def test_floats_computed_in_python():
    check(lambda x, s: (x * s, s * 2 + 1 - s, 3 - s, -s), numbers(0.1, 1.7, 2.25, -3.0), 2)


def test_float_type_promotion():
    def f(x, s):
        return x * s, x.to(torch.bfloat16) + s, x.to(torch.int64) * s, torch.ones(()) * s

    calls = numbers(0.3, 1.7, 2.25)
    compiled = braze.compile(f)
    for args in calls:
        a, b = f(*args), compiled(*args)
        assert [t.dtype for t in a] == [t.dtype for t in b]
        compare(a, b)


def test_division_by_a_float_raises_as_python_does():
    compiled = braze.compile(lambda x, s: x * (1 / s))
    for s in (2.0, 4.0):
        compare(torch.full((3,), 1 / s), compiled(torch.ones(3), s))
    with pytest.raises(ZeroDivisionError):
        compiled(torch.ones(3), 0.0)


def test_whatever_looks_at_a_number_sees_it():
    def f(x, n):
        seen = (f"{n:>5}", str(n), repr(x.shape), {n: 1}, [n] * 2, n in (5, 6), n in {5, 6}, (*range(20),)[n])
        kinds = (
            isinstance(n, int),
            type(n) is int,
            n.__class__ is int,
            n.bit_length(),
            hash(n) == n,
            n | 1,
            n**2,
            n / 2,
        )
        return x * n, seen, kinds, math.sqrt(n), divmod(n, 3), round(n), float(n), complex(n), n * "ab", n * [x]

    check(f, [(torch.ones(n), n) for n in (5, 6, 7)], 3)


def test_a_loop_over_a_changing_number():
    def f(x, n):
        for i in range(n):
            x = x + i
        return x

    check(f, numbers(2, 3, 4), 3)


def test_equal_numbers_are_not_the_argument():
    def f(x, n):
        m = n
        n = 5
        return x * n + m

    check(f, numbers(3, 5, 5, 7), 2)


def test_gradients_with_changing_sizes_and_numbers():
    def f(x, s):
        return (x * s).view(x.shape[0], -1).softmax(1).mul(x.shape[0]).sum()

    compiled = braze.compile(f)
    for n, s in ((4, 0.5), (5, 1.5), (7, 2.5), (9, -1.0)):
        a = torch.randn(n, 3, requires_grad=True)
        b = a.detach().clone().requires_grad_()
        f(a, s).backward()
        compiled(b, s).backward()
        torch.testing.assert_close(a.grad, b.grad)


def test_module_counter():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 3

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    before = braze.compilations()
    model = Model()
    compiled = braze.compile(model)
    for i in range(6):
        compare(torch.full((2,), 4.0 + i), compiled(torch.ones(2)))
    assert model.calls == 9 and type(model.calls) is int
    assert braze.compilations() - before == 2


def test_model_with_changing_batch_and_length():
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    with torch.no_grad():
        check(layer, [(torch.randn(b, n, 16),) for b, n in ((3, 5), (4, 7), (2, 9), (8, 8))], 2)


def test_integers_have_no_end():
    def f(n, m):
        return n * n, n * m - 1, (n * m + n) * m, -(n * n), n + 2**31 - m, (n * n) // m, n * 2**31

    compiled = braze.compile(f)
    values = (5, 7, 2**31 + 1, 2**40, 2**46, 2**62, 11, -3, 2**64)
    for n in values:
        for m in (3, 2**33, 4):
            compare(f(n, m), compiled(n, m))


def test_methods_of_a_size():
    def f(x):
        n = x.shape[0]
        return n.__index__(), n.__add__(1), n.__mul__(2), n.bit_length(), n.__eq__(5), n.__hash__(), n.__sizeof__() > 0

    compiled = braze.compile(f)
    for n in (4, 5, 6):
        x = torch.ones(n)
        compare(f(x), compiled(x))


def test_sizes_that_became_constants():
    def f(x):
        n = x.shape[0]
        return torch.full((n, 2), n), x.sum() if hash(n) else x, torch.full((n, 2), 1.5), torch.zeros((n,))

    compiled = braze.compile(f, fullgraph=True)
    for n in (4, 5, 6):
        x = torch.ones(n)
        compare(f(x), compiled(x))


@pytest.mark.parametrize("walk", [zip, lambda groups, _: enumerate(groups), lambda groups, _: reversed(groups)])
def test_numbers_of_objects_that_are_only_handed_on(walk):
    groups = [{"rate": 0.5, "note": "kept"}, {"rate": 0.25}]

    def f(x):
        for item in walk(groups, "ab"):
            group = item if isinstance(item, dict) else next(i for i in item if isinstance(i, dict))
            x = x * group["rate"]
            group["rate"] = group["rate"] * 0.5
        return x, [g["rate"] for g in list(groups)]

    compiled = braze.compile(f)
    with compiles(2):
        for _ in range(4):
            before = [dict(g) for g in groups]
            actual = compiled(torch.ones(2))
            after = [dict(g) for g in groups]
            groups[:] = before
            assert_same(actual, f(torch.ones(2)))
            assert groups == after

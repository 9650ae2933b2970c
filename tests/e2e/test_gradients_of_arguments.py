"""Arguments that need gradients: written, returned with numbers, and backward passes from some of the results."""

import pytest
import torch
from support import assert_same

import braze


def leaf(*sizes, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*sizes, generator=g).requires_grad_()


def gradients(results, leaves):
    return torch.autograd.grad([r.sum() for r in results], leaves, allow_unused=True)


def test_a_number_among_the_results():
    def f(a, x):
        return a * 2, x

    compiled = braze.compile(f)
    for x in (1.0, 2.0, 3.5):
        a = leaf(3)
        got, number = compiled(a, x)
        assert number == x
        assert_same(gradients([got], [a])[0], torch.full((3,), 2.0))


def test_arithmetic_of_numbers_beside_a_written_argument():
    def f(a, b, x):
        b.copy_((a + b) / 2)
        return x + x * 0.1

    compiled = braze.compile(f)
    for x in (1.0, 2.0, 1 / 3):
        a, b, c = leaf(3), torch.ones(3), torch.ones(3)
        assert compiled(a, b, x) == f(a, c, x)
        assert_same(b, c)
        assert_same(gradients([b], [a]), gradients([c], [a]))


def test_an_argument_becomes_differentiable_and_nothing_is_returned():
    def f(a, b):
        b *= a

    a, b, c = leaf(3), torch.ones(3), torch.ones(3)
    braze.compile(f)(a, b)
    f(a, c)
    assert_same(b, c)
    assert_same(gradients([b], [a]), gradients([c], [a]))


@pytest.mark.parametrize("is_leaf", [True, False])
def test_writing_what_needs_a_gradient(is_leaf):
    """Of a leaf it is an error, which the program may catch; of an operator's result it is none."""

    def f(a):
        y = a * 3
        try:
            a += 1
        except RuntimeError:
            return y - 1
        return y + a

    compiled = braze.compile(f)
    for k in (1, 2):
        mine, theirs = (leaf(3) if is_leaf else leaf(3) * k for _ in range(2))
        got, expected = compiled(mine), f(theirs)
        assert_same(got, expected)
        assert_same(mine, theirs)


def test_a_run_that_fails_after_it_has_written_is_not_repeated():
    table = torch.arange(4.0)

    def f(count, index):
        count += 1
        return table[index] * 2

    compiled = braze.compile(f)
    count = torch.zeros(1)
    assert_same(compiled(count, torch.tensor([1])), torch.tensor([2.0]))
    with pytest.raises(IndexError):
        compiled(count, torch.tensor([7]))
    assert count.item() == 2


def branches(a, b):
    return (a * b).sin(), b.exp() * 2


@pytest.mark.parametrize("used", [[0], [1], [0, 1]])
def test_a_backward_pass_from_some_results(used):
    compiled = braze.compile(branches)
    for _ in range(3):
        a, b = leaf(3), leaf(3, seed=1)
        got, expected = compiled(a, b), branches(a, b)
        mine = gradients([got[k] for k in used], [a, b])
        theirs = gradients([expected[k] for k in used], [a, b])
        assert [g is None for g in mine] == [g is None for g in theirs]
        for m, t in zip(mine, theirs, strict=True):
            if t is not None:
                assert_same(m, t)


def test_a_zero_for_a_missing_gradient_meets_an_infinity():
    def f(a):
        return a.sqrt(), a * 3

    compiled = braze.compile(f)
    a = torch.tensor([0.0, 4.0], requires_grad=True)
    root, multiple = compiled(a)
    assert_same(gradients([multiple], [a])[0], torch.full((2,), 3.0))


def test_an_argument_that_no_gradient_needs_is_written_afterwards():
    def f(a, b):
        y = b + b
        z = y @ b.t() @ b
        braze.graph_break()
        a += z
        return a

    mine, theirs = leaf(3, 4, seed=2), leaf(3, 4, seed=2)
    a, b = leaf(3, 4, seed=3), leaf(3, 4, seed=3)
    got, expected = braze.compile(f)(a * 1, mine), f(b * 1, theirs)
    assert_same(got, expected)
    assert_same(gradients([got], [mine])[0], gradients([expected], [theirs])[0])


def test_a_view_without_gradients_of_what_is_written_then():
    def f(a, b):
        with torch.no_grad():
            rows = a.unbind(0)
            b.copy_(a)
        braze.graph_break()
        return a[0] + 1, len(rows)

    mine, theirs = (leaf(3, 4) * 1 for _ in range(2))
    assert_same(braze.compile(f)(mine, mine), f(theirs, theirs))


def test_a_view_that_has_lost_its_graph_raises_also_where_nothing_needs_the_result():
    def f(a):
        b = a.unbind(0)[0]
        a[0] = 2.0
        unused = b * 2
        return a

    def leafless():
        return torch.ones(3, 4, requires_grad=True) * 1

    for program in (f, braze.compile(f)):
        with pytest.raises(RuntimeError, match="function that returns multiple views"):
            program(leafless())
    compiled = braze.compile(f)
    with torch.no_grad():
        assert_same(compiled(torch.ones(3, 4)), f(torch.ones(3, 4)))

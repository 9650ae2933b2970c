"""Backward passes that come from some of a program's outputs: no gradient is not a gradient of zero."""

import pytest
import torch
from support import assert_same
from torch.nn import functional as F

import braze


def leaf(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def run(fn, make, use, times):
    """What `use` returns of the outputs, and the gradients, each time with fresh inputs."""
    seen = []
    for k in range(times):
        args = make()
        seen.append((use(fn(*args), k), [a.grad for a in args if a.requires_grad]))
    return seen


def check(fn, make, use, times=4):
    assert_same(run(braze.compile(fn), make, use, times), run(fn, make, use, times))


def test_no_gradient_where_zero_would_give_nan():
    def f(x):
        return x * 2, x.sqrt(), x.log().sum()

    check(f, lambda: [torch.zeros(3).requires_grad_()], lambda out, k: out[0].sum().backward())


def test_loss_and_logits():
    def f(x, w, y):
        logits = x @ w
        return F.cross_entropy(logits, y), logits

    def make():
        return [leaf(4, 3), leaf(3, 5, seed=1), torch.tensor([0, 4, 2, 2])]

    check(f, make, lambda out, k: out[0].backward())
    check(f, make, lambda out, k: (out[0] + out[1].sum()).backward())
    check(f, make, lambda out, k: out[1].sum().backward())


@pytest.mark.parametrize("n", [2, 3, 6])
def test_another_output_each_time(n):
    def f(x, w):
        return [(x * (k + 1)).sin() * w for k in range(n)]

    check(f, lambda: [leaf(3), leaf(3, seed=1)], lambda out, k: out[k % n].sum().backward(), times=9)


def test_one_after_the_other():
    def f(x, w):
        return (x @ w).tanh(), (x * 2).exp()

    def use(out, k):
        out[0].sum().backward(retain_graph=True)
        out[1].sum().backward()

    check(f, lambda: [leaf(3, 3), leaf(3, 3, seed=1)], use)


def test_an_input_that_only_an_unused_output_needs():
    def f(x, w):
        return x.exp(), w.exp(), w.sin()

    seen = []

    def make():
        x, w = leaf(3), leaf(3, seed=1)
        x.register_hook(seen.append)
        return [x, w]

    check(f, make, lambda out, k: (out[0] + 0).sum().backward())
    assert all(isinstance(g, torch.Tensor) for g in seen)


def test_two_numbers():
    def f(x):
        return x.exp().sum(), x.sin().sum()

    check(f, lambda: [leaf(3)], lambda out, k: (out[0] * out[1]).backward())
    check(f, lambda: [leaf(3)], lambda out, k: out[1].backward())


def test_the_numbers_of_dropout_when_another_output_is_used():
    def f(x):
        y = F.dropout(x, 0.5)
        return y * 2, y.exp()

    def make():
        torch.manual_seed(5)
        return [leaf(20)]

    check(f, make, lambda out, k: (out[k % 2].sum().backward(), torch.rand(2)))


def test_gradient_of_gradient_through_one_of_two():
    def f(x):
        return x.pow(3), x.exp()

    def use(out, k):
        (g,) = torch.autograd.grad(out[0].sum(), use.x, create_graph=True)
        g.sum().backward()
        return g.detach()

    def make():
        use.x = leaf(3)
        return [use.x]

    check(f, make, use)


def test_backward_under_autocast():
    def f(x, w):
        return x @ w

    def use(out, k):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            (out * 1.5).sum().backward()

    check(f, lambda: [leaf(8, 8), leaf(8, 8, seed=1)], use)


def test_parameter_changed_where_nothing_is_recorded():
    def f(x, w):
        with torch.no_grad():
            w.mul_(0.5)
        return x * w

    check(f, lambda: [leaf(3), leaf(3, seed=1)], lambda out, k: out.sum().backward())

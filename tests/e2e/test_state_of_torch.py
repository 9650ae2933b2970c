"""What torch keeps beside the tensors: autocast, inference mode, hooks on saved tensors, entered inside or around."""

import pytest
import torch
from support import assert_same
from torch import nn

import braze


def weight(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).requires_grad_()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_around_a_training_step(dtype):
    """Autocast keeps casts of weights until it is left, those of a trace among them."""

    def f(x, w):
        return (x.softmax(-1) @ w).tanh() @ w

    compiled = braze.compile(f)
    for call in range(3):
        x, w, v = torch.randn(4, 8), weight(8, 8), weight(8, 8)
        with torch.autocast("cpu", dtype=dtype):
            kept = x @ w  # a cast that eager keeps
            mine = compiled(x, v) + kept
            expected = f(x, w) + kept
        assert mine.dtype == dtype
        with torch.no_grad():
            assert_same(mine.detach(), expected.detach(), rtol=2e-2, atol=2e-2)
        (got,) = torch.autograd.grad(mine.float().sum(), v)
        assert got.dtype == torch.float32, call
        assert_same(compiled(x, v), f(x, v))


def test_inference_mode_inside_leaves_nothing_behind():
    def f(x):
        with torch.inference_mode():
            e = x * 6
        return e, e.is_inference(), torch.is_grad_enabled(), x * 2

    compiled = braze.compile(f)
    for _ in range(3):
        x = weight(3)
        assert_same(compiled(x), f(x))
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_entering_an_inference_mode_made_elsewhere():
    def enter(x):
        mode.__enter__()
        return x * 2

    def leave(x):
        mode.__exit__(None, None, None)
        return x * 2

    x = torch.ones(3)
    for _ in range(2):
        mode = torch._C._InferenceMode(True)
        assert braze.compile(enter)(x).is_inference()
        assert torch.is_inference_mode_enabled()
        assert not braze.compile(leave)(x).is_inference()
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_hooks_on_saved_tensors_inside():
    shapes = []

    def pack(t):
        shapes.append(tuple(t.shape))
        return t * 1

    def f(x, w):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t * 2):
            y = (x @ w).sin()
        return y.exp()

    compiled = braze.compile(f)
    for _ in range(2):
        found = []
        for g in (compiled, f):
            x, w = weight(3, 3), weight(3, 3, seed=1)
            g(x, w).sum().backward()
            found.append((x.grad, w.grad, sorted(shapes)))
            shapes.clear()
        assert_same(found[0], found[1])


def test_a_module_under_autocast():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    compiled = braze.compile(net)
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = compiled(torch.randn(5, 3, 4, 4))
        assert out.dtype == torch.bfloat16
        out.float().sum().backward()
        assert all(p.grad.dtype == torch.float32 for p in net.parameters())

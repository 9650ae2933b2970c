"""Parts of torch's state that a program changes for a while, also where the graph breaks meanwhile."""

import warnings

import pytest
import torch
from support import assert_same
from torch import nn

import braze


def state():
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_anomaly_enabled(),
        torch.is_anomaly_check_nan_enabled(),
        torch._C._is_multithreading_enabled(),
        torch._C._is_view_replay_enabled(),
        torch._C._get_mkldnn_enabled(),
        torch._C._get_cudnn_enabled(),
        torch._C._get_math_sdp_enabled(),
        torch._C._get_flash_sdp_enabled(),
        torch._C._is_torch_function_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.sparse.check_sparse_tensor_invariants.is_enabled(),
    )


CONTEXTS = {
    "inference_mode": lambda: torch.inference_mode(),
    "no inference_mode": lambda: torch.inference_mode(False),
    "no_grad": lambda: torch.no_grad(),
    "set_grad_enabled": lambda: torch.set_grad_enabled(False),
    "detect_anomaly": lambda: torch.autograd.detect_anomaly(check_nan=False),
    "set_detect_anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "set_multithreading_enabled": lambda: torch.autograd.set_multithreading_enabled(False),
    "view tracking": lambda: torch.autograd.grad_mode._force_original_view_tracking(True),
    "mkldnn": lambda: torch.backends.mkldnn.flags(enabled=False),
    "cudnn": lambda: torch.backends.cudnn.flags(enabled=False),
    "sdpa_kernel": lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    "DisableTorchFunction": lambda: torch._C.DisableTorchFunction(),
    "autocast": lambda: torch.autocast("cpu"),
    "sparse": lambda: torch.sparse.check_sparse_tensor_invariants(),
}


@pytest.mark.parametrize("name", CONTEXTS)
@pytest.mark.parametrize("breaks", [False, True])
def test_contexts(name, breaks):
    def f(x):
        with CONTEXTS[name]():
            y = x.sin() * 2
            if breaks:
                braze.graph_break()
            inside = state()
            y = y + 1
        return y, y.is_inference(), inside, state()

    before = state()
    x = torch.ones(2, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = f(x)
        compiled = braze.compile(f)
        for _ in range(3):
            assert_same(compiled(x), expected)
            assert state() == before


def test_inference_mode_as_a_decorator():
    @torch.inference_mode()
    def predict(x):
        return x * 2

    def f(x):
        y = predict(x + 1)
        return y.is_inference(), y.clone() + x

    compiled = braze.compile(f)
    for _ in range(2):
        assert_same(compiled(torch.ones(2)), (True, torch.full((2,), 5.0)))
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


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

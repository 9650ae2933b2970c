"""Parts of torch's state that a program changes for a while, also where the graph breaks meanwhile."""

import warnings

import pytest
import torch
from support import assert_same

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

"""Training: forward and backward around a compiled function, and steps that are compiled as a whole."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

# The function to compile, its inputs, and what is timed, given a form of the function.
Training = tuple[Callable[..., Any], dict[str, Any], Callable[[Callable[..., Any]], Callable[..., Any]]]


def _forward_and_backward(fn: Callable[..., Any]) -> Callable[..., Any]:
    def run(**inputs: Any) -> Any:
        leaves = [t for t in inputs.values() if t.requires_grad]
        return torch.autograd.grad(fn(**inputs).sum(), leaves)

    return run


def _plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


def _tiny() -> Training:
    return lambda x: torch.sin(x) * x, {"x": torch.ones(4).requires_grad_()}, _forward_and_backward


def _step() -> Training:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10))
    parameters = list(model.parameters())

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= 1e-6 * p.grad
                p.grad = None
        return loss.detach()

    return step, {"x": torch.randn(32, 64), "y": torch.randint(0, 10, (32,))}, _plain


TRAINING: dict[str, Callable[[], Training]] = {
    "tiny, forward and backward": _tiny,
    "step of a perceptron": _step,
}

"""Small programs, each of one kind of kernel."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Workload = tuple[Callable[..., Any], dict[str, Any]]


def _chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * y + torch.sigmoid(x - y) * 0.5


def _normalised(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def _rotary(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = q.shape[-1] // 2
    return q * cos + torch.cat((-q[..., half:], q[..., :half]), -1) * sin


def _large() -> torch.Tensor:
    return torch.randn(512, 1024)


OPERATORS: dict[str, Callable[[], Workload]] = {
    "chain of pointwise": lambda: (_chain, {"x": _large(), "y": _large()}),
    "broadcast": lambda: (lambda x, b: (x + b).relu() * 2, {"x": _large(), "b": torch.randn(1024)}),
    "gelu": lambda: (lambda x: F.gelu(x) + x, {"x": _large()}),
    "softmax": lambda: (lambda x: torch.softmax(x * 0.1, -1), {"x": _large()}),
    "layer_norm": lambda: (
        lambda x, w, b: F.layer_norm(x + 1, (1024,), w, b),
        {"x": _large(), "w": torch.randn(1024), "b": torch.randn(1024)},
    ),
    "rms_norm": lambda: (_normalised, {"x": _large(), "weight": torch.randn(1024)}),
    "sum of rows": lambda: (lambda x: (x * x).sum(-1), {"x": _large()}),
    "sum of columns": lambda: (lambda x: (x * x).sum(0), {"x": _large()}),
    "sum of all": lambda: (lambda x: (x * x).sum(), {"x": _large()}),
    "argmax": lambda: (lambda x: (x + 1).argmax(-1), {"x": _large()}),
    "transposed add": lambda: (lambda x, y: x.t() + y, {"x": torch.randn(1024, 1024), "y": torch.randn(1024, 1024)}),
    "concatenation": lambda: (lambda x, y: torch.cat((x * 2, y + 1), -1), {"x": _large(), "y": _large()}),
    "embedding": lambda: (
        lambda w, i: F.embedding(i, w) * 2 + 1,
        {"w": torch.randn(8192, 256), "i": torch.randint(0, 8192, (16, 128))},
    ),
    "rotary embedding": lambda: (
        _rotary,
        {"q": torch.randn(2, 12, 128, 64), "cos": torch.randn(128, 64), "sin": torch.randn(128, 64)},
    ),
    "linear and gelu": lambda: (
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        {"x": torch.randn(256, 512), "w": torch.randn(1024, 512), "b": torch.randn(1024)},
    ),
    "bfloat16 chain": lambda: (_chain, {"x": _large().bfloat16(), "y": _large().bfloat16()}),
    "one element": lambda: (lambda x: x + 1, {"x": torch.ones(1)}),
}

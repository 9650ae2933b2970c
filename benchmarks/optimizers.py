"""Steps of torch.optim's optimizers, on tensors like those of a small transformer."""

from collections.abc import Callable
from typing import Any

import torch
from torch import optim

Workload = tuple[Callable[..., Any], dict[str, Any]]


def _parameters(layers: int = 4, width: int = 64) -> list[torch.Tensor]:
    sizes = [(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,)]
    sizes += [(width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    parameters = [torch.randn(s).requires_grad_() for _ in range(layers) for s in sizes]
    for p in parameters:
        p.grad = torch.randn_like(p)
    return parameters


def _step(make: Callable[[list[torch.Tensor]], optim.Optimizer]) -> Workload:
    optimizer = make(_parameters())
    optimizer.step()  # makes the state
    return optimizer.step, {}


OPTIMIZERS: dict[str, Callable[[], Workload]] = {
    "SGD": lambda: _step(lambda p: optim.SGD(p, 1e-3)),
    "SGD, momentum": lambda: _step(lambda p: optim.SGD(p, 1e-3, momentum=0.9)),
    "Adam": lambda: _step(lambda p: optim.Adam(p)),
    "AdamW": lambda: _step(lambda p: optim.AdamW(p)),
    "Adam, foreach": lambda: _step(lambda p: optim.Adam(p, foreach=True)),
    "Adafactor": lambda: _step(lambda p: optim.Adafactor(p)),
    "NAdam": lambda: _step(lambda p: optim.NAdam(p)),
    "RMSprop": lambda: _step(lambda p: optim.RMSprop(p)),
}

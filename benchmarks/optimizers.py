"""Steps of torch.optim's optimizers, on tensors like those of a small transformer and of a larger one."""

from collections.abc import Callable
from typing import Any

import torch
from torch import optim

Workload = tuple[Callable[..., Any], dict[str, Any]]
Make = Callable[[list[torch.Tensor]], optim.Optimizer]

SMALL, LARGE = (4, 64), (12, 128)  # layers, width: 48 tensors that stay in the caches, 144 that do not


def _parameters(layers: int, width: int) -> list[torch.Tensor]:
    sizes = [(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,)]
    sizes += [(width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    parameters = [torch.randn(s).requires_grad_() for _ in range(layers) for s in sizes]
    for p in parameters:
        p.grad = torch.randn_like(p)
    return parameters


def _step(make: Make, size: tuple[int, int]) -> Workload:
    optimizer = make(_parameters(*size))
    optimizer.step()  # makes the state
    return optimizer.step, {}


_CLASSES: dict[str, Make] = {
    "SGD": lambda p: optim.SGD(p, 1e-3, foreach=False),
    "SGD, momentum": lambda p: optim.SGD(p, 1e-3, momentum=0.9, foreach=False),
    "Adam": lambda p: optim.Adam(p, foreach=False),
    "AdamW": lambda p: optim.AdamW(p, foreach=False),
    "Adam, foreach": lambda p: optim.Adam(p, foreach=True),
    "Adafactor": lambda p: optim.Adafactor(p, foreach=False),
    "NAdam": lambda p: optim.NAdam(p, foreach=False),
    "RMSprop": lambda p: optim.RMSprop(p, foreach=False),
    "RAdam": lambda p: optim.RAdam(p, foreach=False),
    "Adamax": lambda p: optim.Adamax(p, foreach=False),
    "Adadelta": lambda p: optim.Adadelta(p, foreach=False),
    "Adagrad": lambda p: optim.Adagrad(p, foreach=False),
    "ASGD": lambda p: optim.ASGD(p, foreach=False),
    "Rprop": lambda p: optim.Rprop(p, foreach=False),
}

OPTIMIZERS: dict[str, Callable[[], Workload]] = {
    f"{name}{suffix}": lambda make=make, size=size: _step(make, size)
    for suffix, size in (("", SMALL), (", large", LARGE))
    for name, make in _CLASSES.items()
}

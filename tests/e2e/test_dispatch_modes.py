"""Code that takes dispatch modes off their stack must not take the capture with it."""

import torch
from torch.utils._python_dispatch import _disable_current_modes

import braze


def test_modes_switched_off_inside() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        with _disable_current_modes():
            y = x * 2
            torch.manual_seed(1)
        return y + 1

    x = torch.ones(3)
    assert torch.equal(braze.compile(f)(x), f(x))
    before = braze.compilations()
    assert torch.equal(braze.compile(lambda t: t + 1)(x), x + 1)
    assert braze.compilations() == before + 1


def test_guard_object_of_cpp() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        guard = torch._C._DisableTorchDispatch()
        torch.manual_seed(1)
        del guard
        return x + 1

    x = torch.ones(3)
    assert torch.equal(braze.compile(f)(x), f(x))
    before = braze.compilations()
    assert torch.equal(braze.compile(lambda t: t * 3)(x), x * 3)
    assert braze.compilations() == before + 1

"""Code that takes dispatch modes off their stack must not take the capture with it."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.flop_counter import FlopCounterMode

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


class Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_mode_around_sees_every_operator() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * 2

    compiled = braze.compile(f)
    x = torch.ones(3)
    for first in (True, False):
        with Watch() as mine:
            compiled(x)
        with Watch() as theirs:
            f(x)
        assert mine.seen == theirs.seen
        with FlopCounterMode(display=False) as flops:
            braze.compile(lambda t: t @ t)(torch.ones(4, 4))
        assert flops.get_total_flops() == 128
        before = braze.compilations()
        torch.testing.assert_close(compiled(x), f(x))
        assert braze.compilations() == before + first

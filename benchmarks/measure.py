"""Timing two ways of computing the same thing."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Measured:
    """What one compiler does with one workload. Seconds, unless the name says otherwise."""

    name: str
    compiler: str
    cold: float
    eager: float
    compiled: float
    error: float
    kernels: int | None = None
    graphs: int | None = None

    @property
    def speedup(self) -> float:
        return self.eager / self.compiled


def flat(value: Any) -> list[torch.Tensor]:
    """The tensors in a result of any structure."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [t for v in value for t in flat(v)]
    return []


def relative_error(actual: Any, expected: Any) -> float:
    """The largest difference of a tensor, as norms."""
    worst = 0.0
    for a, e in zip(flat(actual), flat(expected), strict=True):
        a, e = a.double(), e.double()
        difference = (a - e)[~(a == e)].norm()
        worst = max(worst, (difference / e[e.isfinite()].norm().clamp(min=1e-12)).item())
    return worst


def interleaved(calls: Sequence[Callable[[], Any]], seconds: float) -> list[float]:
    """Median seconds of each call. They take turns, so that a change of the machine's speed meets all of them."""
    for call in calls:
        call()
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
    return [statistics.median(t) for t in times]


def measure(
    name: str,
    fn: Callable[..., Any],
    inputs: dict[str, Any],
    compiler: str,
    compile: Callable[..., Any],
    stats: Callable[[], dict[str, Any]] | None = None,
    seconds: float = 1.0,
    around: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
) -> Measured:
    """Compiles `fn`, compares its result with eager's and times both. With `around`: what that makes of each, with
    gradients."""
    with torch.set_grad_enabled(around is not None):
        wrap = around or (lambda f: f)
        fn, inner = wrap(fn), fn
        expected = fn(**inputs)
        before = stats() if stats else {}
        start = time.perf_counter()
        compiled = wrap(compile(inner))
        actual = compiled(**inputs)
        first = time.perf_counter() - start
        after = stats() if stats else {}
        error = relative_error(actual, expected)
        eager, fast = interleaved([lambda: fn(**inputs), lambda: compiled(**inputs)], seconds)
    counts = {k: after[k] - before[k] for k in ("kernels", "graphs")} if stats else {}
    return Measured(name, compiler, max(first - eager, 0.0), eager, fast, error, **counts)

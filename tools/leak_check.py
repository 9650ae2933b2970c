#!/usr/bin/env python3
"""Repeats programs and looks at what stays: objects, tensors, references, memory.

Each program runs until its caches are warm and then many times more. What grows with the number of runs is a leak.
"""

import contextlib
import gc
import io
import itertools
import sys
import weakref
from collections.abc import Callable

import torch
from torch import nn

import braze


def _resident() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def _call_compiled() -> Callable[[], None]:
    compiled = braze.compile(lambda x, y: {"a": (x * y).relu(), "b": [x.sum(), (x, y)]})
    x, y = torch.randn(64), torch.randn(64)
    return lambda: compiled(x, y)


def _call_module() -> Callable[[], None]:
    model = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU()).requires_grad_(False)
    compiled = braze.compile(model)
    x = torch.randn(4, 16)
    return lambda: compiled(x)


def _call_with_breaks() -> Callable[[], None]:
    def f(x: torch.Tensor) -> torch.Tensor:
        for i in range(3):
            x = x * 2 + i
            if x.sum() > 0:
                x = x - 1
        return x

    compiled = braze.compile(f)
    x = torch.ones(8)
    return lambda: compiled(x)


def _call_with_effects() -> Callable[[], None]:
    def f(x: torch.Tensor, items: list, table: dict) -> torch.Tensor:
        items.append(x * 2)
        table["last"] = items[-1]
        return x + len(items)

    compiled = braze.compile(f)
    x = torch.ones(8)
    return lambda: compiled(x, [], {})


def _call_that_raises() -> Callable[[], None]:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        raise ValueError(y.shape)

    compiled = braze.compile(f)
    x = torch.ones(8)

    def run() -> None:
        with contextlib.suppress(ValueError):
            compiled(x)

    return run


def _compile_again() -> Callable[[], None]:
    x = torch.ones(8)

    def run() -> None:
        braze.reset()
        braze.compile(lambda x: (x * 2).relu().sum())(x)

    return run


def _compile_new_functions() -> Callable[[], None]:
    x = torch.ones(8)

    def run() -> None:
        scope: dict = {}
        exec("def f(x):\n    return (x * 2).relu().sum()", scope)
        braze.compile(scope["f"])(x)

    return run


def _compile_new_models() -> Callable[[], None]:
    x = torch.ones(2, 8)

    def run() -> None:
        braze.compile(nn.Linear(8, 8).requires_grad_(False))(x)

    return run


def _call_with_everything() -> Callable[[], None]:
    """Breaks, side effects, exceptions, generators, and arguments that change: compiled again now and then."""
    sink, table, items = io.StringIO(), {}, []

    @braze.disable
    def aside(x: torch.Tensor) -> torch.Tensor:
        return x

    def f(x: torch.Tensor, k: int) -> list:
        y = x * 2 + k % 3
        items.append(k)
        if len(items) > 4:
            items.clear()
        table[f"k{k % 4}"] = y
        y = aside(y)
        for i in (i * 2 for i in range(3)):
            y = y + i
        try:
            if k == 3:
                raise ValueError(k)
        except ValueError as e:
            table["error"] = e.args
        print("x", file=sink)
        return [y, {"a": y.sum()}, lambda: y]

    compiled = braze.compile(f)
    calls = itertools.count()

    def run() -> None:
        n = next(calls)
        if n % 1000 == 0:
            braze.reset()
        compiled(torch.ones(3 + n % 2), n % 5)
        sink.seek(0)
        sink.truncate()

    return run


def _train() -> Callable[[], None]:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    compiled = braze.compile(model)
    x = torch.ones(2, 8)
    return lambda: compiled(x).sum().backward()


# name: program, warm-up runs, measured runs. What compiles is warm late: caches of the interpreter and of torch fill up
# slowly.
PROGRAMS: dict[str, tuple[Callable[[], Callable[[], None]], int, int]] = {
    "call a function": (_call_compiled, 100, 20000),
    "call a module": (_call_module, 100, 20000),
    "call with graph breaks": (_call_with_breaks, 100, 10000),
    "call with effects": (_call_with_effects, 100, 20000),
    "call with everything": (_call_with_everything, 20000, 100000),
    "train a module": (_train, 100, 10000),
    "call that raises": (_call_that_raises, 100, 10000),
    "compile again after reset": (_compile_again, 400, 400),
    "compile new functions": (_compile_new_functions, 400, 400),
    "compile new models": (_compile_new_models, 400, 400),
}
# Growth that isn't a leak: allocators keep and round up. (Free lists fill up too, far slower than one block a call.)
SLACK = 2 << 20


def check(make: Callable[[], Callable[[], None]], warm: int, runs: int) -> list[str]:
    run = make()
    for _ in range(warm):
        run()
    gc.collect()
    objects, blocks, memory = len(gc.get_objects()), sys.getallocatedblocks(), _resident()
    for _ in range(runs):
        run()
    gc.collect()
    problems = []
    for what, now, before, allowed in (
        ("tracked objects", len(gc.get_objects()), objects, 10),
        ("allocated blocks", sys.getallocatedblocks(), blocks, 50 + runs // 100),
        ("bytes of memory", _resident(), memory, SLACK),
    ):
        if now - before > allowed:
            problems.append(f"{now - before} {what} more after {runs} runs; allowed are {allowed}")
    return problems


def dead_objects() -> list[str]:
    """Arguments, results, models and functions are freed when the program lets go of them."""
    problems = []
    model = nn.Linear(4, 4).requires_grad_(False)
    compiled = braze.compile(model)
    x = torch.ones(2, 4)
    out = compiled(x)
    watched = {"argument": weakref.ref(x), "result": weakref.ref(out), "model": weakref.ref(model)}
    del x, out
    gc.collect()
    problems += [f"the {n} lives on after a call" for n in ("argument", "result") if watched[n]() is not None]
    del model, compiled
    gc.collect()
    if watched["model"]() is not None:
        problems.append("the model lives on after its compiled form is gone")
    return problems


def main() -> int:
    failed = False
    for name, program in PROGRAMS.items():
        problems = check(*program)
        failed = failed or bool(problems)
        print(f"{name:27} {'ok' if not problems else '; '.join(problems)}", flush=True)
    problems = dead_objects()
    print(f"{'objects that may go':27} {'ok' if not problems else '; '.join(problems)}")
    return 1 if failed or problems else 0


if __name__ == "__main__":
    sys.exit(main())

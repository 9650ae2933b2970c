#!/usr/bin/env python3
"""The project's own benchmarks: run.py [--suites A,...] [--compilers braze,torch] [--only A,...]

The suites are operators, optimizers, training and models.

Prints, for each workload and compiler, cold seconds (eager's call taken off), the medians of eager and compiled calls
that take turns, their ratio and the error against eager. Ratios are comparable between machines, times are not.
"""

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import braze

sys.path.insert(0, str(Path(__file__).parent))
from architectures import ARCHITECTURES, make
from measure import Measured, measure
from operators import OPERATORS
from optimizers import OPTIMIZERS
from training import TRAINING

COMPILERS = ("braze", "torch")


def compile_function(compiler: str) -> Callable[..., Any]:
    if compiler == "braze":
        return braze.compile
    torch.compiler.reset()
    return torch.compile


def workloads(suites: list[str], only: list[str]) -> list[tuple[str, Callable[[], tuple[Any, ...]]]]:
    found: list[tuple[str, Callable[[], tuple[Any, ...]]]] = []
    if "operators" in suites:
        found += OPERATORS.items()
    if "optimizers" in suites:
        found += OPTIMIZERS.items()
    if "training" in suites:
        found += TRAINING.items()
    if "models" in suites:
        found += [(name, lambda name=name: make(name)) for name in ARCHITECTURES]
    return [(name, f) for name, f in found if not only or name in only]


def row(m: Measured) -> list[str]:
    return [
        m.name,
        m.compiler,
        f"{m.cold:.3f}",
        f"{m.eager * 1e3:.3f}",
        f"{m.compiled * 1e3:.3f}",
        f"{m.speedup:.2f}",
        f"{m.error:.1e}",
        "" if m.kernels is None else str(m.kernels),
        "" if m.graphs is None else str(m.graphs),
    ]


def table_of(results: list[Measured]) -> Table:
    table = Table(box=None)
    for i, column in enumerate(
        ("workload", "compiler", "cold s", "eager ms", "compiled ms", "ratio", "error", "kernels", "graphs")
    ):
        table.add_column(column, justify="left" if i < 2 else "right", no_wrap=True)
    for m in results:
        table.add_row(*row(m))
    return table


def geomean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", default="operators,optimizers,training,models")
    parser.add_argument("--compilers", default="braze")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=1.0, help="of timing, a workload and compiler")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    compilers = args.compilers.split(",")
    for name, given, allowed in (
        ("suite", args.suites.split(","), ("operators", "optimizers", "training", "models")),
        ("compiler", compilers, COMPILERS),
    ):
        for value in given:
            if value not in allowed:
                parser.error(f"unknown {name} {value!r}; allowed are {', '.join(allowed)}")
    todo = workloads(args.suites.split(","), [n for n in args.only.split(",") if n])
    results: list[Measured] = []
    console = Console(width=None if sys.stdout.isatty() else 120)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=len(todo) * len(compilers))
        for name, make_workload in todo:
            for compiler in compilers:
                progress.update(task, description=f"{name} ({compiler})")
                torch.manual_seed(0)
                fn, inputs, *around = make_workload()
                stats = braze.stats if compiler == "braze" else None
                compile = compile_function(compiler)
                results.append(measure(name, fn, inputs, compiler, compile, stats, args.seconds, *around))
                progress.advance(task)
    console.print(table_of(results))
    for compiler in compilers:
        mine = [m for m in results if m.compiler == compiler]
        cold, ratio = geomean([max(m.cold, 1e-4) for m in mine]), geomean([m.speedup for m in mine])
        console.print(f"{compiler}: geometric means: cold {cold:.3f} s, ratio {ratio:.2f} ({len(mine)} workloads)")
    if args.json:
        args.json.write_text(json.dumps([dataclasses.asdict(m) for m in results], indent=1))


if __name__ == "__main__":
    main()

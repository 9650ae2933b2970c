#!/usr/bin/env python3
"""Compiles five architectures with random weights and shows what came out: `make demo`."""

import sys
import warnings
from pathlib import Path

import torch
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

COLUMNS = ("model", "cold s", "eager ms", "compiled ms", "ratio", "error", "kernels", "graphs")


def main() -> int:
    console = Console()
    warnings.filterwarnings("ignore", module="transformers")
    progress = Progress(SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    table = Table(box=None)
    for i, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if i == 0 else "right")
    wrong = []
    with Live(progress, console=console, transient=True, refresh_per_second=8) as live:
        task = progress.add_task("importing torch, transformers and braze", total=None)
        from architectures import ARCHITECTURES, make
        from measure import measure

        import braze

        progress.update(task, total=len(ARCHITECTURES))
        for name in ARCHITECTURES:
            progress.update(task, description=f"{name}: making the model")
            model, inputs = make(name)
            progress.update(task, description=f"{name}: compiling and timing")
            m = measure(name, model, inputs, "braze", braze.compile, braze.stats, seconds=2.0)
            if not m.error < 1e-4:
                wrong.append(name)
            table.add_row(
                name,
                f"{m.cold:.2f}",
                f"{m.eager * 1e3:.1f}",
                f"{m.compiled * 1e3:.1f}",
                f"{m.speedup:.2f}",
                f"{m.error:.1e}",
                str(m.kernels),
                str(m.graphs),
            )
            progress.advance(task)
            live.console.print(f"{name}: {m.cold:.2f} s to compile, {m.speedup:.2f} times eager's speed")
    console.print()
    console.print(table)
    console.print(f"{torch.get_num_threads()} threads, float32, {torch.backends.cpu.get_cpu_capability()}")
    if wrong:
        console.print(f"wrong: {', '.join(wrong)}", style="bold red")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""`explain`: what a call is compiled to, and why not to less."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import _C
from ._compile import compile

__all__ = ["Break", "Explanation", "Graph", "Guard", "GuardTable", "explain"]


@dataclass
class Graph:
    """One compiled graph."""

    text: str
    ops: int
    kernels: int
    aten_calls: int


@dataclass
class Break:
    """One place where a graph ended, and why."""

    id: str
    title: str
    explanation: str
    hint: str
    file: str
    line: int
    function: str
    detail: str = ""

    @property
    def reason(self) -> str:
        return f"{self.id}: {self.title}" + (f" ({self.detail})" if self.detail else "")

    @property
    def user_stack(self) -> list[traceback.FrameSummary]:
        """The line of the program."""
        return [traceback.FrameSummary(self.file, self.line, self.function)]

    def __str__(self) -> str:
        lines = [f"Reason: {self.reason}", "User Stack:", *(f"  {frame!r}" for frame in self.user_stack)]
        lines += [more for more in (self.explanation, self.hint and f"Hint: {self.hint}") if more]
        return "\n".join(lines)


@dataclass
class Guard:
    """One assumption of a graph, how often it was checked and how long that took."""

    kind: str
    source: str
    text: str
    checks: int
    seconds: float

    def __str__(self) -> str:
        return self.text


class GuardTable(list[Guard]):
    """The guards; printing it gives a table by kind."""

    def __str__(self) -> str:
        rows = [("kind", "guards", "checks", "time", "for example")]
        kinds = sorted({g.kind for g in self}, key=lambda k: -sum(g.seconds for g in self if g.kind == k))
        for kind in kinds:
            guards = [g for g in self if g.kind == kind]
            time = f"{sum(g.seconds for g in guards) * 1e6:.1f} us"
            rows.append((kind, str(len(guards)), str(sum(g.checks for g in guards)), time, guards[0].text))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        return "\n".join(
            "  ".join([row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in (1, 2, 3)), row[4]]) for row in rows
        )


@dataclass
class Explanation:
    """The result of `explain(f)(...)`; printing it gives a report."""

    graphs: list[Graph]
    break_reasons: list[Break]
    guards: GuardTable
    compile_times: dict[str, float] = field(default_factory=dict)

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        return len(self.break_reasons)

    @property
    def op_count(self) -> int:
        return sum(g.ops for g in self.graphs)

    @property
    def ops_per_graph(self) -> list[int]:
        return [g.ops for g in self.graphs]

    @property
    def out_guards(self) -> list[dict[str, Any]]:
        """The guards as plain dicts."""
        return [vars(g) for g in self.guards]

    def __str__(self) -> str:
        def indented(text: object, by: int) -> list[str]:
            return [" " * by + line for line in str(text).splitlines()]

        lines = [
            f"Graph Count: {self.graph_count}",
            f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}",
            "Break Reasons:",
        ]
        for i, reason in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {i}:", *indented(reason, 4)]
        lines.append("Ops per Graph:")
        for i, g in enumerate(self.graphs, 1):
            lines.append(f"  Graph {i}: {g.ops} ops, {g.kernels} kernels, {g.aten_calls} ATen calls")
        lines.append("Out Guards:")
        for i, guard in enumerate(self.guards, 1):
            lines.append(f"  {i}. {guard}")
        lines += ["Guards by Kind:", *indented(self.guards, 2), "Compile Times:"]
        lines += [f"  {stage}: {seconds:.4f} s" for stage, seconds in self.compile_times.items()]
        return "\n".join(lines)


def _make(cls: type, values: dict[str, Any]) -> Any:
    return cls(**{k: v for k, v in values.items() if k in cls.__dataclass_fields__})


def explain(fn: Callable[..., Any], **compile_arguments: Any) -> Callable[..., Explanation]:
    """`explain(f)(*args)` forgets what was compiled, compiles and runs f once, and tells about it."""
    compile(fn, **compile_arguments)  # wrong arguments are errors here, not at the call

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        _C.reset()
        compiled = compile(fn, **compile_arguments)
        measured = _C.measure_guards(True)
        try:
            compiled(*args, **kwargs)
        finally:
            _C.measure_guards(measured)
        native = type(compiled).__dict__["__call__"].__func__ if isinstance(compiled, _module_class()) else compiled
        found = _C.explain(native)
        return Explanation(
            [_make(Graph, g) for g in found["graphs"]],
            [_make(Break, b) for b in found["breaks"]],
            GuardTable(_make(Guard, g) for g in found["guards"]),
            dict(_C.stats().get("seconds", {})),
        )

    return explained


def _module_class() -> type:
    from ._module import CompiledModule

    return CompiledModule

"""`explain`: what a call is compiled to, and why not to less."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import _C
from ._compile import compile

__all__ = ["Break", "Explanation", "Graph", "explain"]


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

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        text = f"{self.title}{detail}\n    at {self.file}:{self.line} in {self.function}"
        for more in (self.explanation, self.hint):
            text += f"\n    {more}" if more else ""
        return text


@dataclass
class Explanation:
    """The result of `explain(f)(...)`; printing it gives a report."""

    graphs: list[Graph]
    break_reasons: list[Break]
    out_guards: list[dict[str, Any]]
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

    def __str__(self) -> str:
        lines = [
            f"Graph Count: {self.graph_count}",
            f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}",
            "Break Reasons:",
        ]
        lines += [f"  {i}. {b}".replace("\n", "\n  ") for i, b in enumerate(self.break_reasons, 1)]
        lines.append("Graphs:")
        lines += [
            f"  {i}. {g.ops} ops, {g.kernels} kernels, {g.aten_calls} ATen calls" for i, g in enumerate(self.graphs, 1)
        ]
        lines.append("Out Guards:")
        lines += [f"  {g.get('source', '')}: {g.get('text', '')}" for g in self.out_guards]
        lines.append("Compile Times:")
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
        compiled(*args, **kwargs)
        native = type(compiled).__dict__["__call__"].__func__ if isinstance(compiled, _module_class()) else compiled
        found = _C.explain(native)
        return Explanation(
            [_make(Graph, g) for g in found["graphs"]],
            [_make(Break, b) for b in found["breaks"]],
            list(found["guards"]),
            dict(_C.stats().get("seconds", {})),
        )

    return explained


def _module_class() -> type:
    from ._module import CompiledModule

    return CompiledModule

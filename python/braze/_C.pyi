"""The extension: capture, compiler and runtime."""

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

class CompiledFunction(Generic[_P, _R]):
    """What runs in place of `fn`: a Python function or a bound method. As a class attribute it binds as functions do.

    Keys of options: fullgraph (bool), dynamic (None or bool), backend ("braze" or "eager"), name (str),
    guard_filter_fn (a callable or None), recompile_limit (None or int). Absent keys have the option's default.
    """

    __wrapped__: Callable[_P, _R]
    __name__: str
    __qualname__: str
    __module__: str
    __doc__: str | None
    options: dict[str, Any]
    def __init__(self, fn: Callable[_P, _R], options: dict[str, Any]) -> None: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any: ...

def configure(tables: dict[str, Any]) -> None:
    """Once, at import: the tables of `_tables.py`, and under "errors" the exception classes by kind."""

def set_option(name: str, value: Any) -> None:
    """One of the native options of `_options.py`."""

def set_logger(logger: Callable[[str, str, dict[str, Any]], None] | None) -> None:
    """`logger(kind, message, data)`, kinds as in `_logs.py`. None: nobody listens."""

def reset() -> None:
    """Forgets everything that was compiled, and the counters."""

def stats() -> dict[str, Any]:
    """graphs, graph_breaks, recompiles, kernels, aten_calls (ints) and seconds (a dict by stage)."""

def compilations() -> int:
    """Graphs compiled so far."""

def is_tracing() -> bool:
    """This thread traces a function now."""

def explain(compiled: CompiledFunction[..., Any]) -> dict[str, Any]:
    """What was compiled for `compiled`.

    graphs: dicts with text (str), ops, kernels, aten_calls (ints); breaks: dicts with id, title, explanation, hint,
    file, line, function, detail; guards: dicts with source, text.
    """

def disable_code(fn: Callable[..., Any], recursive: bool) -> None:
    """The code of the Python function is never traced; with `recursive` nothing that it calls either."""

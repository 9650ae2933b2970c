"""The extension: capture, compiler and runtime."""

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

class CompiledFunction(Generic[_P, _R]):
    """What runs in place of `fn`: a Python function or a bound method. As a class attribute it binds as functions do.

    Keys of options: fullgraph (bool), dynamic (None or bool), native_backend ("braze", "eager", "aot_eager" or a
    function of a graph module, its inputs and the program's line), native_guard_filter (from a list of tuples to a list
    of bools, or None), recompile_limit (None or int), and the user's forms of them. Absent keys have the option's
    default.
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
    file, line, function, detail; guards: dicts with source, text, kind, checks, seconds.
    """

def set_rule(fn: Any, rule: str | None, value: Any = None) -> None:
    """What a call of the function means in a trace, whatever its code is. None: nothing special.

    Rules: "constant" (value is the result), "graph_break", "control", "disallow" (the graph ends), "forbid" (an error),
    "replace" and "replace_or_fold" (value is called instead), "opaque" (it runs on fake tensors), "nonstrict" (value is
    traced, and can't end the graph on purpose).
    """

def set_stance(name: str, forced_backend: Any) -> None:
    """One of the stances of `_stance.py`; the backend as compile's native_backend, or None."""

def call_without_compiling(fn: Callable[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Calls a callable; this thread compiles nothing meanwhile."""

def error_on_graph_break(flag: bool, /) -> bool:
    """Sets whether a graph break is an error on this thread; returns what it was."""

def break_reasons() -> list[dict[str, str]]:
    """Why graphs end: id, title, explanation, hint of each reason there is."""

def measure_guards(on: bool, /) -> bool:
    """Whether full checks of guards are counted and timed, for `explain`; returns what it was."""

def capture_operators(fn: Callable[[list[Any]], tuple[Any, ...]], inputs: list[Any], /) -> Any:
    """Calls fn on fake tensors for the inputs; the operators below autograd as a torch.fx.GraphModule of the inputs."""

def enter_region(policy: Callable[..., bool] | None, /) -> None:
    """A checkpointed part of the program begins in this thread's trace: its values are not kept for gradients.

    policy: (operator, arguments...) -> whether its results are kept all the same.
    """

def leave_region() -> None:
    """And ends."""

def add_hook(handle: Any, registered: tuple[Any, Any], tensor: Any, hook: Any, post: bool, /) -> None:
    """In a trace: the program has registered a hook; `registered` is how that is done on a tensor from before."""

def remove_hook(handle: Any, /) -> None:
    """In a trace: it has removed that hook."""

def constant(number: Any, /) -> Any:
    """The number itself; in a trace it is a constant of the graph from here on."""

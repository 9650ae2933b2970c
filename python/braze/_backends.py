"""Backends: by name, by function, by entry point.

A backend is called with what was captured, `(graph_module: torch.fx.GraphModule, example_inputs: list)`, and returns
the callable that runs in its place. Names that the extension knows run without that detour.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import torch

from . import _C
from ._options import close_matches
from .errors import BackendError, UserError, UserTypeError

__all__ = [
    "get_default_backend",
    "list_backends",
    "lookup_backend",
    "native",
    "register_backend",
    "resolve",
    "set_default_backend",
]

ENTRY_POINTS = "torch_dynamo_backends"


@dataclass(frozen=True, slots=True)
class _Backend:
    run: Any  # the extension's name, a function, or an entry point that is loaded at the first use
    tags: tuple[str, ...] = ()


_backends: dict[str, _Backend] = {
    "braze": _Backend("braze"),
    "inductor": _Backend("braze"),  # torch's name for its own default, so that programs run unchanged
    "cudagraphs": _Backend("braze"),  # without a GPU there is nothing to record
    "eager": _Backend("eager", ("debug",)),  # the captured calls, in eager
    "aot_eager": _Backend("aot_eager", ("debug",)),  # the operators below autograd, each called by itself
}


@functools.cache
def _load_entry_points() -> None:
    for point in entry_points(group=ENTRY_POINTS):
        _backends.setdefault(point.name, _Backend(point))


def list_backends(exclude_tags: Iterable[str] | None = ("debug", "experimental")) -> list[str]:
    """The names that `compile(backend=...)` takes, those with one of the tags left out."""
    _load_entry_points()
    left_out = set(exclude_tags or ())
    return sorted(name for name, backend in _backends.items() if not left_out.intersection(backend.tags))


def register_backend(compiler_fn: Any = None, name: str | None = None, tags: Sequence[str] = ()) -> Any:
    """Gives a backend a name: its own, unless `name` is given. Also a decorator."""
    if compiler_fn is None:
        return functools.partial(register_backend, name=name, tags=tags)
    if not callable(compiler_fn):
        kind = type(compiler_fn).__name__
        raise UserTypeError(f"a backend is a function of a graph and its inputs; got {compiler_fn!r} of type {kind}")
    name = name or compiler_fn.__name__
    if name in _backends:
        raise UserError(f"there is a backend {name!r} already; take another name")
    _backends[name] = _Backend(compiler_fn, tuple(tags))
    return compiler_fn


def _found(name: str) -> _Backend:
    if name not in _backends:
        _load_entry_points()
    if name not in _backends:
        names = list_backends(())
        raise UserError(f"unknown backend {name!r}; allowed are {', '.join(names)}" + close_matches(name, names))
    backend = _backends[name]
    if isinstance(backend.run, EntryPoint):
        try:
            loaded = backend.run.load()
        except Exception as error:
            where = f"{backend.run.value} (entry point {ENTRY_POINTS})"
            raise BackendError(f"backend {name!r} can't be loaded from {where}: {error}") from error
        backend = _backends[name] = _Backend(loaded, backend.tags)
    return backend


def resolve(backend: Any) -> Any:
    """`backend` itself, once it is known that there is such a one: a name or a function."""
    if isinstance(backend, str):
        _found(backend)
        return backend
    if callable(backend):
        return backend
    names = list_backends(())
    raise UserError(f"unknown backend {backend!r}; allowed are {', '.join(names)}, and functions")


def native(backend: Any) -> Any:
    """What the extension takes for a resolved backend: a name of its own, or a function from capture to callable."""
    if isinstance(backend, str):
        name, backend = backend, _found(backend).run
        if isinstance(backend, str):
            return backend
    else:
        name = getattr(backend, "__name__", None) or type(backend).__name__
    return _adapted(name, backend)


@functools.lru_cache(maxsize=256)
def _adapted(name: str, compiler_fn: Any) -> "_Adapter":
    return _Adapter(name, compiler_fn)


def _wrong_results(results: Any, expected: int) -> str:
    """What is wrong about the results of a graph, or ''."""
    if not isinstance(results, tuple | list):
        return repr(type(results).__name__)
    if len(results) != expected:
        return f"{len(results)} values"
    wrong = [type(r).__name__ for r in results if not isinstance(r, torch.Tensor)]
    return f"a value of type {wrong[0]}" if wrong else ""


class _Adapter:
    """A backend as the extension calls it. Errors name the backend and the line of the program."""

    def __init__(self, name: str, compiler_fn: Callable[..., Any]) -> None:
        self.name = name
        self.compiler_fn = compiler_fn

    def __call__(self, graph_module: Any, example_inputs: list[Any], place: str) -> Callable[..., Any]:
        try:
            compiled = self.compiler_fn(graph_module, example_inputs)
        except Exception as error:
            text = f"backend {self.name!r} raised {type(error).__name__} on the graph that begins at {place}: {error}"
            raise BackendError(text) from error
        if not callable(compiled):
            raise BackendError(
                f"backend {self.name!r} must return a callable for the graph that begins at {place}; "
                f"it returned {compiled!r} of type {type(compiled).__name__}"
            )
        expected = len(graph_module.graph.output_node().args[0])

        def run(*inputs: Any) -> tuple[Any, ...]:
            try:
                results = compiled(*inputs)
            except Exception as error:
                error.add_note(f"(in what backend {self.name!r} made of the graph that begins at {place})")
                raise
            given = _wrong_results(results, expected)
            if given:
                raise BackendError(
                    f"what backend {self.name!r} made of the graph that begins at {place} must return a tuple of "
                    f"{expected} tensors; it returned {given}"
                )
            return tuple(results)

        return run


def lookup_backend(compiler_fn: Any) -> Callable[..., Any]:
    """The function behind a name. Those of the extension are given one that compiles the graph with it."""
    backend = _found(compiler_fn).run if isinstance(compiler_fn, str) else resolve(compiler_fn)
    if not isinstance(backend, str):
        return backend  # type: ignore[no-any-return]

    def compile_graph(graph_module: Any, example_inputs: list[Any]) -> Callable[..., Any]:
        from ._compile import compile

        return compile(graph_module, backend=backend)  # type: ignore[no-any-return]

    compile_graph.__name__ = compile_graph.__qualname__ = backend
    return compile_graph


def set_default_backend(backend: Any) -> None:
    """What `compile` takes where no backend is given: `braze.config.backend`. None: Braze's own."""
    from . import config

    config.backend = "braze" if backend is None else backend


def get_default_backend() -> Any:
    """What `compile` takes where no backend is given."""
    from . import config

    return config.backend


_C.set_rule(set_default_backend, "control")
_C.set_rule(register_backend, "control")

"""What the tracer does at single functions: break the graph there, take them as they are, replace them.

Rules hold for the whole process and go by identity, so that they hold under every name of the function.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch.utils.checkpoint

from . import _C, _traced
from ._module import CompiledModule
from .errors import UserError, UserTypeError

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "disallow_in_graph",
    "forbid_in_graph",
    "graph_break",
    "nonstrict_trace",
    "run",
    "substitute_in_graph",
]

_F = TypeVar("_F", bound=Callable[..., Any])


def _each(take: Callable[[Any], Any], fn: Any) -> Any:
    """`take` for a function, or for every one of a list or tuple."""
    if isinstance(fn, list | tuple):
        return [_each(take, f) for f in fn]
    if not callable(fn):
        raise UserTypeError(f"expected a function, or a list of functions; got {fn!r} of type {type(fn).__name__}")
    return take(fn)


def graph_break(msg: str = "") -> None:
    """Ends the graph here. `msg` is for the logs and `explain`. Does nothing outside compiled functions."""


def disallow_in_graph(fn: Any) -> Any:
    """The graph ends where `fn` is called, which then runs in eager. Takes a function or a list; returns it.

    The function is meant, not what it does: after `disallow_in_graph(torch.sub)`, `a - b` stays in the graph.
    """

    def disallow(fn: Any) -> Any:
        _C.set_rule(fn, "disallow")
        return fn

    return _each(disallow, fn)


def allow_in_graph(fn: Any) -> Any:
    """`fn` runs as it is while the program is traced, and only its operators are seen. Takes a function or a list.

    So its Python code is no part of the program: it must depend on nothing but its arguments, and change nothing.
    Arguments and results are tensors, None, numbers, strings, dtypes, devices, and lists and tuples of them; others
    break the graph. Tensors that it doesn't get as arguments break the graph too. Also undoes `disallow_in_graph`.
    """

    def allow(fn: Any) -> Any:
        module = getattr(fn, "__module__", None) or ""
        ours = not (module == "torch" or module.startswith("torch.")) and not inspect.isbuiltin(fn)
        _C.set_rule(fn, "opaque" if ours and not inspect.ismethoddescriptor(fn) else None)
        return fn

    return _each(allow, fn)


def forbid_in_graph(fn: Any) -> Any:
    """Meeting `fn` in a trace is an error. Takes a function or a list; returns it."""

    def forbid(fn: Any) -> Any:
        _C.set_rule(fn, "forbid")
        return fn

    return _each(forbid, fn)


def nonstrict_trace(traceable_fn: _F) -> _F:
    """A function that stays in one graph with its caller: the breaks that it asks for by `graph_break` don't count.

    Arguments of any kind are allowed, and changes of objects take effect at every call.
    """
    if not callable(traceable_fn):
        raise UserTypeError(f"expected a function; got {traceable_fn!r} of type {type(traceable_fn).__name__}")

    @functools.wraps(traceable_fn)
    def nonstrict(*args: Any, **kwargs: Any) -> Any:
        return traceable_fn(*args, **kwargs)

    _C.set_rule(nonstrict, "nonstrict", traceable_fn)
    return nonstrict  # type: ignore[return-value]


def assume_constant_result(fn: _F) -> _F:
    """`fn` is called once while tracing, and its result is a constant of the graph. Nothing checks that it is one."""
    if not callable(fn):
        raise UserTypeError(f"expected a function; got {fn!r} of type {type(fn).__name__}")
    fn._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch's mark, so that either compiler sees it
    return fn


def _parameters(fn: Any) -> list[tuple[str, Any]] | None:
    """Names and kinds of the parameters, defaults by their presence; None: nobody knows."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return None
    return [(p.name, (p.kind, p.default is not p.empty)) for p in signature.parameters.values()]


def substitute_in_graph(
    original_fn: Any, *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[_F], Any]:
    """Decorator: the function is traced wherever the program calls `original_fn`, mostly one written in C.

    The result of the decorator calls the original. `can_constant_fold_through`: the original itself is called where all
    arguments are constants. The parameters must be the same, unless `skip_signature_check` is given.
    """
    if not callable(original_fn) or isinstance(original_fn, type):
        kind = type(original_fn).__name__
        raise UserTypeError(f"substitute_in_graph takes a function; got {original_fn!r} of type {kind}")

    def decorate(traceable_fn: _F) -> Any:
        if not callable(traceable_fn):
            raise UserTypeError(f"expected a function; got {traceable_fn!r} of type {type(traceable_fn).__name__}")
        theirs = None if skip_signature_check else _parameters(original_fn)
        if theirs is not None and theirs != _parameters(traceable_fn):
            raise UserError(
                f"the parameters of {traceable_fn.__name__}{inspect.signature(traceable_fn)} differ from those of "
                f"{original_fn.__name__}{inspect.signature(original_fn)}; skip_signature_check=True allows it"
            )

        @functools.wraps(original_fn)
        def substituted(*args: Any, **kwargs: Any) -> Any:
            return original_fn(*args, **kwargs)

        rule = "replace_or_fold" if can_constant_fold_through else "replace"
        for fn in (original_fn, substituted):
            _C.set_rule(fn, rule, traceable_fn)
        return substituted

    return decorate


def run(fn: Any = None) -> Any:
    """A function that calls the compiled `fn` with what is compiled already: nothing new is compiled. Also a decorator.

    Where nothing fits, the call runs in eager. Of a function that was compiled elsewhere, the compiled form is found.
    """
    if fn is None:
        return run
    if not callable(fn):
        raise UserTypeError(f"expected a compiled function or module; got {fn!r} of type {type(fn).__name__}")
    if not isinstance(fn, _C.CompiledFunction | CompiledModule):
        from ._compile import latest

        fn = latest(fn) or fn

    @functools.wraps(fn)
    def frozen(*args: Any, **kwargs: Any) -> Any:
        return _C.call_without_compiling(fn, *args, **kwargs)

    return frozen


_C.set_rule(graph_break, "graph_break")
_C.set_rule(torch.utils.checkpoint.checkpoint, "replace", _traced.checkpoint)

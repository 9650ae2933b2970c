"""`disable`: functions that are never compiled."""

import functools
import types
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from . import _C
from ._module import CompiledModule, original_module
from .errors import UserTypeError

__all__ = ["disable"]

_F = TypeVar("_F", bound=Callable[..., Any])


def _mark(fn: types.FunctionType, recursive: bool, reason: str | None) -> types.FunctionType:
    """The extension looks for these attributes when it meets the function."""
    if reason is not None:
        fn.__dict__["_braze_disable_reason"] = reason
    fn.__dict__["_braze_disable"] = True
    fn.__dict__["_braze_disable_recursive"] = recursive
    return fn


def _call_disabled(fn: Callable[..., Any], reason: str | None) -> types.FunctionType:
    @functools.wraps(fn)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return _mark(disabled, True, reason)


def _without_compiling_itself(fn: types.FunctionType, reason: str | None) -> types.FunctionType:
    """A copy that is marked, so that `fn` under its other names is compiled as before."""
    copied = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    functools.update_wrapper(copied, fn)
    copied.__kwdefaults__ = fn.__kwdefaults__
    return _mark(copied, False, reason)


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Makes a function that is never compiled, and with `recursive` nothing it calls either. Also a decorator.

    A module is changed in place (its `forward` runs in eager) and returned. `reason` is shown where it breaks a graph.
    """
    if not isinstance(recursive, bool) or not isinstance(reason, str | None):
        raise UserTypeError(f"recursive is True or False, reason a str; got {recursive!r} and {reason!r}")
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(fn, CompiledModule):
        fn = original_module(fn)
    elif isinstance(fn, _C.CompiledFunction):
        fn = fn.__wrapped__
    if isinstance(fn, torch.nn.Module):
        fn.forward = disable(fn.forward, recursive, reason=reason)
        return fn
    if not callable(fn) or isinstance(fn, type):
        raise UserTypeError(f"expected a function, a method or a module; got {fn!r} of type {type(fn).__name__}")
    if recursive:
        return _call_disabled(fn, reason)
    if isinstance(fn, types.MethodType) and isinstance(fn.__func__, types.FunctionType):
        return types.MethodType(_without_compiling_itself(fn.__func__, reason), fn.__self__)
    if isinstance(fn, types.FunctionType):
        return _without_compiling_itself(fn, reason)
    return fn  # no Python code of its own

"""`compile`: from what the user gives to the extension's CompiledFunction."""

import inspect
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

import torch

from . import _C, _traced, config
from ._backends import native, resolve
from ._guard_filter import adapted
from ._module import CompiledModule, compile_module, original_module
from ._options import validated_compile_options, validated_mode
from .errors import UserError, UserTypeError

__all__ = ["compile", "function_to_trace", "latest"]

_F = TypeVar("_F", bound=Callable[..., Any])


@overload
def compile(
    model: _F,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] | None = ...,
    mode: str | None = ...,
    options: Mapping[str, Any] | None = ...,
    name: str | None = ...,
    disable: bool = ...,
    recompile_limit: int | None = ...,
) -> _F: ...
@overload
def compile(
    model: None = ...,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] | None = ...,
    mode: str | None = ...,
    options: Mapping[str, Any] | None = ...,
    name: str | None = ...,
    disable: bool = ...,
    recompile_limit: int | None = ...,
) -> Callable[[_F], _F]: ...
def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
) -> Any:
    """Compiles a function, a method or a module; without `model` it makes a decorator.

    A compiled function is called like the original. A compiled module is an instance of the model's class that shares
    its parameters, buffers and attributes, so its state_dict has the same keys.

    fullgraph: raise at what can't be in one graph, instead of running that part in Python.
    dynamic: sizes are symbols from the start (True), never (False), or once they were seen to change (None).
    backend: a name of `list_backends(())`, or a function `(torch.fx.GraphModule, example inputs) -> callable`.
    mode: torch's modes are taken; on CPU they all mean the same.
    options: see `braze.config.describe()` and the README; excludes mode.
    name: shown in logs in place of the function's name.
    disable: return `model` as it is.
    recompile_limit: graphs compiled for one place of the code before it stays in eager.
    """
    settings = _settings(fullgraph, dynamic, backend, mode, options, name, disable, recompile_limit)
    if model is None:
        return lambda model: _compiled(model, settings, disable)
    return _compiled(model, settings, disable)


def _settings(
    fullgraph: Any,
    dynamic: Any,
    backend: Any,
    mode: Any,
    options: Any,
    name: Any,
    disable: Any,
    recompile_limit: Any,
) -> dict[str, Any]:
    """The extension's options, checked."""
    if mode is not None and options is not None:
        raise UserError(f"mode and options exclude each other; got mode={mode!r} and options={options!r}")
    validated_mode(mode)
    for key, value in (("fullgraph", fullgraph), ("disable", disable)):
        if not isinstance(value, bool):
            raise UserError(f"{key} must be True or False; got {value!r}")
    if not isinstance(dynamic, bool | None):
        raise UserError(f"dynamic must be True, False or None; got {dynamic!r}")
    if not isinstance(name, str | None):
        raise UserError(f"name must be a str or None; got {name!r}")
    checked = validated_compile_options(options)
    if recompile_limit is not None:
        checked |= validated_compile_options({"recompile_limit": recompile_limit})
    backend = config.backend if backend is None else resolve(backend)
    guard_filter = checked.get("guard_filter_fn")
    return {
        "fullgraph": fullgraph,
        "dynamic": config.dynamic if dynamic is None else dynamic,
        "backend": backend,
        "native_backend": native(backend),
        "name": name or "",
        "guard_filter_fn": guard_filter,
        "native_guard_filter": None if guard_filter is None else adapted(guard_filter),
        "recompile_limit": checked.get("recompile_limit"),
    }


def _compiled(model: Any, settings: dict[str, Any], disable: bool) -> Any:
    if isinstance(model, staticmethod | classmethod):
        return type(model)(_compiled(model.__func__, settings, disable))
    if not callable(model):
        raise UserTypeError(f"expected a function, a method or a module; got {model!r} of type {type(model).__name__}")
    if disable or config.disable:
        return model
    if isinstance(model, CompiledModule | _C.CompiledFunction):
        if _same_settings(model, settings):
            return model
        model = original_module(model) if isinstance(model, CompiledModule) else model.__wrapped__
    if isinstance(model, torch.nn.Module):
        # a ScriptModule is compiled by TorchScript: there is no Python to trace
        return model if isinstance(model, torch.jit.ScriptModule) else _remember(model, compile_module(model, settings))
    if isinstance(model, type):
        return _compiled_class(model, settings)
    return _remember(model, _C.CompiledFunction(function_to_trace(model), settings))


# what was compiled last -> its compiled form, which keeps it alive
_latest: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def _remember(model: Any, compiled: Any) -> Any:
    _latest[id(model)] = compiled
    return compiled


def latest(model: Any) -> Any:
    """What `model` was last compiled to, as long as the program has it; None otherwise."""
    return _latest.get(id(model))


def _same_settings(compiled: Any, settings: dict[str, Any]) -> bool:
    old = type(compiled)._braze_settings if isinstance(compiled, CompiledModule) else compiled.options
    given = {k for k in settings if not k.startswith("native_")}
    return {k: old.get(k) for k in given} == {k: settings[k] for k in given}


def _compiled_class(cls: type, settings: dict[str, Any]) -> type:
    """Makes the calls of a class's instances compiled. The class itself is changed, as a decorator may."""
    name = "_call_impl" if issubclass(cls, torch.nn.Module) else "__call__"
    method = getattr(cls, name, None)
    if not isinstance(method, types.FunctionType):
        raise UserTypeError(f"expected a class whose instances can be called; got {cls.__qualname__} without __call__")
    setattr(cls, name, _C.CompiledFunction(method, settings))
    return cls


def function_to_trace(fn: Any) -> Any:
    """`fn` itself where it has Python code; otherwise what has: a callable object's method, or a wrapper."""
    if isinstance(fn, types.FunctionType):
        return fn
    if isinstance(fn, types.MethodType) and isinstance(fn.__func__, types.FunctionType):
        return fn
    method = inspect.getattr_static(type(fn), "__call__", None)
    if isinstance(method, types.FunctionType):
        return types.MethodType(method, fn)
    return _traced.calling(fn)

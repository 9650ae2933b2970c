"""A compiled module: an instance of the model's own class that shares the model's attributes.

Each one has a class of its own, made here, whose `__call__` is compiled. Since the two objects have one `__dict__`,
everything but calls is the original's: state_dict keys, `isinstance`, `train()`, `to()`, hooks, attributes set from
either side.
"""

import copy
import types
from typing import Any, TypeVar

import torch

from . import _C

__all__ = ["CompiledModule", "compile_module", "original_module"]

_M = TypeVar("_M", bound=torch.nn.Module)


class _CompiledForward:
    """`forward` of a compiled module: compiled too, from the first use on, unless an instance attribute hides it."""

    def __init__(self, original: torch.nn.Module, settings: dict[str, Any]) -> None:
        self._original = original
        self._settings = settings
        self._compiled: _C.CompiledFunction[..., Any] | None = None

    def __get__(self, instance: object | None, owner: type) -> Any:
        if instance is None:
            return type(self._original).forward
        method = self._original.forward
        if not isinstance(getattr(method, "__func__", None), types.FunctionType):
            return method
        if self._compiled is None or self._compiled.__wrapped__ != method:
            self._compiled = _C.CompiledFunction(method, self._settings)
        return self._compiled


class CompiledModule:
    """What the classes of compiled modules have in common."""

    __slots__ = ()
    _braze_original: torch.nn.Module
    _braze_settings: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # The model's classes keep registers of their subclasses, or check them: this one isn't another model.
        pass

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # type(compiled)(config): a new model of the model's class
        return type(cls._braze_original)(*args, **kwargs)

    @property
    def _orig_mod(self) -> torch.nn.Module:
        """The model itself, under the name that programs look for to unwrap a compiled module."""
        return type(self)._braze_original

    def __reduce_ex__(self, protocol: Any) -> Any:
        return compile_module, (type(self)._braze_original, type(self)._braze_settings)

    def __copy__(self) -> Any:
        return compile_module(copy.copy(type(self)._braze_original), type(self)._braze_settings)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return compile_module(copy.deepcopy(type(self)._braze_original, memo), type(self)._braze_settings)


def original_module(compiled: Any) -> torch.nn.Module:
    """The module that was compiled."""
    return type(compiled)._braze_original


def compile_module(model: _M, settings: dict[str, Any]) -> _M:
    """The compiled counterpart of `model`. Also what a pickled one is loaded with."""
    base = type(model)
    namespace = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__slots__": (),
        "_braze_original": model,
        "_braze_settings": settings,
        "__call__": staticmethod(_C.CompiledFunction(model.__call__, settings)),
        "forward": _CompiledForward(model, settings),
    }
    made = types.new_class(base.__name__, (CompiledModule, base), exec_body=lambda ns: ns.update(namespace))
    compiled = object.__new__(made)
    object.__setattr__(compiled, "__dict__", model.__dict__)
    return compiled

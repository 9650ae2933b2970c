"""Options of the whole process: `braze.config.NAME = value`, and `braze.config.patch(NAME=value)` for a while.

`patch` is a context manager and a decorator. The names, their types and environment variables are in `_options.py`.
"""

import contextlib
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

from . import _C
from ._backends import resolve
from ._options import OPTIONS, close_matches
from .errors import UnknownOptionError, UserError

__all__ = ["defaults", "describe", "patch"]

_values: dict[str, Any] = {}


def _unknown(name: str) -> UnknownOptionError:
    return UnknownOptionError(f"unknown option {name!r}; there are {', '.join(OPTIONS)}" + close_matches(name, OPTIONS))


def _set(name: str, value: Any) -> None:
    option = OPTIONS.get(name)
    if option is None:
        raise _unknown(name)
    value = option.validated(value)
    if name == "backend":
        value = resolve(value)
    # the extension starts with the defaults
    if option.native and value != _values.get(name, option.default):
        _C.set_option(name, value)
    _values[name] = value


def defaults() -> dict[str, Any]:
    """The values the options have where neither the program nor the environment sets them."""
    return {name: option.default for name, option in OPTIONS.items()}


def describe() -> str:
    """A table of the options with their values and what they mean."""
    rows = [(name, repr(_values[name]), option.env, option.doc) for name, option in OPTIONS.items()]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, [*widths, 0], strict=True)).rstrip() for row in rows)


@contextlib.contextmanager
def _patched(changes: Mapping[str, Any]) -> Iterator[None]:
    old = {name: _values[name] for name in changes}
    try:
        for name, value in changes.items():
            _set(name, value)
        yield
    finally:
        for name, value in old.items():
            _set(name, value)


def patch(changes: Mapping[str, Any] | str | None = None, value: Any = None, /, **named: Any) -> Any:
    """`patch(name=value, ...)`, `patch({"name": value})` or `patch("name", value)`."""
    if isinstance(changes, str):
        changes = {changes: value}
    elif not isinstance(changes, Mapping | None):
        raise UserError(f"patch takes a dict, a name and a value, or keywords; got {changes!r}")
    changes = {**(changes or {}), **named}
    for name in changes:
        if name not in OPTIONS:
            raise _unknown(name)
    return _patched(changes)


class _Config(types.ModuleType):
    """Checks what is set on the module."""

    def __getattr__(self, name: str) -> Any:
        if name in _values:
            return _values[name]
        if name.startswith("_"):
            raise AttributeError(name)
        raise _unknown(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            _set(name, value)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *OPTIONS]


def _load() -> None:
    for name, option in OPTIONS.items():
        _set(name, option.initial())


_load()
sys.modules[__name__].__class__ = _Config
_C.set_rule(patch, "control")

"""Guard filters: `options={"guard_filter_fn": f}`, with f from a list of entries to a list of bools, True to keep.

The entries have torch's attributes, so that torch's filters work as well. A dropped guard is an assumption of the
program's: where it doesn't hold the result may be wrong. That tensors are what the graph was made for is checked in any
case, since memory depends on it; then a filtered guard that fails raises instead of compiling again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .errors import UserError

__all__ = [
    "GuardEntry",
    "adapted",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
]

# kinds of the extension's guards -> torch's names
_TYPES: dict[str, str] = {
    "Is": "ID_MATCH",
    "TypeIs": "TYPE_MATCH",
    "Descriptor": "ID_MATCH",
    "Equals": "EQUALS_MATCH",
    "Length": "SEQUENCE_LENGTH",
    "DictKeys": "DICT_KEYS_MATCH",
    "DictLacks": "DICT_NOT_CONTAINS",
    "SetElements": "EQUALS_MATCH",
    "Present": "HASATTR",
    "Absent": "NOT_PRESENT_IN_GENERIC_DICT",
    "Tensor": "TENSOR_MATCH",
    "Sizes": "SHAPE_ENV",
    "SameObject": "DUPLICATE_INPUT",
    "NotSameObject": "NO_TENSOR_ALIASING",
    "Distinct": "ID_MATCH",
    "SameStorage": "STORAGE_OVERLAPPING",
    "GlobalState": "GLOBAL_STATE",
}


@dataclass(frozen=True)
class _Source:
    """What torch's filters ask of `entry.orig_guard.source`."""

    text: str
    module: Any  # the last module on the way to the value, or None

    def is_unspecialized_nn_module(self) -> bool:
        return self.module is not None

    def is_unspecialized_builtin_nn_module(self) -> bool:
        return self.module is not None and type(self.module).__module__.startswith(("torch.nn.", "torch.ao.nn."))

    @property
    def name(self) -> str:
        return self.text


@dataclass(frozen=True)
class _Guard:
    source: _Source
    text: str


@dataclass(frozen=True)
class GuardEntry:
    """One guard, as filters see it."""

    name: str  # "L['x']"
    has_value: bool
    value: Any
    guard_type: str
    derived_guard_types: tuple[str, ...]
    is_global: bool
    orig_guard: _Guard

    def __str__(self) -> str:
        return f"{self.guard_type}: {self.orig_guard.text}"


def _entry(source: str, text: str, kind: str, value: Any, is_global: bool, module: Any, has_value: bool) -> GuardEntry:
    guard = _Guard(_Source(source, module), text)
    return GuardEntry(source, has_value, value, _TYPES.get(kind, kind), (), is_global, guard)


def adapted(filter_fn: Callable[[Sequence[GuardEntry]], Sequence[bool]]) -> Callable[[list[Any]], list[bool]]:
    """The filter as the extension calls it: with plain tuples."""

    def keep(guards: list[Any]) -> list[bool]:
        entries = [_entry(*guard) for guard in guards]
        kept = filter_fn(entries)
        name = getattr(filter_fn, "__name__", repr(filter_fn))
        if not isinstance(kept, list | tuple) or len(kept) != len(entries):
            given = f"{len(kept)} values" if isinstance(kept, list | tuple) else f"{kept!r}"
            raise UserError(f"guard_filter_fn {name} must return a list of {len(entries)} bools; it returned {given}")
        return [bool(k) for k in kept]

    return keep


def keep_portable_guards_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Keeps what doesn't depend on Python: the tensors among the arguments, sizes, torch's global state."""
    return [
        g.guard_type in ("GLOBAL_STATE", "SHAPE_ENV") or (g.guard_type == "TENSOR_MATCH" and not g.is_global)
        for g in guard_entries
    ]


def keep_tensor_guards_unsafe(guard_entries: Sequence[GuardEntry], keep_parameters: bool = False) -> list[bool]:
    """Keeps the guards on tensors; those on parameters only where asked for."""
    return [
        g.guard_type == "TENSOR_MATCH" and (keep_parameters or not isinstance(g.value, torch.nn.Parameter))
        for g in guard_entries
    ]


def skip_all_guards_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Keeps nothing."""
    return [False for _ in guard_entries]


def skip_guard_on_all_nn_modules_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Drops the guards on what is read from modules."""
    return [not g.orig_guard.source.is_unspecialized_nn_module() for g in guard_entries]


def skip_guard_on_globals_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Drops the guards on global variables."""
    return [not g.is_global for g in guard_entries]


def skip_guard_on_inbuilt_nn_modules_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Drops the guards on what is read from torch's own modules, such as Linear."""
    return [not g.orig_guard.source.is_unspecialized_builtin_nn_module() for g in guard_entries]

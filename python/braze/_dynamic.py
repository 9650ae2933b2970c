"""Marks on tensors: which sizes are symbols. The attributes are torch's, so that either compiler sees them."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from . import _C, _traced
from .errors import UserError, UserTypeError

__all__ = ["mark_dynamic", "mark_static", "mark_static_address", "maybe_mark_dynamic"]


def _dims(what: str, t: Any, index: Any) -> Iterable[int]:
    if not isinstance(t, torch.Tensor):
        raise UserTypeError(f"{what} takes a tensor; got {t!r} of type {type(t).__name__}")
    dims = [index] if isinstance(index, int) else index
    if not isinstance(dims, list | tuple) or not all(isinstance(i, int) and not isinstance(i, bool) for i in dims):
        raise UserTypeError(f"{what}: a dimension is an int, or several in a list; got {index!r}")
    for i in dims:
        if not 0 <= i < t.dim():
            raise UserError(f"{what}: a tensor of {t.dim()} dimensions has no dimension {i}")
    return dims


def _mark(t: torch.Tensor, name: str, dims: Iterable[int]) -> None:
    marks = getattr(t, name, None)
    if marks is None:
        marks = set()
        setattr(t, name, marks)
    marks.update(dims)


def mark_dynamic(
    t: torch.Tensor,
    index: int | list[int] | tuple[int, ...],
    *,
    hint_override: int | None = None,
    min: int | None = None,
    max: int | None = None,
    specialize_on: list[Callable[[int], bool]] | None = None,
) -> None:
    """This size of the tensor is a symbol from the first compilation on; a program that fixes it is an error.

    min, max: the range that the graph is for; a size outside has a graph of its own. The other arguments are torch's
    and change nothing.
    """
    dims = _dims("mark_dynamic", t, index)
    for i in dims:
        if (min is not None and t.size(i) < min) or (max is not None and t.size(i) > max):
            raise UserError(f"mark_dynamic: size {t.size(i)} of dimension {i} is outside of min={min}, max={max}")
        if t.size(i) < 2:
            raise UserError(
                f"mark_dynamic: dimension {i} has size {t.size(i)}; sizes 0 and 1 are always constants, since they "
                "broadcast: mark a tensor with a larger size"
            )
    _mark(t, "_dynamo_dynamic_indices", dims)
    if min is not None or max is not None:
        ranges = dict(getattr(t, "_braze_dynamic_ranges", {}))
        ranges.update(dict.fromkeys(dims, (min, max)))
        t._braze_dynamic_ranges = ranges  # type: ignore[attr-defined]


def maybe_mark_dynamic(t: torch.Tensor, index: int | list[int] | tuple[int, ...]) -> None:
    """This size of the tensor is a symbol from the first compilation on, unless the program fixes it."""
    _mark(t, "_dynamo_weak_dynamic_indices", _dims("maybe_mark_dynamic", t, index))


def mark_static(t: Any, index: int | list[int] | tuple[int, ...] | None = None) -> Any:
    """This size of the tensor (or every one) is never a symbol. Inside a compiled function it is fixed there.

    Of a module class: its integers are constants, as they are anyway; returns the class.
    """
    if isinstance(t, type) and issubclass(t, torch.nn.Module):
        t._dynamo_marked_static = True  # type: ignore[attr-defined]
        return t
    if not isinstance(t, torch.Tensor):
        raise UserTypeError(f"mark_static takes a tensor or a class of modules; got {t!r} of type {type(t).__name__}")
    _mark(t, "_dynamo_static_indices", range(t.dim()) if index is None else _dims("mark_static", t, index))
    return None


def mark_static_address(t: torch.Tensor, guard: bool = False) -> None:
    """The tensor stays where it is. With `guard`, another tensor in its place has a graph of its own."""
    if not isinstance(t, torch.Tensor):
        raise UserTypeError(f"mark_static_address takes a tensor; got {t!r} of type {type(t).__name__}")
    t._dynamo_static_input_type = "guarded" if guard else "unguarded"  # type: ignore[attr-defined]


_C.set_rule(mark_static, "replace", _traced.fix_sizes)
for _mark_function in (mark_dynamic, maybe_mark_dynamic, mark_static_address):
    _C.set_rule(_mark_function, "control")

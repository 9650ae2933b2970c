"""Backends by name."""

from typing import Any

from ._options import close_matches
from .errors import UserError

__all__ = ["BACKENDS", "list_backends", "resolve"]

# what is given -> what the extension knows
BACKENDS: dict[str, str] = {
    "braze": "braze",
    "inductor": "braze",  # torch's name for its own default, so that programs run unchanged
    "eager": "eager",  # capture and guards as usual, the captured operators run in eager
}


def list_backends() -> list[str]:
    """The names that `compile(backend=...)` takes."""
    return sorted(BACKENDS)


def resolve(backend: Any) -> str:
    """The extension's name of a backend."""
    if isinstance(backend, str) and backend in BACKENDS:
        return BACKENDS[backend]
    raise UserError(
        f"unknown backend {backend!r}; allowed are {', '.join(list_backends())}" + close_matches(str(backend), BACKENDS)
    )

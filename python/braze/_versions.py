"""The versions of Python and torch that this build works with."""

import sys

__all__ = ["PYTHON", "TORCH", "check"]

# The front end works on CPython's own frames and the extension links against one torch, so both are exact.
PYTHON: tuple[tuple[int, int], ...] = ((3, 11),)
TORCH: tuple[str, ...] = ("2.13.0",)


def in_main_interpreter() -> bool:
    """Whether this code runs in the process's first interpreter."""
    import _xxsubinterpreters as interpreters

    return bool(interpreters.get_current() == interpreters.get_main())


def check(
    python: tuple[int, int] = sys.version_info[:2],
    implementation: str = sys.implementation.name,
    torch: str | None = None,
) -> None:
    """Raises ImportError unless Braze works with these versions (of the running process by default)."""
    allowed = ", ".join(".".join(map(str, v)) for v in PYTHON)
    if implementation != "cpython" or tuple(python) not in PYTHON:
        given = f"{implementation} {'.'.join(map(str, python))}"
        raise ImportError(f"Braze works with CPython {allowed}; this is {given}")
    if not in_main_interpreter():
        raise ImportError("Braze works in the main interpreter only, as torch does; this is a subinterpreter")
    if torch is None:
        from torch import __version__ as torch
    if torch.split("+")[0] not in TORCH:
        raise ImportError(f"Braze works with torch {', '.join(TORCH)}; torch {torch} is installed")

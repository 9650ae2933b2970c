"""Logs: what the compiler tells, through Python's `logging`, under the logger "braze".

    BRAZE_LOGS=graph_breaks,recompiles python script.py        or        braze.set_logs(graph_breaks=True)

Each name is a logger of its own ("braze.graph_breaks"), so that a program can also attach handlers and filters itself.
"""

import logging
import os
import sys
import warnings
from typing import Any

from ._options import close_matches
from .errors import InternalErrorWarning, UserError

__all__ = ["KINDS", "receive", "set_logs", "wanted"]

# kind of the extension's message -> name of the log, its level
KINDS: dict[str, tuple[str, int]] = {
    "graph_break": ("graph_breaks", logging.INFO),
    "recompile": ("recompiles", logging.INFO),
    "recompile_limit": ("recompiles", logging.WARNING),
    "internal_error": ("internal_errors", logging.WARNING),
    "guard": ("guards", logging.DEBUG),
    "graph": ("graph", logging.DEBUG),
    "program": ("program", logging.DEBUG),
    "kernel": ("kernels", logging.DEBUG),
    "compile": ("compile_times", logging.INFO),
}
LOGS: tuple[str, ...] = tuple(dict.fromkeys(name for name, _ in KINDS.values()))
# torch's names (TORCH_LOGS) for what corresponds
ALIASES: dict[str, str] = {
    "graph_code": "graph",
    "aot_graphs": "graph",
    "output_code": "kernels",
    "kernel_code": "kernels",
    "fusion": "program",
    "schedule": "program",
}

_root = logging.getLogger("braze")
_handler: logging.Handler | None = None
_warned: set[str] = set()


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to what sys.stderr is at the time, since programs and tests replace it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr


def set_logs(**logs: bool) -> None:
    """Switches logs on (True) and off (False) by name; `all=True` means every one."""
    global _handler
    if "all" in logs:
        on = logs.pop("all")
        logs = {**dict.fromkeys(LOGS, on), **logs}
    for name in logs:
        if name not in LOGS and name not in ALIASES:
            names = (*LOGS, *ALIASES, "all")
            raise UserError(f"unknown log {name!r}; there are {', '.join(names)}" + close_matches(name, names))
    for name, on in logs.items():
        if not isinstance(on, bool):
            raise UserError(f"log {name!r} must be True or False; got {on!r}")
    for name, on in logs.items():
        log = _root.getChild(ALIASES.get(name, name))
        log.setLevel(logging.DEBUG if on else logging.NOTSET)
        if on and _handler is None:
            _handler = _StderrHandler()
            _handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
            _root.addHandler(_handler)


def wanted() -> list[str]:
    """Kinds of message that somebody listens to."""
    return [kind for kind, (name, level) in KINDS.items() if _root.getChild(name).isEnabledFor(level)]


def receive(kind: str, message: str, data: dict[str, Any]) -> None:
    """The extension's logger. An internal error is also a warning, once each."""
    name, level = KINDS.get(kind, (kind, logging.DEBUG))
    _root.getChild(name).log(level, "%s", message, extra={"braze": data})
    if kind == "internal_error" and message not in _warned:
        _warned.add(message)
        text = f"braze: internal error, the call runs in eager (BRAZE_STRICT=1 raises it): {message}"
        warnings.warn(text, InternalErrorWarning, stacklevel=2)


def load_environment() -> None:
    """BRAZE_LOGS, a list of names; a leading + is allowed, as in TORCH_LOGS."""
    names = [part.strip().lstrip("+") for part in os.environ.get("BRAZE_LOGS", "").split(",")]
    set_logs(**{name: True for name in names if name})

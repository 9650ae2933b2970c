"""What the tracer knows about Python functions: plain data, read once by the extension.

Functions are recognised by identity, so it doesn't matter under which name a program imports them.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.compiler
import torch.jit

from . import errors

__all__ = ["tables"]


def _reached(root: Any, *paths: str) -> list[Any]:
    """The objects at the dotted paths that exist in this torch."""
    found = []
    for path in paths:
        value = root
        for name in path.split("."):
            value = getattr(value, name, None)
        if value is not None:
            found.append(value)
    return found


def constants(is_compiling: Callable[[], bool]) -> dict[Callable[..., Any], Any]:
    """Functions that ask about compiling, and their results while tracing, whatever the arguments."""
    true = [
        is_compiling,
        *_reached(torch, "compiler.is_compiling", "compiler.is_dynamo_compiling", "_utils.is_compiling"),
    ]
    false = _reached(
        torch,
        "compiler.is_exporting",
        "jit.is_scripting",
        "_jit_internal.is_scripting",
        "jit.is_tracing",
        "jit._trace.is_tracing",
        "onnx.is_in_onnx_export",
    )
    # no TorchScript trace is going on: torch's own code tests the truth of this, and `is not None`
    none = dict.fromkeys(_reached(torch, "_C._get_tracing_state"), None)
    return {**dict.fromkeys(true, True), **dict.fromkeys(false, False), **none}


# Modules (with what is below them) whose Python functions run as they are, untraced: they work on Braze's own fake
# tensors, or they only serve the process (logs, warnings), so that nothing of the user's program is in them.
RUN_UNTRACED: tuple[str, ...] = (
    "braze",
    "importlib",
    "inspect",
    "linecache",
    "logging",
    "packaging",
    "torch._decomp",
    "torch._functorch.predispatch",
    "torch._library",
    "torch.library",
    "torch._meta_registrations",
    "torch._ops",
    "torch._prims",
    "torch._prims_common",
    "torch._refs",
    "torch._subclasses",
    "torch.fx",
    "warnings",
)

# Single functions of that kind which C code calls.
RUN_UNTRACED_FUNCTIONS: tuple[str, ...] = (
    # Makes a new class, numbered by a counter of the process. Nothing but the class itself tells the numbers apart.
    "autograd.function.FunctionMeta.__init__",
)


def tables(is_compiling: Callable[[], bool]) -> dict[str, Any]:
    """Everything for `_C.configure`."""
    return {
        "constants": constants(is_compiling),
        "run_untraced": RUN_UNTRACED,
        "run_untraced_functions": _reached(torch, *RUN_UNTRACED_FUNCTIONS),
        "errors": {
            "graph_break": errors.GraphBreakError,
            "internal": errors.InternalError,
            "limit": errors.LimitError,
            "user": errors.UserError,
        },
        "stdlib_prefixes": (os.path.dirname(os.__file__) + "/",),
    }

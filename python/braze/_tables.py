"""What the tracer knows about Python functions: plain data, read once by the extension.

Functions are recognised by identity, so it doesn't matter under which name a program imports them.
"""

import os
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.compiler
import torch.jit

from . import _traced, errors

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


def constants(
    is_compiling: Sequence[Callable[[], bool]], is_exporting: Callable[[], bool]
) -> dict[Callable[..., Any], Any]:
    """Functions that ask about compiling, and their results while tracing, whatever the arguments."""
    true = [
        *is_compiling,
        *_reached(torch, "compiler.is_compiling", "compiler.is_dynamo_compiling", "_utils.is_compiling"),
    ]
    false = [is_exporting]
    false += _reached(
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


# Modules inside those that are traced all the same: what they do is part of the program.
RUN_TRACED: tuple[str, ...] = ("braze._traced",)

# torch's own compiler, which nothing here imports: a program may have. Functions below the first name control it; those
# of the second module are ordinary wrappers; the third keeps the sets of functions that it was told about.
PEER: tuple[str, ...] = (
    "torch._dynamo",
    "torch._dynamo.external_utils",
    "torch._dynamo.trace_rules",
)

# torch's functions that control its compiler, and the rules of the tracer for them. (None of them imports it here.)
CONTROLS: tuple[str, ...] = (
    "compile",
    "compiler.allow_in_graph",
    "compiler.assume_constant_result",
    "compiler.compile",
    "compiler.cudagraph_mark_step_begin",
    "compiler.disable",
    "compiler.list_backends",
    "compiler.load_cache_artifacts",
    "compiler.reset",
    "compiler.save_cache_artifacts",
    "compiler.set_default_backend",
    "compiler.set_enable_guard_collectives",
    "compiler.set_stance",
    "compiler.substitute_in_graph",
)


def replaced_code() -> dict[types.CodeType, types.FunctionType]:
    """Code inside torch that serves its own compiler, by what is traced in its place: the same without that."""
    pairs = [
        # Ends the graph around an optimizer's step.
        ("torch.optim.optimizer", "_use_grad_for_differentiable", _traced.use_grad_for_differentiable),
        # What torch's compiler cannot trace.
        ("torch._compile", "_disable_dynamo", _traced.disable_dynamo),
    ]
    found = {}
    for module, path, ours in pairs:
        theirs = _inner_code(*_reached(sys.modules.get(module), path))
        mine = _inner_code(ours)
        if theirs and mine and theirs.co_freevars == mine.co_freevars:
            cells = tuple(types.CellType() for _ in mine.co_freevars)
            found[theirs] = types.FunctionType(mine, ours.__globals__, mine.co_name, None, cells)
    return found


def _inner_code(*makers: Any) -> types.CodeType | None:
    """The code of the one function that the only `makers` makes; None where it isn't as expected."""
    codes = [c for maker in makers for c in maker.__code__.co_consts if isinstance(c, types.CodeType)]
    return codes[0] if len(codes) == 1 else None


def replacements() -> dict[Callable[..., Any], Callable[..., Any]]:
    """torch's functions that are for programs outside a graph, and what is traced in their place."""
    pairs = [
        # Whether a profiler looks on is not known when the program is traced; what it times runs as one.
        ("torch.autograd.profiler", "record_function", _traced.record_function),
        ("torch.autograd.profiler", "record_function.__enter__", _traced.enter_record_function),
        ("torch.autograd.profiler", "record_function.__exit__", _traced.exit_record_function),
        (torch.func.vjp.__globals__["__name__"], "_autograd_grad", _traced.gradients_of_transform),
        # An effect of each run on tensors from before, a part of the backward pass on others.
        ("torch", "Tensor.register_hook", _traced.register_hook),
        ("torch", "Tensor.register_post_accumulate_grad_hook", _traced.register_post_accumulate_grad_hook),
        # What torch's compiler cannot do with a tensor's number. Braze computes with it as eager does.
        ("torch.optim.optimizer", "_get_value", _traced.get_value),
        ("torch.optim.optimizer", "_stack_if_compiling", _traced.as_it_is),
    ]
    return {theirs: ours for module, path, ours in pairs for theirs in _reached(sys.modules.get(module), path)}


def tables(is_compiling: Sequence[Callable[[], bool]], is_exporting: Callable[[], bool]) -> dict[str, Any]:
    """Everything for `_C.configure`."""
    return {
        "constants": constants(is_compiling, is_exporting),
        "breaks": dict.fromkeys(_reached(torch, *CONTROLS), "compiler-control"),
        "replace": replacements(),
        "replaced_code": replaced_code(),
        "run_untraced": RUN_UNTRACED,
        "peer": PEER,
        "run_traced": RUN_TRACED,
        "run_untraced_functions": _reached(torch, *RUN_UNTRACED_FUNCTIONS),
        "errors": {
            "backend": errors.BackendError,
            "graph_break": errors.GraphBreakError,
            "internal": errors.InternalError,
            "limit": errors.LimitError,
            "recompile": errors.RecompileError,
            "user": errors.UserError,
        },
        "own_prefix": (os.path.dirname(__file__) + "/",),
        "stdlib_prefixes": (os.path.dirname(os.__file__) + "/",),
    }

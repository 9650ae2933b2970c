"""Braze's functions under the names that they have in `torch.compiler`."""

from . import config, is_compiling, is_dynamo_compiling, is_exporting
from ._backends import get_default_backend, list_backends, set_default_backend
from ._C import reset
from ._compile import compile
from ._controls import allow_in_graph, assume_constant_result, nonstrict_trace, substitute_in_graph
from ._disable import disable
from ._guard_filter import (
    keep_portable_guards_unsafe,
    keep_tensor_guards_unsafe,
    skip_all_guards_unsafe,
    skip_guard_on_all_nn_modules_unsafe,
    skip_guard_on_globals_unsafe,
    skip_guard_on_inbuilt_nn_modules_unsafe,
)
from ._stance import set_stance
from ._traced import nested_compile_region

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "config",
    "disable",
    "get_default_backend",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "list_backends",
    "nested_compile_region",
    "nonstrict_trace",
    "reset",
    "set_default_backend",
    "set_stance",
    "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "substitute_in_graph",
]

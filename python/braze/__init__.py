"""Braze compiles ordinary PyTorch programs: `braze.compile(model)`."""

from importlib.util import find_spec as _find_spec

from . import _versions

_versions.check()

import torch as _torch  # noqa: E402, F401  (the extension needs its libraries loaded)

try:
    from . import _C
except ImportError as error:
    if _find_spec("braze._C") is not None:
        raise
    raise ImportError("the extension braze._C is not built; run `make build`, or `pip install .`") from error

from . import _logs, _meta_kernels, _tables, errors  # noqa: E402
from ._C import compilations, reset, stats  # noqa: E402
from .errors import (  # noqa: E402
    BackendError,
    Error,
    GraphBreakError,
    InternalError,
    InternalErrorWarning,
    LimitError,
    RecompileError,
    UserError,
)


def is_compiling() -> bool:
    """True while a function is traced: code that behaves differently under a compiler asks this."""
    return _C.is_tracing()


def is_dynamo_compiling() -> bool:
    """The same under torch's older name."""
    return _C.is_tracing()


def is_exporting() -> bool:
    """True while a program is exported, which Braze doesn't do: False."""
    return False


_C.configure(_tables.tables((is_compiling, is_dynamo_compiling), is_exporting))
_C.set_logger(_logs.receive)
_meta_kernels.call_directly()

from . import compiler, config  # noqa: E402
from ._aot import aot_autograd  # noqa: E402
from ._backends import (  # noqa: E402
    get_default_backend,
    list_backends,
    lookup_backend,
    register_backend,
    set_default_backend,
)
from ._compile import compile  # noqa: E402
from ._controls import (  # noqa: E402
    allow_in_graph,
    assume_constant_result,
    disallow_in_graph,
    forbid_in_graph,
    graph_break,
    nonstrict_trace,
    run,
    substitute_in_graph,
)
from ._disable import disable  # noqa: E402
from ._dynamic import mark_dynamic, mark_static, mark_static_address, maybe_mark_dynamic  # noqa: E402
from ._explain import explain  # noqa: E402
from ._install import install, uninstall  # noqa: E402
from ._logs import set_logs  # noqa: E402
from ._stance import set_stance  # noqa: E402
from ._traced import error_on_graph_break, nested_compile_region  # noqa: E402

_logs.load_environment()

__version__ = "0.1.0"
__all__ = [
    "BackendError",
    "Error",
    "GraphBreakError",
    "InternalError",
    "InternalErrorWarning",
    "LimitError",
    "RecompileError",
    "UserError",
    "allow_in_graph",
    "aot_autograd",
    "assume_constant_result",
    "compilations",
    "compile",
    "compiler",
    "config",
    "disable",
    "disallow_in_graph",
    "error_on_graph_break",
    "errors",
    "explain",
    "forbid_in_graph",
    "get_default_backend",
    "graph_break",
    "install",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "nonstrict_trace",
    "register_backend",
    "reset",
    "run",
    "set_default_backend",
    "set_logs",
    "set_stance",
    "stats",
    "substitute_in_graph",
    "uninstall",
]

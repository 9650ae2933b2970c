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
from .errors import Error, GraphBreakError, InternalError, InternalErrorWarning, LimitError, UserError  # noqa: E402


def is_compiling() -> bool:
    """True while a function is traced: code that behaves differently under a compiler asks this."""
    return _C.is_tracing()


_C.configure(_tables.tables(is_compiling))
_C.set_logger(_logs.receive)
_meta_kernels.call_directly()

from . import config  # noqa: E402
from ._backends import list_backends  # noqa: E402
from ._compile import compile  # noqa: E402
from ._disable import disable  # noqa: E402
from ._explain import explain  # noqa: E402
from ._install import install, uninstall  # noqa: E402
from ._logs import set_logs  # noqa: E402

_logs.load_environment()

__version__ = "0.1.0"
__all__ = [
    "Error",
    "GraphBreakError",
    "InternalError",
    "InternalErrorWarning",
    "LimitError",
    "UserError",
    "compilations",
    "compile",
    "config",
    "disable",
    "errors",
    "explain",
    "install",
    "is_compiling",
    "list_backends",
    "reset",
    "set_logs",
    "stats",
    "uninstall",
]

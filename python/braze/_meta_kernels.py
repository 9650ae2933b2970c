"""torch's Python Meta kernels, called without torch's own compiler.

The Meta kernels of some operators are Python functions (torch._refs). They are wrapped in a function that imports
torch's compiler at its first call, only to ask that it leave them alone, and then caches the answer in an attribute.
That import takes seconds. The answer is known without it: Braze's tracer doesn't look into these modules.
"""

import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch._compile

__all__ = ["call_directly"]

_MODULES = ("torch._refs", "torch._refs.linalg", "torch._refs.nn.functional", "torch._refs.special", "torch._refs.fft")
# where the wrapper looks for the function to call
_ANSWER = "__dynamo_disable"


def _wrapper_code() -> types.CodeType | None:
    constants = torch._compile._disable_dynamo.__code__.co_consts
    return next((c for c in constants if isinstance(c, types.CodeType) and _ANSWER in c.co_consts), None)


def _enclosed(functions: Iterable[Any]) -> Iterator[types.FunctionType]:
    """The functions, and those that they call through their closures, as decorated functions do.

    `__wrapped__` isn't enough: some of these functions have it overwritten.
    """
    todo = [f for f in functions if isinstance(f, types.FunctionType)]
    seen = set()
    while todo:
        function = todo.pop()
        if function not in seen:
            seen.add(function)
            yield function
            cells = [cell.cell_contents for cell in function.__closure__ or ()]
            todo += [f for f in cells if isinstance(f, types.FunctionType)]


def call_directly() -> None:
    """Fills the cached answer in."""
    code = _wrapper_code()
    if code is None:
        return
    at = code.co_freevars.index("fn")
    values = [v for name in _MODULES if name in sys.modules for v in vars(sys.modules[name]).values()]
    for function in _enclosed(values):
        if function.__code__ is code and function.__closure__:
            inner = function.__closure__[at].cell_contents
            inner.__dict__.setdefault(_ANSWER, inner)

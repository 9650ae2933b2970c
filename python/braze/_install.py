"""`install`: torch's own names mean Braze."""

from typing import Any

import torch
import torch.compiler

from . import compiler
from ._compile import compile

__all__ = ["install", "uninstall"]

# torch's name -> Braze's. (torch._dynamo isn't touched: whoever imports it asks for torch's own compiler.)
_COMPILER: tuple[str, ...] = tuple(name for name in compiler.__all__ if name != "config")
_replaced: list[tuple[Any, str, Any]] = []


def install() -> None:
    """From now on `torch.compile`, `nn.Module.compile` and what torch.compiler has of Braze's names are Braze's."""
    if _replaced:
        return
    names = [(torch, "compile", compile)]
    names += [(torch.compiler, name, getattr(compiler, name)) for name in _COMPILER if hasattr(torch.compiler, name)]
    for owner, name, ours in names:
        _replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, ours)


def uninstall() -> None:
    """Undoes `install`."""
    while _replaced:
        owner, name, theirs = _replaced.pop()
        setattr(owner, name, theirs)

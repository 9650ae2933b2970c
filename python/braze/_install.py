"""`install`: torch's own names mean Braze."""

from typing import Any

import torch
import torch.compiler

from . import _C
from ._backends import list_backends
from ._compile import compile
from ._disable import disable

__all__ = ["install", "uninstall"]

_replaced: list[tuple[Any, str, Any]] = []


def _torch_list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    return list_backends()


def install() -> None:
    """From now on `torch.compile`, `nn.Module.compile` and their relatives in torch.compiler are Braze's."""
    if _replaced:
        return
    for owner, name, ours in (
        (torch, "compile", compile),
        (torch.compiler, "compile", compile),
        (torch.compiler, "disable", disable),
        (torch.compiler, "reset", _C.reset),
        (torch.compiler, "list_backends", _torch_list_backends),
    ):
        _replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, ours)


def uninstall() -> None:
    """Undoes `install`."""
    while _replaced:
        owner, name, theirs = _replaced.pop()
        setattr(owner, name, theirs)

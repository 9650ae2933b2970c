"""Activation checkpointing in traces: what torch.utils.checkpoint means there. See `_traced.checkpoint`."""

from collections.abc import Callable
from typing import Any

from torch.utils import checkpoint as _torch

from . import _C
from ._disable import disable

__all__ = ["begin", "call_in_eager", "end"]


def _policy(context_fn: Callable[[], Any] | None) -> Callable[..., bool] | None:
    """Whether an operator's results are kept, as torch.utils.checkpoint.create_selective_checkpoint_contexts says.

    Of other contexts nothing is known: then everything is kept.
    """
    if context_fn is None or context_fn is _torch.noop_context_fn:
        return None
    policy = getattr(context_fn()[0], "policy_fn", None)
    if policy is None:
        return lambda op, *args: True

    def keeps(op: Any, *args: Any) -> bool:
        said = policy(_torch.SelectiveCheckpointContext(is_recompute=False), op, *args)
        if isinstance(said, bool):
            return said
        return said in (_torch.CheckpointPolicy.MUST_SAVE, _torch.CheckpointPolicy.PREFER_SAVE)

    return keeps


def begin(context_fn: Callable[[], Any] | None) -> None:
    """From here on the trace computes what is to be computed again for gradients."""
    _C.enter_region(_policy(context_fn))


def end() -> None:
    _C.leave_region()


# (what is decorated would import torch's compiler, only to tell it to stay away)
call_in_eager = disable(
    getattr(_torch.checkpoint, "__wrapped__", _torch.checkpoint), reason="a checkpoint with use_reentrant=True"
)

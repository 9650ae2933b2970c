"""Python code of Braze's that is traced like the program's own: what it does belongs to the program."""

import contextlib
import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import _vmap_internals

from . import _C, _checkpoint
from ._disable import disable
from .errors import UserTypeError

__all__ = ["calling", "checkpoint", "error_on_graph_break", "fix_sizes", "nested_compile_region", "run_engine"]

_F = TypeVar("_F", bound=Callable[..., Any])


def calling(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A Python function that calls `fn`, which has no Python code of its own."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    functools.update_wrapper(call, fn)
    call.__name__ = getattr(fn, "__name__", type(fn).__name__)
    return call


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Any] | None = None,
    **kwargs: Any,
) -> Any:
    """What torch.utils.checkpoint.checkpoint is in a trace.

    The compiled backward pass computes again what `function` computes, but for its results, random numbers (which are
    kept, so that they are the same) and what a policy of selective checkpointing keeps. The reentrant kind changes
    which results need gradients: it stays eager's.
    """
    if use_reentrant is not False:
        if context_fn is not None:
            kwargs["context_fn"] = context_fn
        return _checkpoint.call_in_eager(function, *args, use_reentrant=use_reentrant, **kwargs)
    for name in ("preserve_rng_state", "determinism_check", "debug", "early_stop"):
        kwargs.pop(name, None)
    _checkpoint.begin(context_fn)
    try:
        return function(*args, **kwargs)
    finally:
        _checkpoint.end()


class error_on_graph_break:
    """In this block (or the decorated function) a graph break is an error (True), or isn't (False).

    What `fullgraph=True` compiled raises at every break anyway. Works inside compiled functions and around calls of
    them.
    """

    def __init__(self, error_on_graph_break: bool) -> None:
        if not isinstance(error_on_graph_break, bool):
            raise UserTypeError(f"error_on_graph_break takes True or False; got {error_on_graph_break!r}")
        self._flag = error_on_graph_break
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(_C.error_on_graph_break(self._flag))

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _C.error_on_graph_break(self._before.pop())

    def __call__(self, fn: _F) -> _F:
        flag = self._flag

        @functools.wraps(fn)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with error_on_graph_break(flag):
                return fn(*args, **kwargs)

        inside.__module__ = __name__  # it is traced, whatever the function's own module
        return inside  # type: ignore[return-value]


class _Region:
    def __call__(self, fn: _F) -> _F:
        return fn

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass


def nested_compile_region(
    fn: Any = None, *, options: Any = None, max_reuse_entries: int = 8, reuse_hash_fn: Any = None
) -> Any:
    """Marks a block that a model repeats. Decorator, or context manager.

    Nothing has to be marked: the kernels of equal blocks are compiled once and shared in every graph, so that this is
    for programs written for torch.compile. The arguments are torch's and change nothing.
    """
    return _Region() if fn is None else fn


def fix_sizes(t: Any, index: Any = None) -> None:
    """What `mark_static` is in a trace: the sizes become constants of the graph."""
    dims = range(t.dim()) if index is None else [index] if isinstance(index, int) else index
    for i in dims:
        _C.constant(t.shape[i])


def run_engine(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
    """What torch's way to autograd's engine is in a trace: no logging of single nodes, nothing for device threads."""
    return torch.autograd.Variable._execution_engine.run_backward(t_outputs, *args, **kwargs)


_C.set_rule(torch.autograd.graph._engine_run_backward, "replace", run_engine)


# What a trace that is given up would leave behind: a state of the thread.
_map_in_eager = disable(
    lambda func, args, options: _vmap_internals._vmap(func, **options)(*args),
    reason="gradients of many vectors at once",
)


def map_gradients(func: Any, in_dims: Any = 0, out_dims: Any = 0, allow_none_pass_through: bool = False) -> Any:
    """The vmap behind `is_grads_batched` in a trace: it is eager's, and so are the operators under it."""
    options = {"in_dims": in_dims, "out_dims": out_dims, "allow_none_pass_through": allow_none_pass_through}
    return lambda *args: _map_in_eager(func, args, options)


_C.set_rule(_vmap_internals._vmap, "replace", map_gradients)


# Only the real handle has the rest.
_look_at_handle = disable(
    lambda handle, name: object.__getattribute__(handle, name), reason="the program looks at the handle of a hook"
)


class HookHandle(torch.utils.hooks.RemovableHandle):
    """Of a hook that was registered in a trace."""

    def __init__(self) -> None:
        pass

    def remove(self) -> None:
        _C.remove_hook(self)

    def __getattr__(self, name: str) -> Any:
        return _look_at_handle(self, name)


def register_hook(self: Any, hook: Any) -> Any:
    """What Tensor.register_hook is in a trace."""
    if torch.overrides.has_torch_function_unary(self):
        return torch.overrides.handle_torch_function(torch.Tensor.register_hook, (self,), self, hook)
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    handle = HookHandle()
    _C.add_hook(handle, (torch.Tensor.register_hook, (self, hook)), self, hook, False)
    return handle


def register_post_accumulate_grad_hook(self: Any, hook: Any) -> Any:
    """What Tensor.register_post_accumulate_grad_hook is in a trace."""
    if torch.overrides.has_torch_function_unary(self):
        register = torch.Tensor.register_post_accumulate_grad_hook
        return torch.overrides.handle_torch_function(register, (self,), self, hook)
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if self.grad_fn is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    handle = HookHandle()
    _C.add_hook(handle, (torch.Tensor.register_post_accumulate_grad_hook, (self, hook)), self, hook, True)
    return handle


def gradients_of_transform(
    outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool = False, create_graph: bool = True
) -> Any:
    """How torch.func differentiates, without the import of torch's compiler."""
    if grad_outputs is None:
        outputs = tuple(out for out in outputs if out.requires_grad)
    else:
        pairs = [(out, gradient) for out, gradient in zip(outputs, grad_outputs) if out.requires_grad]  # noqa: B905
        outputs, grad_outputs = zip(*pairs, strict=True) if pairs else ((), ())
    if len(outputs) == 0:
        return tuple(torch.zeros_like(x) for x in inputs)
    if grad_outputs and all(o.shape == g.shape and o.is_complex() == g.is_complex() for o, g in pairs):
        found = run_engine(
            outputs, grad_outputs, retain_graph, create_graph, tuple(inputs), True, accumulate_grad=False
        )
    else:  # (which imports sympy for gradients that are given)
        found = torch.autograd.grad(
            outputs, inputs, grad_outputs, retain_graph=retain_graph, create_graph=create_graph, allow_unused=True
        )
    return tuple(torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True))


def use_grad_for_differentiable(func: Any) -> Any:
    """torch.optim's decorator of `step`, without the graph breaks."""

    def with_grad(*args: Any, **kwargs: Any) -> Any:
        before = torch.is_grad_enabled()
        try:
            torch.set_grad_enabled(args[0].defaults["differentiable"])
            return func(*args, **kwargs)
        finally:
            torch.set_grad_enabled(before)

    return with_grad


def disable_dynamo(fn: Any, recursive: bool) -> Any:
    """torch's decorator for what torch's compiler can't trace."""

    def plain(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs) if recursive is not None else None

    return plain


class record_function(contextlib.ContextDecorator):
    """torch.autograd.profiler.record_function, made in a graph."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: Any) -> None:
        pass


def enter_record_function(self: Any) -> Any:
    return self


def exit_record_function(self: Any, exc_type: Any, exc_value: Any, traceback: Any) -> None:
    pass


def get_value(x: Any) -> Any:
    return x.item() if isinstance(x, torch.Tensor) else x


def as_it_is(x: Any) -> Any:
    return x

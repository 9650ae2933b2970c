"""Runs a random program in eager and compiled and compares everything that can be seen of it."""

import contextlib
import io
import linecache
import math
import random
import types
import warnings
from typing import Any

import torch
from program import PRELUDE, program

import braze

__all__ = ["Difference", "check_seed", "check_text"]

CALLS = 5  # traced, from the cache, twice with other arguments, with those of the first call again


class Difference(AssertionError):
    """What the compiled program did otherwise."""


def module(text: str, name: str) -> types.ModuleType:
    """A module of that text with lines that tracebacks and inspect can show."""
    m = types.ModuleType(name)
    m.__file__ = f"<fuzz {name}>"
    linecache.cache[m.__file__] = (len(text), None, text.splitlines(True), m.__file__)
    exec(compile(text, m.__file__, "exec"), m.__dict__)
    return m


def standing(seed: int) -> str:
    """What the program's tensors are to autograd: nothing, leaves, or results."""
    return ("plain", "plain", "leaves", "results")[seed % 4]


def arguments(m: types.ModuleType, seed: int, call: int) -> tuple[list[Any], list[torch.Tensor]]:
    """The arguments of one call and the leaves behind them; the same for the eager and the compiled module."""
    leaves: list[torch.Tensor] = []
    variant = max(call - 1, 0) if call < CALLS - 1 else 0
    r = random.Random(seed * 7 + variant)
    g = torch.Generator().manual_seed(seed * 7 + variant)

    def tensor() -> torch.Tensor:
        t = torch.randn(3, 4, generator=g, dtype=torch.float64)
        if standing(seed) == "plain" or r.random() < 0.3:
            return t
        leaves.append(t.requires_grad_())
        return t if standing(seed) == "leaves" else t * 1

    a = tensor()
    b = a if r.random() < 0.1 else tensor()
    numbers = [r.randint(-3, 8) for _ in range(r.randint(2, 4))]
    table = {f"k{i}": r.randint(0, 8) for i in range(r.randint(1, 3))}
    thing = r.choice([m.Thing, m.Part])(r.randint(0, 4), tensor())
    return [a, b, r.randint(-2, 8), r.choice([0.5, -1.5, 2.0, 0.25]), r.random() < 0.5, numbers, table, thing], leaves


class Comparison:
    """Deep comparison of two object graphs that also compares which objects and memories are shared."""

    def __init__(self) -> None:
        self.partner: dict[int, int] = {}
        self.back: dict[int, int] = {}
        self.kept: list[Any] = []
        self.roots: list[tuple[torch.Tensor, torch.Tensor]] = []  # with a gradient function

    def paired(self, a: int, b: int, path: str, what: str) -> bool:
        """True if seen before; raises where one side shares what the other does not."""
        if self.partner.get(a, b) != b or self.back.get(b, a) != a:
            raise Difference(f"{path}: {what} shared otherwise than in eager")
        seen = a in self.partner
        self.partner[a], self.back[b] = b, a
        return seen

    def same(self, a: Any, b: Any, path: str) -> None:
        if type(a).__name__ != type(b).__name__:
            raise Difference(f"{path}: type {type(a).__name__} in eager, {type(b).__name__} compiled")
        self.kept += [a, b]
        if isinstance(a, torch.Tensor):
            return self.tensors(a, b, path)
        if isinstance(a, (float, complex)):
            if not (a == b or (a != a and b != b) or math.isclose(a, b, rel_tol=1e-7, abs_tol=1e-7)):
                raise Difference(f"{path}: {a!r} in eager, {b!r} compiled")
            return
        if a is None or isinstance(a, (int, str, bytes, torch.dtype, type(Ellipsis))):
            if a != b:
                raise Difference(f"{path}: {a!r} in eager, {b!r} compiled")
            return
        if isinstance(a, (types.FunctionType, types.ModuleType, type)):
            return
        if not isinstance(a, tuple) and self.paired(id(a), id(b), path, "object"):
            return
        if isinstance(a, (list, tuple, collections_deque)):
            if len(a) != len(b):
                raise Difference(f"{path}: {len(a)} items in eager, {len(b)} compiled")
            for i, (x, y) in enumerate(zip(a, b, strict=True)):
                self.same(x, y, f"{path}[{i}]")
        elif isinstance(a, dict):
            if list(a) != list(b):
                raise Difference(f"{path}: keys {list(a)} in eager, {list(b)} compiled")
            for k in a:
                self.same(a[k], b[k], f"{path}[{k!r}]")
        elif isinstance(a, (set, frozenset)):
            if a != b:
                raise Difference(f"{path}: {a!r} in eager, {b!r} compiled")
        elif isinstance(a, BaseException):
            self.same(a.args, b.args, f"{path}.args")
            self.same(a.__cause__, b.__cause__, f"{path}.__cause__")
        elif hasattr(a, "__dict__"):
            self.same(vars(a), vars(b), f"vars({path})")

    def tensors(self, a: torch.Tensor, b: torch.Tensor, path: str) -> None:
        if self.paired(id(a), id(b), path, "tensor"):
            return
        for what in ("dtype", "shape", "requires_grad"):
            if getattr(a, what) != getattr(b, what):
                raise Difference(f"{path}.{what}: {getattr(a, what)} in eager, {getattr(b, what)} compiled")
        before, after = gradient_function(a), gradient_function(b)
        if (before is None) != (after is None) or isinstance(before, str) != isinstance(after, str):
            raise Difference(f"{path}.grad_fn: {before} in eager, {after} compiled")
        self.roots += [(a, b)] if before is not None and not isinstance(before, str) else []
        if a.numel():
            if a.stride() != b.stride():
                raise Difference(f"{path}.stride(): {a.stride()} in eager, {b.stride()} compiled")
            self.paired(a.untyped_storage().data_ptr(), b.untyped_storage().data_ptr(), path, "memory")
            if a.storage_offset() != b.storage_offset():
                raise Difference(f"{path}.storage_offset(): {a.storage_offset()}, {b.storage_offset()} compiled")
        if not torch.allclose(a.double(), b.double(), rtol=1e-6, atol=1e-7, equal_nan=True):
            raise Difference(f"{path}: values differ by {(a.double() - b.double()).abs().max().item():.3g}")

    def gradients(self, eager: list[Any], compiled: list[Any], path: str) -> None:
        """Of some of what was met since the last time, with respect to these tensors."""
        roots, self.roots = self.roots[-3:], []
        if not roots or not eager:
            return
        found = []
        for side, leaves in enumerate((eager, compiled)):
            chosen = [pair[side] for pair in roots]
            weights = [torch.cos(torch.arange(t.numel(), dtype=t.dtype)).reshape(t.shape) for t in chosen]
            try:
                found.append(torch.autograd.grad(chosen, leaves, weights, allow_unused=True))
            except RuntimeError as e:
                found.append(str(e).split(";")[0][:60])
        if isinstance(found[0], str) or isinstance(found[1], str):
            # (which tensors must not be changed before the backward pass: decision 10)
            versions = any(isinstance(x, str) and x.startswith("one of the variables needed") for x in found)
            if isinstance(found[0], str) != isinstance(found[1], str) and not versions:
                e, c = (x if isinstance(x, str) else "a value" for x in found)
                raise Difference(f"{path}: {e} in eager, {c} compiled")
            return
        for i, (x, y) in enumerate(zip(*found, strict=True)):
            if (x is None) != (y is None):
                raise Difference(f"{path} {i}: {x} in eager, {y} compiled")
            if x is not None and not torch.allclose(x, y, rtol=1e-6, atol=1e-7, equal_nan=True):
                raise Difference(f"{path} {i}: values differ by {(x - y).abs().max().item():.3g}")


collections_deque = __import__("collections").deque


def gradient_function(t: torch.Tensor) -> Any:
    """Or why there is none any more."""
    try:
        return t.grad_fn
    except RuntimeError as e:
        return str(e)


def outcome(f: Any, args: list[Any]) -> tuple[str, Any, str]:
    """How the call ended, with what, and what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            kind, value = "return", f(*args)
        except Exception as e:
            kind, value = "raise", e
    return kind, value, out.getvalue()


def check_text(text: str, seed: int) -> None:
    """Raises Difference where the compiled program behaves otherwise than in eager."""
    whole = PRELUDE + text
    eager, compiled = module(whole, f"eager_{seed}"), module(whole, f"compiled_{seed}")
    f = braze.compile(compiled.f, dynamic=True if seed % 2 else None)  # numbers are symbols from the first call
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", braze.InternalErrorWarning)
        compare(eager, compiled, f, seed)


def compare(eager: types.ModuleType, compiled: types.ModuleType, f: Any, seed: int) -> None:
    """Both are called side by side."""
    both = Comparison()  # what is shared between calls, too
    for call in range(CALLS):
        (ours, our_leaves), (theirs, their_leaves) = arguments(compiled, seed, call), arguments(eager, seed, call)
        expected, got = outcome(eager.f, theirs), outcome(f, ours)
        where = f"call {call}"
        if expected[0] != got[0]:
            raise Difference(f"{where}: {expected[0]} {expected[1]!r} in eager, {got[0]} {got[1]!r} compiled")
        both.same(expected[1], got[1], f"{where}: result")
        both.same(expected[2], got[2], f"{where}: output")
        for name, x, y in zip(("a", "b", "n", "x", "flag", "numbers", "table", "thing"), theirs, ours, strict=True):
            both.same(x, y, f"{where}: argument {name}")
        both.gradients(their_leaves, our_leaves, f"{where}: gradient")
        both.same([eager.COUNT, eager.LOG], [compiled.COUNT, compiled.LOG], f"{where}: globals")


def check_seed(seed: int) -> None:
    """`check_text` of the program of that seed."""
    check_text(program(seed), seed)

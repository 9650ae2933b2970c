"""Sizes, strides, types and aliasing of results, known before the run, are those that eager gives.

Operators of torch's own database are taken apart into those below autograd, and each of these is called on contiguous,
channels-last, transposed, strided and expanded arguments: once in eager, once captured.
"""

import collections
import itertools
import warnings

import pytest
import torch
from bridge_support import bridge
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

SAMPLES = 4  # of an entry
CALLS = 3  # of an operator in each entry, with other arguments
LARGEST = 20000  # elements
# its samples alone take seconds
SLOW = {"double", "float", "half", "int"}


def with_strides(t, strides):
    size = 1 + sum((n - 1) * s for n, s in zip(t.shape, strides, strict=True)) if t.numel() else 0
    return torch.zeros(size, dtype=t.dtype).as_strided(t.shape, strides).copy_(t)


def same(t):
    return with_strides(t, t.stride())


def channels_last(t):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return t.clone(memory_format=formats[t.dim()]) if t.dim() in formats else same(t)


def transposed(t):
    order = tuple(reversed(range(t.dim())))
    return t.permute(order).contiguous().permute(order)


def swapped(t):
    return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.dim() >= 3 else same(t)


def strided(t):
    parts = tuple(slice(0, 2 * n, 2) if i % 2 == 0 else slice(n, 2 * n) for i, n in enumerate(t.shape))
    return torch.zeros([2 * n for n in t.shape], dtype=t.dtype)[parts].copy_(t) if t.dim() else t.clone()


def expanded(t):
    return t[:1].clone().expand(t.shape) if t.dim() and t.shape[0] > 1 else t.clone()


LAYOUTS = (same, channels_last, transposed, swapped, strided, expanded)


def description(results, arguments):
    """Everything but the numbers."""
    out = []
    for i, r in enumerate(results):
        if not isinstance(r, torch.Tensor) or r.layout is not torch.strided:
            out.append(type(r))
            continue
        others = [*arguments, *(t for t in results[:i] if isinstance(t, torch.Tensor))]
        memory = r.untyped_storage()._cdata
        shared = [k for k, t in enumerate(others) if t.untyped_storage()._cdata == memory]
        strides = [s for s, n in zip(r.stride(), r.shape, strict=True) if n > 1] if r.numel() else []
        out.append((r.dtype, tuple(r.shape), strides, r.storage_offset(), shared, r.is_conj(), r.is_neg()))
    return out


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        leaves, structure = tree_flatten((args, kwargs or {}))
        leaves = [t.clone() if isinstance(t, torch.Tensor) and t.layout is torch.strided else t for t in leaves]
        self.calls.append((function, leaves, structure))
        return function(*args, **(kwargs or {}))


def calls_below(entry, dtype):
    torch.manual_seed(0)
    counts = collections.Counter()
    for sample in itertools.islice(entry.sample_inputs("cpu", dtype), SAMPLES):
        recorder = Recorder()
        try:
            with recorder:
                entry(sample.input, *sample.args, **sample.kwargs)
        except Exception:  # some samples need what the mode doesn't have
            continue
        for function, leaves, structure in recorder.calls:
            tensors = [t for t in leaves if isinstance(t, torch.Tensor)]
            plain = all(type(t) is torch.Tensor and t.layout is torch.strided and not t.is_quantized for t in tensors)
            if tensors and plain and all(t.numel() <= LARGEST for t in tensors):
                counts[function] += 1
                if counts[function] <= CALLS:
                    yield function, leaves, structure


class _Done(BaseException):
    pass


def difference(function, leaves, structure, layout, only_first):
    """What capture expects and what eager gives, where they differ."""
    at = [i for i, t in enumerate(leaves) if isinstance(t, torch.Tensor)]

    def arguments():
        values = list(leaves)
        for i in at:
            t = leaves[i].detach().resolve_conj().resolve_neg()
            values[i] = (same if only_first and i != at[0] else layout)(t)
        return values

    def call(values):
        args, kwargs = tree_unflatten(values, structure)
        results, tensors = tree_flatten(function(*args, **kwargs))[0], [values[i] for i in at]
        return description(results, tensors) + description(tensors, [])

    try:
        expected = call(arguments())
    except Exception:  # eager can't do that
        return None
    values, got = arguments(), []

    def captured(*tensors):
        for i, t in zip(at, tensors, strict=True):
            values[i] = t
        got.extend(call(values))
        raise _Done

    try:
        bridge.capture(captured, tuple(values[i] for i in at))
    except _Done:
        return None if got == expected else (got, expected)
    except bridge.GraphBreak:
        return None
    raise AssertionError("capture returned without having run")


@pytest.mark.parametrize("part", range(8))
def test_results_are_those_of_eager(part):
    warnings.simplefilter("ignore")
    wrong, checked = [], 0
    for entry in op_db[part::8]:
        if entry.name in SLOW or torch.float32 not in entry.supported_dtypes("cpu"):
            continue
        for function, leaves, structure in calls_below(entry, torch.float32):
            if "lift_fresh" in str(function):  # eager returns the very tensor, a program its own copy
                continue
            several = sum(isinstance(t, torch.Tensor) for t in leaves) > 1
            for layout in LAYOUTS:
                if layout is expanded and function._schema.is_mutable:
                    continue
                for only_first in (False, True)[: 1 + several]:
                    checked += 1
                    with torch.no_grad():
                        if found := difference(function, leaves, structure, layout, only_first):
                            wrong.append((str(function), layout.__name__, only_first, *found))
    assert checked > 100
    assert not wrong, "\n".join(map(str, wrong))

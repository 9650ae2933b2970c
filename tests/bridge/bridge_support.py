"""The bridge without the front end: braze_bridge_test captures a callable that CPython runs on fake tensors."""

import importlib.util
import os
import pathlib

import torch


def _module_path():
    folder = os.environ.get("BRAZE_BRIDGE_TEST")
    root = pathlib.Path(__file__).resolve().parents[2] / "build"
    found = [pathlib.Path(folder)] if folder else sorted(root.glob("*/braze_bridge_test.so"), key=os.path.getmtime)
    assert found, "build the target braze_bridge_test first"
    return found[-1]


_spec = importlib.util.spec_from_file_location("braze_bridge_test", _module_path())
bridge = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bridge)


def rebuild(plan, inputs, outputs):
    """The results of a run in the structure that the captured function returned."""
    if isinstance(plan, tuple) and len(plan) == 2 and plan[0] in ("input", "node"):
        return inputs[plan[1]] if plan[0] == "input" else outputs[plan[1]]
    if isinstance(plan, (tuple, list)):
        return type(plan)(rebuild(p, inputs, outputs) for p in plan)
    if isinstance(plan, dict):
        return {k: rebuild(v, inputs, outputs) for k, v in plan.items()}
    return plan


class Captured:
    def __init__(self, fn, *args, dynamic=None):
        self.graph = bridge.capture(fn, args, *(() if dynamic is None else (dynamic,)))

    def __call__(self, *args):
        tensors = list(tensors_of(args))
        inputs = tensors + self.graph.inputs[len(tensors) :]
        return rebuild(self.graph.plan, inputs, self.graph(*tensors))

    @property
    def text(self):
        return self.graph.text()


def tensors_of(o):
    if isinstance(o, torch.Tensor):
        yield o
    elif isinstance(o, dict):
        for v in o.values():
            yield from tensors_of(v)
    elif isinstance(o, (list, tuple)):
        for v in o:
            yield from tensors_of(v)


def copies(o):
    """Deep copies of tensors (views and leaves keep their kind)."""
    if isinstance(o, torch.Tensor):
        c = torch.empty_strided(o.size(), o.stride(), dtype=o.dtype)
        c.copy_(o.detach())
        return c.requires_grad_(o.requires_grad)
    if isinstance(o, (list, tuple)):
        return type(o)(copies(x) for x in o)
    return o


def check(fn, *args, runs=2, exact=False):
    """fn captured on args and run must do what fn does, to its results and to its arguments."""
    captured = Captured(fn, *copies(args))
    for _ in range(runs):
        mine, theirs = copies(args), copies(args)
        torch.manual_seed(7)
        got = captured(*mine)
        torch.manual_seed(7)
        expected = fn(*theirs)
        compare(got, expected, exact)
        compare(mine, theirs, exact)
    return captured


def compare(got, expected, exact=False):
    a, b = list(tensors_of(got)), list(tensors_of(expected))
    assert len(a) == len(b)
    for x, y in zip(a, b):
        assert type(x) is type(y)
        assert (x.dtype, x.shape, x.requires_grad, x.is_leaf) == (y.dtype, y.shape, y.requires_grad, y.is_leaf)
        for i, size in enumerate(x.shape):
            assert size <= 1 or x.stride(i) == y.stride(i), (x.stride(), y.stride())
        tolerance = dict(rtol=0, atol=0) if exact else {}
        torch.testing.assert_close(x, y, equal_nan=True, **tolerance)

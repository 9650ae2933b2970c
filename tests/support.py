"""What the tests share: comparing with eager, counting compilations."""

import contextlib
import dataclasses

import torch

import braze


def assert_same(actual, expected, **tolerance):
    """The same structure, types and numbers; tensors also in dtype, device, requires_grad."""
    assert type(actual) is type(expected), f"expected {type(expected)}, got {type(actual)}"
    if isinstance(expected, torch.Tensor):
        assert actual.requires_grad == expected.requires_grad
        if expected.device.type == "meta":
            assert actual.shape == expected.shape and actual.dtype == expected.dtype
            assert actual.device == expected.device and actual.stride() == expected.stride()
        else:
            torch.testing.assert_close(actual, expected, **tolerance)
    elif isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key in expected:
            assert_same(actual[key], expected[key], **tolerance)
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            assert_same(a, e, **tolerance)
    elif dataclasses.is_dataclass(expected) and not isinstance(expected, type):
        for field in dataclasses.fields(expected):
            assert_same(getattr(actual, field.name), getattr(expected, field.name), **tolerance)
    else:
        assert actual == expected


@contextlib.contextmanager
def compiles(count):
    """The body compiles exactly `count` graphs."""
    before = braze.compilations()
    yield
    made = braze.compilations() - before
    assert made == count, f"expected {count} compilations, got {made}"


def assert_like_eager(fn, *arguments, calls=2, graphs=None, empty=False, compile=None, **tolerance):
    """Calls `fn` and its compiled form on equal arguments, each `calls` times, and compares the results.

    arguments: functions that make fresh arguments, or values that aren't changed. graphs: how many are compiled;
    empty: it may be none.
    """

    def fresh():
        return [a() if callable(a) and not isinstance(a, torch.nn.Module | type) else a for a in arguments]

    compiled = braze.compile(fn, **(compile or {}))
    before = braze.compilations()
    for _ in range(calls):
        mine, theirs = fresh(), fresh()
        expected = fn(*theirs)
        assert_same(compiled(*mine), expected, **tolerance)
        assert_same(mine, theirs, **tolerance)
    if graphs is not None:
        made = braze.compilations() - before
        assert made == graphs, f"expected {graphs} graphs, got {made}"
    elif not empty:
        assert braze.compilations() > before, "nothing was compiled"
    return compiled


def traceback_lines(error):
    """(file, line, function) of each frame from the caller's on, the caller itself left out."""
    lines, tb = [], error.__traceback__.tb_next
    while tb is not None:
        code = tb.tb_frame.f_code
        lines.append((code.co_filename, tb.tb_lineno, code.co_name))
        tb = tb.tb_next
    return lines

"""Every reason for a graph break: a program that meets it, in eager's words, and what is told about it."""

import sys
import threading
import time
import types
import zlib

import pytest
import torch

import braze

x = torch.ones(3)
LOCK = threading.Lock()
CAPTURED = torch.ones(3)
ITERATOR = iter([1, 2])


@braze.disable
def disabled(x):
    return x


def disallowed(x):
    return x * 2


braze.disallow_in_graph(disallowed)


@braze.forbid_in_graph
def forbidden(x):
    return x


@braze.allow_in_graph
def opaque(x):
    return x * CAPTURED


@braze.assume_constant_result
def constant(x):
    return 1


def data_dependent(x):
    return x * 2 if x.sum() > 0 else x


def unknown_c_function(x):
    return x * zlib.crc32(b"text")


def io(x):
    print(end="")
    return x * 2


def random_state(x):
    return x * len(torch.default_generator.get_state())


def clock(x):
    return x * (time.time() > 0)


def thread(x):
    return x * (not LOCK.locked())


def tensor_storage(x):
    return x * (x.data_ptr() > 0)


def tensor_attribute(x):
    x.mark = 1
    return x * 2


def unsupported_tensor(x):
    return x.to_sparse().to_dense()


RESIZE = torch.ops.aten.resize_


def unsupported_op(x):
    y = x.clone()
    RESIZE(y, [2])
    return y * 2


def operator_error(x):
    try:
        return torch.mm(x, x)
    except RuntimeError:
        return x * 2


def autograd(x):
    y = x * 2
    y.register_hook(print)
    return y


def iterator_from_before(x):
    return x * next(ITERATOR, 3)


class Thing:
    pass


class Other:
    pass


THING = Thing()


def unknown_object(x):
    THING.__class__ = Other
    return x * 2


def cannot_rebuild(x):
    return x * 2, (i for i in (1, 2))


class Finalised:
    def __del__(self):
        pass


def finaliser(x):
    kept = Finalised()
    return x * 2, kept


def dynamic_import(x):
    import colorsys

    return x * len(colorsys.__all__)


def frame_inspection(x):
    return x * len(locals())


def generator_function(x):
    yield x * 2


def disabled_inside(x):
    return disabled(x) * 2


def disallowed_inside(x):
    return disallowed(x) * 2


def forbidden_inside(x):
    return forbidden(x) * 2


def requested(x):
    braze.graph_break("said why")
    return x * 2


def compiler_control(x):
    braze.reset()
    return x * 2


def opaque_value(x):
    return opaque({"x": x}) if braze.is_compiling() else x


def constant_result(x):
    return x * constant(x)


def loop_too_long(x):
    for _ in range(21000):
        x = x + 1
    return x


def opcode(x):
    return x * 2


# an instruction that only the interactive interpreter has
_code = bytearray(opcode.__code__.co_code)
_print = bytes([100, 0, 70, 0])  # LOAD_CONST None, PRINT_EXPR
opcode = types.FunctionType(opcode.__code__.replace(co_code=bytes(_code[:2]) + _print + bytes(_code[2:])), globals())


def dynamic_value(x):
    return opaque(x) * 2


def internal(x):
    def deep(n, x):
        return deep(n - 1, x) if n else x * 2

    return deep(1500, x)


EXAMPLES = {
    "data-dependent": data_dependent,
    "unknown-c-function": unknown_c_function,
    "io": io,
    "random-state": random_state,
    "clock": clock,
    "thread": thread,
    "tensor-storage": tensor_storage,
    "tensor-attribute": tensor_attribute,
    "unsupported-tensor": unsupported_tensor,
    "unsupported-op": unsupported_op,
    "operator-error": operator_error,
    "autograd": autograd,
    "iterator-from-before": iterator_from_before,
    "unknown-object": unknown_object,
    "cannot-rebuild": cannot_rebuild,
    "finaliser": finaliser,
    "dynamic-import": dynamic_import,
    "frame-inspection": frame_inspection,
    "generator-function": generator_function,
    "disabled": disabled_inside,
    "disallowed": disallowed_inside,
    "forbidden": forbidden_inside,
    "requested": requested,
    "compiler-control": compiler_control,
    "opaque-value": opaque_value,
    "constant-result": constant_result,
    "loop-too-long": loop_too_long,
    "opcode": opcode,
    "dynamic-value": dynamic_value,
    "internal": internal,
}
TABLE = {reason["id"]: reason for reason in braze._C.break_reasons()}


def test_there_is_an_example_of_each():
    assert sorted(EXAMPLES) == sorted(TABLE)
    for reason in TABLE.values():
        assert reason["title"] and reason["explanation"] and reason["hint"], reason["id"]


@pytest.mark.parametrize("id", EXAMPLES)
def test_reason(id):
    fn = EXAMPLES[id]
    sys.modules.pop("colorsys", None)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5000)
    try:
        with pytest.raises(braze.GraphBreakError) as e:
            argument = torch.ones(3, requires_grad=True) if id == "autograd" else torch.ones(3)
            braze.compile(fn, fullgraph=True)(argument)
    finally:
        sys.setrecursionlimit(limit)
    text = str(e.value)
    reason = TABLE[id]
    assert f"{id}: {reason['title']}" in text
    assert reason["explanation"] in text and f"hint: {reason['hint']}" in text
    assert f"{__file__}:" in text

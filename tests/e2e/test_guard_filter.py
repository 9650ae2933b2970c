"""`options={"guard_filter_fn": ...}`: which guards are kept, and what a dropped one that fails does."""

import pathlib
import re

import pytest
import torch
from support import assert_same, compiles
from torch import nn

import braze
from braze import compiler

FACTOR = 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3).requires_grad_(False)
        self.k = 2

    def forward(self, x, times=3):
        return self.linear(x) * self.k * times * FACTOR


def compiled_net(filter_fn):
    net = Net()
    compiled = braze.compile(net, options={"guard_filter_fn": filter_fn}, dynamic=False)
    with compiles(1):
        assert_same(compiled(torch.ones(2, 3)), net(torch.ones(2, 3)))
    return net, compiled


def test_entries():
    seen = []

    def keep_all(entries):
        seen.extend(entries)
        return [True] * len(entries)

    net, compiled = compiled_net(keep_all)
    by_type = {e.guard_type for e in seen}
    assert {"TENSOR_MATCH", "TYPE_MATCH", "GLOBAL_STATE", "EQUALS_MATCH"} <= by_type
    (x,) = [e for e in seen if e.guard_type == "TENSOR_MATCH" and "linear" not in e.name]
    assert x.has_value and torch.equal(x.value, torch.ones(2, 3)) and not x.is_global
    (weight,) = [e for e in seen if e.guard_type == "TENSOR_MATCH" and "weight" in e.name]
    assert weight.value is net.linear.weight
    assert weight.orig_guard.source.is_unspecialized_builtin_nn_module()
    (k,) = [e for e in seen if e.guard_type == "EQUALS_MATCH" and "k" in e.name]
    assert k.value == 2 and k.orig_guard.source.is_unspecialized_nn_module()
    assert not k.orig_guard.source.is_unspecialized_builtin_nn_module()
    (factor,) = [e for e in seen if "FACTOR" in e.name and e.guard_type == "EQUALS_MATCH"]
    assert factor.is_global and "FACTOR" in str(factor)
    net.k = 5
    with compiles(1):
        assert_same(compiled(torch.ones(2, 3)), net(torch.ones(2, 3)))


def changes(net, monkeypatch):
    """What each change makes of the call: does it compile again?"""

    def change_attribute():
        net.k += 1

    def change_global():
        monkeypatch.setitem(globals(), "FACTOR", FACTOR + 1)

    def change_part():
        net.linear.in_features += 1
        net.linear.extra = None

    return {"module": change_attribute, "global": change_global, "part": change_part}


@pytest.mark.parametrize(
    ("name", "dropped"),
    [
        ("keep_portable_guards_unsafe", {"module", "global", "part"}),
        ("keep_tensor_guards_unsafe", {"module", "global", "part"}),
        ("skip_all_guards_unsafe", {"module", "global", "part"}),
        ("skip_guard_on_all_nn_modules_unsafe", {"module", "part"}),
        ("skip_guard_on_globals_unsafe", {"global", "part"}),
        ("skip_guard_on_inbuilt_nn_modules_unsafe", {"part"}),
    ],
)
@pytest.mark.parametrize("theirs", [False, True])
def test_ready_made_filters(name, dropped, theirs, monkeypatch):
    net, compiled = compiled_net(getattr(torch.compiler if theirs else compiler, name))
    x = torch.ones(2, 3)
    for what, change in changes(net, monkeypatch).items():
        before = compiled(x)
        change()
        count = braze.compilations()
        after = compiled(x)
        if what in dropped:
            assert braze.compilations() == count
            assert_same(after, before)  # an old answer, as asked for
        else:
            assert_same(after, net(x))


def test_kept_tensor_guards_compile_again():
    net, compiled = compiled_net(compiler.keep_tensor_guards_unsafe)
    with compiles(1):
        assert_same(compiled(torch.ones(5, 3)), net(torch.ones(5, 3)))


def test_dropped_guards_on_tensors_that_fail_raise():
    """Memory depends on them, so that a wrong answer isn't the worst."""
    _, compiled = compiled_net(compiler.skip_all_guards_unsafe)
    for x in (torch.ones(5, 3), torch.ones(2, 3, dtype=torch.float64), torch.ones(3, 2).t(), None):
        with pytest.raises(braze.UserError, match="guard_filter_fn dropped a guard that fails"):
            compiled(x)
    assert compiled(torch.ones(2, 3)).shape == (2, 3)


def test_bad_filters():
    x = torch.ones(3)
    f = lambda x: x * 2
    with pytest.raises(
        braze.UserError, match=r"guard_filter_fn short must return a list of \d+ bools; it returned 1 values"
    ):

        def short(entries):
            return [True]

        braze.compile(f, options={"guard_filter_fn": short})(x)
    with pytest.raises(ZeroDivisionError):
        braze.compile(f, options={"guard_filter_fn": lambda entries: 1 / 0})(x)
    with pytest.raises(braze.UserError, match="option 'guard_filter_fn' must be None or a callable; got 3"):
        braze.compile(f, options={"guard_filter_fn": 3})


def test_every_kind_of_guard_has_a_name_of_torch():
    from braze._guard_filter import _TYPES

    table = pathlib.Path(__file__).parents[2] / "frontend" / "guards" / "guards.def"
    assert set(_TYPES) == set(re.findall(r"^GUARD\((\w+),", table.read_text(), re.M))

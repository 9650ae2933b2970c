"""config.check_fakes: no tensor of a trace outlives it."""

import pytest
import torch
from support import assert_same

import braze


def test_a_tensor_of_the_trace_that_is_kept_is_an_internal_error():
    kept = []

    @braze.allow_in_graph  # (the promise that the function has no side effects is broken)
    def keeps(x):
        kept.append(x)
        return x + 1

    with braze.config.patch(check_fakes=True, strict=True):
        compiled = braze.compile(lambda x: keeps(x) * 2)
        with pytest.raises(braze.InternalError, match=r"1 fake tensors outlived their trace.* list;.*sizes \[3\]"):
            compiled(torch.ones(3))
    assert len(kept) == 1


@pytest.mark.internal_error
def test_without_strict_the_call_runs_in_eager():
    kept = []

    @braze.allow_in_graph
    def keeps(x):
        kept.append(x)
        return x + 1

    with braze.config.patch(check_fakes=True), pytest.warns(braze.InternalErrorWarning, match="outlived"):
        assert_same(braze.compile(lambda x: keeps(x) * 2)(torch.ones(3)), torch.full((3,), 4.0))


def test_programs_that_keep_tensors_in_their_own_objects():
    box, model = {}, torch.nn.Linear(3, 3)

    def f(x):
        y = model(x)
        box["y"] = y
        x.note = y * 2
        model.seen = y.sum()
        cycle = [y]
        cycle.append(cycle)
        try:
            raise ValueError(y)
        except ValueError as e:
            box["error"] = e
        if y.sum() > 100:  # a graph break
            y = y + 1
        return [lambda: y, cycle]

    with braze.config.patch(check_fakes=True, strict=True):
        compiled = braze.compile(f)
        x = torch.ones(2, 3)
        out = compiled(x)
        assert_same(out[0](), model(x))
        assert_same(box["y"], model(x))
        assert box["error"].args[0] is box["y"]
        compiled(torch.ones(4, 3)).clear()


def test_a_backward_pass():
    with braze.config.patch(check_fakes=True, strict=True):
        x = torch.ones(3, requires_grad=True)
        braze.compile(lambda x: (x * x).sum())(x).backward()
    assert_same(x.grad, torch.full((3,), 2.0))


def test_a_backward_pass_that_cannot_be_recorded():
    """The engine keeps the tasks that an error leaves undone until its next run."""

    def f(a, b):
        y = a * 2
        several = [y.abs() for _ in range(4)]
        y -= b
        braze.graph_break()
        return several

    with braze.config.patch(check_fakes=True, strict=True):
        a = torch.ones(3, requires_grad=True)
        assert_same(braze.compile(f)(a, torch.ones(3)), f(a, torch.ones(3)))


def test_a_tensor_whose_new_contents_depend_on_what_its_own_graph_saved():
    """Such a tensor belongs to its own graph: eager keeps it for good, the trace lets its fakes go."""

    def whole(a, b):
        a *= torch.tanh(a * b)
        return a + 1

    def part(a, b):
        a[0] *= torch.tanh(a * b)[0]
        return a + 1

    for f in (whole, part):
        a, b = torch.rand(2, 3), torch.rand(2, 3, requires_grad=True)
        expected = f(a.clone(), b)
        with braze.config.patch(check_fakes=True, strict=True):
            assert_same(braze.compile(f)(a, b), expected)

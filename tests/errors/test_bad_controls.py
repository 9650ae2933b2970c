"""Wrong arguments of the controls."""

import pytest
import torch

import braze


def f(x):
    return x


@pytest.mark.parametrize(
    "take",
    [
        braze.allow_in_graph,
        braze.disallow_in_graph,
        braze.forbid_in_graph,
        braze.nonstrict_trace,
        braze.assume_constant_result,
        braze.run,
        braze.substitute_in_graph,
        braze.substitute_in_graph(f),
        braze.register_backend,
    ],
)
def test_not_a_function(take):
    with pytest.raises(TypeError, match=r"got 3 of type int"):
        take(3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: braze.set_stance("forced_eager"), "unknown stance 'forced_eager'; allowed are default, force_eager, "),
        (
            lambda: braze.set_stance("force_eager", force_backend="eager"),
            "force_backend goes with the stance 'default' only; got 'force_eager'",
        ),
        (lambda: braze.set_stance(force_backend="eagr"), "unknown backend 'eagr'; allowed are "),
        (
            lambda: braze.set_stance(skip_guard_eval_unsafe=1),
            "skip_guard_eval_unsafe must be True or False; got 1",
        ),
        (lambda: braze.error_on_graph_break("yes"), "error_on_graph_break takes True or False; got 'yes'"),
        (lambda: braze.mark_dynamic(torch.ones(3), 1), "mark_dynamic: a tensor of 1 dimensions has no dimension 1"),
        (lambda: braze.mark_dynamic(torch.ones(3), "x"), "mark_dynamic: a dimension is an int, or several in a list"),
        (
            lambda: braze.mark_dynamic(torch.ones(1), 0),
            "mark_dynamic: dimension 0 has size 1; sizes 0 and 1 are always",
        ),
        (
            lambda: braze.mark_dynamic(torch.ones(3), 0, min=4),
            "mark_dynamic: size 3 of dimension 0 is outside of min=4, max=None",
        ),
        (lambda: braze.maybe_mark_dynamic(3, 0), "maybe_mark_dynamic takes a tensor; got 3 of type int"),
        (lambda: braze.mark_static(3), "mark_static takes a tensor or a class of modules; got 3 of type int"),
        (lambda: braze.mark_static_address([]), "mark_static_address takes a tensor; got [] of type list"),
        (lambda: braze.disable(f, recursive=1), "recursive is True or False, reason a str; got 1 and None"),
    ],
)
def test_wrong_argument(call, message):
    with pytest.raises(braze.UserError) as e:
        call()
    assert str(e.value).startswith(message)


def test_stance_is_kept_where_it_is_not_set():
    with pytest.raises(braze.UserError):
        braze.set_stance("nothing")
    with pytest.raises(braze.UserError):
        braze.set_stance(force_backend=5)
    before = braze.compilations()
    braze.compile(lambda x: x * 2)(torch.ones(3))
    assert braze.compilations() == before + 1

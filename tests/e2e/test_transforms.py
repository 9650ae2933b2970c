"""torch.func inside compiled code and applied to it."""

import pytest
import torch
from support import assert_like_eager, assert_same
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import braze

W = torch.linspace(-1, 1, 9).reshape(3, 3)


def loss(x):
    return (x @ W).sin().pow(2).sum()


def layer(x):
    return (x @ W).sin()


def an_input():
    return torch.linspace(-2, 2, 12).reshape(4, 3)


INSIDE = {
    "vmap": lambda x: vmap(lambda row: (row @ W).sin())(x),
    "vmap of a dim": lambda x: vmap(lambda column, k: column * k, in_dims=(1, None), out_dims=1)(x, 3.0),
    "vmap in chunks": lambda x: vmap(lambda row: row.cumsum(0), chunk_size=2)(x),
    "nested vmap": lambda x: vmap(vmap(lambda a: a * 2 + 1))(x),
    "jvp": lambda x: jvp(layer, (x,), (torch.ones(4, 3),)),
    "jacfwd": lambda x: jacfwd(layer)(x),
}


@pytest.mark.parametrize("name", INSIDE)
def test_inside(name):
    f = INSIDE[name]
    compiled = assert_like_eager(f, an_input, compile={"fullgraph": True}, graphs=1)
    assert_same(compiled(an_input() + 1), f(an_input() + 1))


def test_functional_call_inside():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())
    parameters = {k: v.detach() * 2 for k, v in model.named_parameters()}

    def f(parameters, x):
        return functional_call(model, parameters, (x,)).sum()

    before = dict(model.named_parameters())
    compiled = braze.compile(f, fullgraph=True)
    for scale in (1.0, 0.5):
        scaled = {k: v * scale for k, v in parameters.items()}
        assert_same(compiled(scaled, an_input()), f(scaled, an_input()))
    assert braze.stats()["graphs"] == 1
    assert all(before[k] is v for k, v in model.named_parameters())


def test_functional_call_of_a_compiled_module():
    model = torch.nn.Linear(3, 4)
    compiled = braze.compile(model)
    doubled = {k: v.detach() * 2 for k, v in model.named_parameters()}
    assert_same(functional_call(compiled, doubled, (an_input(),)), functional_call(model, doubled, (an_input(),)))
    assert_same(compiled(an_input()), model(an_input()))


OUTSIDE = {
    "grad": lambda loss, layer, x: grad(loss)(x),
    "vmap": lambda loss, layer, x: vmap(layer)(x),
    "vjp": lambda loss, layer, x: vjp(layer, x)[1](torch.ones(4, 3)),
    "jvp": lambda loss, layer, x: jvp(layer, (x,), (torch.ones(4, 3),)),
    "jacrev": lambda loss, layer, x: jacrev(layer)(x),
    "jacfwd": lambda loss, layer, x: jacfwd(layer)(x),
    "hessian": lambda loss, layer, x: hessian(loss)(x),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_of_compiled_functions(name):
    f = OUTSIDE[name]
    got = f(braze.compile(loss), braze.compile(layer), an_input())
    assert_same(got, f(loss, layer, an_input()))


@pytest.mark.parametrize("name", ["grad", "jvp"])
def test_a_break_inside_leaves_no_transform_behind(name):
    def noisy(x):
        print(end="")
        return loss(x)

    def f(x):
        return grad(noisy)(x) if name == "grad" else jvp(noisy, (x,), (torch.ones(4, 3),))

    for run in (braze.compile(f), f):
        assert_same(run(an_input()), f(an_input()))
        assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0
        assert type(an_input() * 2) is torch.Tensor
        with torch.autograd.forward_ad.dual_level():  # (a level that is open already is an error)
            pass


def test_an_exception_inside_leaves_no_transform_behind():
    def fails(x):
        raise ValueError(x.shape)

    compiled = braze.compile(lambda x: vmap(fails)(x))
    with pytest.raises(ValueError, match="3"):
        compiled(an_input())
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0
    assert_like_eager(lambda x: x + 1, an_input, graphs=1)

"""torch.func inside compiled code and applied to it."""

import pytest
import torch
from support import assert_like_eager, assert_same
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

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
    "grad": lambda x: grad(loss)(x),
    "grad and value": lambda x: grad_and_value(loss)(x),
    "grad of the second": lambda x: grad(lambda y, x: loss(x * y), argnums=1)(x + 1, x),
    "grad of both": lambda x: grad(lambda y, x: loss(x * y), argnums=(0, 1))(x + 1, x),
    "grad with aux": lambda x: grad(lambda x: (loss(x), {"twice": x * 2}), has_aux=True)(x),
    "grad of a dict": lambda x: grad(lambda d: loss(d["a"] * d["b"]))({"a": x, "b": x.cos()}),
    "grad of grad": lambda x: grad(lambda y: grad(loss)(y).sin().sum())(x),
    "grad of what is not used": lambda x: grad(lambda x, y: loss(y), argnums=(0, 1))(x, x * 2),
    "grad without grad mode": lambda x: without_grad_mode(x),
    "grad in double": lambda x: grad(lambda x: x.pow(3).sum())(x.double()),
    "gradients of samples": lambda x: vmap(grad(loss))(x),
    "gradients of samples, shared": lambda x: vmap(grad(lambda w, x: (x @ w).sin().sum()), in_dims=(None, 0))(W, x),
    "vjp": lambda x: vjp(layer, x)[1](torch.ones(4, 3)),
    "vjp of two": lambda x: vjp(lambda a, b: (a * b, a.sin()), x, x + 1)[1]((x, x.cos())),
    "vjp with aux": lambda x: vjp(lambda x: (layer(x), x + 1), x, has_aux=True)[::2],
    "jacrev": lambda x: jacrev(layer)(x),
    "jacrev in chunks": lambda x: jacrev(layer, chunk_size=5)(x),
    "jacrev of jacrev": lambda x: jacrev(jacrev(loss))(x),
    "vmap of jacrev": lambda x: vmap(jacrev(layer))(x),
}


@torch.no_grad()
def without_grad_mode(x):
    return grad(lambda x: loss(x) + x.detach().sum())(x)


@pytest.mark.parametrize("name", INSIDE)
def test_inside(name):
    f = INSIDE[name]
    compiled = assert_like_eager(f, an_input, compile={"fullgraph": True}, graphs=1)
    assert_same(compiled(an_input() + 1), f(an_input() + 1))


ZEROS = {
    "hessian": lambda x: hessian(loss)(x),
    "forward over reverse": lambda x: jvp(grad(loss), (x,), (torch.ones(4, 3),)),
    "product with infinity": lambda x: jvp(lambda a: (a * W[0]).exp() * (x / 0), (x,), (torch.ones(4, 3),)),
    "constants": lambda x: jvp(lambda a: (a @ W, x @ W), (x,), (torch.ones(4, 3),)),
}


@pytest.mark.parametrize("name", ZEROS)
def test_tangents_that_are_not_there(name):
    def f(x):
        return ZEROS[name](x)

    compiled = braze.compile(f)
    for _ in range(2):
        assert_same(compiled(an_input()), f(an_input()))


def test_gradients_through_a_transform():
    def f(w, x):
        return grad(lambda x: (x @ w).sin().pow(2).sum())(x).cos().sum()

    def gradients(run):
        w, x = W.clone().requires_grad_(), an_input().requires_grad_()
        run(w, x).backward()
        return w.grad, x.grad

    assert_same(gradients(braze.compile(f)), gradients(f))


def test_gradients_of_samples_of_a_model():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    parameters = {k: v.detach() for k, v in model.named_parameters()}

    def f(parameters, x):
        return vmap(grad(lambda p, row: functional_call(model, p, (row,)).sum()), in_dims=(None, 0))(parameters, x)

    compiled = braze.compile(f, fullgraph=True)
    for shift in (0, 1):
        assert_same(compiled(parameters, an_input() + shift), f(parameters, an_input() + shift))


def test_an_exception_inside_of_a_gradient():
    def fails(x):
        raise ValueError(x.shape)

    for f in (lambda x: grad(fails)(x), lambda x: vmap(grad(fails))(x), lambda x: grad(lambda x: x * 2)(x)):
        for run in (braze.compile(f), f):
            with pytest.raises((ValueError, RuntimeError)):
                run(an_input())
            assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0
    assert_like_eager(lambda x: x + 1, an_input, graphs=1)


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

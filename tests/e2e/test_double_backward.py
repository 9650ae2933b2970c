"""Gradients of gradients through compiled functions, with create_graph, against eager."""

import math

import pytest
import torch
from support import assert_same
from torch.nn import functional as F

import braze


def leaf(*sizes, seed=0, dtype=torch.float64):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


def positive(*sizes, seed=0):
    return leaf(*sizes, seed=seed).detach().abs().add(0.5).requires_grad_()


def below_one(*sizes, seed=0):
    return leaf(*sizes, seed=seed).detach().sigmoid().requires_grad_()


def classes(n, count):
    return torch.arange(n) % count


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), -1) @ v


def sdpa_math(q, k, v):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v)


def normalised(x, w, b, training):
    return F.batch_norm(x, torch.zeros(3).double(), torch.ones(3).double(), w, b, training=training)


X = leaf(3, 4)
IMAGE, W3, B3 = leaf(2, 3, 5, 5), leaf(3, seed=1), leaf(3, seed=2)

FUNCTIONS = {
    # activations
    "relu": (torch.relu, X),
    "relu6": (F.relu6, X),
    "leaky_relu": (F.leaky_relu, X),
    "prelu": (F.prelu, X, positive(1)),
    "elu": (F.elu, X),
    "celu": (F.celu, X),
    "selu": (F.selu, X),
    "gelu": (F.gelu, X),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), X),
    "silu": (F.silu, X),
    "mish": (F.mish, X),
    "softplus": (F.softplus, X),
    "sigmoid": (torch.sigmoid, X),
    "logsigmoid": (F.logsigmoid, X),
    "tanh": (torch.tanh, X),
    "tanhshrink": (F.tanhshrink, X),
    "softsign": (F.softsign, X),
    "softshrink": (F.softshrink, X),
    "hardshrink": (F.hardshrink, X),
    "hardtanh": (F.hardtanh, X),
    "hardswish": (F.hardswish, X),
    "threshold": (lambda x: F.threshold(x, 0.1, 2.0), X),
    "glu": (F.glu, X),
    "softmax": (lambda x: F.softmax(x, -1), X),
    "softmin": (lambda x: F.softmin(x, 0), X),
    "log_softmax": (lambda x: F.log_softmax(x, -1), X),
    # norms
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), X, leaf(4, seed=1), leaf(4, seed=2)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (4,), w), X, leaf(4, seed=1)),
    "group_norm": (lambda x, w, b: F.group_norm(x, 3, w, b), IMAGE, W3, B3),
    "instance_norm": (lambda x: F.instance_norm(x), IMAGE),
    "batch_norm": (lambda x, w, b: normalised(x, w, b, True), IMAGE, W3, B3),
    "batch_norm_eval": (lambda x, w, b: normalised(x, w, b, False), IMAGE, W3, B3),
    "local_response_norm": (lambda x: F.local_response_norm(x, 2), IMAGE),
    "normalize": (lambda x: F.normalize(x, dim=-1), X),
    # losses
    "mse_loss": (F.mse_loss, X, leaf(3, 4, seed=1)),
    "l1_loss": (F.l1_loss, X, leaf(3, 4, seed=1)),
    "smooth_l1_loss": (F.smooth_l1_loss, X, leaf(3, 4, seed=1)),
    "huber_loss": (lambda x, y: F.huber_loss(x, y, delta=0.7), X, leaf(3, 4, seed=1)),
    "cross_entropy": (lambda x: F.cross_entropy(x, classes(3, 4)), X),
    "cross_entropy_smooth": (lambda x: F.cross_entropy(x, classes(3, 4), label_smoothing=0.2), X),
    "nll_loss": (lambda x: F.nll_loss(F.log_softmax(x, -1), classes(3, 4), reduction="sum"), X),
    "binary_cross_entropy": (F.binary_cross_entropy, below_one(3, 4), below_one(3, 4, seed=1).detach()),
    "bce_with_logits": (F.binary_cross_entropy_with_logits, X, below_one(3, 4, seed=1)),
    "kl_div": (lambda x, y: F.kl_div(x, y, reduction="batchmean"), X, below_one(3, 4, seed=1)),
    "poisson_nll_loss": (F.poisson_nll_loss, X, positive(3, 4, seed=1)),
    "gaussian_nll_loss": (F.gaussian_nll_loss, X, leaf(3, 4, seed=1), positive(3, 4, seed=2)),
    "soft_margin_loss": (lambda x: F.soft_margin_loss(x, torch.ones(3, 4).double()), X),
    "hinge_embedding_loss": (lambda x: F.hinge_embedding_loss(x, -torch.ones(3, 4).double()), X),
    "margin_ranking_loss": (lambda x, y: F.margin_ranking_loss(x, y, torch.ones(3, 4)), X, leaf(3, 4, seed=1)),
    "cosine_embedding_loss": (lambda x, y: F.cosine_embedding_loss(x, y, torch.ones(3)), X, leaf(3, 4, seed=1)),
    "triplet_margin_loss": (F.triplet_margin_loss, X, leaf(3, 4, seed=1), leaf(3, 4, seed=2)),
    # products
    "mm": (torch.mm, X, leaf(4, 2, seed=1)),
    "bmm": (torch.bmm, leaf(2, 3, 4), leaf(2, 4, 3, seed=1)),
    "matmul": (torch.matmul, leaf(2, 3, 4), leaf(4, seed=1)),
    "addmm": (torch.addmm, leaf(2), X, leaf(4, 2, seed=1)),
    "linear": (F.linear, X, leaf(2, 4, seed=1), leaf(2, seed=2)),
    "bilinear": (F.bilinear, X, leaf(3, 2, seed=1), leaf(5, 4, 2, seed=2)),
    "einsum": (lambda x, y: torch.einsum("ij,kj->ik", x, y), X, leaf(2, 4, seed=1)),
    "outer": (torch.outer, leaf(3), leaf(4, seed=1)),
    # convolutions and pools
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=1), leaf(2, 3, 6), leaf(4, 3, 3, seed=1)),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, stride=2), IMAGE, leaf(4, 3, 3, 3, seed=1), leaf(4, seed=2)),
    "conv3d": (F.conv3d, leaf(1, 2, 4, 4, 4), leaf(2, 2, 2, 2, 2, seed=1)),
    "conv2d_depthwise": (lambda x, w: F.conv2d(x, w, groups=3), IMAGE, leaf(3, 1, 3, 3, seed=1)),
    "conv_transpose2d": (F.conv_transpose2d, IMAGE, leaf(3, 2, 2, 2, seed=1)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), leaf(2, 3, 4, 4)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2) ** 2, leaf(2, 3, 4, 4)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 2), leaf(2, 3, 4, 4)),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), IMAGE),
    # attention
    "attention": (attention, leaf(2, 3, 4), leaf(2, 3, 4, seed=1), leaf(2, 3, 4, seed=2)),
    "sdpa_math": (sdpa_math, leaf(2, 2, 3, 4), leaf(2, 2, 3, 4, seed=1), leaf(2, 2, 3, 4, seed=2)),
    # the rest of arithmetic
    "exp_log_pow": (lambda x: torch.log(torch.exp(x) + 1) ** 2.5, X),
    "trigonometry": (lambda x: torch.sin(x) * torch.atan(x) + torch.cosh(x), X),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), X),
    "prod": (lambda x: x.prod(-1), X),
    "cumsum": (lambda x: x.cumsum(-1) ** 2, X),
    "var": (lambda x: x.var(-1), X),
    "norm": (lambda x: x.norm(dim=-1), X),
    "index_and_cat": (lambda x: torch.cat([x[[0, 2, 0]] ** 2, x[:, ::2].repeat(1, 2)]), X),
    "embedding": (lambda w: F.embedding(torch.tensor([1, 0, 1]), w) ** 3, X),
    "in_place": (lambda x: (x * x).add_(1).mul_(3).sqrt_() * x, X),
}


def copies(args):
    return [a.detach().clone().requires_grad_(a.requires_grad) for a in args]


def derivatives(fn, args):
    """The result, its gradient in a direction, and the gradient of that, for the direction too."""
    args = copies(args)
    leaves = [a for a in args if a.requires_grad]
    out = fn(*args)
    direction = torch.cos(torch.arange(out.numel(), dtype=out.dtype)).reshape(out.shape).requires_grad_()
    first = torch.autograd.grad(out, leaves, direction, create_graph=True)
    total = sum((g * torch.sin(torch.arange(g.numel(), dtype=g.dtype) + 1).reshape(g.shape)).sum() for g in first)
    return out, first, torch.autograd.grad(total, [*leaves, direction], allow_unused=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradient_of_the_gradient(name):
    fn, *args = FUNCTIONS[name]
    expected = derivatives(fn, args)
    compiled = braze.compile(fn)
    before = braze.compilations()
    for _ in range(2):
        assert_same(derivatives(compiled, args), expected, rtol=1e-6, atol=1e-9)
    assert braze.compilations() > before


@pytest.mark.parametrize("name", ["tanh", "layer_norm", "attention", "conv2d", "cross_entropy"])
def test_numerically(name):
    fn, *args = FUNCTIONS[name]
    assert torch.autograd.gradgradcheck(braze.compile(fn), copies(args), atol=1e-4, rtol=1e-3)


def test_penalty_on_the_gradient_trains_like_eager():
    def train(compile_it):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
        fn = braze.compile(net) if compile_it else net
        optimiser = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(4):
            x = leaf(5, 4)
            y = fn(x)
            (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            optimiser.zero_grad()
            (y.pow(2).mean() + (slope.norm(dim=-1) - 1).pow(2).mean()).backward()
            optimiser.step()
        return list(net.parameters())

    assert_same(train(True), train(False), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("inside", [False, True])
def test_gradients_of_many_vectors_at_once(inside):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))

    def rows(model, x):
        y = model(x)
        return torch.autograd.grad(y, x, torch.eye(3).unsqueeze(1), is_grads_batched=True)[0]

    def mapped(model, x):
        y = model(x)
        pull = torch.func.vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0])
        return pull(torch.eye(3).unsqueeze(1))

    for f in (rows, mapped):
        compiled = braze.compile(f) if inside else f
        compiled_model = model if inside else braze.compile(model)
        for _ in range(2):
            x = torch.randn(1, 3, requires_grad=True)
            torch.testing.assert_close(compiled(compiled_model, x), f(model, x))

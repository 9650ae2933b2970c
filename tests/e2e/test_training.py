"""Gradients of compiled programs against eager: one compiled forward, one compiled backward."""

import copy
import gc
import threading
import weakref

import pytest
import torch
from support import assert_same, compiles
from torch import nn
from torch.nn import functional as F

import braze

COMPILED = "BrazeBackward"


def leaf(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def copies(o):
    if isinstance(o, torch.Tensor):
        return o.detach().clone().requires_grad_(o.requires_grad)
    return copy.deepcopy(o)


def tensors(o):
    if isinstance(o, torch.Tensor):
        return [o]
    if isinstance(o, dict):
        o = list(o.values())
    return [t for x in o for t in tensors(x)] if isinstance(o, list | tuple) else []


def weighted(outputs):
    """Not just the sum: that of normalised values has no gradient."""
    total = 0
    for t in tensors(outputs):
        if t.requires_grad:
            total = total + (t * torch.cos(torch.arange(t.numel(), dtype=t.dtype)).reshape(t.shape)).sum()
    return total


def gradients(fn, args, module=None):
    out = fn(*args)
    weighted(out).backward()
    leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    grads = [a.grad for a in leaves] + [p.grad for p in (module.parameters() if module else ())]
    return out, grads


def check(fn, *args, node=COMPILED, calls=2, **tolerance):
    """Results and gradients, several times; node: the gradient function of the results."""
    compiled = braze.compile(fn)
    for _ in range(calls):
        mine, theirs = copies(args), copies(args)
        torch.manual_seed(3)
        out, grads = gradients(compiled, mine)
        torch.manual_seed(3)
        expected, expected_grads = gradients(fn, theirs)
        assert_same(out, expected, **tolerance)
        assert_same(grads, expected_grads, **tolerance)
        assert_same(list(mine), list(theirs), **tolerance)
        for t in tensors(out):
            if t.grad_fn is not None:
                assert (t.grad_fn.name() == COMPILED) == (node == COMPILED), t.grad_fn.name()
    return compiled


def check_module(module, *args, node=COMPILED, calls=2, **tolerance):
    mine, theirs = module, copy.deepcopy(module)
    compiled = braze.compile(mine)
    for _ in range(calls):
        a, b = copies(args), copies(args)
        torch.manual_seed(3)
        out, grads = gradients(compiled, a, mine)
        torch.manual_seed(3)
        expected, expected_grads = gradients(theirs, b, theirs)
        assert_same(out, expected, **tolerance)
        assert_same(grads, expected_grads, **tolerance)
        assert_same(dict(mine.state_dict()), dict(theirs.state_dict()), **tolerance)
        assert (tensors(out)[0].grad_fn.name() == COMPILED) == (node == COMPILED)


# ---- models


def test_mlp():
    check_module(nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 3), nn.Tanh()), torch.randn(4, 5))


def test_gradient_of_the_input_too():
    check_module(nn.Sequential(nn.Linear(5, 7), nn.SiLU(), nn.Linear(7, 3)), leaf(4, 5))


@pytest.mark.parametrize("training", [True, False])
def test_convolution_and_batch_norm(training):
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)
    )
    check_module(net.train(training), torch.randn(2, 3, 8, 8), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_result_of_batch_norm_is_written(training):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 3)).train(
        training
    )
    check_module(net, torch.randn(2, 3, 8, 8), rtol=1e-4, atol=1e-5)
    twin = copy.deepcopy(net)
    with torch.no_grad():
        x = torch.randn(2, 3, 8, 8)
        assert_same(braze.compile(net)(x), twin(x), rtol=1e-4, atol=1e-5)
    assert_same(dict(net.state_dict()), dict(twin.state_dict()), rtol=1e-4, atol=1e-5)


def test_images_keep_their_layout_between_convolutions():
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(16, 16, 3, 1, 1, groups=16),
        nn.BatchNorm2d(16, momentum=0.3),
        nn.ReLU6(),
        nn.Conv2d(16, 8, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    for x in (torch.randn(4, 3, 32, 32), leaf(4, 3, 32, 32)):
        for layout in (torch.contiguous_format, torch.channels_last):
            twin = x.detach().clone(memory_format=layout).requires_grad_(x.requires_grad)
            check_module(copy.deepcopy(net), twin, rtol=1e-4, atol=1e-4)


def test_slices_with_steps():
    def f(x):
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack((even * 2, odd + even), -1).flatten(-2) + x[..., 2:].sum() + x[1:, ::3].sum()

    check(f, leaf(3, 8))
    check(f, leaf(3, 6, seed=1))


def test_batch_norm_without_weights_and_of_an_input_without_gradient():
    check_module(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2), nn.BatchNorm1d(2, affine=False)), torch.randn(6, 4))


def test_attention():
    def f(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    check(f, leaf(2, 2, 5, 4), leaf(2, 2, 5, 4, seed=1), leaf(2, 2, 5, 4, seed=2), rtol=1e-4, atol=1e-5)


def test_encoder_layer():
    check_module(
        nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True), leaf(2, 5, 16), rtol=1e-4, atol=1e-5
    )


def test_layer_norm_and_softmax():
    check(lambda x, w, b: F.softmax(F.layer_norm(x, (5,), w, b), -1), leaf(3, 5), leaf(5), leaf(5, seed=1))


def test_embedding():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(11, 6, padding_idx=0)
            self.head = nn.Linear(6, 11)

        def forward(self, ids):
            return F.cross_entropy(self.head(self.table(ids)).flatten(0, 1), ids.flatten())

    check_module(Net(), torch.tensor([[1, 2, 2, 0], [5, 10, 1, 1]]))


def test_indexing_and_cat():
    def f(x, y):
        a = torch.cat([x[:, 1:], y.expand(4, 2)], 1)
        return a[torch.tensor([0, 2, 2])] * x[1, 0], a.t().contiguous() @ a

    check(f, leaf(4, 3), leaf(1, 2))


def test_half_precision():
    def f(x, w):
        return F.silu(x.bfloat16() @ w.bfloat16()).float()

    check(f, leaf(4, 5), leaf(5, 3), rtol=2e-2, atol=2e-2)


def test_autocast():
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x @ w).relu().float()

    check(f, leaf(4, 5), leaf(5, 3), rtol=2e-2, atol=2e-2)


def test_dropout_without_effect():
    check_module(nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.0), nn.ReLU()).train(), torch.randn(4, 5))


def test_random_numbers_are_those_of_eager():
    check_module(nn.Sequential(nn.Linear(50, 50), nn.Dropout(0.4), nn.ReLU(), nn.Dropout(0.3)).train(), leaf(4, 50))


# ---- one of several outputs


def test_backward_through_one_output():
    def f(x, w):
        return x.sin() * 2, w.exp() + x

    compiled = braze.compile(f)
    for k in (0, 1):
        mine, theirs = copies([leaf(3), leaf(3, seed=1)]), copies([leaf(3), leaf(3, seed=1)])
        compiled(*mine)[k].sum().backward()
        f(*theirs)[k].sum().backward()
        for a, b in zip(mine, theirs, strict=True):
            assert (a.grad is None) == (b.grad is None)
            if a.grad is not None:
                torch.testing.assert_close(a.grad, b.grad)


def test_outputs_without_gradient():
    def f(x):
        values, indices = x.sort()
        with torch.no_grad():
            scale = x.mean()
        return values * scale, indices, scale, (x * 2).detach(), x > 0

    check(f, leaf(7))


def test_same_output_twice():
    def f(x):
        y = x.exp()
        return y, y

    compiled = check(f, leaf(3))
    a, b = compiled(leaf(3))
    assert a is b


def test_unused_parameters_have_no_gradient():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            self.unused(x)
            return self.used(x)

    net = Net()
    braze.compile(net)(torch.randn(2, 3)).sum().backward()
    assert net.unused.weight.grad is None and net.used.weight.grad is not None


LAZY = {
    "transform": lambda x, y: torch.fft.hfft(x),
    "product": lambda x, y: torch.view_as_real(x.conj() * y),
    "product of both": lambda x, y: torch.view_as_real((x.conj() * y.conj()).exp()),
    "matrices": lambda x, y: torch.view_as_real(x.mH @ y.conj()),
    "negated": lambda x, y: x.conj().imag * y.imag + x.conj().imag.sin(),
    "detached": lambda x, y: torch.view_as_real(x.conj().detach() * y + x),
    "index": lambda x, y: torch.view_as_real(x.conj()[:, y.conj().abs().argmax(1)] * y.sum()),
    "joined": lambda x, y: torch.view_as_real(torch.cat([x.conj(), y.conj()]) * torch.stack([x, y]).conj().sum()),
}


@pytest.mark.parametrize("name", LAZY)
def test_lazy_conjugates(name):
    def value(seed):
        return torch.view_as_complex(torch.randn(3, 3, 2, generator=torch.Generator().manual_seed(seed)))

    def f(x, y):
        return LAZY[name](x, y)

    def run(fn):
        x, y = value(1).requires_grad_(), value(2).requires_grad_()
        out = fn(x, y)
        weighted(out).backward()
        return out, x.grad, y.grad

    compiled = braze.compile(f)
    for _ in range(2):
        assert_same(run(compiled), run(f))


def test_detach_cuts():
    check(lambda x, w: x * w.detach() + (x.detach() * w).sin(), leaf(4), leaf(4, seed=1))


def test_output_that_is_a_view_of_the_graphs_own_memory():
    check(lambda x, w: (x @ w).view(-1)[2:], leaf(3, 4), leaf(4, 2))


# ---- what stays operator by operator


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.view(-1),
        lambda x: (x.exp(), x),
        lambda x: (lambda y: (y, y[0]))(x.exp()),
        lambda x: (lambda y: (y * 2, y))((x * 2).detach().requires_grad_()),
    ],
    ids=["view of an input", "input returned", "view of an output", "leaf made inside"],
)
def test_shared_outputs(fn):
    compiled = braze.compile(fn)
    for f in (fn, compiled):
        x = leaf(2, 3)
        out = tensors(f(x))
        weighted(out).backward()
        result = [x.grad if x.grad is not None else torch.zeros(2, 3), *[t.detach() for t in out]]
        views = [t._is_view() for t in out if t.grad_fn is not None]
        if f is fn:
            expected, expected_views = result, views
    assert_same(result, expected)
    assert views == expected_views


# ---- written memory


def test_input_without_gradient_is_written():
    def f(x, running):
        running.mul_(0.5).add_(x.detach().mean(0))
        return (x - running).exp()

    compiled = braze.compile(f)
    mine, theirs = [leaf(4, 3), torch.ones(3)], [leaf(4, 3), torch.ones(3)]
    for _ in range(2):
        compiled(*mine).sum().backward()
        f(*theirs).sum().backward()
    assert_same(mine, theirs)
    assert_same(mine[0].grad, theirs[0].grad)
    version = theirs[1]._version
    assert (mine[1]._version > 0) == (version > 0)


def test_input_becomes_differentiable():
    def f(x, buffer):
        buffer.copy_(x * 2)
        return buffer * 3

    for g in (f, braze.compile(f)):
        x, buffer = leaf(3), torch.zeros(3)
        g(x, buffer)
        assert buffer.requires_grad
        buffer.sum().backward()
        torch.testing.assert_close(x.grad, torch.full((3,), 2.0))


def test_in_place_inside():
    def f(x, w):
        y = x * w
        y[1:].mul_(x[0])
        y.relu_()
        return y + 1

    check(f, leaf(4), leaf(4, seed=1))


@pytest.mark.parametrize("changed", [0, 1, "result"])
def test_changes_between_forward_and_backward(changed):
    """What eager keeps may not be changed, all else may."""

    def f(x, w):
        return torch.sigmoid(x * w.exp().detach())

    outcomes = []
    for g in (f, braze.compile(f)):
        x, w = leaf(4), leaf(4, seed=1)
        out = g(x, w)
        with torch.no_grad():
            (out if changed == "result" else (x, w)[changed]).add_(1)
        try:
            out.sum().backward()
            outcomes.append(x.grad)
        except RuntimeError as e:
            assert "modified by an inplace operation" in str(e)
            outcomes.append("error")
    assert_same(outcomes[1], outcomes[0])


def test_what_eager_does_not_keep_may_change():
    def f(x, b):
        return torch.relu(x + b) * 2

    results = []
    for g in (f, braze.compile(f)):
        x, b = leaf(4), leaf(4, seed=1)
        h = x * 1
        out = g(h, b)
        with torch.no_grad():
            h.fill_(-9)
            b.fill_(-9)
        out.sum().backward()
        results.append([x.grad, b.grad])
    assert_same(results[1], results[0])


def test_result_may_change_where_eager_does_not_keep_it():
    def f(x, w):
        return F.linear(x, w)

    results = []
    for g in (f, braze.compile(f)):
        x, w = leaf(4, 3), leaf(2, 3, seed=1)
        out = g(x, w)
        out.mul_(3)
        out.sum().backward()
        results.append([x.grad, w.grad])
    assert_same(results[1], results[0])


# ---- the engine's ways


def test_accumulation():
    net = nn.Linear(3, 2)
    twin = copy.deepcopy(net)
    compiled = braze.compile(net)
    for k in range(3):
        x = torch.randn(4, 3) + k
        compiled(x).pow(2).sum().backward()
        twin(x).pow(2).sum().backward()
    assert_same([p.grad for p in net.parameters()], [p.grad for p in twin.parameters()])


def test_gradients_do_not_share_memory():
    compiled = braze.compile(lambda x, y: (x.view(2, 2) + y).view(-1) * 1)
    x, y = leaf(4), leaf(2, 2, seed=1)
    compiled(x, y).sum().backward()
    x.grad.zero_()
    torch.testing.assert_close(y.grad, torch.ones(2, 2))


def test_backward_twice():
    compiled = braze.compile(lambda x: x.exp().sum())
    x = leaf(3)
    out = compiled(x)
    out.backward(retain_graph=True)
    out.backward()
    torch.testing.assert_close(x.grad, 2 * x.detach().exp())
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.backward()


def test_gradient_of_some_inputs():
    compiled = braze.compile(lambda x, w: (x * w).sin())
    x, w = leaf(3), leaf(3, seed=1)
    (g,) = torch.autograd.grad(compiled(x, w).sum(), [w])
    torch.testing.assert_close(g, ((x * w).cos() * x).detach())
    assert x.grad is None


@pytest.mark.parametrize("layout", ["expanded", "transposed", "double"])
def test_layouts_of_incoming_gradients(layout):
    compiled = braze.compile(lambda x, w: (x @ w).tanh())
    x, w = leaf(3, 3), leaf(3, 3, seed=1)
    gradient = {
        "expanded": torch.tensor(2.0).expand(3, 3),
        "transposed": torch.arange(9.0).view(3, 3).t(),
        "double": torch.arange(9.0).view(3, 3),
    }[layout]
    mine = torch.autograd.grad(compiled(x, w), [x, w], gradient)
    theirs = torch.autograd.grad((x @ w).tanh(), [x, w], gradient)
    assert_same(mine, theirs)


def test_hooks_of_parameters():
    results = []
    for build in (lambda m: m, braze.compile):
        net = nn.Linear(3, 2)
        with torch.no_grad():
            net.weight.fill_(0.5)
            net.bias.fill_(0.1)
        seen = []
        net.weight.register_hook(lambda g, seen=seen: seen.append(g.clone()) or g * 2)
        net.bias.register_post_accumulate_grad_hook(lambda p, seen=seen: seen.append(p.grad.clone()))
        build(net)(torch.ones(4, 3)).sum().backward()
        results.append([net.weight.grad, sorted(seen, key=lambda t: t.dim())])
    assert_same(results[1], results[0])


def test_hooks_of_results():
    compiled = braze.compile(lambda x: x.exp())
    x = leaf(3)
    out = compiled(x)
    out.register_hook(lambda g: g * 3)
    out.retain_grad()
    out.sum().backward()
    torch.testing.assert_close(x.grad, 3 * x.detach().exp())


def test_saved_tensor_hooks():
    def f(x, w):
        return (x * w).exp() * x

    counts = []
    for g in (f, braze.compile(f)):
        packed = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, p=packed: p.append(1) or t * 1, lambda t: t):
            x, w = leaf(3), leaf(3, seed=1)
            out = g(x, w)
        out.sum().backward()
        counts.append((len(packed), x.grad, w.grad))
    assert counts[0][0] == counts[1][0]
    assert_same(counts[1][1:], counts[0][1:])


def test_anomaly_detection_names_the_operator():
    compiled = braze.compile(lambda x: (x - x).sqrt() * 0)
    compiled(leaf(3))
    with torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="SqrtBackward0"):
        compiled(leaf(3)).sum().backward()


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_second_derivatives(dropout):
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1))
    twin = copy.deepcopy(net)
    results = []
    for g, module in ((net, net), (braze.compile(twin), twin)):
        torch.manual_seed(5)
        x = leaf(4, 3)
        out = g(x)
        torch.rand(3)
        (dx,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        after = torch.rand(3)
        (dx.pow(2).sum() + out.pow(2).sum()).backward()
        results.append([dx.detach(), x.grad, after, [p.grad for p in module.parameters()]])
    assert_same(results[1], results[0], rtol=1e-4, atol=1e-5)


def test_third_derivative():
    compiled = braze.compile(lambda x: x.sin() * x)
    x = leaf(3)
    g = compiled(x).sum()
    for _ in range(3):
        (g,) = torch.autograd.grad(g.sum(), x, create_graph=True)
    h = (x.sin() * x).sum()
    for _ in range(3):
        (h,) = torch.autograd.grad(h.sum(), x, create_graph=True)
    assert_same(g, h)


def test_second_derivative_leaves_buffers_alone():
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    twin = copy.deepcopy(net)
    results = []
    for g, module in ((net, net), (braze.compile(twin), twin)):
        x = leaf(4, 3)
        (dx,) = torch.autograd.grad(g(x).pow(3).sum(), x, create_graph=True)
        dx.pow(2).sum().backward()
        results.append([x.grad, dict(module.state_dict())])
    assert_same(results[1], results[0], rtol=1e-3, atol=1e-4)


def test_second_derivative_through_two_inputs_that_hang_together():
    def f(x, h):
        return x * h.exp()

    results = []
    for g in (f, braze.compile(f)):
        x = leaf(3)
        h = x * 2
        (dx, dh) = torch.autograd.grad(g(x, h).sum(), [x, h], create_graph=True)
        (dx * dh).sum().backward()
        results.append([dx.detach(), dh.detach(), x.grad])
    assert_same(results[1], results[0])


def test_two_runs_before_backward():
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU())
    twin = copy.deepcopy(net)
    compiled = braze.compile(net)
    for module in (compiled, twin):
        a, b = module(torch.ones(4, 3) * torch.arange(4)[:, None]), module(torch.eye(3).repeat(2, 1))
        (weighted(a) + 2 * weighted(b)).backward()
    assert_same([p.grad for p in net.parameters()], [p.grad for p in twin.parameters()], rtol=1e-4, atol=1e-5)


def test_sizes_that_change():
    def f(x, w):
        return F.gelu(x @ w).sum(0) * x.shape[0]

    compiled = braze.compile(f, dynamic=True)
    for n in (3, 5, 8, 5):
        mine, theirs = copies([leaf(n, 4), leaf(4, 2)]), copies([leaf(n, 4), leaf(4, 2)])
        out, grads = gradients(compiled, mine)
        expected, expected_grads = gradients(f, theirs)
        assert_same(out, expected)
        assert_same(grads, expected_grads)
        assert out.grad_fn.name() == COMPILED
    with compiles(0):
        compiled(leaf(11, 4), leaf(4, 2))


def test_grad_mode_chooses():
    net = nn.Linear(3, 2)
    compiled = braze.compile(net)
    with torch.no_grad():
        assert compiled(torch.ones(1, 3)).grad_fn is None
    assert compiled(torch.ones(1, 3)).grad_fn is not None


def test_freezing_recompiles():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    compiled = braze.compile(net)
    compiled(torch.ones(1, 3)).sum().backward()
    net[0].requires_grad_(False)
    net.zero_grad()
    compiled(torch.ones(1, 3)).sum().backward()
    assert net[0].weight.grad is None and net[1].weight.grad is not None


def test_optimiser_step():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    twin = copy.deepcopy(net)
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    losses = []
    for module, call in ((net, braze.compile(net)), (twin, twin)):
        optimiser = torch.optim.Adam(module.parameters(), lr=0.05)
        for _ in range(5):
            optimiser.zero_grad()
            loss = F.mse_loss(call(x), y)
            loss.backward()
            optimiser.step()
        losses.append(loss.detach())
    torch.testing.assert_close(losses[0], losses[1])


def test_a_graph_break_between():
    def f(x, w):
        y = (x * w).tanh()
        print(end="")
        return y @ w

    check(f, leaf(3, 3), leaf(3, 3, seed=1))


def test_memory_is_released():
    compiled = braze.compile(lambda x, w: (x @ w).tanh() @ w)
    x, w = leaf(4, 4), leaf(4, 4, seed=1)
    out = compiled(x, w)
    held = weakref.ref(out)
    out.sum().backward()
    del out
    gc.collect()
    assert held() is None


def test_the_compiled_function_may_go_first():
    compiled = braze.compile(lambda x: x.exp() * x)
    x = leaf(3)
    out = compiled(x)
    del compiled
    braze.reset()
    gc.collect()
    out.sum().backward()
    torch.testing.assert_close(x.grad, (x.detach() + 1) * x.detach().exp())


def test_threads():
    net = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4))
    compiled = braze.compile(net)
    x = torch.randn(16, 8)
    expected = torch.autograd.grad(weighted(net(x)), list(net.parameters()))
    compiled(x)
    results, errors = [], []

    def work():
        try:
            for _ in range(20):
                results.append(torch.autograd.grad(weighted(compiled(x)), list(net.parameters())))
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    for r in results:
        assert_same(r, expected)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}, {"batch_first": True}])
def test_recurrent_layers(kind, options):
    eager = kind(3, 4, **options)
    compiled_model = copy.deepcopy(eager)
    compiled = braze.compile(lambda x: compiled_model(x)[0] * 2)
    before = braze.compilations()
    for _ in range(2):
        x = torch.randn(2, 5, 3)
        a, b = eager(x)[0] * 2, compiled(x)
        assert_same(b, a)
        a.sum().backward()
        b.sum().backward()
    assert braze.compilations() == before + 1
    for p, q in zip(eager.parameters(), compiled_model.parameters(), strict=True):
        assert_same(q.grad, p.grad, rtol=1e-4, atol=1e-5)

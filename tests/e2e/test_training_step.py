"""Backward passes inside compiled functions: whole training steps in one graph, and `.grad` as eager leaves it."""

import copy
import gc
import weakref

import pytest
import torch
from support import assert_same, compiles
from torch import nn
from torch.nn import functional as F

import braze


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def batch(seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(5, 6, generator=g), torch.randint(0, 4, (5,), generator=g)


def leaf(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def gradients(module):
    return [p.grad for p in module.parameters()]


def assert_same_state(mine, theirs, **tolerance):
    assert_same([p.detach() for p in mine.parameters()], [p.detach() for p in theirs.parameters()], **tolerance)
    assert_same(gradients(mine), gradients(theirs), **tolerance)
    for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
        if q.grad is not None:
            assert p.grad.stride() == q.grad.stride()


def step_of(model, zero):
    parameters = list(model.parameters())

    def step(x, y):
        if zero == "before":
            for p in parameters:
                p.grad = None
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= 0.1 * p.grad
        if zero == "after":
            for p in parameters:
                p.grad = None
        return loss

    return step


@pytest.mark.parametrize(("zero", "graphs"), [("after", 1), ("before", 1), ("never", 2)])
def test_step(zero, graphs):
    mine, theirs = net(), net()
    compiled, eager = braze.compile(step_of(mine, zero), fullgraph=True), step_of(theirs, zero)
    with compiles(graphs):  # another one where there are gradients from the step before
        for i in range(5):
            assert_same(compiled(*batch(i)), eager(*batch(i)))
            assert_same_state(mine, theirs)


def test_gradients_are_accumulated_in_place():
    mine, theirs = net(), net()

    def accumulate(model):
        def run(x, y):
            F.cross_entropy(model(x), y).backward()

        return run

    compiled, eager = braze.compile(accumulate(mine), fullgraph=True), accumulate(theirs)
    compiled(*batch())
    eager(*batch())
    first = gradients(mine)
    for i in range(3):
        compiled(*batch(i))
        eager(*batch(i))
        assert all(a is b for a, b in zip(first, gradients(mine), strict=True))
        assert_same_state(mine, theirs)


def test_several_backward_passes_in_one_call():
    mine, theirs = net(), net()

    def run_on(model):
        def run(batches):
            for x, y in batches:
                (F.cross_entropy(model(x), y) / len(batches)).backward()
            return [p.grad.norm() for p in model.parameters()]

        return run

    compiled, eager = braze.compile(run_on(mine), fullgraph=True), run_on(theirs)
    batches = [batch(i) for i in range(3)]
    for _ in range(3):
        assert_same(compiled(batches), eager(batches))
        assert_same_state(mine, theirs)


def test_a_used_up_graph_raises_as_in_eager():
    def run(w):
        loss = (w * w).sum()
        loss.backward()
        return loss

    w = leaf(3)
    loss = braze.compile(run, fullgraph=True)(w)
    assert loss.requires_grad and loss.grad_fn is not None
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(loss, w)


def test_a_graph_without_saved_tensors_is_not_used_up():
    def run(w):
        loss = w.sum()
        loss.backward()
        return loss

    mine, theirs = leaf(3), leaf(3)
    for w, f in ((mine, braze.compile(run, fullgraph=True)), (theirs, run)):
        f(w).backward()
    assert_same(mine.grad, theirs.grad)


def test_second_backward_inside():
    def run(w):
        loss = (w * w).sum()
        loss.backward()
        loss.backward()

    for f in (run, braze.compile(run)):
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            f(leaf(3))


def test_retain_graph():
    def run(w):
        loss = (w * w).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        return w.grad

    mine, theirs = leaf(3), leaf(3)
    compiled = braze.compile(run, fullgraph=True)
    for _ in range(3):
        assert_same(compiled(mine), run(theirs))
        assert compiled(mine) is mine.grad
        run(theirs)


def test_retained_graph_is_left_to_the_caller():
    def run(w):
        loss = (w * w * w).sum()
        loss.backward(retain_graph=True)
        return loss

    mine, theirs = leaf(3), leaf(3)
    for w, f in ((mine, braze.compile(run)), (theirs, run)):
        f(w).backward()
    assert_same(mine.grad, theirs.grad)


def test_gradient_and_inputs_arguments():
    def run(a, b, weights):
        y = torch.sin(a) * b
        y.backward(gradient=weights, inputs=[a])
        return a.grad + 1, b.grad

    mine, theirs = (leaf(3), leaf(3, seed=1)), (leaf(3), leaf(3, seed=1))
    weights = torch.arange(3.0)
    assert_same(braze.compile(run, fullgraph=True)(*mine, weights), run(*theirs, weights))
    assert_same([t.grad for t in mine], [t.grad for t in theirs])


def test_several_roots():
    def run(a, b):
        torch.autograd.backward([(a * b).sum(), a * 2], [None, torch.ones_like(a)])

    mine, theirs = (leaf(3), leaf(3, seed=1)), (leaf(3), leaf(3, seed=1))
    compiled = braze.compile(run, fullgraph=True)
    for _ in range(2):
        compiled(*mine)
        run(*theirs)
        assert_same([t.grad for t in mine], [t.grad for t in theirs])


@pytest.mark.parametrize("create_graph", [False, True])
def test_autograd_grad(create_graph):
    def run(w, x):
        loss = (torch.tanh(x @ w) ** 2).sum()
        (g,) = torch.autograd.grad(loss, [w], create_graph=create_graph)
        return g * 2

    mine, theirs = leaf(3, 2), leaf(3, 2)
    x = torch.randn(4, 3)
    compiled = braze.compile(run, fullgraph=True)
    for _ in range(2):
        a, b = compiled(mine, x), run(theirs, x)
        assert_same(a, b)
        if create_graph:
            a.sum().backward()
            b.sum().backward()
        assert_same(mine.grad, theirs.grad)


def test_gradient_penalty():
    mine, theirs = net(), net()

    def penalised(model):
        def run(x):
            x = x.detach() * 1
            w = next(iter(model.parameters()))
            loss = model(x).square().mean()
            (g,) = torch.autograd.grad(loss, w, create_graph=True)
            (loss + g.square().sum()).backward()

        return run

    compiled, eager = braze.compile(penalised(mine), fullgraph=True), penalised(theirs)
    for i in range(3):
        compiled(batch(i)[0])
        eager(batch(i)[0])
        assert_same_state(mine, theirs)


def test_create_graph_in_backward():
    def run(w):
        (w**3).sum().backward(create_graph=True)
        g = w.grad
        w.grad = None
        g.sum().backward()
        return w.grad

    expected = run(leaf(3))  # (torch warns once)
    assert_same(braze.compile(run, fullgraph=True)(leaf(3)), expected)


def test_gradients_of_one_tensor_are_not_shared():
    def run(a, b):
        (a + b).sum().backward()

    def one(a, b):
        (a + b).backward(torch.ones(3))

    for f in (run, one):
        a, b = leaf(3), leaf(3, seed=1)
        braze.compile(f, fullgraph=True)(a, b)
        assert a.grad.data_ptr() != b.grad.data_ptr()
        a.grad.zero_()
        assert_same(b.grad, torch.ones(3))


def test_layout_of_gradients():
    def run(w, x):
        (w @ x).sum().backward()

    mine, theirs = leaf(4, 3).detach().t().requires_grad_(), leaf(4, 3).detach().t().requires_grad_()
    x = torch.randn(4, 2)
    braze.compile(run, fullgraph=True)(mine, x)
    run(theirs, x)
    assert_same(mine.grad, theirs.grad)
    assert mine.grad.stride() == theirs.grad.stride()


def test_gradient_is_read_and_set():
    def run(w, g):
        before = w.grad
        w.grad = g * 2
        again = w.grad
        w.grad.add_(1)
        return before, again, w.grad is again

    mine, theirs = leaf(3), leaf(3)
    compiled = braze.compile(run, fullgraph=True)
    for i in range(3):
        g = torch.full((3,), float(i))
        assert_same(compiled(mine, g), run(theirs, g))
        assert_same(mine.grad, theirs.grad)


def test_gradient_of_the_caller_becomes_that_of_another():
    def run(a, b):
        a.grad, b.grad = b.grad, a.grad

    a, b = leaf(3), leaf(3)
    a.grad = grad = torch.ones(3)
    braze.compile(run, fullgraph=True)(a, b)
    assert a.grad is None and b.grad is grad


def test_a_wrong_gradient_is_the_programs_error():
    def run(w):
        w.grad = torch.ones(7)

    for f in (run, braze.compile(run)):
        with pytest.raises(RuntimeError, match="size"):
            f(leaf(3))


def test_leaves_of_the_call():
    def run(x):
        w = torch.ones(3, requires_grad=True)
        (w * x).sum().backward()
        return w, w.grad

    compiled = braze.compile(run)
    for i in range(2):
        (w, g), (v, h) = compiled(torch.full((3,), float(i))), run(torch.full((3,), float(i)))
        assert w.grad is g
        assert_same([w, g], [v, h])


def test_no_gradient_is_needed():
    def run(x):
        return x.sum().backward()

    for f in (run, braze.compile(run)):
        with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad") as e:
            f(torch.ones(3))
        assert e.traceback[1].lineno + 1 == run.__code__.co_firstlineno + 1


def test_graph_from_before():
    """The graph goes on in the caller: the backward pass runs in eager."""

    def run(h):
        (h * 2).sum().backward()
        return h + 1

    mine, theirs = leaf(3), leaf(3)
    compiled = braze.compile(run)
    for _ in range(2):
        assert_same(compiled(mine * 3), run(theirs * 3))
        assert_same(mine.grad, theirs.grad)


def test_leaf_first_then_not():
    def run(h):
        (h * 2).sum().backward()

    mine, theirs = leaf(3), leaf(3)
    compiled = braze.compile(run)
    for f, w in ((compiled, mine), (run, theirs)):
        f(w)
        f(w * 3)
    assert_same(mine.grad, theirs.grad)


@pytest.mark.parametrize("kind", ["tensor", "accumulated", "node"])
def test_hooks_of_the_caller(kind):
    def run(w):
        (w * w).sum().backward()

    def scale(p):
        p.grad.mul_(10)

    compiled = braze.compile(run)
    seen = []
    for f in (compiled, run):
        w = leaf(3)
        f(w)
        if kind == "tensor":
            w.register_hook(lambda g: g * 10)
        elif kind == "accumulated":
            w.register_post_accumulate_grad_hook(scale)
        else:
            node = w.expand_as(w).grad_fn.next_functions[0][0]
            node.register_prehook(lambda gs: (gs[0] * 10,))
        f(w)
        seen.append(w.grad)
    assert_same(*seen)


def test_clipping():
    mine, theirs = net(), net()

    def clipped(model):
        parameters = list(model.parameters())

        def run(x, y):
            F.cross_entropy(model(x), y).backward()
            norm = torch.nn.utils.clip_grad_norm_(parameters, 0.1)
            with torch.no_grad():
                for p in parameters:
                    p.sub_(p.grad)
                    p.grad = None
            return norm

        return run

    compiled, eager = braze.compile(clipped(mine)), clipped(theirs)
    for i in range(3):
        assert_same(compiled(*batch(i)), eager(*batch(i)))
        assert_same_state(mine, theirs)


def test_dropout_and_buffers():
    torch.manual_seed(0)
    mine = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(64, 3)
    )
    theirs = copy.deepcopy(mine)

    def step(model):
        def run(x):
            model(x).square().mean().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None

        return run

    compiled, eager = braze.compile(step(mine), fullgraph=True), step(theirs)
    for i in range(3):
        x = torch.randn(4, 2, 6, 6, generator=torch.Generator().manual_seed(i))
        torch.manual_seed(i)
        compiled(x)
        torch.manual_seed(i)
        eager(x)
        assert_same_state(mine, theirs, rtol=1e-4, atol=1e-5)
        assert_same(list(mine.buffers()), list(theirs.buffers()))


def test_dynamic_batch():
    mine, theirs = net(), net()
    compiled, eager = braze.compile(step_of(mine, "after"), dynamic=True, fullgraph=True), step_of(theirs, "after")
    for n in (5, 7, 9):
        x, y = torch.randn(n, 6), torch.randint(0, 4, (n,))
        assert_same(compiled(x, y), eager(x, y))
        assert_same_state(mine, theirs)


def test_other_outputs_keep_their_graph():
    def run(a, b):
        loss = (a * a).sum()
        loss.backward()
        return loss, torch.exp(b)

    mine, theirs = (leaf(3), leaf(3, seed=1)), (leaf(3), leaf(3, seed=1))
    compiled = braze.compile(run)
    for _ in range(2):
        for f, args in ((compiled, mine), (run, theirs)):
            loss, y = f(*args)
            y.sum().backward()
            with pytest.raises(RuntimeError, match="second time"):
                loss.backward()
        assert_same([t.grad for t in mine], [t.grad for t in theirs])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backends(backend):
    mine, theirs = net(), net()
    compiled, eager = braze.compile(step_of(mine, "after"), backend=backend), step_of(theirs, "after")
    for i in range(3):
        assert_same(compiled(*batch(i)), eager(*batch(i)))
        assert_same_state(mine, theirs)


def test_effects_of_a_step():
    mine, theirs = net(), net()

    def logged(model, log):
        step = step_of(model, "after")

        def run(x, y):
            loss = step(x, y)
            log.append(loss.detach())
            return len(log)

        return run

    a, b = [], []
    compiled, eager = braze.compile(logged(mine, a)), logged(theirs, b)
    for i in range(3):
        assert compiled(*batch(i)) == eager(*batch(i))
    assert_same(a, b)


def test_nothing_is_kept():
    model = net()
    compiled = braze.compile(step_of(model, "after"), fullgraph=True)
    compiled(*batch())
    loss = compiled(*batch())
    kept = weakref.ref(next(iter(model.parameters())))
    del model, compiled
    del loss
    gc.collect()
    braze.reset()
    gc.collect()
    assert kept() is None


def test_autocast():
    mine, theirs = net(), net()

    def step(model):
        def run(x, y):
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        return run

    compiled, eager = braze.compile(step(mine), fullgraph=True), step(theirs)
    for i in range(3):
        assert_same(compiled(*batch(i)), eager(*batch(i)), rtol=2e-2, atol=2e-2)
        assert_same_state(mine, theirs, rtol=5e-2, atol=5e-2)


class Tied(nn.Module):
    """A language model whose embedding is its last layer, too: calls read it before and after other gradients."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 24)
        self.mixing = nn.Linear(24, 24)
        self.norm = nn.LayerNorm(24)

    def forward(self, x):
        h = self.embedding(x)
        h = self.norm(h + torch.tanh(self.mixing(h)))
        return h @ self.embedding.weight.T


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(F.max_pool2d(self.body(x), 2).mean((2, 3)))


def whole_step(model, optimizer):
    def step(x, y):
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


@pytest.mark.parametrize("make_optimizer", [lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), torch.optim.AdamW])
@pytest.mark.parametrize(
    "make, x",
    [
        (Tied, torch.arange(10).view(2, 5)),
        (Images, torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))),
    ],
)
def test_parameters_are_updated_in_place(make, x, make_optimizer):
    torch.manual_seed(0)
    model = make().double()
    x = x.double() if x.is_floating_point() else x
    y = torch.arange(x[..., 0].numel() if make is Images else x.numel())[: 2 if make is Images else None] % 4
    runs = []
    for compiled in (False, True):
        mine = copy.deepcopy(model)
        optimizer = make_optimizer(mine.parameters())
        step = whole_step(mine, optimizer)
        if compiled:
            step = braze.compile(step)
        addresses = [p.data_ptr() for p in mine.parameters()]
        losses = [step(x, y).detach() for _ in range(5)]
        assert addresses == [p.data_ptr() for p in mine.parameters()]
        runs.append((losses, [t.detach() for t in mine.state_dict().values()]))
    assert_same(runs[0], runs[1])


def test_what_is_reduced_to_is_updated_in_its_place():
    # running statistics, and the weights and biases of normalisations, by the kernels that compute their gradients
    torch.manual_seed(0)
    runs, texts = [], []
    model = Images()
    for compiled in (False, True):
        mine = copy.deepcopy(model)
        optimizer = torch.optim.SGD(mine.parameters(), 0.1, momentum=0.9)

        def step(x, mine=mine, optimizer=optimizer):
            loss = mine(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        with braze.config.patch(dump=lambda stage, text: texts.append((stage, text))):
            step = braze.compile(step) if compiled else step
            generator = torch.Generator().manual_seed(0)
            losses = [step(torch.randn(2, 3, 8, 8, generator=generator)).detach() for _ in range(4)]
        runs.append((losses, [t.detach() for t in mine.state_dict().values()]))
    assert_same(runs[0], runs[1], rtol=1e-4, atol=1e-5)
    programs = [text for stage, text in texts if stage == "program"]
    assert programs
    for text in programs:
        assert "convolution_backward" in text
        assert "copy_" not in text


def test_nothing_is_updated_where_an_index_is_out_of_range():
    torch.manual_seed(0)
    model = Tied()
    step = braze.compile(whole_step(model, torch.optim.SGD(model.parameters(), 0.1)))
    x, y = torch.arange(10).view(2, 5), torch.arange(10) % 4
    for _ in range(3):
        step(x, y)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(IndexError):
        step(x + 35, y)
    assert_same(before, [p.detach() for p in model.parameters()])

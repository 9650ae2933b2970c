"""Steps of torch.optim's optimizers: compiled like eager, in one graph, without compiling again when numbers change."""

import copy
import subprocess
import sys

import pytest
import torch
from support import assert_same, compiles
from torch import nn, optim

import braze


def mlp():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8), nn.Tanh(), nn.Linear(8, 4))
    return model, torch.randn(8, 16)


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).relu().mean((2, 3)))


def conv():
    torch.manual_seed(0)
    return Conv(), torch.randn(4, 3, 8, 8)


# class, arguments, whether it has state
OPTIMIZERS = {
    "Adadelta": (optim.Adadelta, {}, True),
    "Adafactor": (optim.Adafactor, {}, True),
    "Adagrad": (optim.Adagrad, {"lr_decay": 0.1}, False),
    "Adam": (optim.Adam, {}, True),
    "Adam, amsgrad, weight decay": (optim.Adam, {"amsgrad": True, "weight_decay": 0.01}, True),
    "Adamax": (optim.Adamax, {}, True),
    "AdamW": (optim.AdamW, {}, True),
    "ASGD": (optim.ASGD, {"lambd": 0.01}, True),
    "Muon": (optim.Muon, {}, True),
    "NAdam": (optim.NAdam, {}, True),
    "RAdam": (optim.RAdam, {}, True),
    "RMSprop": (optim.RMSprop, {}, True),
    "RMSprop, momentum": (optim.RMSprop, {"momentum": 0.9, "centered": True, "eps": 1e-2}, True),
    "Rprop": (optim.Rprop, {}, True),
    "SGD": (optim.SGD, {}, False),
    "SGD, momentum": (optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}, True),
}
FORMS = [(name, foreach) for name in OPTIMIZERS for foreach in (False, True) if name != "Muon" or not foreach]


def make(name, model, foreach=False, **more):
    cls, arguments, _ = OPTIMIZERS[name]
    arguments = {**arguments, **more}
    if name != "Muon":
        arguments["foreach"] = foreach
    return cls([p for p in model.parameters() if name != "Muon" or p.dim() == 2], **arguments)


def train(model, x, optimizer, step, count, scheduler=None):
    for _ in range(count):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        step()
        if scheduler:
            scheduler.step()


def states(optimizer):
    return [{k: v for k, v in s.items()} for s in optimizer.state_dict()["state"].values()]


def assert_close(model, expected, tolerance=1e-6):
    for a, e in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(a, e, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("name", "foreach"), FORMS)
@pytest.mark.parametrize("make_model", [mlp, conv])
def test_steps_with_a_scheduler(make_model, name, foreach):
    model, x = make_model()
    expected = copy.deepcopy(model)
    theirs = make(name, expected, foreach)
    scheduler = optim.lr_scheduler.ExponentialLR(theirs, 0.95)
    train(expected, x, theirs, theirs.step, 20, scheduler)
    mine = make(name, model, foreach)
    scheduler = optim.lr_scheduler.ExponentialLR(mine, 0.95)
    # the learning rate's first value is a constant, and so is that there is no state; then it is a number of the graph.
    # (A condition on the count of steps has two answers.)
    graphs = 3 if name == "RAdam" else 2
    before, broken = braze.compilations(), braze.stats()["graph_breaks"]
    train(model, x, mine, braze.compile(mine.step), 20, scheduler)
    assert braze.compilations() - before == graphs
    assert braze.stats()["graph_breaks"] == broken
    assert_close(model, expected)
    for a, e in zip(states(mine), states(theirs), strict=True):
        assert a.keys() == e.keys()
        for key in e:
            torch.testing.assert_close(a[key], e[key], rtol=1e-5, atol=1e-6)


def two_models(make_model=mlp):
    model, x = make_model()
    return model, copy.deepcopy(model), x


@pytest.mark.parametrize("name", ["Adafactor", "Adam", "SGD", "SGD, momentum"])
def test_many_parameters_on_any_number_of_threads(name):
    cls, arguments, _ = OPTIMIZERS[name]
    torch.manual_seed(0)
    start = [torch.randn(s) for _ in range(5) for s in [(), (7,), (130,), (130, 131), (300, 257), (64, 3, 3, 3)]]
    grads = [torch.randn_like(p) for p in start]
    threads = torch.get_num_threads()
    params = [[p.clone().requires_grad_() for p in start] for _ in range(2)]
    optimizers = [cls(p, foreach=False, **arguments) for p in params]
    steps = [optimizers[0].step, braze.compile(optimizers[1].step, fullgraph=True)]
    try:
        for n in (threads, 1, 2, 3, 2):
            torch.set_num_threads(n)
            for group, step in zip(params, steps, strict=True):
                for p, g in zip(group, grads, strict=True):
                    p.grad = g.clone()
                step()
            for a, e in zip(params[1], params[0], strict=True):
                torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-6)
    finally:
        torch.set_num_threads(threads)


def test_betas_and_weight_decay_that_change():
    model, expected, x = two_models()
    mine, theirs = optim.AdamW(model.parameters()), optim.AdamW(expected.parameters())
    step = braze.compile(mine.step)
    with compiles(2):
        for i in range(6):
            for o in (mine, theirs):
                o.param_groups[0]["weight_decay"] = 0.01 + i / 100
                o.param_groups[0]["betas"] = (0.9 - i / 50, 0.999 - i / 1000)
            train(model, x, mine, step, 1)
            train(expected, x, theirs, theirs.step, 1)
    assert_close(model, expected)


@pytest.mark.parametrize(
    ("cls", "arguments", "graphs"),
    [(optim.SGD, {"momentum": 0.9, "nesterov": True}, 2), (optim.AdamW, {}, 2), (optim.RMSprop, {"momentum": 0.5}, 2)],
)
@pytest.mark.parametrize("foreach", [False, True])
def test_momentum_that_is_cycled(cls, arguments, graphs, foreach):
    model, expected, x = two_models()
    mine, theirs = (cls(m.parameters(), foreach=foreach, **arguments) for m in (model, expected))
    schedulers = [optim.lr_scheduler.OneCycleLR(o, 0.01, total_steps=12) for o in (mine, theirs)]
    with compiles(graphs):
        train(model, x, mine, braze.compile(mine.step), 10, schedulers[0])
    train(expected, x, theirs, theirs.step, 10, schedulers[1])
    assert_close(model, expected)


@pytest.mark.parametrize(
    ("cls", "name", "values"),
    [
        (optim.Adam, "eps", [1e-8, 1e-6, 1e-4, 1e-3, 1e-2]),
        (optim.SGD, "weight_decay", [0.1, 0.2, 0.0, 0.3, 0.4]),
        (optim.SGD, "momentum", [0.9, 0.8, 0.7, 0.6, 0.5]),
        (optim.Adadelta, "rho", [0.9, 0.8, 0.7, 0.6, 0.5]),
        (optim.RMSprop, "alpha", [0.9, 0.8, 0.7, 0.6, 0.5]),
        (optim.NAdam, "momentum_decay", [4e-3, 5e-3, 6e-3, 7e-3, 8e-3]),
        (optim.Rprop, "etas", [(0.5, 1.2), (0.6, 1.3), (0.4, 1.1), (0.7, 1.5), (0.3, 1.4)]),
        (optim.Rprop, "step_sizes", [(1e-6, 50), (1e-5, 40), (1e-4, 30.0), (1e-3, 20.0), (1e-2, 10.0)]),
    ],
)
def test_other_numbers_that_change(cls, name, values):
    model, expected, x = two_models()
    mine, theirs = cls(model.parameters()), cls(expected.parameters())
    step = braze.compile(mine.step)
    for i in range(10):
        for o in (mine, theirs):
            o.param_groups[0][name] = values[i % 5]
        train(model, x, mine, step, 1)
        train(expected, x, theirs, theirs.step, 1)
    assert_close(model, expected)


def test_tuples_of_numbers_that_change_stay_tuples():
    betas = (0.5, 0.25)

    def f(x, group, other):
        b = group["betas"]
        kept = {"betas": b, "more": (*b, 1)}
        first, second = b
        same = (b is group["betas"], b is other["betas"], b == other["betas"], len(b), type(b) is tuple)
        return x * first + second, kept, same, b + (1.5,), b[::-1], max(b) > 0.4

    compiled = braze.compile(f, fullgraph=True)
    x = torch.ones(3)
    with compiles(2):
        for group in ((0.5, 0.25), (0.6, 0.3), (0.7, 0.1), (0.8, 0.2)):
            arguments = {"betas": group}, {"betas": (1.0, 2.0)}
            assert_same(compiled(x, *arguments), f(x, *arguments))
    for group, other in ((betas, betas), (betas, (0.5, 0.25)), ((0.3, 0.4), betas)):
        arguments = {"betas": group}, {"betas": other}
        assert_same(compiled(x, *arguments), f(x, *arguments))


def test_a_scheduler_of_a_compiled_step():
    model, expected, x = two_models()
    mine, theirs = optim.Adam(model.parameters(), 0.1), optim.Adam(expected.parameters(), 0.1)
    mine.step = braze.compile(mine.step)
    schedulers = [optim.lr_scheduler.ExponentialLR(o, 0.9) for o in (mine, theirs)]
    with compiles(2):
        train(model, x, mine, mine.step, 4, schedulers[0])
    train(expected, x, theirs, theirs.step, 4, schedulers[1])
    assert_close(model, expected)


def test_parts_of_a_compiled_method():
    model, _, x = two_models()
    optimizer = optim.SGD(model.parameters(), 0.1)
    step = braze.compile(optimizer.step)
    assert step.__self__ is optimizer and step.__func__ is step.__func__
    assert isinstance(step.__func__, braze._C.CompiledFunction) and step.__func__.__wrapped__ is optim.SGD.step
    for name in ("__self__", "__func__"):
        with pytest.raises(AttributeError, match="no bound method"):
            getattr(braze.compile(lambda x: x), name)


def test_a_step_and_its_scheduler_in_one_function():
    model, expected, x = two_models()
    mine, theirs = (optim.AdamW(m.parameters(), 0.1) for m in (model, expected))
    schedulers = [optim.lr_scheduler.ExponentialLR(o, 0.9) for o in (mine, theirs)]

    def update():
        mine.step()
        schedulers[0].step()

    with compiles(3):  # the state, the count of epochs
        train(model, x, mine, braze.compile(update), 7)
    train(expected, x, theirs, theirs.step, 7, schedulers[1])
    assert_close(model, expected)
    assert mine.param_groups[0]["lr"] == theirs.param_groups[0]["lr"]
    assert schedulers[0].get_last_lr() == schedulers[1].get_last_lr()


def test_a_tensor_as_learning_rate():
    model, expected, x = two_models()
    rates = torch.tensor(0.1), torch.tensor(0.1)
    mine, theirs = optim.SGD(model.parameters(), rates[0]), optim.SGD(expected.parameters(), rates[1])
    step = braze.compile(mine.step)
    with compiles(1):
        for i in range(4):
            for rate in rates:
                rate.fill_(0.1 / (i + 1))
            train(model, x, mine, step, 1)
            train(expected, x, theirs, theirs.step, 1)
    assert_close(model, expected)


def test_groups_of_parameters():
    model, expected, x = two_models()

    def groups(m):
        return [{"params": m[0].parameters(), "lr": 0.1}, {"params": [*m[2].parameters(), *m[4].parameters()]}]

    mine, theirs = (optim.SGD(groups(m), lr=0.01, momentum=0.9) for m in (model, expected))
    train(expected, x, theirs, theirs.step, 6)
    with compiles(2):
        train(model, x, mine, braze.compile(mine.step), 6)
    assert_close(model, expected)


def test_state_that_is_saved_and_loaded():
    model, expected, x = two_models()
    mine, theirs = optim.Adam(model.parameters()), optim.Adam(expected.parameters())
    step = braze.compile(mine.step)
    for _ in range(3):
        for m, o, s in ((model, mine, step), (expected, theirs, theirs.step)):
            saved = copy.deepcopy(o.state_dict())
            train(m, x, o, s, 3)
            o.load_state_dict(saved)
            train(m, x, o, s, 2)
    assert_close(model, expected)


def test_a_group_that_is_added():
    model, expected, x = two_models()
    mine, theirs = (optim.Adam(m[0].parameters()) for m in (model, expected))
    step = braze.compile(mine.step)
    for m, o, s in ((model, mine, step), (expected, theirs, theirs.step)):
        train(m, x, o, s, 3)
        o.add_param_group({"params": m[2].parameters(), "lr": 0.1, "betas": (0.8, 0.9)})
        train(m, x, o, s, 3)
        o.add_param_group({"params": m[4].weight})
        train(m, x, o, s, 3)
    assert_close(model, expected)


# Not `capturable`: eager refuses it on the CPU.
VARIANTS = [
    {"maximize": True},
    {"differentiable": True},
    {"lr": torch.tensor(0.01)},
    {"weight_decay": 0.1},
    {"foreach": True, "maximize": True},
    {"fused": True},
    {"fused": True, "lr": torch.tensor(0.01)},
]


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if "," not in n])
def test_variants(name):
    tried = 0
    for arguments in VARIANTS:
        model, expected, x = two_models()
        parameters = [[p for p in m.parameters() if name != "Muon" or p.dim() == 2] for m in (model, expected)]
        try:
            mine, theirs = (
                OPTIMIZERS[name][0](p, **{**OPTIMIZERS[name][1], **copy.deepcopy(arguments)}) for p in parameters
            )
        except (TypeError, ValueError, RuntimeError):
            continue  # it has no such argument
        try:
            train(expected, x, theirs, theirs.step, 4)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=error.args[0][:20]):
                train(model, x, mine, braze.compile(mine.step), 4)
            continue
        train(model, x, mine, braze.compile(mine.step), 4)
        assert_close(model, expected)
        tried += 1
    assert tried >= 1


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if n.split(",")[0] not in ("Adafactor", "Muon")])
@pytest.mark.parametrize("foreach", [False, True])
def test_complex_parameters(name, foreach):
    cls, arguments, _ = OPTIMIZERS[name]
    torch.manual_seed(0)
    mine = [torch.randn(3, 4, dtype=torch.complex64, requires_grad=True), torch.randn(5, requires_grad=True)]
    theirs = [p.detach().clone().requires_grad_() for p in mine]
    for parameters, compiled in ((mine, True), (theirs, False)):
        optimizer = cls(parameters, foreach=foreach, **arguments)
        step = braze.compile(optimizer.step) if compiled else optimizer.step
        for _ in range(4):
            optimizer.zero_grad()
            sum((p.abs() ** 2).sum() for p in parameters).backward()
            step()
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_a_closure():
    model, expected, x = two_models()
    mine, theirs = optim.Adam(model.parameters()), optim.Adam(expected.parameters())
    step = braze.compile(mine.step)

    def closure(m, o):
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        return loss

    for _ in range(4):
        a = step(lambda: closure(model, mine))
        e = theirs.step(lambda: closure(expected, theirs))
        torch.testing.assert_close(a, e)
    assert_close(model, expected)


def test_a_step_and_the_gradients_set_to_none():
    model, expected, x = two_models()
    mine, theirs = optim.Adam(model.parameters()), optim.Adam(expected.parameters())

    @braze.compile(fullgraph=True)
    def step():
        mine.step()
        mine.zero_grad()

    for _ in range(5):
        model(x).square().mean().backward()
        expected(x).square().mean().backward()
        step()
        theirs.step()
        theirs.zero_grad()
        assert all(p.grad is None for p in model.parameters())
    assert_close(model, expected)


def test_gradients_set_to_zero():
    model, expected, x = two_models()
    mine, theirs = optim.SGD(model.parameters(), 0.1), optim.SGD(expected.parameters(), 0.1)

    @braze.compile(fullgraph=True)
    def step():
        mine.step()
        mine.zero_grad(set_to_none=False)

    for _ in range(3):
        model(x).square().mean().backward()
        expected(x).square().mean().backward()
        step()
        theirs.step()
        theirs.zero_grad(set_to_none=False)
        assert all((p.grad == 0).all() for p in model.parameters())
    assert_close(model, expected)


def test_conditions_on_the_count_of_steps():
    model, expected, x = two_models()
    mine, theirs = optim.ASGD(model.parameters(), t0=3), optim.ASGD(expected.parameters(), t0=3)
    train(expected, x, theirs, theirs.step, 8)
    train(model, x, mine, braze.compile(mine.step), 8)
    assert_close(model, expected)


def test_a_parameter_without_a_gradient():
    model, expected, x = two_models()
    mine, theirs = optim.Adam(model.parameters()), optim.Adam(expected.parameters())
    step = braze.compile(mine.step)
    for i in range(6):
        for m, o, s in ((model, mine, step), (expected, theirs, theirs.step)):
            o.zero_grad()
            m(x).square().mean().backward()
            if i % 2:
                m[0].bias.grad = None
            s()
    assert_close(model, expected)
    assert mine.state[model[0].bias]["step"] == 3


def test_lbfgs_and_sparse_adam():
    model, expected, x = two_models()
    mine, theirs = optim.LBFGS(model.parameters()), optim.LBFGS(expected.parameters())
    step = braze.compile(mine.step)
    for m, o, s in ((model, mine, step), (expected, theirs, theirs.step)):

        def closure(m=m, o=o):
            o.zero_grad()
            loss = m(x).square().mean()
            loss.backward()
            return loss

        for _ in range(3):
            s(closure)
    assert_close(model, expected, 1e-5)

    table, other = nn.Embedding(20, 8, sparse=True), nn.Embedding(20, 8, sparse=True)
    other.load_state_dict(table.state_dict())
    mine, theirs = optim.SparseAdam(table.parameters()), optim.SparseAdam(other.parameters())
    step = braze.compile(mine.step)
    for i in range(4):
        for m, o, s in ((table, mine, step), (other, theirs, theirs.step)):
            o.zero_grad()
            m(torch.tensor([i, i + 1, i])).square().mean().backward()
            s()
    assert_close(table, other)


def test_the_model_is_another_one():
    step = braze.compile(lambda o: o.step())
    for seed in range(3):
        torch.manual_seed(seed)
        model, expected, x = two_models()
        mine, theirs = optim.Adam(model.parameters()), optim.Adam(expected.parameters())
        train(model, x, mine, lambda mine=mine: step(mine), 3)
        train(expected, x, theirs, theirs.step, 3)
        assert_close(model, expected)


def test_torchs_compiler_is_not_imported():
    program = """
import sys, torch, braze
p = torch.ones(3, requires_grad=True)
p.grad = torch.ones(3)
o = torch.optim.Adam([p])
for name in [name for name in sys.modules if name.startswith("torch._dynamo")]:  # its constructor imports it
    del sys.modules[name]
@braze.compile(fullgraph=True)
def f():
    o.step()
    o.zero_grad()
f()
f()
assert p.grad is None and "torch._dynamo" not in sys.modules, "imported"
"""
    subprocess.run([sys.executable, "-c", program], check=True)


class TestItem:
    """Tensor.item() of a float is a number of the graph."""

    def test_it_is_returned_and_computed_with(self):
        def f(x, y):
            n = x.sum().item()
            return n, n * 2.0 + 1, y * n, y.add(x, alpha=n)

        compiled = braze.compile(f, fullgraph=True)
        for i in range(3):
            x = torch.randn(4) + i
            torch.testing.assert_close(compiled(x, torch.ones(4)), f(x, torch.ones(4)))
            assert type(compiled(x, torch.ones(4))[0]) is float

    def test_a_condition_on_a_scalar_input_is_a_guard(self):
        def f(x, count):
            count += 1
            return x * 2 if count.item() > 2 else x + count.item()

        compiled = braze.compile(f, fullgraph=True)
        mine, theirs, x = torch.tensor(0.0), torch.tensor(0.0), torch.randn(3)
        with compiles(2):
            for _ in range(6):
                torch.testing.assert_close(compiled(x, mine), f(x, theirs))
        assert mine == theirs

    def test_a_condition_on_what_the_graph_computes_ends_it(self):
        def f(x):
            n = x.sum().item()
            return x + 1 if n > 0 else x - 1

        compiled = braze.compile(f)
        for x in (torch.ones(3), -torch.ones(3), torch.ones(3)):
            torch.testing.assert_close(compiled(x), f(x))

    def test_division_by_zero_is_pythons_error(self):
        def f(x, n):
            return x * (1.0 / n.item())

        compiled = braze.compile(f)
        for n in (2.0, 4.0):
            torch.testing.assert_close(compiled(torch.ones(2), torch.tensor(n)), f(torch.ones(2), torch.tensor(n)))
        with pytest.raises(ZeroDivisionError):
            compiled(torch.ones(2), torch.tensor(0.0))

    def test_powers_as_pythons(self):
        def f(x, n):
            return x * 0.9 ** n.item(), x * n.item() ** 0.5, x * n.item() ** -2.0

        compiled = braze.compile(f)
        for n in (2.0, 3.0, 0.5, 1e200):
            torch.testing.assert_close(
                compiled(torch.ones(2), torch.tensor(n, dtype=torch.float64)),
                f(torch.ones(2), torch.tensor(n, dtype=torch.float64)),
            )
        torch.testing.assert_close(compiled(torch.ones(2), torch.tensor(-1.0)), f(torch.ones(2), torch.tensor(-1.0)))
        with pytest.raises(ZeroDivisionError):
            compiled(torch.ones(2), torch.tensor(0.0))

    def test_max_and_min(self):
        def f(x):
            n = x.sum().item()
            return x * max(n, 1.0), x * min(2.0, n), x / max(1.0, n)

        compiled = braze.compile(f, fullgraph=True)
        for x in (torch.ones(3), -torch.ones(3), torch.full((3,), 0.1), torch.full((3,), torch.nan)):
            torch.testing.assert_close(compiled(x), f(x), equal_nan=True)

    def test_beside_gradients(self):
        w = torch.ones(3, requires_grad=True)

        def f(x):
            loss = (x * w).square().sum()
            return loss, loss.item() * 2, x * loss.detach().item()

        compiled = braze.compile(f, fullgraph=True)
        for i in range(3):
            x = torch.arange(3.0) + i
            got, expected = compiled(x), f(x)
            torch.testing.assert_close(got, expected)
            torch.testing.assert_close(*(torch.autograd.grad(r[0], w) for r in (got, expected)))

    def test_what_needs_the_number_itself(self):
        def f(x, seen):
            n = x.sum().item()
            seen.append(n)
            return torch.arange(n), f"{n:.1f}", int(n), [n, {"n": n}], n in {3.0}

        compiled = braze.compile(f)
        for i in (1.0, 2.0, 1.0):
            mine, theirs = [], []
            assert_same(compiled(torch.full((3,), i), mine), f(torch.full((3,), i), theirs))
            assert mine == theirs

    def test_a_number_that_is_written_later(self):
        def f(x, n):
            before = n.item()
            n.mul_(2)
            return x * before, x * n.item()

        compiled = braze.compile(f, fullgraph=True)
        a, b = torch.tensor(1.5), torch.tensor(1.5)
        for _ in range(3):
            torch.testing.assert_close(compiled(torch.ones(2), a), f(torch.ones(2), b))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_other_types(self, dtype):
        def f(x, y):
            n = y.item()
            return x.add(x, alpha=n), x * n, torch.addcmul(x, x, x, value=n), n

        compiled = braze.compile(f, fullgraph=True)
        for i in range(3):
            x, y = torch.randn(5).to(dtype), torch.tensor(i + 0.3).to(dtype)
            torch.testing.assert_close(compiled(x, y), f(x, y), rtol=0, atol=0)


def test_dicts_keyed_by_tensors():
    keys = [torch.randn(2), torch.randn(2)]
    table = {keys[0]: 1.0}

    def f(x):
        total = x * table[keys[0]]
        if keys[1] in table:
            return total + table.get(keys[1])
        table[keys[1]] = 3.0
        return total - len(table)

    compiled = braze.compile(f)
    expected = [f(torch.ones(2)), f(torch.ones(2))]
    del table[keys[1]]
    torch.testing.assert_close([compiled(torch.ones(2)), compiled(torch.ones(2))], expected)
    assert [k is a for k, a in zip(table, keys, strict=True)] == [True, True]

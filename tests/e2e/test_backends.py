"""Backends: names, functions that get the graph, what the graph is."""

import collections
import operator
import subprocess
import sys

import pytest
import torch
from support import assert_like_eager, assert_same, compiles
from torch import nn

import braze
from braze import _backends


class Counting:
    """Runs the graph in eager, and counts what it is given."""

    def __init__(self):
        self.graphs = []
        self.inputs = []

    def __call__(self, graph, inputs):
        assert isinstance(graph, torch.fx.GraphModule)
        self.graphs.append(graph)
        self.inputs.append(inputs)
        return graph.forward

    def targets(self):
        return [n.target for g in self.graphs for n in g.graph.nodes if n.op == "call_function"]

    def names(self):
        return [t.__name__.split(".")[0] for t in self.targets() if t is not operator.getitem]


def through(fn, *arguments, **kwargs):
    """Compares with eager; returns the backend that was used."""
    backend = Counting()
    assert_like_eager(fn, *arguments, compile={"backend": backend}, **kwargs)
    return backend


@pytest.fixture
def named():
    """Backends that a test registers are forgotten."""
    before = dict(_backends._backends)
    yield
    _backends._backends.clear()
    _backends._backends.update(before)


def test_the_graph_is_of_the_programs_calls():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 4)
            self.norm = nn.LayerNorm(4)

        def forward(self, x):
            return torch.einsum("ij,kj->ik", self.norm(self.linear(x)).relu(), x @ torch.ones(3, 4))

    backend = through(Net().requires_grad_(False), torch.randn(2, 3), graphs=1)
    assert backend.names() == ["linear", "layer_norm", "relu", "ones", "matmul", "einsum"]
    (inputs,) = backend.inputs
    placeholders = [n for n in backend.graphs[0].graph.nodes if n.op == "placeholder"]
    assert len(placeholders) == len(inputs) == 5 and all(isinstance(i, torch.Tensor) for i in inputs)
    assert [tuple(n.meta["example_value"].shape) for n in placeholders] == [tuple(i.shape) for i in inputs]
    (linear,) = [n for n in backend.graphs[0].graph.nodes if n.target is torch.ops.aten.linear.default]
    assert linear.meta["example_value"].shape == (2, 4) and linear.meta["example_value"].device.type == "meta"
    assert "in forward" in linear.stack_trace
    backend.graphs[0].graph.lint()


def test_gradients_flow():
    def f(x, w, b):
        with torch.no_grad():
            scale = (x * x).mean()
        y = torch.nn.functional.linear(x, w, b).tanh()
        return (y * scale).sum() + y.detach().sum()

    w, b = torch.randn(4, 3, requires_grad=True), torch.randn(4, requires_grad=True)
    x = torch.randn(2, 3, requires_grad=True)
    backend = Counting()
    for name in (backend, "eager", "aot_eager"):
        compiled = braze.compile(f, backend=name)
        for _ in range(2):
            out = compiled(x, w, b)
            assert_same(out, f(x, w, b))
            assert_same(torch.autograd.grad(out, (x, w, b)), torch.autograd.grad(f(x, w, b), (x, w, b)))
    assert backend.names().count("linear") == 1


def test_training_step():
    torch.manual_seed(3)
    models = [nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.0), nn.Linear(8, 2)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    backend = Counting()
    compiled = braze.compile(models[1], backend=backend)
    x, y = torch.randn(5, 4), torch.randn(5, 2)
    for model in (models[0], compiled):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert len(backend.graphs) == 1


def test_grad_modes_and_autocast_are_in_the_graph():
    def f(x, w):
        a = x @ w
        with torch.no_grad():
            b = a * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            c = x @ w
            with torch.autocast("cpu", enabled=False):
                d = c.float() @ w
        return a, b, c, d

    w = torch.randn(3, 3, requires_grad=True)
    backend = through(f, torch.randn(2, 3), w)
    names = [getattr(t, "__name__", str(t)) for t in backend.targets()]
    assert names.count("_set_grad_enabled") == 2
    assert names.count("_enter_autocast") == names.count("_exit_autocast") == 1


def test_changes_of_inputs_and_views():
    def f(x, y):
        x.add_(1)
        v = y.t()
        v[0].mul_(2)
        y.unsqueeze(0).squeeze_(0)
        return v + x.sum(), x

    through(f, lambda: torch.ones(2), lambda: torch.arange(6.0).view(2, 3), graphs=1)


def test_several_results_and_lists():
    def f(x):
        values, indices = x.sort(dim=-1)
        parts = x.chunk(2)
        mean, std = torch.std_mean(torch.cat(parts[::-1]), dim=0)
        return values, indices, parts[1], mean + std

    backend = through(f, torch.randn(4, 3), graphs=1)
    assert backend.names() == ["sort", "chunk", "cat", "std_mean", "add"]


def test_constants_of_the_program():
    def f(x):
        table = torch.tensor([1.0, 2.0, 3.0])
        table.add_(1)
        return x * torch.tensor([3.0, 2.0, 1.0]) + table, table

    through(f, torch.ones(3), graphs=1)


def test_random_numbers_are_eagers():
    def f(x):
        return torch.nn.functional.dropout(x, 0.5) + torch.rand(3) * torch.randn_like(x)

    compiled = braze.compile(f, backend=Counting())
    for _ in range(2):
        torch.manual_seed(5)
        expected = f(torch.ones(3))
        torch.manual_seed(5)
        assert_same(compiled(torch.ones(3)), expected)


def test_transforms():
    def f(x, w):
        return torch.func.vmap(lambda row: (row * w).sum())(x)

    through(f, torch.randn(4, 3), torch.randn(3))


def test_symbolic_sizes_are_arguments():
    def f(x, n):
        return (x.reshape(-1, 2) * n + x.shape[0]).sum(0) / 0.5, x.shape[0] * 2

    backend = Counting()
    compiled = braze.compile(f, backend=backend, dynamic=True)
    for size, n in ((4, 3), (6, 5), (8, 7)):
        x = torch.arange(float(size))
        assert_same(compiled(x, n), f(x, n))
    assert len(backend.graphs) == 1
    assert sorted(type(i).__name__ for i in backend.inputs[0]) != ["Tensor"]


def test_floats_of_the_program():
    f = lambda x, s: x * s + s
    backend = Counting()
    compiled = braze.compile(f, backend=backend)
    for s in (0.5, 1.5, 2.5, 3.5):
        assert_same(compiled(torch.ones(3), s), f(torch.ones(3), s))
    assert len(backend.graphs) == 2


def test_graph_breaks_make_several_graphs():
    def f(x):
        y = x * 2
        print(end="")
        if y.sum() > 0:
            return y + 1
        return y - 1

    assert len(through(f, torch.ones(3)).graphs) == 3


def test_backend_that_changes_the_graph():
    def minus_for_plus(graph, inputs):
        for node in graph.graph.nodes:
            if node.target is torch.ops.aten.add.Tensor:
                node.target = torch.ops.aten.sub.Tensor
        graph.recompile()
        return graph

    assert_same(braze.compile(lambda x: x * 2 + 1, backend=minus_for_plus)(torch.ones(3)), torch.ones(3))


def test_backend_that_compiles_with_another():
    backend = lambda graph, inputs: braze.lookup_backend("braze")(graph, inputs)
    with compiles(2):  # the capture, and what the backend makes of it
        assert_same(braze.compile(lambda x: (x * 2).relu(), backend=backend)(torch.ones(3)), torch.full((3,), 2.0))
    assert braze.stats()["kernels"] == 1

    def at_once(graph, inputs):  # runs it while it is compiled
        compiled = braze.compile(graph)
        compiled(*inputs)
        return compiled

    assert_same(braze.compile(lambda x: x * 3, backend=at_once)(torch.ones(3)), torch.full((3,), 3.0))


def test_allowed_functions_and_custom_operators():
    @torch.library.custom_op("braze_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    backend = through(lambda x: twice(x + 1) - 1, torch.ones(3), graphs=1)
    assert backend.names() == ["add", "twice", "sub"]


def test_aot_eager_runs_atens_operators():
    f = lambda x: torch.softmax((x * 2).relu(), -1)
    assert_like_eager(f, torch.randn(4, 5), graphs=1, compile={"backend": "aot_eager"})
    stats = braze.stats()
    assert stats["kernels"] == 0 and stats["aten_calls"] == 3


# ---- names


def test_names():
    assert braze.list_backends() == ["braze", "cudagraphs", "inductor"]
    assert braze.list_backends(()) == ["aot_eager", "braze", "cudagraphs", "eager", "inductor"]
    assert braze.list_backends(None) == braze.list_backends(exclude_tags=())
    for backend in braze.list_backends(()):
        assert_like_eager(lambda x: (x * 2).relu(), torch.randn(5), graphs=1, compile={"backend": backend})


def test_register_and_look_up(named):
    seen = []

    @braze.register_backend
    def counting(graph, inputs):
        seen.append(len(inputs))
        return graph.forward

    assert braze.register_backend(counting, name="other", tags=("debug",)) is counting
    assert {"counting"} == set(braze.list_backends()) - {"braze", "cudagraphs", "inductor"}
    assert "other" in braze.list_backends(())
    assert braze.lookup_backend("counting") is counting and braze.lookup_backend(counting) is counting
    assert_same(braze.compile(lambda x: x * 2, backend="other")(torch.ones(3)), torch.full((3,), 2.0))
    assert seen == [1]

    @braze.register_backend(name="third")
    def unnamed(graph, inputs):
        return graph

    assert braze.lookup_backend("third") is unnamed
    with pytest.raises(braze.UserError, match="there is a backend 'eager' already"):
        braze.register_backend(counting, name="eager")


@pytest.mark.parametrize("name", ["braze", "inductor", "eager", "aot_eager"])
def test_look_up_ours(name):
    graph = torch.fx.symbolic_trace(lambda x: x * 2)
    assert_same(braze.lookup_backend(name)(graph, [torch.ones(3)])(torch.ones(3)), torch.full((3,), 2.0))


def test_default_backend():
    backend = Counting()
    try:
        assert braze.get_default_backend() == "braze"
        braze.set_default_backend(backend)
        assert braze.get_default_backend() is backend
        braze.compile(lambda x: x * 2)(torch.ones(3))
        assert len(backend.graphs) == 1
        with pytest.raises(braze.UserError, match="unknown backend 'fast'"):
            braze.set_default_backend("fast")
    finally:
        braze.set_default_backend(None)
    assert braze.config.backend == "braze"


PLUGIN = """
import torch, braze
assert "plugged" in braze.list_backends()
assert torch.equal(braze.compile(lambda x: x * 2, backend="plugged")(torch.ones(3)), torch.full((3,), 3.0))
try:
    braze.compile(lambda x: x, backend="missing_one")
except braze.BackendError as e:
    assert "'missing_one' can't be loaded from no_such_module:f (entry point torch_dynamo_backends)" in str(e), e
"""


def test_entry_points(tmp_path):
    info = tmp_path / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[torch_dynamo_backends]\nplugged = plugin_module:plugged\nmissing_one = no_such_module:f\n"
    )
    (tmp_path / "plugin_module.py").write_text("def plugged(g, inputs):\n    return lambda x: (g(x)[0] + 1,)\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + PLUGIN
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- what goes wrong


def line_of(fn, offset=1):
    return f"{__file__}:{fn.__code__.co_firstlineno + offset} in {fn.__name__}"


def doubled(x):
    return x * 2


def test_backend_that_raises():
    def bad(graph, inputs):
        raise KeyError("no such layout")

    for _ in range(2):
        with pytest.raises(braze.BackendError) as e:
            braze.compile(doubled, backend=bad)(torch.ones(3))
        assert str(e.value) == (
            f"backend 'bad' raised KeyError on the graph that begins at {line_of(doubled)}: 'no such layout'"
        )
        assert isinstance(e.value.__cause__, KeyError)


def test_backend_that_returns_no_callable():
    def bad(graph, inputs):
        return 5

    with pytest.raises(braze.BackendError) as e:
        braze.compile(doubled, backend=bad)(torch.ones(3))
    assert str(e.value) == (
        f"backend 'bad' must return a callable for the graph that begins at {line_of(doubled)}; it returned 5 of type int"
    )


@pytest.mark.parametrize(
    ("result", "given"),
    [
        ((), "0 values"),
        ((1, 2), "2 values"),
        (torch.ones(3), "'Tensor'"),
        (None, "'NoneType'"),
        ((5,), "a value of type int"),
    ],
)
def test_compiled_graph_that_returns_something_else(result, given):
    def bad(graph, inputs):
        return lambda *inputs: result

    with pytest.raises(braze.BackendError) as e:
        braze.compile(doubled, backend=bad)(torch.ones(3))
    assert str(e.value) == (
        f"what backend 'bad' made of the graph that begins at {line_of(doubled)} must return a tuple of 1 tensors; "
        f"it returned {given}"
    )


def test_compiled_graph_that_raises():
    class Bad:
        def __call__(self, graph, inputs):
            def run(*inputs):
                raise IndexError("out of tiles")

            return run

    with pytest.raises(IndexError, match="out of tiles") as e:
        braze.compile(doubled, backend=Bad())(torch.ones(3))
    assert e.value.__notes__ == [f"(in what backend 'Bad' made of the graph that begins at {line_of(doubled)})"]


def test_errors_of_the_program_are_the_programs():
    def f(x, i):
        return x[i] * 2

    for backend in ("eager", "aot_eager"):
        compiled = braze.compile(f, backend=backend)
        assert_same(compiled(torch.ones(3), torch.tensor([1])), torch.full((1,), 2.0))
        with pytest.raises(IndexError):
            compiled(torch.ones(3), torch.tensor([7]))


def test_counts_are_told():
    def f(x):
        return (x * 2).relu()

    told = braze.explain(f, backend=Counting())(torch.ones(3))
    assert told.op_count == 2 and "aten.relu" in told.graphs[0].text.replace("_", ".")
    assert collections.Counter(type(g).__name__ for g in told.graphs) == {"Graph": 1}

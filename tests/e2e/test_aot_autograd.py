"""`aot_autograd`: compilers of ATen graphs, forward and backward."""

import pytest
import torch
from support import assert_same
from torch import nn

import braze


class Compiler:
    """Runs the graphs in eager, and keeps them."""

    def __init__(self):
        self.graphs = []

    def __call__(self, graph, inputs):
        placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        assert len(placeholders) == len(inputs)
        self.graphs.append(graph)
        return graph.forward

    def names(self, i=0):
        return [n.target.__name__.split(".")[0] for n in self.graphs[i].graph.nodes if n.op == "call_function"]


def gradients(f, *inputs):
    out = f(*inputs)
    outs = [o for o in (out if isinstance(out, tuple) else (out,)) if o.requires_grad]
    wanted = [i for i in inputs if i.requires_grad]
    return out, torch.autograd.grad([o.sum() for o in outs], wanted, allow_unused=True)


def check(f, *inputs, **compilers):
    fw, bw = Compiler(), Compiler()
    compiled = braze.compile(f, backend=braze.aot_autograd(fw_compiler=fw, bw_compiler=bw, **compilers), fullgraph=True)
    for _ in range(2):
        assert_same(gradients(compiled, *inputs), gradients(f, *inputs))
    return fw, bw


def test_two_halves():
    w = torch.randn(3, 4, requires_grad=True)
    fw, bw = check(lambda x, w: (x @ w).sigmoid(), torch.randn(2, 3), w)
    assert fw.names() == ["mm", "sigmoid"] or fw.names() == ["mm", "sigmoid", "t"]
    assert "sigmoid_backward" in bw.names() and "mm" in bw.names()


def test_linear_layers_and_several_outputs():
    def f(x, w, b, v):
        y = nn.functional.gelu(nn.functional.linear(x, w, b))
        return y @ v, y.detach() * 2, y.argmax(-1), (y * y).sum()

    make = lambda *size: torch.randn(*size, requires_grad=True)
    fw, bw = check(f, make(2, 3), make(4, 3), make(4), make(4, 2))
    assert len(fw.graphs) == len(bw.graphs) == 1


def test_a_module_learns():
    torch.manual_seed(0)
    models = [
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.LayerNorm(8), nn.Linear(8, 2)) for _ in "ab"
    ]
    models[1].load_state_dict(models[0].state_dict())
    fw, bw = Compiler(), Compiler()
    compiled = braze.compile(models[1], backend=braze.aot_autograd(fw_compiler=fw, bw_compiler=bw))
    x, y = torch.randn(5, 1, 4, 4), torch.randint(0, 2, (5,))
    for model in (models[0], compiled):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert len(fw.graphs) == len(bw.graphs) == 1


def test_without_gradients():
    inference = Compiler()
    fw, bw = Compiler(), Compiler()
    backend = braze.aot_autograd(fw_compiler=fw, bw_compiler=bw, inference_compiler=inference)
    f = lambda x: torch.nn.functional.linear(x, torch.ones(2, 3)).relu()
    x = torch.randn(4, 3)
    assert_same(braze.compile(f, backend=backend)(x), f(x))
    assert "relu" in inference.names() and not fw.graphs and not bw.graphs
    only = Compiler()
    assert_same(braze.compile(f, backend=braze.aot_autograd(fw_compiler=only))(x), f(x))
    assert len(only.graphs) == 1


def test_partition_function():
    seen = []

    def partition(joint, inputs, *, num_fwd_outputs):
        from braze._aot import default_partition

        seen.append((len(inputs), num_fwd_outputs, [n.name for n in joint.graph.nodes if n.op == "placeholder"]))
        return default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs)

    check(lambda x, w: (x * w).exp(), torch.randn(3), torch.randn(3, requires_grad=True), partition_fn=partition)
    ((count, outputs, names),) = seen
    assert (count, outputs) == (3, 1) and names == ["primals_0", "primals_1", "tangents_0"]


def test_decompositions():
    table = {torch.ops.aten.sigmoid.default: lambda x: 1 / (1 + torch.exp(-x))}
    w = torch.randn(3, requires_grad=True)
    fw, _ = check(lambda x, w: (x * w).sigmoid() + 1, torch.randn(3), w, decompositions=table)
    assert "sigmoid" not in fw.names() and "exp" in fw.names()


def test_tangents_with_other_strides():
    w = torch.randn(3, 4, requires_grad=True)
    compiled = braze.compile(lambda x, w: x @ w, backend=braze.aot_autograd(fw_compiler=Compiler()))
    x = torch.randn(2, 3)
    for f in (compiled, lambda x, w: x @ w):
        w.grad = None
        f(x, w).t().contiguous().t().backward(torch.arange(8.0).view(4, 2).t())
        if f is compiled:
            got = w.grad
    assert_same(got, w.grad)


def test_an_input_handed_out_and_unused_inputs():
    def f(x, unused, w):
        return x, x * w

    check(f, torch.randn(3, requires_grad=True), torch.randn(2, requires_grad=True), torch.randn(3, requires_grad=True))


def test_inputs_that_are_written_run_in_eager():
    def f(x, w):
        x.add_(1)
        return x * w

    fw = Compiler()
    compiled = braze.compile(f, backend=braze.aot_autograd(fw_compiler=fw))
    w = torch.randn(3, requires_grad=True)
    x, y = torch.zeros(3), torch.zeros(3)
    assert_same(compiled(x, w), f(y, w))
    assert_same(x, y)


def test_sizes_that_vary():
    fw = Compiler()
    f = lambda x, w: (x.reshape(-1, 2) @ w) * x.shape[0]
    compiled = braze.compile(f, backend=braze.aot_autograd(fw_compiler=fw), dynamic=True)
    w = torch.randn(2, 2, requires_grad=True)
    for n in (4, 6, 8, 4):
        x = torch.arange(float(n))
        assert_same(gradients(compiled, x, w), gradients(f, x, w))


def test_wrong_arguments():
    with pytest.raises(TypeError, match="fw_compiler must be a callable; got 'x' of type str"):
        braze.aot_autograd(fw_compiler="x")


def test_compiler_that_raises():
    def bad(graph, inputs):
        raise ValueError("no kernels")

    with pytest.raises(braze.BackendError, match="raised ValueError on the graph that begins at .*: no kernels"):
        braze.compile(lambda x: x * 2, backend=braze.aot_autograd(fw_compiler=bad))(torch.ones(3))

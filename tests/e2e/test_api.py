"""The public API: what is compiled, how it is called, what it answers."""

import copy
import functools
import inspect
import io
import pickle
import subprocess
import sys
import types

import pytest
import torch
from support import assert_like_eager, assert_same, compiles
from torch import nn

import braze


class Net(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("offset", torch.ones(width))

    def forward(self, x):
        return self.linear(x).relu() + self.offset

    def extra(self, x):
        return self(x) * 2


# ---- functions


def test_function():
    def f(x):
        """Doubles."""
        return x * 2

    compiled = assert_like_eager(f, torch.ones(3), graphs=1)
    assert (compiled.__name__, compiled.__doc__, compiled.__wrapped__) == ("f", "Doubles.", f)
    assert compiled.__module__ == __name__ and compiled.__qualname__ == f.__qualname__
    assert inspect.signature(compiled) == inspect.signature(f)


def test_decorators():
    @braze.compile
    def f(x):
        return x * 2

    @braze.compile(fullgraph=True, dynamic=False)
    def g(x):
        return x * 3

    with compiles(2):
        assert_same(f(torch.ones(2)), torch.full((2,), 2.0))
        assert_same(g(torch.ones(2)), torch.full((2,), 3.0))


def test_lambda_partial_builtin_and_callable_object():
    class Times:
        def __init__(self, k):
            self.k = k

        def __call__(self, x):
            return x * self.k

    def scaled(x, k):
        return x * k

    for fn in (lambda x: x * 2, functools.partial(scaled, k=2), torch.neg, Times(2)):
        assert_like_eager(fn, torch.ones(3), graphs=1)


def test_method_decorated_in_the_class():
    class Holder:
        def __init__(self, k):
            self.k = k

        @braze.compile
        def times(self, x):
            return x * self.k

        @staticmethod
        @braze.compile
        def double(x):
            return x * 2

        @braze.compile
        @classmethod
        def named(cls, x):
            return x * len(cls.__name__)

    x = torch.ones(3)
    with compiles(1):
        assert_same(Holder(2).times(x), x * 2)
    assert_same(Holder(5).times(x), x * 5)
    assert_same(Holder.double(x), x * 2)
    assert_same(Holder.named(x), x * 6)


def test_bound_method():
    class Holder:
        k = 4

        def times(self, x):
            return x * self.k

    assert_like_eager(Holder().times, torch.ones(3), graphs=1)


def test_compiled_function_called_from_a_compiled_function():
    @braze.compile
    def inner(x):
        return x * 2

    compiled = braze.compile(lambda x: inner(x) + inner(x + 1))
    with compiles(1):
        assert_same(compiled(torch.ones(3)), torch.full((3,), 6.0))


def test_compiling_twice():
    f = braze.compile(lambda x: x * 2)
    assert braze.compile(f) is f
    again = braze.compile(f, fullgraph=True)
    assert again is not f and again.__wrapped__ is f.__wrapped__


def test_class_whose_instances_are_called():
    @braze.compile
    class Twice:
        def __call__(self, x):
            return x * 2

    assert isinstance(Twice, type)
    with compiles(1):
        assert_same(Twice()(torch.ones(3)), torch.full((3,), 2.0))


def test_closure_and_default_arguments():
    k = 3

    def f(x, *more, scale=2, **named):
        return (x * k + sum(more)) * scale + named.get("plus", 0)

    compiled = braze.compile(f)
    x = torch.ones(2)
    assert_same(compiled(x, 1, 2, scale=3, plus=4), f(x, 1, 2, scale=3, plus=4))
    assert_same(compiled(x), f(x))


# ---- modules


def test_module_is_an_instance_of_its_class():
    model = Net().requires_grad_(False)
    compiled = assert_like_eager(model, torch.ones(2, 3), graphs=1)
    assert isinstance(compiled, Net)
    assert type(compiled).__name__ == "Net" and type(compiled).__qualname__ == Net.__qualname__
    assert list(compiled.state_dict()) == list(model.state_dict()) == ["offset", "linear.weight", "linear.bias"]
    assert [n for n, _ in compiled.named_modules()] == ["", "linear"]
    assert repr(compiled) == repr(model)
    assert braze.compile(compiled) is compiled


def test_module_shares_its_attributes():
    model = Net().requires_grad_(False)
    compiled = braze.compile(model)
    compiled.note = 5
    assert model.note == 5
    model.note = 6
    assert compiled.note == 6
    compiled.eval()
    assert not model.training
    compiled.double()
    assert model.linear.weight.dtype == torch.float64
    assert_same(compiled(torch.ones(2, 3).double()), model(torch.ones(2, 3).double()))
    compiled.linear = nn.Linear(3, 2).requires_grad_(False)
    compiled.offset = torch.ones(2)
    assert_same(compiled(torch.ones(2, 3)), model(torch.ones(2, 3)))
    compiled.load_state_dict({k: torch.zeros_like(v) for k, v in model.state_dict().items()})
    assert_same(compiled(torch.ones(2, 3)), torch.zeros(2, 2))


def test_other_methods_call_the_compiled_module():
    model = Net().requires_grad_(False)
    compiled = braze.compile(model)
    with compiles(1):
        assert_same(compiled.extra(torch.ones(2, 3)), model.extra(torch.ones(2, 3)))


def test_forward_is_compiled():
    model = Net().requires_grad_(False)
    compiled = braze.compile(model)
    with compiles(1):
        for _ in range(2):
            assert_same(compiled.forward(torch.ones(2, 3)), model(torch.ones(2, 3)))
    assert inspect.signature(compiled.forward) == inspect.signature(model.forward)


def test_hooks():
    model = Net().requires_grad_(False)
    seen = []
    model.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    model.linear.register_forward_hook(lambda m, args, out: seen.append(type(m).__name__) or out + 1)
    compiled = braze.compile(model)
    for _ in range(2):
        assert_same(compiled(torch.ones(2, 3)), model(torch.ones(2, 3)))
    assert seen == ["Linear"] * 4


def test_pickle_and_copies():
    model = Net().requires_grad_(False)
    compiled = braze.compile(model, dynamic=False)
    x = torch.ones(2, 3)
    buffer = io.BytesIO()
    torch.save(compiled, buffer)
    buffer.seek(0)
    for other in (
        pickle.loads(pickle.dumps(compiled)),
        torch.load(buffer, weights_only=False),
        copy.deepcopy(compiled),
        copy.copy(compiled),
    ):
        assert isinstance(other, Net) and type(other) is not Net
        with compiles(1):
            assert_same(other(x), model(x))
    deep = copy.deepcopy(compiled)
    deep.linear.weight.zero_()
    assert not torch.equal(deep.linear.weight, model.linear.weight)


def test_new_instance_of_the_class_of_a_compiled_module():
    compiled = braze.compile(Net(3))
    other = type(compiled)(5)
    assert type(other) is Net and other.linear.weight.shape == (5, 5)


def test_class_that_registers_its_subclasses():
    registered = []

    class Base(nn.Module):
        def __init_subclass__(cls, **kwargs):
            super().__init_subclass__(**kwargs)
            registered.append(cls.__name__)

    class Model(Base):
        def forward(self, x):
            return x * 2

    assert_like_eager(Model(), torch.ones(3), graphs=1)
    assert registered == ["Model"]


def test_module_inside_a_module():
    inner = braze.compile(Net().requires_grad_(False))
    outer = nn.Sequential(inner, nn.ReLU())
    assert list(outer.state_dict()) == ["0.offset", "0.linear.weight", "0.linear.bias"]
    with compiles(1):
        assert_same(outer(torch.ones(2, 3)), outer[1](inner._orig_mod(torch.ones(2, 3))))


def test_functional_call():
    model = Net().requires_grad_(False)
    compiled = braze.compile(model)
    x = torch.ones(2, 3)
    weights = {k: torch.full_like(v, 0.5) for k, v in model.state_dict().items()}
    for _ in range(2):
        assert_same(
            torch.func.functional_call(compiled, weights, (x,)), torch.func.functional_call(model, weights, (x,))
        )
    assert_same(compiled(x), model(x))


def test_gradients_are_right():
    model = Net()
    compiled = braze.compile(model)
    x = torch.randn(2, 3)
    compiled(x).sum().backward()
    got = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    for a, p in zip(got, model.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad)


# ---- switches and answers


def test_disable_argument_returns_the_function():
    def f(x):
        return x

    assert braze.compile(f, disable=True) is f


def test_disabled_function_is_not_compiled():
    @braze.disable
    def inner(x):
        assert not braze.is_compiling()
        return x * 2

    assert_like_eager(lambda x: inner(x + 1) - 1, torch.ones(3), graphs=2)


def test_disable_stops_at_the_callees_only_where_recursive():
    seen = []

    def leaf(x):
        seen.append(braze.is_compiling())
        return x * 2

    def middle(x):
        seen.append(braze.is_compiling())
        return leaf(x)

    x = torch.ones(3)
    for recursive, expected in ((True, {False}), (False, {False, True})):
        seen.clear()
        inner = braze.disable(middle, recursive=recursive)
        compiled = braze.compile(lambda x, inner=inner: inner(x) + 1)
        assert_same(compiled(x), x * 2 + 1)
        assert set(seen) >= {False}
        assert (True in seen) == (True in expected)


def test_marks_of_torch_are_honoured():
    @torch.compiler.disable
    def inner(x):
        assert not torch.compiler.is_compiling()
        return x * 2

    assert_like_eager(lambda x: inner(x + 1) - 1, torch.ones(3), graphs=2)


def test_is_compiling():
    def f(x):
        return x * 2 if braze.is_compiling() and torch.compiler.is_compiling() else x

    assert not braze.is_compiling()
    x = torch.ones(3)
    assert_same(braze.compile(f)(x), x * 2)
    assert not braze.is_compiling()


def test_reset_forgets():
    compiled = braze.compile(lambda x: x * 2)
    with compiles(1):
        compiled(torch.ones(3))
    braze.reset()
    compiled(torch.ones(3))
    assert braze.stats()["graphs"] == 1


def test_stats():
    def f(x):
        x = (x * 2).relu()
        print(end="")
        return x @ x

    braze.compile(f)(torch.ones(3, 3))
    stats = braze.stats()
    assert stats["graphs"] == 2 and stats["graph_breaks"] == 1 and stats["recompiles"] == 0
    assert stats["kernels"] == 1 and stats["aten_calls"] == 1
    assert stats["seconds"] and all(s >= 0 for s in stats["seconds"].values())
    assert braze.compilations() >= 2


def test_explain():
    def f(x):
        x = (x * 2).relu()
        print(end="")
        return x + 1

    told = braze.explain(f)(torch.ones(3))
    assert told.graph_count == 2 and told.graph_break_count == 1
    assert told.op_count == sum(told.ops_per_graph) == 3
    broken = told.break_reasons[0]
    assert (broken.file, broken.line, broken.function) == (__file__, f.__code__.co_firstlineno + 2, "f")
    assert broken.title and broken.explanation
    assert any("x" in g["source"] for g in told.out_guards)
    text = str(told)
    assert "Graph Count: 2" in text and f"file {__file__}, line {broken.line} in f" in text


def test_explain_the_toy_example(capsys):
    def toy_example(a, b):
        x = a / (torch.abs(a) + 1)
        print("woo")
        if b.sum() < 0:
            b = b * -1
        return x * b

    told = braze.explain(toy_example)(torch.randn(10), torch.ones(10))
    assert capsys.readouterr().out == "woo\n"
    assert (told.graph_count, told.graph_break_count, told.op_count) == (3, 2, 6)
    assert told.ops_per_graph == [3, 2, 1]
    first = toy_example.__code__.co_firstlineno
    assert [(b.id, b.line, b.function) for b in told.break_reasons] == [
        ("io", first + 2, "toy_example"),
        ("data-dependent", first + 3, "toy_example"),
    ]
    assert told.break_reasons[0].detail == "builtins.print"
    lines = str(told).splitlines()
    assert lines[:5] == ["Graph Count: 3", "Graph Break Count: 2", "Op Count: 6", "Break Reasons:", "  Break Reason 1:"]
    assert f"      <FrameSummary file {__file__}, line {first + 3} in toy_example>" in lines
    for part in ("Ops per Graph:", "Out Guards:", "Guards by Kind:", "Compile Times:"):
        assert part in lines


def test_explained_guards():
    model = Net().requires_grad_(False)
    told = braze.explain(model)(torch.ones(2, 3))
    assert all(g.checks >= 1 and g.seconds > 0 for g in told.guards)
    assert {"Tensor", "TypeIs", "GlobalState"} <= {g.kind for g in told.guards}
    table = str(told.guards).splitlines()
    assert table[0].split() == ["kind", "guards", "checks", "time", "for", "example"]
    rows = {line.split()[0]: line.split()[1:4] for line in table[1:]}
    tensors = [g for g in told.guards if g.kind == "Tensor"]
    assert rows["Tensor"][:2] == [str(len(tensors)), str(sum(g.checks for g in tensors))]
    assert told.out_guards[0]["text"] == told.guards[0].text


def test_modes_and_options():
    f = lambda x: x * 2
    for mode in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
        assert_like_eager(f, torch.ones(3), compile={"mode": mode})
    assert_like_eager(f, torch.ones(3), compile={"options": {"max_autotune": True, "triton.cudagraphs": False}})


def test_config_patch():
    assert braze.config.recompile_limit == 8
    with braze.config.patch(recompile_limit=2, strict=True):
        assert (braze.config.recompile_limit, braze.config.strict) == (2, True)
        with braze.config.patch({"recompile_limit": 3}):
            assert braze.config.recompile_limit == 3
        assert braze.config.recompile_limit == 2

    @braze.config.patch(recompile_limit=4)
    def f():
        return braze.config.recompile_limit

    assert f() == 4
    assert braze.config.recompile_limit == 8
    with pytest.raises(braze.UserError), braze.config.patch(recompile_limit=2, threads="many"):
        pass
    assert braze.config.recompile_limit == 8
    assert "recompile_limit" in braze.config.describe() and "recompile_limit" in dir(braze.config)


def test_config_disable():
    def f(x):
        return x * 2

    with braze.config.patch(disable=True):
        assert braze.compile(f) is f


def test_disabled_passes_and_widths_give_the_same_numbers():
    def f(x):
        return torch.softmax(x * 2 + 1, -1)

    x = torch.randn(5, 17)
    for changes in ({"disabled_passes": ["fold", "cse", "dce"]}, {"verify": True}, {"isa": "sse2"}, {"threads": 1}):
        braze.reset()
        with braze.config.patch(changes):
            assert_same(braze.compile(f)(x), f(x))


def test_dump_is_called_for_each_stage():
    stages = []
    with braze.config.patch(dump=lambda stage, text: stages.append((stage, text))):
        braze.compile(lambda x: (x * 2).relu().cos() - 7)(torch.ones(3))
    assert stages and all(text for _, text in stages)


# ---- in place of torch.compile


def test_install():
    theirs = torch.compile
    braze.install()
    try:
        assert torch.compile is braze.compile
        model = Net().requires_grad_(False)
        model.compile()
        with compiles(1):
            assert_same(model(torch.ones(2, 3)), model.forward(torch.ones(2, 3)))

        @torch.compile(backend="inductor")
        def f(x):
            return x * 2

        with compiles(1):
            f(torch.ones(3))
        torch.compiler.reset()
        assert braze.stats()["graphs"] == 0
    finally:
        braze.uninstall()
    assert torch.compile is theirs


def command_line(*arguments, **kwargs):
    return subprocess.run([sys.executable, "-m", "braze", *arguments], capture_output=True, text=True, **kwargs)


SCRIPT = """
import sys, torch, braze
f = torch.compile(lambda x: x * 2)
assert f(torch.ones(1)).item() == 2
print(__name__, sys.argv[1:], braze.compilations())
"""


def test_command_line(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = command_line(str(tmp_path / "script.py"), "--flag", "value")
    assert (done.returncode, done.stdout) == (0, "__main__ ['--flag', 'value'] 1\n"), done.stderr
    done = command_line("-m", "script", "a", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "__main__ ['a'] 1\n"), done.stderr
    done = command_line("-c", SCRIPT, "b")
    assert (done.returncode, done.stdout) == (0, "__main__ ['b'] 1\n"), done.stderr


def test_command_line_errors(tmp_path):
    assert "usage: python -m braze" in command_line().stderr
    assert "there is no such file" in command_line(str(tmp_path / "absent.py")).stderr
    (tmp_path / "exits.py").write_text("import sys; sys.exit(7)")
    assert command_line(str(tmp_path / "exits.py")).returncode == 7


def test_none_of_torchs_compilers_is_imported():
    program = (
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "import braze\n"
        "m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()).requires_grad_(False)\n"
        "braze.compile(m)(torch.ones(2, 3))\n"
        "assert braze.compilations() == 1\n"
        "peers = ('torch._dynamo', 'torch._inductor', 'torch._functorch')\n"
        "print([n for n in sorted(set(sys.modules) - before) if n.startswith(peers)])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_threads():
    """Several threads compile and call at once."""
    import concurrent.futures

    def work(k):
        f = braze.compile(lambda x: (x * k).relu().sum())
        return [f(torch.full((4,), float(n))).item() for n in range(5)]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(1, 9)))
    assert results == [[4.0 * k * n for n in range(5)] for k in range(1, 9)]


def test_stub_names_exist():
    """What the stub declares is in the extension, and the other way round."""
    import ast
    import pathlib

    from braze import _C

    tree = ast.parse((pathlib.Path(braze.__file__).parent / "_C.pyi").read_text())
    declared = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    public = {n for n in dir(_C) if not n.startswith("_") and not isinstance(getattr(_C, n), types.ModuleType)}
    assert declared == public

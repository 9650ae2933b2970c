"""Hooks on gradients that compiled code registers, against eager: gradients, the order of calls, handles."""

import pytest
import torch
from support import assert_same, compiles

import braze


def x(seed=0):
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def both(run, graphs=None, fullgraph=False):
    """run(compile) -> results, once in eager and twice with one function compiled."""
    expected = run(lambda fn: fn)
    made = {}

    def compile(fn):
        if fn.__code__ not in made:
            made[fn.__code__] = braze.compile(fn, fullgraph=fullgraph)
        return made[fn.__code__]

    before = braze.compilations()
    assert_same(run(compile), expected)
    if graphs is not None:
        assert braze.compilations() - before == graphs


def test_intermediate():
    def run(compile):
        def fn(a):
            y = a * 2
            y.register_hook(lambda g: g * 3)
            return y.sin().sum()

        a = x()
        out = compile(fn)(a)
        out.backward()
        return a.grad

    both(run, graphs=1, fullgraph=True)


def test_gradient_is_compiled():
    def fn(a):
        y = a * 2
        y.register_hook(lambda g: g * 3)
        return y.sin()

    assert braze.compile(fn)(x()).grad_fn.name() == "BrazeBackward"


def test_several_in_order():
    def run(compile):
        def fn(a, b):
            y = a * 2
            y.register_hook(lambda g: g + 1)
            y.register_hook(lambda g: g * b)
            y.register_hook(lambda g: None)
            gone = y.register_hook(lambda g: g * 1000)
            z = y.sin()
            gone.remove()
            z.register_hook(lambda g: g.clamp(max=0.5))
            return (z * y).sum()

        a, b = x(), x(1).detach()
        compile(fn)(a, b).backward()
        return a.grad

    both(run, graphs=1, fullgraph=True)


def test_reads_what_it_belongs_to():
    def run(compile):
        def fn(a):
            y = a * 2
            y.register_hook(lambda g: g * y.detach())
            z = y.exp()
            y.register_hook(lambda g: g + z)
            return z.sum()

        a = x()
        (g,) = torch.autograd.grad(compile(fn)(a), a, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), a)
        return g.detach(), h

    both(run, graphs=1)


def test_gradients_of_gradients():
    def run(compile):
        def fn(a):
            y = a**3
            y.register_hook(lambda g: g * g * y)
            return y.sin().sum()

        a = x()
        (g,) = torch.autograd.grad(compile(fn)(a), a, create_graph=True)
        (h,) = torch.autograd.grad(g.square().sum(), a)
        return g.detach(), h

    both(run)


def test_hooked_output():
    def run(compile):
        def fn(a):
            y = a * 2
            y.register_hook(lambda g: g * 3)
            return y, y.sin().sum()

        a = x()
        y, loss = compile(fn)(a)
        (loss + y.sum()).backward()
        first, a.grad = a.grad, None
        y, loss = compile(fn)(a)
        y.sum().backward()
        return first, a.grad

    both(run, graphs=1)


def test_written_later():
    def run(compile):
        def fn(a):
            y = a * 2
            y.register_hook(lambda g: g * 3)
            y.mul_(5)
            y.register_hook(lambda g: g + 1)
            return y.sum()

        a = x()
        compile(fn)(a).backward()
        return a.grad

    both(run)


def test_effects_run_at_each_backward():
    def run(compile):
        log = []

        def fn(a):
            y = a * 2
            y.register_hook(lambda g: log.append(g.sum()))
            return y.sin().sum()

        for _ in range(2):
            a = x()
            compile(fn)(a).backward()
        return log, a.grad

    both(run)


class Saved:
    def __init__(self):
        self.gradient = None

    def keep(self, g):
        self.gradient = g


def test_gradient_that_is_kept():
    """As Grad-CAM does it."""

    def run(compile):
        saved = Saved()

        def fn(a):
            y = a * 2
            y.register_hook(saved.keep)
            return y.sin().sum()

        compile(fn)(x()).backward()
        return saved.gradient

    both(run)


def test_inside_a_step():
    def run(compile):
        saved = Saved()
        log = []

        def fn(a):
            y = a * 2
            y.register_hook(saved.keep)
            y.register_hook(lambda g: g * 3)
            y.register_hook(lambda g: log.append("called"))
            y.sin().sum().backward()
            return a.grad

        return compile(fn)(x()), saved.gradient, log

    both(run, graphs=1, fullgraph=True)


def test_inside_a_step_that_returns_its_loss():
    def run(compile):
        def fn(a):
            y = a * 2
            y.register_hook(lambda g: g * 3)
            loss = y.sin().sum()
            loss.backward()
            return loss

        a = x()
        return compile(fn)(a).detach(), a.grad

    both(run, graphs=1)


@pytest.mark.parametrize("leaf", [True, False])
def test_tensor_from_before(leaf):
    def run(compile):
        def fn(a):
            h = a.register_hook(lambda g: g * 3)
            return (a * 2).sin().sum(), h

        a = x()
        b = a if leaf else a * 1
        loss, handle = compile(fn)(b)
        loss.backward()
        first, a.grad = a.grad, None
        assert isinstance(handle, torch.utils.hooks.RemovableHandle)
        if leaf:
            handle.remove()
            a.sum().backward()
        return first, a.grad

    both(run, graphs=1)


def test_tensor_from_before_and_effects():
    """The hook itself is the program's: it runs in eager, in the order of registration."""

    def run(compile):
        log = []

        def fn(a):
            a.register_hook(lambda g: log.append(("first", g.sum())))
            gone = a.register_hook(lambda g: log.append("never"))
            h = a.register_hook(lambda g: log.append("second"))
            gone.remove()
            return a.sin().sum(), h

        a = x()
        loss, _ = compile(fn)(a)
        loss.backward()
        return log, a.grad

    both(run, graphs=1)


def test_tensor_from_before_in_a_step():
    def run(compile):
        def fn(a):
            h = a.register_hook(lambda g: g * 3)
            a.sin().sum().backward()
            h.remove()
            return a.grad.clone()

        a = x()
        first = compile(fn)(a)
        a.cos().sum().backward()
        return first, a.grad

    both(run, graphs=1)


def test_across_a_break():
    def run(compile):
        def fn(a):
            y = a * 2
            y.register_hook(lambda g: g * 3)
            braze.graph_break()
            return y.sin().sum()

        a = x()
        compile(fn)(a).backward()
        return a.grad

    both(run, graphs=2)


def test_after_the_gradient_is_accumulated():
    def run(compile):
        log = []

        def fn(a):
            h = a.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.sum().detach()))
            return a.sin().sum(), h

        a = x()
        for _ in range(2):
            loss, handle = compile(fn)(a)
            loss.backward()
            handle.remove()
        a.sum().backward()
        return log, a.grad

    both(run, graphs=1)


def test_after_the_gradient_is_accumulated_in_a_step():
    def run(compile):
        log = []

        def fn(a):
            a.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.sum().detach()))
            a.sin().sum().backward()

        a = x()
        compile(fn)(a)
        return log, a.grad

    both(run)


def test_retained_gradient():
    def run(compile):
        def fn(a):
            y = a * 2
            y.retain_grad()
            return y, y.sin().sum()

        a = x()
        y, loss = compile(fn)(a)
        loss.backward()
        return a.grad, y.grad, y.retains_grad

    both(run, graphs=1, fullgraph=True)


def test_retained_gradient_in_a_step():
    def run(compile):
        def fn(a):
            y = a * 2
            y.retain_grad()
            y.sin().sum().backward()
            return y.grad

        def returned(a):
            y = a * 2
            y.retain_grad()
            y.sin().sum().backward()
            return y

        y = compile(returned)(x())
        return compile(fn)(x()), y.grad, y.retains_grad

    both(run, fullgraph=True)


def test_nothing_keeps_the_gradient():
    def run(compile):
        def fn(a):
            y = a * 2
            y.retain_grad()
            return y.sin().sum()

        a = x()
        out = compile(fn)(a)
        out.backward()
        return a.grad

    both(run, graphs=1, fullgraph=True)


def test_errors():
    def without(a):
        (a * 2).detach().register_hook(lambda g: g)

    def size(a):
        y = a * 2
        y.register_hook(lambda g: g[0])
        return y.sum()

    def kind(a):
        y = a * 2
        y.register_hook(lambda g: 3)
        return y.sum()

    def raises(a):
        y = a * 2
        y.register_hook(lambda g: 1 / 0)
        return y.sum()

    for fn, error in (
        (without, "doesn't require"),
        (size, "size of value"),
        (kind, "expected Variable"),
        (raises, "division"),
    ):
        for f in (fn, braze.compile(fn)):
            with pytest.raises((RuntimeError, TypeError, ZeroDivisionError), match=error):
                f(x()).backward()


def test_one_graph_for_many_calls():
    def fn(a):
        y = a * 2
        y.register_hook(lambda g: g * 3)
        a.register_hook(lambda g: g + 1)
        return y.sin().sum()

    compiled = braze.compile(fn)
    with compiles(1):
        for seed in range(3):
            compiled(x(seed)).backward()


def test_handle_of_an_intermediate():
    def run(compile):
        def fn(a):
            y = a * 2
            h = y.register_hook(lambda g: g * 3)
            return y.sin().sum(), h

        a = x()
        compile(fn)(a)[0].backward()
        first, a.grad = a.grad, None
        loss, handle = compile(fn)(a)
        handle.remove()
        loss.backward()
        return first, a.grad

    both(run)


@pytest.mark.parametrize("step", [False, True])
def test_removed_by_another_hook(step):
    def run(compile):
        def fn(a):
            y = a * 2
            handles = []

            def first(g):
                handles[0].remove()
                return g * 5

            y.register_hook(first)
            handles.append(y.register_hook(lambda g: g * 7))
            loss = y.sin().sum()
            if step:
                loss.backward(retain_graph=True)
            return loss

        a = x()
        loss = compile(fn)(a)
        if not step:
            loss.backward(retain_graph=True)
        loss.backward()
        return a.grad

    both(run)


def test_program_looks_at_a_handle():
    def run(compile):
        def fn(a):
            h = a.register_hook(lambda g: g * 2)
            y = a * 2
            with y.register_hook(lambda g: g * 3) as i:
                before = i.id > h.id, i.id in i.hooks_dict_ref(), hasattr(h, "name")
                y.sum().backward(retain_graph=True)
            return y.sin().sum(), before, h.id in a._backward_hooks, i.id in y._backward_hooks

        a = x()
        loss, *facts = compile(fn)(a)
        loss.backward()
        return a.grad, facts

    both(run)


def test_parameters_collect_hooks():
    def run(compile):
        model = torch.nn.Linear(3, 2)
        torch.nn.init.ones_(model.weight)
        torch.nn.init.zeros_(model.bias)
        log, other_log = [], []

        def fn(a):
            model.weight.register_hook(lambda g: log.append("first") or g * 2)
            model.weight.register_hook(lambda g: log.append("second") or g + 1)
            model.bias.register_post_accumulate_grad_hook(lambda p: other_log.append("bias"))
            return model(a).sum()

        for _ in range(3):
            compile(fn)(x().detach()).backward()
        return log, other_log, model.weight.grad, model.bias.grad

    both(run)


@pytest.mark.parametrize(
    "hook",
    [
        lambda g: g.mul_(2),
        lambda g: g * 2 if torch.is_grad_enabled() else g,
        lambda g: g * 2 if g.sum() > 0 else g * 3,
        lambda g: torch.nn.functional.dropout(g),
        lambda g: g + torch.rand_like(g),
        lambda g: g.t().contiguous().t(),
        lambda g: g.detach(),
        lambda g: torch.zeros_like(g),
        lambda g: torch.ones(4, 3),
        lambda g: g.sum().expand(4, 3),
        lambda g: g * g.abs().max().item(),
    ],
    ids=range(11),
)
@pytest.mark.parametrize("step", [False, True])
def test_kinds_of_hooks(hook, step):
    def run(compile):
        def fn(a):
            y = a * 2
            y.register_hook(hook)
            loss = y.sin().sum()
            if step:
                loss.backward()
            return loss

        results = []
        for seed in range(2):
            a = x(seed)
            torch.manual_seed(3)
            loss = compile(fn)(a)
            if not step:
                loss.backward(retain_graph=True)
                loss.backward()
            results += [loss.detach(), a.grad, torch.rand(2)]
        return results

    both(run)


def test_reads_what_changes_between_calls():
    def run(compile):
        scale = [2.0]

        def fn(a):
            y = a * 2
            y.register_hook(lambda g: g * scale[0])
            return y.sin().sum()

        found = []
        for scale[0] in (2.0, 5.0):
            a = x()
            compile(fn)(a).backward()
            found.append(a.grad)
        return found

    both(run)


def test_results_of_one_operator_and_views():
    def run(compile):
        def fn(a):
            b, c = a.chunk(2)
            b.register_hook(lambda g: g * 3)
            values, _ = (a * 2).sort(0)
            values.register_hook(lambda g: g + 1)
            row = values[0]
            row.register_hook(lambda g: g * 2)
            return b, c * 2, values, row

        a = x()
        b, c, values, row = compile(fn)(a)
        (b.sum() + c.sum() + values.square().sum() + row.sum()).backward()
        return a.grad

    both(run)


def test_gradients_of_every_hooked_result():
    def run(compile):
        def fn(a):
            y = a * 2
            y.register_hook(lambda g: g * 3)
            z = y.sin()
            z.register_hook(lambda g: g + y)
            return y, z, z.sum()

        a = x()
        y, z, loss = compile(fn)(a)
        found = [torch.autograd.grad(o.sum(), a, create_graph=True)[0] for o in (y, z, loss, y + loss, y * z)]
        more = [torch.autograd.grad(g.square().sum(), a, retain_graph=True)[0] for g in found[1:]]
        return [g.detach() for g in found], more

    both(run)


def test_without_gradients():
    def run(compile):
        def fn(a):
            y = a * 2
            with torch.no_grad():
                y.register_hook(lambda g: g * 3)
                z = y + 1
            return y.sum() + z.sum()

        a = x()
        compile(fn)(a).backward()
        with torch.no_grad():
            with pytest.raises(RuntimeError, match="doesn't require"):
                compile(fn)(x())
        return a.grad

    both(run)


@pytest.mark.parametrize("step", [False, True])
def test_hook_that_raises(step):
    def run(compile):
        log = []

        def bad(g):
            log.append("called")
            raise KeyError("of the hook")

        def fn(a):
            y = a * 2
            y.register_hook(bad)
            loss = y.sum()
            if step:
                loss.backward()
            return loss

        a = x()
        with pytest.raises(KeyError, match="of the hook"):
            compile(fn)(a).backward()
        return log, a.grad is None

    both(run)


def test_input_is_written_after_it_is_hooked():
    def run(compile):
        def fn(a):
            a.register_hook(lambda g: g * 3)
            a.mul_(2)
            return a.sin().sum()

        a = x()
        compile(fn)(a * 1).backward()
        return a.grad

    both(run)


def test_retained_gradient_and_hooks():
    def run(compile):
        def fn(a):
            y = a * 2
            y.register_hook(lambda g: g * 3)
            y.retain_grad()
            y.register_hook(lambda g: g + 1)
            return y, y.sin().sum()

        a = x()
        y, loss = compile(fn)(a)
        loss.backward(retain_graph=True)
        loss.backward()
        return a.grad, y.grad

    both(run)


@pytest.mark.parametrize("leaf", [True, False])
def test_retained_gradient_of_a_tensor_from_before(leaf):
    def run(compile):
        def fn(a):
            a.retain_grad()
            return a.sin().sum(), a.retains_grad

        a = x()
        b = a if leaf else a * 1
        loss, retains = compile(fn)(b)
        loss.backward()
        return a.grad, b.grad if b.retains_grad else None, retains, b.retains_grad

    both(run)


@pytest.mark.parametrize("leaf", [True, False])
def test_gradients_of_gradients_by_a_tensor_from_before(leaf):
    def run(compile):
        def fn(a):
            a.register_hook(lambda g: g * g)
            return a.sin().sum()

        a = x()
        (g,) = torch.autograd.grad(compile(fn)(a if leaf else a * 2), a, create_graph=True)
        (h,) = torch.autograd.grad(g.square().sum(), a)
        return g.detach(), h

    both(run)


@pytest.mark.parametrize("backend", ["eager", lambda graph, inputs: graph])
def test_other_backends(backend):
    def fn(a):
        y = a * 2
        y.register_hook(lambda g: g * 3)
        z = y.sin()
        z.retain_grad()
        a.register_hook(lambda g: g + 1)
        return z, (z * y).sum()

    results = []
    for f in (fn, braze.compile(fn, backend=backend)):
        a = x()
        z, loss = f(a)
        loss.backward()
        results.append((a.grad, z.grad, z.retains_grad))
    assert_same(*results)


def test_sizes_that_change():
    def fn(a):
        y = a * 2
        y.register_hook(lambda g: g * y.shape[0] + g.sum(0))
        return y.sin().sum()

    compiled = braze.compile(fn, dynamic=True)
    for n in (3, 5, 6):
        results = []
        for f in (fn, compiled):
            a = torch.arange(n * 2.0).view(n, 2).requires_grad_()
            f(a).backward()
            results.append(a.grad)
        assert_same(*results)


def test_in_a_checkpoint():
    def run(compile):
        def part(a):
            y = a * 2
            y.register_hook(lambda g: g * 3)
            return y.sin().exp()

        def fn(a):
            return torch.utils.checkpoint.checkpoint(part, a, use_reentrant=False).sum()

        a = x()
        compile(fn)(a).backward()
        return a.grad

    both(run)


def test_inside_a_function():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            with torch.enable_grad():
                h = g.detach().requires_grad_()
                y = h * 2
                y.register_hook(lambda g: g * 3)
                y.sum().backward()
            return h.grad

    def run(compile):
        def fn(a):
            y = Double.apply(a)
            y.register_hook(lambda g: g + 1)
            return y.sin().sum()

        a = x()
        compile(fn)(a).backward()
        return a.grad

    both(run)


def test_modules():
    def run(compile):
        log = []
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
        for p in model.parameters():
            torch.nn.init.constant_(p, 0.3)
        model[1].register_full_backward_hook(lambda m, i, o: log.append(o[0].sum()))
        model[0].register_forward_hook(lambda m, i, o: o.register_hook(lambda g: g * 2) and None)
        compile(model.forward)(x().detach()).sum().backward()
        return log, [p.grad for p in model.parameters()]

    def compile(fn):
        return braze.compile(fn)

    assert_same(run(compile), run(lambda fn: fn))


def test_under_a_mode_of_the_program():
    class Mode(torch.overrides.TorchFunctionMode):
        def __init__(self, seen):
            super().__init__()
            self.seen = seen

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    def run(compile):
        seen = []

        def fn(a):
            y = a * 2
            with Mode(seen):
                y.register_hook(lambda g: g * 3)
            return y.sin().sum()

        a = x()
        compile(fn)(a).backward()
        return a.grad, seen

    both(run)

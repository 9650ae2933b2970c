"""Effects of the program: in-place operations, aliases, changed containers, objects, globals."""

import gc
import weakref

import pytest
import torch
from support import assert_like_eager, assert_same, compiles
from torch import nn

import braze


def data(*shape):
    return lambda: torch.arange(1.0, 1.0 + torch.Size(shape).numel()).view(shape)


@pytest.mark.parametrize(
    "body",
    [
        lambda x: x.add_(1),
        lambda x: x.mul_(2).sub_(1) + 1,
        lambda x: (x[0].zero_(), x * 2)[1],
        lambda x: (x[:, 1].fill_(7), x.sum())[1],
        lambda x: (x.t().add_(1), x + 1)[1],
        lambda x: (x.view(-1)[2:5].mul_(3), x)[1],
        lambda x: (x.copy_(x * 2), x.exp())[1],
        lambda x: (x.__setitem__(0, 5), x)[1],
        lambda x: (x.__setitem__((slice(None), 0), x[:, 1]), x + 0)[1],
        lambda x: (torch.add(x, 1, out=x), x)[1],
        lambda x: (x.clamp_(max=3), x.relu_())[1],
        lambda x: (x.add_(x), x)[1],
        lambda x: (x[x > 3].add_(1), x)[1],
        lambda x: (x.masked_fill_(x > 3, 0), x)[1],
    ],
)
def test_in_place_on_an_input(body):
    assert_like_eager(body, data(2, 3), calls=3)


def test_input_is_returned_itself():
    compiled = braze.compile(lambda x: (x.add_(1), x))
    x = torch.ones(3)
    out = compiled(x)
    assert out[0] is x and out[1] is x
    assert_same(x, torch.full((3,), 2.0))


def test_same_output_twice_is_one_tensor():
    def f(x):
        y = x * 2
        return y, [y], {"y": y}

    a, (b,), d = braze.compile(f)(torch.ones(3))
    assert a is b and a is d["y"]


def test_views_of_inputs_stay_views():
    compiled = braze.compile(lambda x: (x[1:], x.t(), x.view(-1), x.detach()))
    x = torch.ones(3, 3)
    outs = compiled(x)
    x.zero_()
    for out, expected in zip(outs, (x[1:], x.t(), x.view(-1), x.detach()), strict=True):
        assert_same(out, expected)
        assert out.stride() == expected.stride() and out.data_ptr() == expected.data_ptr()


def test_views_of_outputs_share_storage():
    def f(x):
        y = x * 2
        return y, y[0], y.t()

    y, row, turned = braze.compile(f)(torch.ones(3, 3))
    y.zero_()
    assert row.sum() == 0 and turned.sum() == 0


def test_outputs_of_two_calls_are_apart():
    compiled = braze.compile(lambda x: (x * 2).relu())
    first = compiled(torch.ones(3))
    second = compiled(torch.full((3,), 5.0))
    assert_same(first, torch.full((3,), 2.0))
    assert_same(second, torch.full((3,), 10.0))


def test_strides_of_outputs():
    def f(x):
        return x.t() * 2, x.t().contiguous() + 1, torch.relu(x.t()), x.permute(1, 0).exp()

    for out, expected in zip(braze.compile(f)(torch.ones(3, 4)), f(torch.ones(3, 4)), strict=True):
        assert out.stride() == expected.stride()


def test_aliased_arguments():
    def f(a, b):
        a.mul_(2)
        return b + 1

    compiled = braze.compile(f)
    x, y = torch.ones(3), torch.ones(3)
    assert_same(compiled(x, y), torch.full((3,), 2.0))
    assert_same(compiled(x, x), torch.full((3,), 5.0))
    base = torch.arange(4.0)
    assert_same(compiled(base[:3], base[1:]), torch.tensor([3.0, 5.0, 4.0]))
    assert_same(compiled(base, base.view(2, 2)).view(-1), base + 1)


def test_module_state():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(3))
            self.calls = 0
            self.last = None

        def forward(self, x):
            self.calls += 1
            self.total += x
            self.last = x * 2
            return x + self.total

    eager, model = Counter(), Counter()
    compiled = braze.compile(model)
    for k in range(1, 5):
        x = torch.full((3,), float(k))
        assert_same(compiled(x), eager(x))
        assert model.calls == eager.calls == k
        assert_same(model.total, eager.total)
        assert_same(model.last, eager.last)


def test_batch_norm_statistics():
    eager = nn.BatchNorm1d(3).requires_grad_(False)
    model = nn.BatchNorm1d(3).requires_grad_(False)
    compiled = braze.compile(model)
    for _ in range(3):
        x = torch.randn(5, 3)
        assert_same(compiled(x), eager(x))
    for name, value in eager.state_dict().items():
        assert_same(model.state_dict()[name], value)


def test_containers_of_the_caller():
    def f(x, items, table, members):
        items.append(x * 2)
        items.insert(0, "first")
        items[1] = items[1] + 1
        table["y"] = x + 1
        table.setdefault("z", []).append(3)
        del table["gone"]
        members.add(5)
        return x.sum() + len(items)

    def args():
        return [1], {"gone": 1, "kept": 2}, {4}

    compiled = braze.compile(f)
    x = torch.ones(2)
    for _ in range(2):
        mine, theirs = args(), args()
        assert_same(compiled(x, *mine), f(x, *theirs))
        assert_same(mine[0], theirs[0])
        assert_same(mine[1], theirs[1])
        assert mine[2] == theirs[2]


def test_list_methods():
    def f(x, items):
        items.sort(reverse=True)
        items.extend([7, 8])
        items += [9]
        items.remove(8)
        last = items.pop()
        items.reverse()
        items[1:2] = [10, 11]
        return x * last * len(items)

    assert_like_eager(f, torch.ones(2), lambda: [3, 1, 2], calls=3, graphs=1)


def test_dict_methods():
    def f(x, table):
        table.update(a=5, b=6)
        first = table.pop("a")
        table.popitem()
        table["n"] = {**table, "m": 1}
        return x * first, list(table), table.get("none", 3)

    assert_like_eager(f, torch.ones(2), lambda: {"q": 1}, calls=3, graphs=1)


class Record:
    def __init__(self):
        self.history = []
        self.count = 0


def test_attributes_of_an_object():
    def f(x, record):
        record.count += 1
        record.history.append(x.shape[0])
        record.result = x * record.count
        return x + record.count

    compiled = braze.compile(f)
    eager, mine = Record(), Record()
    for k in range(1, 4):
        x = torch.full((2,), float(k))
        assert_same(compiled(x, mine), f(x, eager))
        assert (mine.count, mine.history) == (eager.count, eager.history)
        assert_same(mine.result, eager.result)


TOTAL = 0
CACHE = {}


def test_globals():
    global TOTAL

    def f(x):
        global TOTAL
        TOTAL += 1
        CACHE[TOTAL] = x * 2
        return x * TOTAL

    TOTAL = 0
    CACHE.clear()
    compiled = braze.compile(f)
    for n in range(1, 4):
        assert_same(compiled(torch.ones(2)), torch.full((2,), float(n)))
        assert TOTAL == n and list(CACHE) == list(range(1, n + 1))
        assert_same(CACHE[n], torch.full((2,), 2.0))


def test_nonlocal():
    count = 0

    def f(x):
        nonlocal count
        count += 1
        return x * count

    compiled = braze.compile(f)
    for n in range(1, 4):
        assert_same(compiled(torch.ones(2)), torch.full((2,), float(n)))
        assert count == n


def test_order_of_effects():
    def f(x, log):
        log.append(("a", x + 1))
        x.add_(1)
        log.append(("b", x + 1))
        return len(log)

    assert_like_eager(f, data(2), lambda: [], calls=2)


def test_cached_value_is_seen_by_the_next_call():
    class Lazy:
        value = None

    def f(x, lazy):
        if lazy.value is None:
            lazy.value = x * 2
        return x + lazy.value

    compiled = braze.compile(f)
    lazy = Lazy()
    x = torch.ones(2)
    assert_same(compiled(x, lazy), x * 3)
    kept = lazy.value
    assert_same(compiled(x * 5, lazy), x * 7)
    assert lazy.value is kept


def test_object_made_and_kept():
    class Point:
        def __init__(self, x, y):
            self.x, self.y = x, y

        def shifted(self, d):
            return Point(self.x + d, self.y + d)

    def f(x, store):
        p = Point(x, x * 2).shifted(1)
        store.append(p)
        return p

    compiled = braze.compile(f)
    store = []
    for n in range(1, 3):
        p = compiled(torch.full((2,), float(n)), store)
        assert type(p) is Point and store[-1] is p and len(store) == n
        assert_same(p.x, torch.full((2,), n + 1.0))
        assert_same(p.y, torch.full((2,), 2 * n + 1.0))


def test_closure_made_and_returned():
    def f(x):
        y = x * 2

        def g(z):
            return y + z

        return g

    compiled = braze.compile(f)
    for n in (1.0, 2.0):
        g = compiled(torch.full((2,), n))
        assert_same(g(torch.ones(2)), torch.full((2,), 2 * n + 1))


def test_random_numbers_are_eagers():
    def f(x):
        return torch.rand(3) + x, torch.nn.functional.dropout(x, 0.5), torch.randn_like(x), torch.randperm(4)

    compiled = braze.compile(f)
    x = torch.ones(5)[:3]
    for seed in range(3):
        torch.manual_seed(seed)
        expected = f(x)
        after = torch.rand(1)
        torch.manual_seed(seed)
        assert_same(compiled(x), expected)
        assert_same(torch.rand(1), after)


def test_grad_mode_set_by_the_program_stays_set():
    def f(x):
        torch.set_grad_enabled(False)
        return x * 2

    compiled = braze.compile(f)
    try:
        for _ in range(2):
            torch.set_grad_enabled(True)
            compiled(torch.ones(2))
            assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)


def test_no_work_no_graph():
    with compiles(0):
        assert braze.compile(lambda x: x)(5) == 5


def test_returned_input_of_a_module():
    compiled = braze.compile(nn.Identity())
    x = torch.ones(3)
    assert compiled(x) is x


def test_class_of_an_autograd_function_is_made_in_the_program():
    def f(x):
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

        return x + len(Double.__name__)

    assert_like_eager(f, data(3), graphs=1)
    assert_like_eager(lambda x: torch.masked.sum(x, 1, mask=x > 2), data(2, 3), graphs=1)


def test_collected_garbage_is_not_the_programs():
    """Callbacks that the collector runs inside a compiled call are neither traced nor compiled."""
    seen = []

    class Node:
        pass

    def callback(ref):
        seen.append((torch.ones(2) * 2).sum().item())

    def f(x):
        gc.collect()
        return x + 1

    compiled = braze.compile(f)
    traces = []
    for _ in range(6):
        node = Node()
        node.itself = node
        ref = weakref.ref(node, callback)
        del node
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
        assert ref() is None
        traces.append(braze.compilations())
    assert seen == [4.0] * 6
    assert traces[-1] == traces[-2]


class Place:
    __slots__ = ("slot", "__dict__")


def test_storing_what_is_there_already():
    """Whether a store changes something depends on the call."""

    def f(x, o, table, n):
        o.a = 5
        o.slot = 5
        o.gone = 1
        del o.gone
        table["k"] = 5
        n = 5
        print(end="")
        return x * n

    compiled = braze.compile(f)
    for value in (5, 6, 5, 7, None):
        both = []
        for run in (f, compiled):
            o, table = Place(), {}
            if value is not None:
                o.a = o.slot = table["k"] = value
            if value == 7:
                o.gone = 3
            result = run(torch.ones(2), o, table, value)
            both.append((vars(o), o.slot, table, result.tolist()))
        assert both[0] == both[1]


def test_storing_what_is_there_already_in_a_cell():
    def make(n):
        def store(x):
            nonlocal n
            n = 5
            return x + 1

        return store, lambda: n

    store = make(5)[0]
    compiled = braze.compile(lambda x, store: store(x))
    for value in (5, 6, 5):
        store, read = make(value)
        compiled(torch.ones(2), store)
        assert read() == 5


def test_a_local_that_is_bound_at_times():
    def f(x, items):
        v = 1
        for _ in items:
            print(end="")
            x = x + 1
            del v
        return x

    compiled = braze.compile(f)
    assert_same(compiled(torch.ones(2), [1]), torch.full((2,), 2.0))
    for _ in range(2):
        with pytest.raises(UnboundLocalError):
            compiled(torch.ones(2), [1, 2])


def test_sets_keep_their_order():
    """Of iteration, after what a trace did to them has been undone; and pop() takes what it would take in eager."""

    def program():
        long, short, one = set(range(40, 60)), {1, 2, 3, 4, 5}, {7}

        def f(x):
            taken = short.pop()
            short.add(taken)
            long.discard(45)
            long.update((100, 45))
            one.add(one.pop())
            mine = {1, 2, 3}
            return x * taken + mine.pop(), list(long), list(short), list(one), list(mine)

        return f

    eager, compiled = program(), braze.compile(program())
    for _ in range(7):
        assert_same(compiled(torch.ones(2)), eager(torch.ones(2)))
    breaks = braze.explain(program())(torch.ones(2)).break_reasons
    assert [(b.id, b.detail) for b in breaks] == [("iterator-from-before", "set.pop")]


def test_generators_of_random_numbers():
    def drawn(x, g):
        return torch.rand(2, generator=g) + x

    def made_inside(x):
        g = torch.Generator().manual_seed(3)
        return torch.rand(2, generator=g) + x

    x = torch.zeros(2)
    expected = made_inside(x)
    inside, compiled = braze.compile(made_inside), braze.compile(drawn)
    for _ in range(3):
        assert_same(inside(x), expected)
        assert_same(compiled(x, torch.Generator().manual_seed(3)), expected)
    a, b = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    for _ in range(3):
        assert_same(compiled(x, a), drawn(x, b))

"""Numbers of the program that vary from call to call: one graph for all of them, wherever they lie and whatever pure
functions make of them."""

import collections
import copy
import functools
import math
import operator
import time

import pytest
import torch

import braze

X = torch.arange(1.0, 5.0)
Pair = collections.namedtuple("Pair", "a b")


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.allclose(a, b, rtol=1e-6, atol=0, equal_nan=True)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, functools.partial):
        return same(a.args, b.args) and same(a.keywords, b.keywords)
    return a == b and math.copysign(1, a) == math.copysign(1, b) if isinstance(a, (int, float)) else a == b


def compilations_for(program, arguments):
    """Runs it in eager and compiled on each, compares results and what became of the arguments."""
    compiled, before = braze.compile(program), braze.compilations()
    for a in arguments:
        mine, theirs = copy.deepcopy(a), copy.deepcopy(a)
        assert same(compiled(mine), program(theirs)) and same(mine, theirs), a
    return braze.compilations() - before


def items(d):
    y = X
    for _, v in d.items():
        y = y * v
    return y


def increment(c, key):
    c[key] += 1
    return X * c[key]


def popped(c, *where):
    n = c.pop(*where)
    return X * n, n


CONTAINERS = {
    "dict, item": (lambda d: increment(d, "n"), "dict"),
    "dict, get": (lambda d: X * d.get("n", 0), "dict"),
    "dict, setdefault": (lambda d: X * d.setdefault("n", 0), "dict"),
    "dict, pop": (lambda d: popped(d, "n"), "dict"),
    "dict, items": (items, "dict"),
    "dict, values": (lambda d: X * sum(d.values()), "dict"),
    "dict, values after a change": (lambda d: (increment(d, "n"), X * sum(d.values())), "dict"),
    "dict, keywords": (lambda d: (lambda n, f: X * n + f)(**d), "dict"),
    "dict, copied": (lambda d: X * dict(d)["n"] + d.copy()["f"] + {**d}["n"], "dict"),
    "dict, update": (lambda d: (d.update(n=d["n"] + 1), X * d["n"], dict(d)), "dict"),
    "list, item": (lambda c: increment(c, 0), "list"),
    "list, loop": (lambda c: [X * v for v in c], "list"),
    "list, pop": (lambda c: (popped(c), list(c)), "list"),
    "list, unpacked": (lambda c: (lambda a, b: X * a + b)(*c), "list"),
    "list, sum": (lambda c: X * sum(c), "list"),
    "list, max": (lambda c: X * max(c), "list"),
    "list, slice": (lambda c: X * c[:1][0], "list"),
    "list, enumerate": (lambda c: [X * v + i for i, v in enumerate(c)], "list"),
    "list, append and loop": (lambda c: (c.append(7), [X * v for v in c], list(c)), "list"),
    "list, reversed in place": (lambda c: (c.reverse(), X * c[0], list(c)), "list"),
    "deque, item": (lambda c: increment(c, 0), "deque"),
    "deque, popleft": (lambda c: (X * c.popleft(), list(c)), "deque"),
    "tuple, item": (lambda c: X * c[0] + c[1], "tuple"),
    "tuple, unpacked": (lambda c: (lambda a, b: X * a + b)(*c), "tuple"),
    "namedtuple": (lambda c: (X * c.a + c.b, c), "pair"),
    "partial": (lambda c: c(), "partial"),
    "in one another": (lambda c: [X * v for row in c["rows"] for v in row], "nested"),
}
MAKE = {
    "dict": lambda n, f: {"n": n, "f": f},
    "list": lambda n, f: [n, f],
    "deque": lambda n, f: collections.deque([n, f]),
    "tuple": lambda n, f: (n, f),
    "pair": Pair,
    "partial": lambda n, f: functools.partial(operator.add, X * 2, n),
    "nested": lambda n, f: {"rows": [(n, f), [n + 1]]},
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_numbers_in_containers(name):
    program, kind = CONTAINERS[name]
    # (the second and third calls may each show that another number varies)
    assert compilations_for(program, [MAKE[kind](n, 1.5 * n) for n in range(2, 9)]) <= 3


@pytest.mark.parametrize("text", [str, repr, lambda c: f"{c}", lambda c: "%s" % (c,), copy.deepcopy, len, sorted])
@pytest.mark.parametrize("kind", ["list", "tuple", "pair", "deque"])
def test_what_shows_the_numbers_is_right(text, kind):
    compilations_for(lambda c: (X * 2, text(c)), [MAKE[kind](n, 1.5 * n) for n in range(2, 6)])


def test_containers_are_as_they_were():
    inner = (3, 4.5)
    state = {"n": 2, "list": [5, 6.5, inner], "queue": collections.deque([7])}

    def program(s):
        return X * s["n"] * sum(s["list"][:2]) * s["queue"][0] * s["list"][2][0]

    compiled = braze.compile(program)
    for i in range(4):
        state["n"] += 1
        state["list"][0] += 1
        state["queue"][0] += 2
        before = copy.deepcopy(state)
        assert same(compiled(state), program(before)) and same(state, before), i
        assert type(state["n"]) is int and type(state["list"][0]) is int and state["list"][2] is inner
        list(state["list"]).index(inner)


FLOATS = [0.7 + 0.31 * i for i in range(7)]
INTS = [3 + 2 * i for i in range(7)]
ONE = "sqrt exp log log2 log10 sin cos tan tanh sinh atan floor ceil trunc fabs expm1 log1p erf gamma degrees".split()
FUNCTIONS = {f"math.{n}": (lambda y, f=getattr(math, n): X * f(y), FLOATS + INTS) for n in ONE}
FUNCTIONS |= {
    f"math.{n}": (lambda y, f=getattr(math, n): X * f(y, 2.0), FLOATS)
    for n in ("pow", "fmod", "atan2", "hypot", "copysign")
}
FUNCTIONS |= {
    "abs": (lambda y: X * abs(y), FLOATS + [-f for f in FLOATS]),
    "round": (lambda y: X * round(y, 2), FLOATS),
    "int": (lambda y: X * int(y * 10), FLOATS),
    "float": (lambda y: X * float(y), INTS),
    "divmod": (lambda y: X * divmod(y, 0.3)[0] + divmod(y, 0.3)[1], FLOATS),
    "int / int": (lambda y: X * (y / 100), INTS),
    "float ** int": (lambda y: X * (1 - 0.9**y), INTS),
    "int ** int": (lambda y: X * y**2, INTS),
    "float // float": (lambda y: X * (y // 0.2) + y % 0.3, FLOATS),
    "bits": (lambda y: X * ((y << 1) | 1) + (y ^ 2) + (y >> 1), INTS),
    "int * float": (lambda y: X * (y * 0.5), INTS),
    "operator": (lambda y: X * operator.truediv(y, 3), INTS),
    "cosine schedule": (lambda y: X * (0.1 + 0.5 * (1 + math.cos(math.pi * y / 20))), INTS),
    "a count and its function": (lambda y: (X * math.sqrt(y), y + 1, math.sqrt(y + 1)), INTS),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_numbers(name):
    program, numbers = FUNCTIONS[name]
    kinds = len({type(n) for n in numbers})
    assert compilations_for(program, numbers) <= 2 * kinds


def test_a_function_of_a_number_that_decides():
    def program(y):
        return X * 2 if math.cos(y) > 0 else X * 3 if round(y) % 2 else X

    compilations_for(program, [0.3 * i for i in range(1, 20)])
    with pytest.raises(ValueError, match="math domain error"):
        compiled = braze.compile(lambda y: X * math.sqrt(y))
        for y in (1.5, 2.5, 3.5, -1.0):
            compiled(y)


def test_a_table_of_data_that_varies():
    """Its numbers are sorted: nothing is gained by symbols, and little may be lost."""

    def program(rows):
        return X * sum(a for a, _ in sorted(rows)[:3]), max(rows), sorted(rows, key=lambda r: -r[1])[0]

    tables = [[((i * k) % 1009 + 2, i) for i in range(500)] for k in (7, 11, 13)]
    start = time.perf_counter()
    compilations_for(program, tables)
    assert time.perf_counter() - start < 20


def test_functions_of_sizes():
    def program(x):
        return x * (1 / math.sqrt(x.shape[0])) + math.ceil(x.shape[0] / 2)

    assert compilations_for(program, [torch.randn(n, 3) for n in range(4, 12)]) <= 2


GRID = torch.arange(400.0).view(20, 20)


def stored(*index, value=2.0):
    y = GRID.clone()
    y[index] = value
    return y


OPERATORS = {
    "tensor of an int": lambda n: (torch.tensor(n), torch.tensor(n, dtype=torch.float64), torch.as_tensor(n)),
    "tensor of ints": lambda n: torch.tensor([n, n + 1, 7]),
    "tensor of floats": lambda n: torch.tensor([n / 2, 1.0, n]),
    "tensor of lists": lambda n: torch.tensor([[n, 1], (2, n * 2)]),
    "where": lambda n: torch.where(X > n / 7, X, n),
    "item": lambda n: (GRID[n], GRID[n - 20], GRID[:, n], GRID[..., n], GRID[n, n], GRID[None, n, 1:3]),
    "stored item": lambda n: (
        stored(n),
        stored(slice(None), n),
        stored(n, n, value=n),
        stored(Ellipsis, n, value=X[0]),
    ),
    "parity": lambda n: X * 2 if n % 2 == 0 else X * 3,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_that_take_numbers(name):
    assert compilations_for(OPERATORS[name], range(2, 10)) <= 3


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_follow_from_numbers(dynamic):
    def program(n):
        return GRID[: n % 4] * 2 if n % 4 == 1 else GRID[: n % 4] + X[n % 4]

    compiled = braze.compile(program, dynamic=dynamic)
    for n in range(2, 12):
        assert torch.equal(compiled(n), program(n)), n


def test_an_index_out_of_range():
    read, write = braze.compile(lambda n: GRID[:, n]), braze.compile(lambda n: stored(n))
    for n in (3, 4, 5):
        assert torch.equal(read(n), GRID[:, n]) and torch.equal(write(n), stored(n))
    for f in (read, write):
        with pytest.raises(IndexError, match=r"index 20 is out of bounds for dimension [01] with size 20"):
            f(20)


def test_an_optimizer_that_counts_in_python():
    class Adam(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr, "betas": (0.9, 0.99), "eps": 1e-8})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                beta1, beta2 = group["betas"]
                for p in group["params"]:
                    state = self.state[p]
                    if not state:
                        state.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                    state["step"] += 1
                    m, v = state["m"], state["v"]
                    m.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                    v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                    scale = math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
                    p.addcdiv_(m, v.sqrt().add_(group["eps"]), value=-group["lr"] * scale)

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    expected, x = copy.deepcopy(model), torch.randn(16, 4)
    mine, theirs = Adam(model.parameters(), 0.01), Adam(expected.parameters(), 0.01)
    step, before = braze.compile(mine.step), braze.compilations()
    for i in range(20):
        for m, o, s in ((model, mine, step), (expected, theirs, theirs.step)):
            o.zero_grad()
            o.param_groups[0]["lr"] = 0.01 * (1 + math.cos(i / 7))
            m(x).square().mean().backward()
            s()
    for p, q in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
        assert mine.state[p]["step"] == theirs.state[q]["step"] == 20
    assert braze.compilations() - before <= 4  # the state is made, it is there, it varies

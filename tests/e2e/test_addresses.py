"""Where an object lies in memory is no constant of a graph: each run makes objects of its own."""

import copy

import pytest
import torch

import braze


class Plain:
    pass


class Named:
    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return hash((self.name, 1))

    def __eq__(self, other):
        return self.name == other.name


class ByAddress:
    def __hash__(self):
        return id(self) // 16

    def __eq__(self, other):
        return self is other


def texts(o):
    return [repr(o), str(o), f"{o}", f"{o!r:>80}", "%s" % (o,), "{}".format(o), repr([o]), ascii({1: o})]


@pytest.mark.parametrize(
    "make", [Plain, object, lambda: lambda: None, lambda: Plain().__init__, lambda: (i for i in ())]
)
def test_standard_texts_of_objects_that_the_call_makes(make):
    def fn(x):
        o = make()
        return x + 1, o, texts(o)

    compiled = braze.compile(fn)
    kept = []
    for _ in range(3):
        y, o, seen = compiled(torch.ones(2))
        kept.append(o)
        assert torch.equal(y, torch.ones(2) + 1)
        assert seen == texts(o)


def test_texts_made_by_a_callback():
    def fn(x):
        objects = [Plain(), Plain()]
        return x + 1, objects, list(map(repr, objects)), ", ".join(map(str, objects))

    compiled = braze.compile(fn)
    kept = []
    for _ in range(3):
        _, objects, each, joined = compiled(torch.ones(2))
        kept.append(objects)
        assert each == [repr(o) for o in objects] and joined == ", ".join(each)


USES = {
    "alone": lambda n: n,
    "sum": lambda n: n + 1,
    "text": lambda n: f"{n:x}",
    "repr": lambda n: repr(n),
    "float": lambda n: float(n),
    "in a list": lambda n: [n],
    "key": lambda n: {n: 1},
    "bits": lambda n: n & 0xFFFF,
    "sorted": lambda n: sorted([n, 1]),
    "sum of a list": lambda n: sum([n]),
    "largest": lambda n: max(n, 3),
    "order": lambda n: n > 3 and n,
    "tuple": lambda n: (1, (n,)),
    "set": lambda n: {n, 1},
    "negative": lambda n: -n,
    "hash": lambda n: hash(n),
    "hash of a tuple": lambda n: hash((1, n)),
}


@pytest.mark.parametrize("use", list(USES))
@pytest.mark.parametrize("number", [id, hash, lambda o: o.__hash__(), lambda o: hash((o, 1))])
def test_numbers_made_of_addresses(use, number):
    how = USES[use]

    def fn(x):
        o = Plain()
        return x + 1, o, how(number(o))

    compiled = braze.compile(fn)
    kept = []
    for _ in range(3):
        y, o, seen = compiled(torch.ones(2))
        kept.append(o)
        assert torch.equal(y, torch.ones(2) + 1)
        assert seen == how(number(o))


def test_the_programs_own_hashes():
    def fn(x, name):
        a, b = Named(name), ByAddress()
        return x + 1, b, hash(a), hash(b)

    compiled = braze.compile(fn)
    kept = []
    for name in ("a", "a", "b"):
        _, b, first, second = compiled(torch.ones(2), name)
        kept.append(b)
        assert first == hash(Named(name)) and second == hash(b)


def test_addresses_of_objects_from_before():
    def fn(x, o):
        return x + 1, id(o), hash(o), repr(o), hash((o, 1))

    compiled = braze.compile(fn)
    objects = [Plain(), Plain()]
    for o in objects + objects:
        assert compiled(torch.ones(2), o)[1:] == fn(torch.ones(2), o)[1:]


def test_addresses_that_stay_inside_are_compiled():
    def fn(x):
        o = {"a": [1, 2], "b": Plain()}
        memo = {id(o): 1}
        seen = {id(o["a"])}
        return x + copy.deepcopy(o)["a"][0], memo.get(id(o)), id(o["a"]) in seen, id(o) == id(seen)

    compiled = braze.compile(fn, fullgraph=True)
    for _ in range(2):
        assert compiled(torch.ones(2))[1:] == (1, True, False)
        assert torch.equal(compiled(torch.ones(2))[0], torch.ones(2) + 1)

"""Objects from before stay what they are: not copied, not reordered, not looked at by code of the program once more."""

import collections
import functools
import json

import pytest
import torch

import braze


class Plain:
    pass


class Counted:
    hashes = 0

    def __init__(self, value):
        self.value = value

    def __hash__(self):
        type(self).hashes += 1
        return hash(self.value)

    def __eq__(self, other):
        return self.value == other.value


@functools.lru_cache
def shared(key):
    return Plain()


def test_an_object_of_a_cache_is_not_copied():
    compiled = braze.compile(lambda x: (x + 1, shared("a"), [shared("b")]))
    for _ in range(3):
        _, one, others = compiled(torch.ones(2))
        assert one is shared("a") and others[0] is shared("b")


def test_what_a_c_iterator_makes_is_new_at_every_call():
    def fn(x):
        return x + 1, list(map(lambda _: Plain(), range(2))), [p for p in map(Counted, range(2))]

    compiled = braze.compile(fn)
    kept = [compiled(torch.ones(2)) for _ in range(3)]
    assert len({id(p) for _, a, _ in kept for p in a}) == 6
    assert [[c.value for c in b] for _, _, b in kept] == [[0, 1]] * 3


@pytest.mark.parametrize("elements", [range(0, 100, 7), ["b", "a", "c"], [8, 0, 16]])
def test_a_set_keeps_its_order(elements):
    s = set(elements)

    def fn(x, s):
        s.add(-1)
        s.discard(-1)
        return x + len(s), list(s)

    compiled = braze.compile(fn)
    before = list(s)
    for _ in range(3):
        assert compiled(torch.ones(2), s)[1] == before == list(s)


def test_iterators_over_a_deque_that_is_assigned_to_go_on():
    def fn(x, d):
        d[0] = d[0] + 1
        return x + 1

    compiled = braze.compile(fn)
    d = collections.deque([1, 2, 3])
    it = iter(d)
    for _ in range(3):
        compiled(torch.ones(2), d)
    assert list(it) == [4, 2, 3] == list(d)


def test_hashes_of_the_program_run_once():
    def fn(x, a):
        return x + 1, {a, 2}, {a: 1}, frozenset([a])

    compiled = braze.compile(fn)
    a = Counted(1)
    counts = []
    for f in (fn, compiled, compiled, compiled):
        Counted.hashes = 0
        f(torch.ones(2), a)
        counts.append(Counted.hashes)
    assert counts[1:] == [counts[0]] * 3


def test_the_first_attribute_of_an_object():
    def fn(x, e):
        return x + getattr(e, "extra", 1)

    compiled = braze.compile(fn)
    e = ValueError("a")
    for value in (None, 5, None):
        e.__dict__.clear() if value is None else setattr(e, "extra", value)
        assert torch.equal(compiled(torch.ones(2), e), fn(torch.ones(2), e))
    assert torch.equal(compiled(torch.ones(2), ValueError("b")), torch.ones(2) + 1)


def test_a_factory_without_arguments():
    def fn(x):
        table = collections.defaultdict(lambda: collections.defaultdict(list))
        table["a"]["b"].append(x + 1)
        return table["a"]["b"][0], len(table)

    compiled = braze.compile(fn)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2))[0], torch.ones(2) + 1)


def test_instances_of_heap_types_of_c_code():
    def fn(x):
        decoder = json.JSONDecoder()
        return x + 1, decoder.decode('[{"a": 1}, {"a": 2}]'), decoder

    compiled = braze.compile(fn)
    for _ in range(3):
        _, value, decoder = compiled(torch.ones(2))
        assert value == [{"a": 1}, {"a": 2}] and decoder.decode('{"a": 3}') == {"a": 3}


def test_a_class_statement_that_fails():
    class Field:
        def __set_name__(self, owner, name):
            delattr(owner, name)
            owner.made = True
            raise ValueError(name)

    def fn(x):
        try:

            class Made:
                field = Field()
        except (RuntimeError, ValueError) as e:
            return x + 1, str(e)

    compiled = braze.compile(fn)
    for _ in range(3):
        assert compiled(torch.ones(2))[1] == fn(torch.ones(2))[1]


def test_the_annotations_of_a_function_that_the_call_makes():
    def fn(x):
        def made(a): ...

        notes = made.__annotations__
        notes["a"] = int
        return x + 1, made, notes

    compiled = braze.compile(fn)
    for _ in range(3):
        _, made, notes = compiled(torch.ones(2))
        assert made.__annotations__ is notes and notes == {"a": int}


def test_the_dict_of_an_instance_that_the_call_makes():
    def fn(x):
        o = Plain()
        names = vars(o)
        names["a"] = 1
        return x + 1, names, o, [o.__dict__]

    compiled = braze.compile(fn)
    for _ in range(3):
        _, names, o, others = compiled(torch.ones(2))
        assert vars(o) is names is others[0] and o.a == 1


A, B, C = Plain(), Plain(), Plain()
TABLE, SET, LIST = {A: 1, B: 2}, {A, B}, [A, B]


@pytest.mark.parametrize(
    "look",
    [
        lambda a, b: TABLE.get(a),
        lambda a, b: a in TABLE,
        lambda a, b: a in SET,
        lambda a, b: a in LIST,
        lambda a, b: LIST.count(a),
        lambda a, b: len({a, b}),
        lambda a, b: (a in [b], a in (b,), a in {b: 1}),
        lambda a, b: ([a] == [b], {1: a} == {1: b}),
    ],
)
def test_which_objects_are_one_object(look):
    def fn(x, a, b):
        return x + 1, look(a, b)

    compiled = braze.compile(fn)
    for a, b in ((A, B), (A, A), (C, B), (B, A), (C, C), (A, B)):
        assert compiled(torch.ones(2), a, b)[1] == fn(torch.ones(2), a, b)[1]

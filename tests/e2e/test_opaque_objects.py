"""Objects of C types that existed before the call: what a C function finds in them is no constant of the graph."""

import array
import collections
import datetime
import decimal
import functools
import itertools
import mmap
import operator
import re
import types
import weakref

import pytest
import torch

import braze


class Text(str):
    pass


class Whole(int):
    pass


class Point:
    def __init__(self, x):
        self.x = x

    def __repr__(self):
        return f"Point({self.x})"


def match(text):
    return re.match(r"(\w)(\d+)", text)


def check(fn, *arguments):
    """The compiled function gives what eager gives for each of the arguments, in turn and again."""
    compiled = braze.compile(fn)
    for make in (*arguments, *arguments):
        expected = fn(torch.ones(2), make())
        actual = compiled(torch.ones(2), make())
        assert torch.equal(actual[0], expected[0])
        assert actual[1:] == expected[1:]


CASES = {
    "match groups": (lambda x, m: (x + 1, m.group(2), m.groups(), m.span()), lambda: match("a1"), lambda: match("b22")),
    "match item": (lambda x, m: (x + 1, m[1]), lambda: match("a1"), lambda: match("b22")),
    "memoryview": (lambda x, m: (x + 1, m.tobytes(), m[0]), lambda: memoryview(b"ab"), lambda: memoryview(b"cd")),
    "bytearray": (lambda x, b: (x + 1, bytes(b), b[0], len(b)), lambda: bytearray(b"ab"), lambda: bytearray(b"cde")),
    "truth of a bytearray": (lambda x, b: (x + 1, 1 if b else 2), lambda: bytearray(b"ab"), bytearray),
    "bytearray method": (lambda x, b: (x + 1, b.upper()), lambda: bytearray(b"ab"), lambda: bytearray(b"cd")),
    "array": (
        lambda x, a: (x + 1, a[0], sum(a), len(a)),
        lambda: array.array("i", [1]),
        lambda: array.array("i", [2, 3]),
    ),
    "str subclass": (lambda x, s: (x + 1, s + "!", s.upper(), len(s)), lambda: Text("a"), lambda: Text("bc")),
    "int subclass": (lambda x, n: (x + n, n + 1, n < 3), lambda: Whole(1), lambda: Whole(7)),
    "date": (lambda x, d: (x + 1, d.isoformat()), lambda: datetime.date(2020, 1, 2), lambda: datetime.date(2021, 1, 2)),
    "timedelta": (
        lambda x, d: (x + 1, d + d, d.total_seconds()),
        lambda: datetime.timedelta(1),
        lambda: datetime.timedelta(2),
    ),
    "decimal": (lambda x, d: (x + 1, d + 1, str(d)), lambda: decimal.Decimal("1.0"), lambda: decimal.Decimal("1.00")),
    "namespace": (
        lambda x, n: (x + n.a, repr(n), n == types.SimpleNamespace(a=1)),
        lambda: types.SimpleNamespace(a=1),
        lambda: types.SimpleNamespace(a=2),
    ),
    "partial": (
        lambda x, p: (x + p(), repr(p)),
        lambda: functools.partial(int, "1"),
        lambda: functools.partial(int, "2"),
    ),
    "itemgetter": (
        lambda x, g: (x + 1, list(map(g, [(1, 2)]))),
        lambda: operator.itemgetter(0),
        lambda: operator.itemgetter(1),
    ),
    "attrgetter as a key": (
        lambda x, p: (x + 1, [repr(q) for q in sorted(p, key=operator.attrgetter("x"))]),
        lambda: [Point(1), Point(2)],
        lambda: [Point(2), Point(1)],
    ),
    "methodcaller as a callback": (
        lambda x, p: (x + 1, list(map(operator.methodcaller("__repr__"), p))),
        lambda: [Point(1)],
        lambda: [Point(2)],
    ),
    "slice": (lambda x, s: (x + 1, repr(s)), lambda: slice(Whole(1)), lambda: slice(Whole(2))),
    "views": (lambda x, v: (x + 1, sorted(v), len(v)), lambda: {"a": 1}.keys(), lambda: {"b": 1, "c": 2}.keys()),
    "proxy": (
        lambda x, p: (x + 1, dict(p), len(p)),
        lambda: types.MappingProxyType({"a": 1}),
        lambda: types.MappingProxyType({"a": 2}),
    ),
    "iterator in a list": (
        lambda x, i: (x + 1, list(itertools.chain(*i))),
        lambda: [iter([1, 2])],
        lambda: [iter([3])],
    ),
    "islice of an iterator": (
        lambda x, i: (x + 1, list(itertools.islice(i, 2))),
        lambda: iter([1, 2, 3]),
        lambda: iter("ab"),
    ),
    "finditer": (
        lambda x, i: (x + 1, [m.group() for m in i]),
        lambda: re.finditer(r"\d", "a1b2"),
        lambda: re.finditer(r"\d", "3"),
    ),
    "ordered": (
        lambda x, d: (x + 1, list(d), repr(d)),
        lambda: collections.OrderedDict(a=1),
        lambda: collections.OrderedDict(b=1),
    ),
    "mmap": (lambda x, m: (x + 1, m[0], len(m)), lambda: filled(b"ab"), lambda: filled(b"cde")),
    "exception": (lambda x, e: (x + 1, str(e), repr(e)), lambda: ValueError("a"), lambda: ValueError("b")),
}


def filled(data):
    m = mmap.mmap(-1, len(data))
    m[:] = data
    return m


@pytest.mark.parametrize("name", list(CASES))
def test_contents_are_read_at_every_call(name):
    check(*CASES[name])


def test_a_buffer_that_changes_between_calls():
    data = bytearray(b"abc")

    def fn(x):
        return x + data[0], bytes(data)

    compiled = braze.compile(fn)
    for value in (b"abc", b"xyz"):
        data[:] = value
        expected, actual = fn(torch.ones(2)), compiled(torch.ones(2))
        assert torch.equal(actual[0], expected[0]) and actual[1] == value


def test_a_callback_of_sub_gets_the_match():
    pattern = re.compile(r"\d")

    def fn(x, text):
        seen = []
        made = pattern.sub(lambda m: seen.append(m.group()) or str(int(m.group()) + 1), text)
        return x + len(seen), made, seen

    compiled = braze.compile(fn)
    for text in ("a1b2", "c3", "a1b2", ""):
        assert compiled(torch.ones(2), text)[1:] == fn(torch.ones(2), text)[1:]


def test_the_dict_of_a_class():
    class Table:
        size = 1

    def fn(x):
        return x + Table.__dict__["size"], "other" in Table.__dict__, Table.__dict__.get("other"), len(vars(Table))

    compiled = braze.compile(fn)
    for change in (lambda: None, lambda: setattr(Table, "size", 5), lambda: setattr(Table, "other", 6)):
        change()
        expected, actual = fn(torch.ones(2)), compiled(torch.ones(2))
        assert torch.equal(actual[0], expected[0]) and actual[1:] == expected[1:]


def test_a_weak_reference_compares_its_target():
    class Value(list):
        pass

    a, b = Value([1]), Value([1])

    def fn(x, p, q):
        return x + 1, p == q

    compiled = braze.compile(fn)
    for last in (1, 2, 1):
        b[0] = last
        assert compiled(torch.ones(2), weakref.ref(a), weakref.ref(b))[1] == (last == 1)


def test_the_closure_of_a_method_that_an_operator_calls():
    def make(step):
        class Number:
            def __add__(self, other):
                return other + step

        def change(to):
            nonlocal step
            step = to

        return Number(), change

    number, change = make(1)
    compiled = braze.compile(lambda x: number + x)
    for step in (1, 5, 1):
        change(step)
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2) + step)


def test_elements_of_a_set_by_type_and_order():
    def fn(x, s):
        return x + 1, list(s), sum(s)

    compiled = braze.compile(fn)
    for make in (lambda: {1}, lambda: {1.0}, lambda: {True}, lambda: {0, 8}, lambda: {8, 0}, lambda: {Whole(1)}):
        expected, actual = fn(torch.ones(2), make()), compiled(torch.ones(2), make())
        assert repr(actual[1:]) == repr(expected[1:])
        assert [type(e) for e in actual[1]] == [type(e) for e in expected[1]]


def test_attributes_of_the_elements_of_a_set():
    elements = {Point(1), Point(2)}

    def fn(x, s):
        return x + sum(p.x for p in s)

    compiled = braze.compile(fn)
    for value in (1, 5, 1):
        next(iter(elements)).x = value
        assert torch.equal(compiled(torch.ones(2), elements), fn(torch.ones(2), elements))


def test_a_weak_proxy_stands_for_its_target():
    class Holder:
        size = 1

    holder, items = Holder(), Listing([1])

    def fn(x, proxy, seen):
        proxy.size = proxy.size + 1
        seen[0] = seen[0] + 1
        seen.append(len(seen))
        return x + proxy.size, seen[0], 3 in seen

    for f in (fn, braze.compile(fn)):
        holder.size, items[:] = 1, [1]
        proxy, seen = weakref.proxy(holder), weakref.proxy(items)
        for n in (2, 3, 4):
            y, first, _ = f(torch.ones(2), proxy, seen)
            assert torch.equal(y, torch.ones(2) + n) and holder.size == n and first == n and len(items) == n


class Listing(list):
    pass


class Numbered(enumerate):
    pass


def test_an_iterator_of_a_class_made_from_one_of_c():
    def fn(x, it):
        return x + 1, next(it), list(itertools.islice(it, 1))

    compiled = braze.compile(fn)
    for text in ("abc", "abc", "xyz"):
        mine, theirs = Numbered(text), Numbered(text)
        assert compiled(torch.ones(2), mine)[1:] == fn(torch.ones(2), theirs)[1:]
        assert list(mine) == list(theirs)


def test_annotations_of_a_class_that_the_call_makes():
    def fn(x):
        class Made:
            a: int
            b: float = 2.0

        return x + Made.b, list(Made.__annotations__)

    compiled = braze.compile(fn, fullgraph=True)
    for _ in range(2):
        assert compiled(torch.ones(2))[1] == ["a", "b"]


def test_a_slice_is_a_new_list():
    values = [3, 1, 2]

    def fn(x):
        part = values[:]
        part.sort()
        return x + part[0], part

    compiled = braze.compile(fn, fullgraph=True)
    for _ in range(2):
        assert compiled(torch.ones(2))[1] == [1, 2, 3] and values == [3, 1, 2]


def test_a_class_made_from_one_of_c_consumes_an_iterator_once():
    class Frozen(frozenset):
        pass

    compiled = braze.compile(lambda x, it: (x + 1, Frozen(it)))
    for _ in range(3):
        assert compiled(torch.ones(2), iter([1, 2]))[1] == {1, 2}


def test_a_cached_function_that_changes_something_runs_once():
    calls = []

    @functools.lru_cache
    def size(p):
        calls.append(p)
        return 2

    def fn(x, p):
        return x + size(p) + size(p)

    compiled = braze.compile(fn)
    p = Point(1)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2), p), torch.ones(2) + 4)
    assert calls == [p]

"""functools.lru_cache and singledispatch: what a cache answers in eager, it answers in compiled code."""

import functools
import weakref

import pytest
import torch
from support import assert_same

import braze


@pytest.mark.parametrize("maxsize", [None, 4])
def test_a_cached_tensor_is_one_object(maxsize):
    calls = []

    @functools.lru_cache(maxsize=maxsize, typed=maxsize is None)
    def table(n, *, scale=1.0):
        calls.append(n)
        return torch.arange(n) * scale

    def f(x):
        t = table(3, scale=2.0)
        t.add_(1)
        return x + t, t

    compiled = braze.compile(f)
    results = [compiled(torch.zeros(3)) for _ in range(3)]
    assert calls == [3]
    assert all(t is table(3, scale=2.0) for _, t in results)
    assert_same(results[2][0], torch.tensor([3.0, 5.0, 7.0]))
    table.cache_clear()
    assert_same(compiled(torch.zeros(3))[0], torch.tensor([1.0, 3.0, 5.0]))
    assert calls == [3, 3]
    assert len(braze.explain(f)(torch.zeros(3)).break_reasons) == 0


def test_random_numbers_are_drawn_once():
    @functools.lru_cache
    def noise(n):
        return torch.randn(n)

    compiled = braze.compile(lambda x: x + noise(4))
    first = compiled(torch.zeros(4))
    assert_same(compiled(torch.zeros(4)), first)
    assert_same(noise(4), first)


def test_containers_of_a_small_cache():
    def program():
        @functools.lru_cache(maxsize=2)
        def items(n):
            return [n]

        def f(x, n):
            found = items(n)
            found.append(1)
            return x + len(found), list(found)

        return f

    eager, compiled = program(), braze.compile(program())
    for n in (1, 2, 1, 3, 1, 2):
        assert_same(compiled(torch.zeros(1), n), eager(torch.zeros(1), n))


def test_singledispatch():
    @functools.singledispatch
    def size(a):
        return 0

    @size.register
    def _(a: int):
        return a + 1

    @size.register(list)
    def _(a):
        return len(a)

    def f(x, a):
        return x * size(a) + size(3)

    compiled = braze.compile(f)
    for a in (5, [1, 2], "s", 5, [1]):
        assert_same(compiled(torch.ones(2), a), f(torch.ones(2), a))
    assert len(braze.explain(f)(torch.ones(2), [1, 2]).break_reasons) == 0


class Point:
    pass


def test_weak_references():
    table, p = weakref.WeakKeyDictionary(), Point()
    table[p] = 3

    def f(x, p):
        r = weakref.ref(p)
        p.own = r
        return x + table[p], r, r() is p, p in table, table.get(Point)

    compiled = braze.compile(f)
    for value in (3, 4):
        table[p] = value
        y, r, same, known, other = compiled(torch.zeros(1), p)
        assert_same(y, torch.full((1,), float(value)))
        assert r is weakref.ref(p) is p.own and same and known and other is None
    q = Point()
    table[q] = 7
    y, r, *_ = compiled(torch.zeros(1), q)
    assert_same(y, torch.full((1,), 7.0))
    assert r is weakref.ref(q)
    with pytest.raises(TypeError, match="weak reference"):
        braze.compile(lambda x: weakref.ref(3))(torch.zeros(1))

"""Classes that the call itself makes, whole or with breaks, and what metaclasses do to them on the way."""

import abc
import enum
import io
import typing

import torch
from support import assert_same

import braze


def check(fn, **options):
    compiled = braze.compile(fn, **options)
    for _ in range(3):
        assert_same(compiled(torch.ones(2)), fn(torch.ones(2)))


def test_an_enumeration():
    def fn(x):
        class Season(enum.Enum):
            SPRING = 1
            AUTUMN = enum.auto()

        class Bits(enum.IntFlag):
            A = 1
            B = 2

        names = [s.name for s in Season]
        return x + Season.AUTUMN.value, names, Season(1).name, "AUTUMN" in Season.__members__, int(Bits.A | Bits.B)

    check(fn, fullgraph=True)


def test_a_metaclass_that_sets_and_deletes():
    class Meta(type):
        def __new__(cls, name, bases, namespace):
            made = super().__new__(cls, name, bases, namespace)
            made.extra = len(bases)
            made.table = {}
            made.table["name"] = name
            del made.unwanted
            return made

    def fn(x):
        class Made(metaclass=Meta):
            unwanted = 1

        return x + Made.extra, hasattr(Made, "unwanted"), dict(Made.table)

    check(fn, fullgraph=True)


def test_hooks_of_a_class_statement():
    class Base:
        def __init_subclass__(cls, **options):
            cls.options = dict(options)

    class Field:
        def __set_name__(self, owner, name):
            owner.fields = [*getattr(owner, "fields", ()), name]

    def fn(x):
        class Made(Base, size=3):
            a = Field()
            b = Field()

        return x + Made.options["size"], list(Made.fields), hasattr(Base, "fields")

    check(fn, fullgraph=True)


def test_an_abstract_class_and_a_protocol():
    def fn(x):
        class Shape(abc.ABC):
            @abc.abstractmethod
            def area(self): ...

        class Square(Shape):
            def area(self):
                return 4

        class Sized(typing.Protocol):
            def area(self): ...

        return x + Square().area(), isinstance(Square(), Shape), sorted(Shape.__abstractmethods__)

    check(fn)


def test_deleting_an_attribute_of_a_class_from_before():
    class Table:
        pass

    def fn(x):
        before = Table.size
        type.__delattr__(Table, "size")
        return x + before, hasattr(Table, "size")

    compiled = braze.compile(fn)
    for value in (1, 1, 2):
        Table.size = value
        y, there = compiled(torch.ones(2))
        assert torch.equal(y, torch.ones(2) + value) and not there and not hasattr(Table, "size")


def test_text_in_memory():
    def fn(x):
        out = io.StringIO()
        out.write("a")
        print("b", file=out)
        data = io.BytesIO(b"xyz")
        return x + 1, out.getvalue(), data.read(2)

    check(fn)


def test_text_in_memory_from_before_moves_once():
    def fn(x, f):
        return x + 1, f.read(1)

    compiled = braze.compile(fn)
    f = io.StringIO("abc")
    assert [compiled(torch.ones(2), f)[1] for _ in range(4)] == ["a", "b", "c", ""]

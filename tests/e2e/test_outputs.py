"""Results of any structure are rebuilt as they are in eager."""

import collections
import dataclasses
import enum
import types
import typing

import pytest
import torch
from support import assert_like_eager, assert_same, compiles
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

import braze


class Pair(typing.NamedTuple):
    first: torch.Tensor
    second: object = 5


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Result:
    loss: torch.Tensor
    extra: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: torch.Tensor
    n: int = 3


class Color(enum.Enum):
    RED = 1


class Bag(dict):
    pass


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x,
        lambda x: (x, x * 2),
        lambda x: [x, [x * 2, (x + 1,)]],
        lambda x: {"a": x, "b": {"c": [x * 2]}},
        lambda x: collections.OrderedDict(b=x, a=x * 2),
        lambda x: Pair(x, x * 2),
        lambda x: Point(x, [x]),
        lambda x: Result(x, {"k": x * 2}),
        lambda x: Frozen(x),
        lambda x: BaseModelOutput(last_hidden_state=x, hidden_states=(x, x * 2)),
        lambda x: (1, "a", None, 2.5, True, Color.RED, ..., b"z", 1 + 2j),
        lambda x: (x.shape, x.size(0), x.dtype, x.device, x.numel(), x.stride()),
        lambda x: {1: x, (2, 3): x * 2, None: 5},
        lambda x: {x.dim(), "a"},
        lambda x: frozenset([1, 2]),
        lambda x: slice(1, 2),
        lambda x: range(3),
        lambda x: [],
        lambda x: torch.ones(2, dtype=torch.int64),
        lambda x: torch.tensor([1.0, 2.0]) * x.shape[0],
        lambda x: (x > 1, x.argmax(), x.max(0)[0], x.sum() * 0),
        lambda x: x.max(0).values,
        lambda x: x.split(1),
        lambda x: torch.unbind(x),
        lambda x: torch.zeros(0),
    ],
)
def test_structure(make):
    def f(x):
        return make((x * 2).relu())

    assert_like_eager(f, torch.arange(3.0), calls=2, graphs=None)


def test_result_of_an_operator_with_names():
    compiled = braze.compile(lambda x: (x * 2).max(0))
    for _ in range(2):
        out = compiled(torch.arange(3.0))
        assert type(out) is torch.return_types.max
        assert_same(out.values, torch.tensor(4.0))
        assert_same(out.indices, torch.tensor(2))


def test_dict_subclass_and_namespace():
    def f(x):
        bag = Bag(a=x * 2)
        bag.note = "n"
        return bag, types.SimpleNamespace(y=x + 1)

    compiled = braze.compile(f)
    for _ in range(2):
        bag, space = compiled(torch.ones(2))
        assert type(bag) is Bag and bag.note == "n"
        assert_same(bag["a"], torch.full((2,), 2.0))
        assert_same(space.y, torch.full((2,), 2.0))


def test_model_output_behaves():
    class Model(nn.Module):
        def forward(self, x):
            return BaseModelOutput(last_hidden_state=x * 2, attentions=None)

    compiled = braze.compile(Model())
    for _ in range(2):
        out = compiled(torch.ones(2))
        assert isinstance(out, BaseModelOutput) and list(out.keys()) == ["last_hidden_state"]
        assert out[0] is out.last_hidden_state is out["last_hidden_state"] and out.attentions is None
        assert_same(out.to_tuple(), (torch.full((2,), 2.0),))


def test_results_of_two_calls_are_apart():
    compiled = braze.compile(lambda x: {"list": [x * 2], "n": [1]})
    first, second = compiled(torch.ones(2)), compiled(torch.ones(2))
    first["list"].append(3)
    first["n"].append(4)
    assert len(second["list"]) == 1 and second["n"] == [1]


def test_argument_returned_inside_a_structure_is_itself():
    compiled = braze.compile(lambda x, items: {"items": items, "x": x, "y": x + 1})
    x, items = torch.ones(2), [1]
    for _ in range(2):
        out = compiled(x, items)
        assert out["items"] is items and out["x"] is x


def test_structure_of_arguments():
    def f(batch, *, where, scale=1.0):
        x = batch["x"] * scale
        for t in batch["more"]:
            x = x + t
        return Pair(x, where[0] + batch["pair"].first)

    def batch():
        return {"x": torch.ones(3), "more": (torch.ones(3), torch.zeros(3)), "pair": Pair(torch.ones(3))}

    compiled = braze.compile(f)
    with compiles(1):
        for _ in range(2):
            assert_same(compiled(batch(), where=[torch.ones(3)]), f(batch(), where=[torch.ones(3)]))


def test_generator_result():
    def f(x):
        return list(x * i for i in range(3)), sum(v.sum() for v in (x, x + 1)), dict(zip("ab", (x, x * 2), strict=True))

    assert_like_eager(f, torch.ones(2), graphs=1)


def test_parameter_in_the_result():
    model = nn.Linear(2, 2).requires_grad_(False)
    compiled = braze.compile(lambda x: (model(x), model.weight, list(model.parameters())))
    for _ in range(2):
        _, weight, parameters = compiled(torch.ones(1, 2))
        assert weight is model.weight and parameters[1] is model.bias


def test_constant_tensor_across_a_break(capsys):
    def f(x):
        t = torch.tensor([1, 2, 3])
        print("break")
        return x + t, t

    assert_like_eager(f, torch.ones(3))
    assert capsys.readouterr().out == "break\n" * 4


def test_dict_subclass_whose_getitem_calls_the_dicts():
    class Table(collections.OrderedDict):
        def __getitem__(self, key):
            return super().__getitem__(key) * 2

    table = Table(a=3.0)
    assert_like_eager(lambda x: x * table["a"], torch.ones(2), graphs=1)


@pytest.mark.parametrize("other_use", [False, True])
def test_a_view_of_all_that_is_written_is_no_input(other_use):
    def f(a):
        v = a.view(-1).view(3, 4)
        v.mul_(0.5)
        w = v.view(3, 4)
        if other_use:
            torch.tanh(a)
        return v, w, v, a

    compiled = braze.compile(f)
    for _ in range(2):
        a = torch.ones(3, 4)
        v, w, same, back = compiled(a)
        assert back is a and v is not a and w is not a and v is not w and same is v
        assert v._base is a and w._base is a
        assert_same(v, torch.full((3, 4), 0.5))
        w.add_(1)
        assert_same(a, torch.full((3, 4), 1.5))


class Marked(torch.Tensor):
    pass


def test_tensors_of_a_class_made_inside():
    def f(x):
        y = x * 2
        return (
            torch.Tensor._make_subclass(Marked, x),
            nn.Parameter(x, False),
            nn.Parameter(y),
            y,
            nn.Parameter(y, False),
        )

    compiled = braze.compile(f)
    for _ in range(2):
        x = torch.ones(3)
        mine, theirs = compiled(x), f(x)
        assert [type(t) for t in mine] == [type(t) for t in theirs]
        assert mine[0].data_ptr() == mine[1].data_ptr() == x.data_ptr()
        assert mine[2].data_ptr() == mine[3].data_ptr() == mine[4].data_ptr()
        assert [(t.requires_grad, t.is_leaf) for t in mine] == [(t.requires_grad, t.is_leaf) for t in theirs]
        for m, t in zip(mine, theirs, strict=True):
            torch.testing.assert_close(m.as_subclass(torch.Tensor), t.as_subclass(torch.Tensor))

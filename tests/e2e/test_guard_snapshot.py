"""Guards that were checked once are checked by versions of dicts and types afterwards: every change is still seen."""

import collections
import gc

import pytest
import torch
from support import assert_same

import braze

SCALE = {"inner": {"value": 2.0}}


class Plain:
    factor = 3.0

    def __init__(self):
        self.k = 2.0
        self.table = {"a": 1.0}
        self.pair = (1.0, {"b": 4.0})
        self.items = [5.0]

    def forward(self, x):
        return x * self.k * self.factor + self.table["a"] + self.pair[1]["b"] + self.items[0] + SCALE["inner"]["value"]


class Other(Plain):
    factor = 7.0


def set_attribute(o):
    o.k = 11.0


def set_by_dict(o):
    o.__dict__["k"] = 12.0


def replace_dict(o):
    o.__dict__ = {**o.__dict__, "k": 13.0}


def shadow_class_attribute(o):
    o.factor = 14.0


def change_class(o):
    o.__class__ = Other


def change_class_attribute(o):
    type(o).factor = 15.0


def change_nested_dict(o):
    o.table["a"] = 16.0


def change_dict_in_tuple(o):
    o.pair[1]["b"] = 17.0


def change_list(o):
    o.items[0] = 18.0


def replace_method(o):
    o.forward = lambda x: x - 1


def change_global(o):
    SCALE["inner"]["value"] = 19.0


def replace_global(o):
    globals()["SCALE"] = {"inner": {"value": 20.0}}


CHANGES = [
    set_attribute, set_by_dict, replace_dict, shadow_class_attribute, change_class, change_class_attribute,
    change_nested_dict, change_dict_in_tuple, change_list, replace_method, change_global, replace_global,
]  # fmt: skip


@pytest.fixture(autouse=True)
def restored():
    yield
    Plain.factor = 3.0
    globals()["SCALE"] = {"inner": {"value": 2.0}}


@pytest.mark.parametrize("change", CHANGES)
def test_change(change):
    o = Plain()
    function = lambda o, x: o.forward(x)
    compiled = braze.compile(function)
    x = torch.arange(3.0)
    for _ in range(4):
        assert_same(compiled(o, x), function(o, x))
    before = braze.compilations()
    assert_same(compiled(o, x), function(o, x))
    assert braze.compilations() == before
    change(o)
    for _ in range(3):
        assert_same(compiled(o, x), function(o, x))
    assert braze.compilations() == before + 1


def test_another_object_at_the_same_address():
    function = lambda o, x: x * o.k
    compiled = braze.compile(function)
    x = torch.ones(2)
    seen = set()
    for i in range(40):
        o = Plain()
        o.k = float(i % 5)
        seen.add(id(o))
        assert_same(compiled(o, x), function(o, x))
        del o
        gc.collect()
    assert len(seen) < 40


def test_objects_in_turn():
    function = lambda o, x: x * o.k + o.table["a"]
    compiled = braze.compile(function)
    x = torch.ones(2)
    objects = [Plain() for _ in range(3)]
    for i, o in enumerate(objects):
        o.k = float(i)
    before = braze.compilations()
    for _ in range(30):
        for o in objects:
            assert_same(compiled(o, x), function(o, x))
    assert braze.compilations() - before <= 3


def test_parameter_replaced_and_changed_in_place():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)).eval()
    compiled = braze.compile(model)
    x = torch.randn(2, 3)
    with torch.no_grad():
        for _ in range(3):
            assert_same(compiled(x), model(x))
        before = braze.compilations()
        model[0].weight = torch.nn.Parameter(torch.randn(3, 3))
        assert_same(compiled(x), model(x))
        model[0].weight.fill_(2.0)
        assert_same(compiled(x), model(x))
        model[0].weight.data = torch.randn(3, 3)
        assert_same(compiled(x), model(x))
        assert braze.compilations() == before
        model[0].weight.data = torch.randn(3, 3).double()
        model[0].bias.data = model[0].bias.data.double()
        with pytest.raises(RuntimeError):
            compiled(x)
        assert_same(compiled.double()(x.double()), model.double()(x.double()))


def test_explaining_a_recompile_runs_no_code_of_the_program():
    class Loud:
        def __repr__(self):
            raise AssertionError("printed")

    function = lambda x, o: x * 2 if isinstance(o, Loud) else x * 3
    compiled = braze.compile(function)
    x = torch.ones(2)
    for o in (None, Loud(), torch.ones(3), (Loud(),), {Loud(): Loud()}):
        assert_same(compiled(x, o), function(x, o))


def test_many_changing_attributes():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x + self.calls

    model = Counting()
    compiled = braze.compile(model)
    for i in range(40):
        assert_same(compiled(torch.zeros(2)), torch.full((2,), i + 1.0))


class Hooked(torch.nn.Module):
    """Reads its OrderedDict `order` in order, and the length of a subclass of dict."""

    def __init__(self):
        super().__init__()
        self.order = collections.OrderedDict(a=1.0, b=2.0)

    def forward(self, x):
        for v in self.order.values():
            x = x * 3 + v
        return x


def test_order_of_an_ordered_dict():
    m = Hooked()
    compiled = braze.compile(m)
    x = torch.ones(2)
    for _ in range(3):
        assert_same(compiled(x), m(x))
    before = braze.compilations()
    m.order.move_to_end("a")
    assert_same(compiled(x), m(x))
    assert braze.compilations() == before + 1


def test_hook_added_to_one_of_many_modules():
    m = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU()) for _ in range(8)])
    compiled = braze.compile(m)
    x = torch.ones(2)
    for _ in range(3):
        assert_same(compiled(x), m(x))
    before = braze.compilations()
    handle = m[5][0].register_forward_hook(lambda module, args, out: out * 2)
    assert_same(compiled(x), torch.full((2,), 2.0))
    assert braze.compilations() == before + 1
    handle.remove()
    assert_same(compiled(x), torch.ones(2))

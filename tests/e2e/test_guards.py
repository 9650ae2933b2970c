"""Each kind of guard: change the thing, see one recompile and the right result; change it back, see none."""

import contextlib
import gc

import pytest
import torch
from support import assert_same, compiles
from torch import nn

import braze


class Changing:
    """A compiled function beside its eager form, called in two situations."""

    def __init__(self, fn, **options):
        self.fn = fn
        self.compiled = braze.compile(fn, **options)

    def call(self, make_args=tuple, context=contextlib.nullcontext):
        with context():
            expected = self.fn(*make_args())
            assert_same(self.compiled(*make_args()), expected)

    def check(self, before, after, restore=None):
        """before and after are functions that bring about a situation and call `call` in it."""
        try:
            self._check(before, after)
        finally:
            if restore:
                restore()

    def _check(self, before, after):
        with compiles(1):
            before()
        with compiles(0):
            before()
        recompiles = braze.stats()["recompiles"]
        with compiles(1):
            after()
        assert braze.stats()["recompiles"] == recompiles + 1
        with compiles(0):
            after()
            before()
            after()


def by_arguments(fn, before, after, **options):
    """The situations are arguments: functions that make them."""
    c = Changing(fn, **options)
    c.check(lambda: c.call(before), lambda: c.call(after))


def by_context(fn, args, before, after):
    c = Changing(fn)
    c.check(lambda: c.call(args, before), lambda: c.call(args, after))


def by_setting(fn, args, set_before, set_after):
    """The situations are made by assignments."""
    c = Changing(fn)

    def situation(change):
        def run():
            change()
            c.call(args)

        return run

    c.check(situation(set_before), situation(set_after), restore=set_before)


# ---- tensors


def pointwise(x):
    return (x * 2 + 1).sum(0)


def test_shape():
    by_arguments(pointwise, lambda: (torch.ones(4, 3),), lambda: (torch.ones(5, 3),))


def test_rank():
    by_arguments(pointwise, lambda: (torch.ones(4, 3),), lambda: (torch.ones(4, 3, 2),))


def test_dtype():
    by_arguments(pointwise, lambda: (torch.ones(4, 3),), lambda: (torch.ones(4, 3, dtype=torch.float64),))


def test_stride():
    by_arguments(
        lambda x: x.view(-1) if x.is_contiguous() else x.t().view(-1) * 2,
        lambda: (torch.arange(12.0).view(3, 4),),
        lambda: (torch.arange(12.0).view(4, 3).t(),),
    )


def test_storage_offset_does_not_matter():
    base = torch.arange(24.0)
    c = Changing(pointwise)
    with compiles(1):
        c.call(lambda: (base[:12].view(3, 4),))
        c.call(lambda: (base[12:].view(3, 4),))


def test_device_kind():
    by_arguments(
        lambda x: x * 2 + torch.arange(3.0, device=x.device),
        lambda: (torch.ones(4, 3),),
        lambda: (torch.ones(4, 3, device="meta"),),
    )


def test_mixed_devices_raise():
    compiled = braze.compile(lambda x, y: x + y)
    with pytest.raises(RuntimeError, match="not on the expected device"):
        compiled(torch.ones(3), torch.ones(3, device="meta"))
    assert_same(compiled(torch.ones(3), torch.ones(3)), torch.full((3,), 2.0))


def test_requires_grad():
    by_arguments(lambda x: x * 2, lambda: (torch.ones(4),), lambda: (torch.ones(4, requires_grad=True),))


def test_conjugate_view():
    z = torch.complex(torch.ones(3), torch.arange(3.0))
    c = Changing(lambda x: torch.view_as_real(x.resolve_conj()) * 2)
    c.call(lambda: (z,))
    c.call(lambda: (z.conj(),))


def aliased():
    x = torch.ones(4)
    return x, x


def overlapping():
    x = torch.ones(5)
    return x[:4], x[1:]


def add_into(a, b):
    a.add_(1)
    return a + b


def test_same_tensor_twice():
    by_arguments(add_into, lambda: (torch.ones(4), torch.ones(4)), aliased)


def test_overlapping_inputs():
    by_arguments(add_into, lambda: (torch.ones(4), torch.ones(4)), overlapping)


def test_tensor_or_none():
    by_arguments(
        lambda x, y: x * 2 if y is None else x * 2 + y,
        lambda: (torch.ones(4), None),
        lambda: (torch.ones(4), torch.ones(4)),
    )


def test_parameter_or_tensor():
    by_arguments(
        lambda x: x + 1 if isinstance(x, nn.Parameter) else x + 2,
        lambda: (torch.ones(4),),
        lambda: (nn.Parameter(torch.ones(4), requires_grad=False),),
    )


# ---- global state of torch


def test_grad_mode():
    x = torch.ones(4, requires_grad=True)
    by_context(lambda x: x * 2, lambda: (x,), torch.enable_grad, torch.no_grad)


def test_inference_mode():
    x = torch.ones(4)

    def contexts(on):
        return lambda: torch.inference_mode(on)

    c = Changing(lambda x: x * 2)
    c.check(lambda: c.call(lambda: (x,), contexts(False)), lambda: c.call(lambda: (x,), contexts(True)))
    with torch.inference_mode():
        assert c.compiled(x).is_inference()
    assert not c.compiled(x).is_inference()


def test_autocast():
    x = torch.ones(4, 4)
    by_context(
        lambda x: x @ x,
        lambda: (x,),
        contextlib.nullcontext,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    )


def test_autocast_dtype():
    x = torch.ones(4, 4)
    by_context(
        lambda x: x @ x,
        lambda: (x,),
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.autocast("cpu", dtype=torch.float16),
    )


def test_default_dtype():
    try:
        by_setting(
            lambda x: torch.ones(3) + x,
            lambda: (torch.ones(3, dtype=torch.float16),),
            lambda: torch.set_default_dtype(torch.float32),
            lambda: torch.set_default_dtype(torch.float64),
        )
    finally:
        torch.set_default_dtype(torch.float32)


def test_deterministic_algorithms():
    try:
        by_setting(
            lambda x: x * 2 if torch.are_deterministic_algorithms_enabled() else x * 3,
            lambda: (torch.ones(3),),
            lambda: torch.use_deterministic_algorithms(False),
            lambda: torch.use_deterministic_algorithms(True),
        )
    finally:
        torch.use_deterministic_algorithms(False)


# ---- plain arguments


@pytest.mark.parametrize(
    ("before", "after"),
    [(2, 3), ("mul", "add"), (True, False), (2.5, 3.5), (1, True), (1, 1.0), (None, 4), ((1, 2), (1, 3)), (0.0, -0.0)],
    ids=["int", "str", "bool", "float", "int-bool", "int-float", "none-int", "tuple", "zero-sign"],
)
def test_argument(before, after):
    def f(x, k):
        if isinstance(k, bool):
            return x + 1 if k else x + 2
        if isinstance(k, str):
            return x * 2 if k == "mul" else x + 2
        if k is None:
            return x + 3
        if isinstance(k, tuple):
            return x * k[1]
        return (x / k, type(k).__name__)

    by_arguments(f, lambda: (torch.ones(3), before), lambda: (torch.ones(3), after))


def test_unused_argument_is_not_guarded():
    c = Changing(lambda x, unused: x * 2)
    with compiles(1):
        for k in (1, 2, "a", None):
            c.call(lambda k=k: (torch.ones(3), k))


def test_keyword_or_positional():
    compiled = braze.compile(lambda x, scale=2: x * scale)
    x = torch.ones(3)
    with compiles(1):
        for result in (compiled(x), compiled(x, 2), compiled(x, scale=2), compiled(x=x)):
            assert_same(result, x * 2)


def test_number_of_arguments():
    def f(*xs, **named):
        return sum(xs) * named.get("k", 1)

    c = Changing(f)
    c.check(
        lambda: c.call(lambda: (torch.ones(3), torch.ones(3))),
        lambda: c.call(lambda: (torch.ones(3), torch.ones(3), torch.ones(3))),
    )


# ---- containers


def total(x, values):
    for v in values:
        x = x + v
    return x


def test_list_length():
    by_arguments(total, lambda: (torch.ones(3), [1, 2]), lambda: (torch.ones(3), [1, 2, 3]))


def test_list_items():
    by_arguments(total, lambda: (torch.ones(3), [1, 2]), lambda: (torch.ones(3), [1, 5]))


def test_list_item_type():
    by_arguments(total, lambda: (torch.ones(3), [1, 2]), lambda: (torch.ones(3), [1, torch.ones(3)]))


def test_list_or_tuple():
    by_arguments(
        lambda x, v: x + 1 if isinstance(v, list) else x + 2,
        lambda: (torch.ones(3), [1]),
        lambda: (torch.ones(3), (1,)),
    )


def test_tensor_list_length():
    by_arguments(
        torch.cat,
        lambda: ([torch.ones(3), torch.ones(3)],),
        lambda: ([torch.ones(3), torch.ones(3), torch.ones(3)],),
    )


def by_keys(x, d):
    for key, value in d.items():
        x = x + value * len(key)
    return x


def test_dict_keys():
    by_arguments(by_keys, lambda: (torch.ones(3), {"a": 1, "b": 2}), lambda: (torch.ones(3), {"a": 1, "bc": 2}))


def test_dict_length():
    by_arguments(by_keys, lambda: (torch.ones(3), {"a": 1}), lambda: (torch.ones(3), {"a": 1, "b": 2}))


def test_dict_order():
    def f(x, d):
        for i, value in enumerate(d.values()):
            x = x * (i + 1) + value
        return x

    by_arguments(f, lambda: (torch.ones(3), {"a": 1, "b": 2}), lambda: (torch.ones(3), {"b": 2, "a": 1}))


def test_key_present():
    by_arguments(
        lambda x, d: x * d["k"] if "k" in d else x + 1,
        lambda: (torch.ones(3), {"k": 3}),
        lambda: (torch.ones(3), {"other": 3}),
    )


def test_get_of_absent_key():
    by_arguments(lambda x, d: x * d.get("k", 7), lambda: (torch.ones(3), {}), lambda: (torch.ones(3), {"k": 3}))


def test_set_members():
    by_arguments(
        lambda x, s: x + 1 if "a" in s else x + 2, lambda: (torch.ones(3), {"a"}), lambda: (torch.ones(3), {"b"})
    )


# ---- modules


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.scale = 2
        self.layers = nn.ModuleList([nn.Linear(3, 3)])
        self.register_buffer("offset", torch.zeros(3))

    def forward(self, x):
        x = self.linear(x) * self.scale + self.offset
        for layer in self.layers:
            x = layer(x)
        return x + 1 if self.training else x


def on_module(set_before, set_after):
    torch.manual_seed(0)
    m = Scaled().requires_grad_(False)
    by_setting(m, lambda: (torch.ones(2, 3),), lambda: set_before(m), lambda: set_after(m))


def test_module_attribute():
    on_module(lambda m: setattr(m, "scale", 2), lambda m: setattr(m, "scale", 3))


def test_train_eval():
    on_module(lambda m: m.train(), lambda m: m.eval())


def test_training_flag_of_a_submodule():
    m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).requires_grad_(False)
    by_setting(m, lambda: (torch.ones(2, 3),), lambda: m[1].eval(), lambda: (m[1].train(), None))


def test_parameter_replaced_by_another_shape():
    m = nn.Linear(3, 3, bias=False).requires_grad_(False)
    a, b = m.weight, nn.Parameter(torch.ones(5, 3), requires_grad=False)
    by_setting(m, lambda: (torch.ones(2, 3),), lambda: setattr(m, "weight", a), lambda: setattr(m, "weight", b))


def test_parameter_replaced_by_its_like_needs_no_recompile():
    m = nn.Linear(3, 3, bias=False).requires_grad_(False)
    c = Changing(m)
    with compiles(1):
        c.call(lambda: (torch.ones(2, 3),))
        m.weight = nn.Parameter(torch.full((3, 3), 2.0), requires_grad=False)
        c.call(lambda: (torch.ones(2, 3),))
        m.weight.add_(1)
        c.call(lambda: (torch.ones(2, 3),))
        m.load_state_dict({"weight": torch.zeros(3, 3)})
        c.call(lambda: (torch.ones(2, 3),))


def test_parameter_becomes_none():
    m = nn.Linear(3, 3).requires_grad_(False)
    bias = m.bias
    by_setting(m, lambda: (torch.ones(2, 3),), lambda: setattr(m, "bias", bias), lambda: setattr(m, "bias", None))


def test_submodule_replaced():
    m = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).requires_grad_(False)
    a, b = m[1], nn.Tanh()
    by_setting(m, lambda: (torch.ones(2, 3),), lambda: m.__setitem__(1, a), lambda: m.__setitem__(1, b))


def test_module_list_grows():
    torch.manual_seed(0)
    m = Scaled().requires_grad_(False)
    extra = nn.Linear(3, 3).requires_grad_(False)

    def shrink():
        if len(m.layers) > 1:
            del m.layers[1]

    def grow():
        if len(m.layers) < 2:
            m.layers.append(extra)

    grow()  # deleting leaves another type of dict behind: have it from the start
    shrink()
    by_setting(m, lambda: (torch.ones(2, 3),), shrink, grow)


def test_buffer_dtype():
    on_module(
        lambda m: m._buffers.update(offset=torch.zeros(3)),
        lambda m: m._buffers.update(offset=torch.ones(3, dtype=torch.int32)),
    )


def test_forward_hook_added():
    m = nn.Linear(3, 3).requires_grad_(False)
    handles = []

    def without():
        while handles:
            handles.pop().remove()

    def with_hook():
        if not handles:
            handles.append(m.register_forward_hook(lambda module, args, out: out * 2))

    c = Changing(m)

    def situation(change):
        def run():
            change()
            c.call(lambda: (torch.ones(2, 3),))

        return run

    with compiles(1):
        situation(without)()
    with compiles(1):
        situation(with_hook)()
    with compiles(0):
        situation(without)()


def test_attribute_of_no_interest_needs_no_recompile():
    m = Scaled().requires_grad_(False)
    c = Changing(m)
    with compiles(1):
        c.call(lambda: (torch.ones(2, 3),))
        m.note = "something"
        c.call(lambda: (torch.ones(2, 3),))
        del m.note
        c.call(lambda: (torch.ones(2, 3),))


# ---- names


FACTOR = 2
SETTINGS = {"factor": 2}


def helper(x):
    return x * 2


def other_helper(x):
    return x + 10


def set_global(name, value):
    return lambda: globals().__setitem__(name, value)


def test_global():
    by_setting(lambda x: x * FACTOR, lambda: (torch.ones(3),), set_global("FACTOR", 2), set_global("FACTOR", 3))


def test_global_dict_item():
    by_setting(
        lambda x: x * SETTINGS["factor"],
        lambda: (torch.ones(3),),
        lambda: SETTINGS.update(factor=2),
        lambda: SETTINGS.update(factor=3),
    )


def test_global_hides_a_builtin():
    def remove():
        globals().pop("len", None)

    by_setting(lambda x: x * len([1, 2]), lambda: (torch.ones(3),), remove, set_global("len", lambda values: 10))


def test_closure_variable():
    factor = 2

    def f(x):
        return x * factor

    def set_factor(value):
        nonlocal factor
        factor = value

    by_setting(f, lambda: (torch.ones(3),), lambda: set_factor(2), lambda: set_factor(3))


def test_function_replaced():
    original = helper
    by_setting(
        lambda x: helper(x),
        lambda: (torch.ones(3),),
        set_global("helper", original),
        set_global("helper", other_helper),
    )


def test_code_of_a_function_replaced():
    def inner(x):
        return x * 2

    old, new = inner.__code__, (lambda x: x + 5).__code__
    by_setting(
        lambda x: inner(x),
        lambda: (torch.ones(3),),
        lambda: setattr(inner, "__code__", old),
        lambda: setattr(inner, "__code__", new),
    )


def test_default_of_a_function_replaced():
    def inner(x, k=2):
        return x * k

    by_setting(
        lambda x: inner(x),
        lambda: (torch.ones(3),),
        lambda: setattr(inner, "__defaults__", (2,)),
        lambda: setattr(inner, "__defaults__", (3,)),
    )


class Doubling:
    factor = 2

    def apply(self, x):
        return x * self.factor


class Adding:
    factor = 2

    def apply(self, x):
        return x + self.factor


def test_object_type():
    by_arguments(lambda x, o: o.apply(x), lambda: (torch.ones(3), Doubling()), lambda: (torch.ones(3), Adding()))


def test_class_of_an_object_replaced():
    o = Doubling()
    by_setting(
        lambda x: o.apply(x),
        lambda: (torch.ones(3),),
        lambda: setattr(o, "__class__", Doubling),
        lambda: setattr(o, "__class__", Adding),
    )


def test_class_attribute():
    o = Doubling()
    by_setting(
        lambda x: o.apply(x),
        lambda: (torch.ones(3),),
        lambda: setattr(Doubling, "factor", 2),
        lambda: setattr(Doubling, "factor", 3),
    )


def test_instance_attribute_hides_the_class_attribute():
    o = Doubling()
    by_setting(
        lambda x: o.apply(x),
        lambda: (torch.ones(3),),
        lambda: o.__dict__.pop("factor", None),
        lambda: setattr(o, "factor", 5),
    )


def test_method_replaced_on_the_class():
    class Local:
        def apply(self, x):
            return x * 2

    o, old = Local(), Local.apply
    by_setting(
        lambda x: o.apply(x),
        lambda: (torch.ones(3),),
        lambda: setattr(Local, "apply", old),
        lambda: setattr(Local, "apply", lambda self, x: x + 1),
    )


def test_attribute_appears():
    o = Doubling()
    by_setting(
        lambda x: x * o.extra if hasattr(o, "extra") else x + 1,
        lambda: (torch.ones(3),),
        lambda: o.__dict__.pop("extra", None),
        lambda: setattr(o, "extra", 5),
    )


def test_object_id_reused():
    """A dead object's address is taken by one of another value: identity alone isn't a guard."""

    class Setting:
        def __init__(self, k):
            self.k = k

    def f(x, setting):
        return x * setting.k

    compiled = braze.compile(f)
    x = torch.ones(3)
    setting = Setting(2)
    assert_same(compiled(x, setting), x * 2)
    address = id(setting)
    del setting
    gc.collect()
    kept = []
    for _ in range(10000):
        setting = Setting(3)
        if id(setting) == address:
            break
        kept.append(setting)
    with compiles(1):
        assert_same(compiled(x, setting), x * 3)


def test_function_object_id_reused():
    """The same for functions that are called: a new lambda at an old one's address."""
    compiled = braze.compile(lambda x, g: g(x))
    x = torch.ones(3)

    def made(k):
        return lambda x: x * k

    for k in range(2, 7):
        assert_same(compiled(x, made(k)), x * k)
        gc.collect()


def test_recompile_limit():
    """After the limit the function stays in eager: right, and nothing more is compiled."""
    with braze.config.patch(recompile_limit=3):
        compiled = braze.compile(lambda x, k: x * len(k))
        x = torch.ones(3)
        before = braze.compilations()
        for n in range(1, 8):
            assert_same(compiled(x, "a" * n), x * n)
        assert braze.compilations() - before <= 4

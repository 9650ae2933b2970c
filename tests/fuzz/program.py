"""Random Python programs about tensors: source text from a seed.

`program(seed)` gives the text of a module that defines `f(a, b, n, x, flag, numbers, table, thing)`; the arguments are
two float64 tensors of shape (3, 4), an int, a float, a bool, a list of ints, a dict of str to int and a `Thing`.
Every variable has one kind, so most of the text runs, but not all of it: a KeyError or an IndexError is a result too.
"""

import random
import re

__all__ = ["PRELUDE", "program"]

PRELUDE = """\
import collections
import contextlib
import functools
import itertools
import math
import operator
import torch

COUNT = 0
SCALE = 1.5
LOG = []


class Problem(Exception):
    def __init__(self, code):
        super().__init__(f"problem {code}")
        self.code = code


class Thing:
    kind = "thing"

    def __init__(self, size, weight):
        self.size = size
        self.weight = weight
        self.notes = []

    @property
    def double(self):
        return self.size * 2

    @double.setter
    def double(self, value):
        self.size = value // 2

    @staticmethod
    def low(i, j):
        return i if i < j else j

    @classmethod
    def make(cls, i, t):
        return cls(i, t)

    def scaled(self, t, by=2):
        return t * self.weight + by

    def __getattr__(self, name):
        if name.startswith("auto_"):
            return len(name)
        raise AttributeError(name)

    def __add__(self, other):
        return Thing(self.size + (other.size if isinstance(other, Thing) else other), self.weight)

    def __call__(self, t):
        self.notes.append(self.size)
        return torch.tanh(t + self.size)

    def __len__(self):
        return abs(self.size) % 5

    def __eq__(self, other):
        return isinstance(other, Thing) and self.size == other.size

    __hash__ = None


class Part(Thing):
    kind = "part"

    def scaled(self, t, by=3):
        return super().scaled(t, by) - 1


class Scope:
    def __init__(self, log, swallow):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return len(self.log)

    def __exit__(self, kind, value, traceback):
        self.log.append(kind.__name__ if kind else "exit")
        return self.swallow and kind is not None and issubclass(kind, (Problem, KeyError, IndexError))


@contextlib.contextmanager
def scope(log, mark):
    log.append(mark)
    try:
        yield mark + 1
    finally:
        log.append(-mark)


def countdown(n):
    while n > 0:
        got = yield n
        n -= 1 if got is None else got


def bump(by=1):
    global COUNT
    COUNT += by
    return COUNT


def mix(t, *more, scale=1.0, **named):
    for m in more:
        t = t + m * scale
    for k in sorted(named):
        t = t - named[k]
    return torch.sigmoid(t)


"""

KINDS = ("int", "float", "str", "bool", "tensor", "scalar", "ints", "tensors", "table", "thing")


class Generator:
    """Writes one program; `scope` maps each kind to the names of that kind that exist here."""

    def __init__(self, seed: int):
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.names = 0
        self.depth = 0  # of blocks
        self.in_loop = False
        self.budget = self.r.randint(6, 22)  # statements
        self.scope = {
            "int": ["n"],
            "float": ["x"],
            "bool": ["flag"],
            "tensor": ["a", "b"],
            "ints": ["numbers"],
            "table": ["table"],
            "thing": ["thing"],
            "str": [],
            "scalar": [],
            "tensors": [],
        }

    # --- expressions -------------------------------------------------------------------------------------------------

    def pick(self, *choices: str) -> str:
        return self.r.choice(choices)

    def fresh(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def expression(self, kind: str, deep: int = 2) -> str:
        known = self.scope[kind]
        if known and (deep <= 0 or self.r.random() < 0.35):
            return self.r.choice(known)
        return getattr(self, "a_" + kind)(deep - 1)

    def fill(self, deep: int, *templates: str) -> str:
        """One of the templates: `<int>` is an expression of that kind, `<p|q>` one of the words."""

        def part(m: re.Match[str]) -> str:
            kind, _, depth = m[1].partition(":")
            if "|" in kind:
                return self.pick(*kind.split("|"))
            if kind == "key":
                return self.key()
            if kind == "op":
                return self.pick("==", "!=", ">=", "<")
            return self.expression(kind, int(depth) if depth else deep)

        return re.sub(r"<(\w+(?::\d)?|[^<>]*\|[^<>]*)>", part, self.r.choice(templates))

    def a_int(self, d: int) -> str:
        if d < 0 or self.r.random() < 0.2:
            return str(self.r.randint(-3, 6))
        return self.fill(
            d,
            "(<int> + <int>)",
            "(<int> - <int>)",
            "((<int> * <int>) % 17)",
            "(<int> // (<int> or 1))",
            "(<int> % 7)",
            "(<int> & <int>)",
            "(<int> ^ <int>)",
            "(-<int>)",
            "abs(<int>)",
            "max(<int>, <int>)",
            "min(<int>, <int>, key=lambda q: -q)",
            "(<int> if <bool> else <int>)",
            "len(<ints>)",
            "(sum(<ints>) % 13)",
            "<ints>[<int> % 3]",
            "<table>[<key>]",
            "<table>.get(<key>, <int>)",
            "<thing>.size",
            "<thing>.double",
            "<thing>.auto_<x|yy|zzz>",
            "<thing>.<missing|size|size|size>",
            "Thing.low(<int>, <int>)",
            "len(<thing>)",
            "len(<str>)",
            "<tensor>.shape[<0|1|-1>]",
            "<tensor>.<dim()|numel()|size(0)|ndim>",
            "functools.reduce(operator.<add|sub|xor>, <ints>, <int>)",
            "next(countdown(<int> % 4), <int>)",
            "sum(q * <int> for q in list(<ints>) if q > <int>)",
            "(lambda q, w=<int>: q - w)(<int>)",
            "int(<str:0> == <str:0>)",
            "operator.index(<int>)",
            "bump()",
            "COUNT",
            "divmod(<int>, 5)[<0|1>]",
            "sorted([<int>, <int>, <int>])[<0|1|2>]",
            "int(<float> % 5)",
        )

    def a_float(self, d: int) -> str:
        if d < 0 or self.r.random() < 0.3:
            return self.fill(d, "0.5", "-1.25", "2.0", "3e-1", "SCALE")
        return self.fill(
            d,
            "(<float> + <float>)",
            "(<float> * 0.5)",
            "(<float> / (abs(<float>) + 1))",
            "float(<int>)",
            "math.sqrt(abs(<float>))",
            "math.sin(<float>)",
            "round(<float>, 2)",
            "(<int> / (<int> or 2))",
            "min(<float>, <float>)",
            "(<float> if <bool> else <float>)",
        )

    def a_str(self, d: int) -> str:
        if d < 0 or self.r.random() < 0.3:
            return self.fill(d, "'k0'", "'k1'", "'zip'", "''", "'A b'")
        return self.fill(
            d,
            "(<str> + <str>)[:12]",
            'f"{<int:0>}:{<str:0>!r}"',
            'f"{<float:0>:.2f}"',
            "<str>.upper()",
            "<str>.replace('k', 'q')",
            "'-'.join(str(q) for q in list(<ints>))[:20]",
            "str(<int>)",
            "'%s/%d' % (<str>, <int>)",
            "<str>[::-1]",
            "type(<thing>).__name__",
            "<thing>.kind",
            "str(<tensor>.dtype)",
        )

    def a_bool(self, d: int) -> str:
        if d < 0:
            return self.fill(d, "True", "False")
        return self.fill(
            d,
            "(<int> < <int>)",
            "(<int> <op> <int>)",
            "(not <bool>)",
            "(<bool> <and|or> <bool>)",
            "(<int> < <int> <= <int>)",
            "(<key> in <table>)",
            "(<int> in <ints>)",
            "isinstance(<thing>, <Part|Thing|(int, Part)>)",
            "(<tensor> is <tensor>)",
            "hasattr(<thing>, <'size'|'auto_q'|'nope'>)",
            "<any|all>(q > <int> for q in list(<ints>))",
            "(<thing> == <thing>)",
            "<str>.startswith('k')",
            "(<float> > <float>)",
            "bool(<thing>)",
            "callable(<thing>)",
        )

    def a_tensor(self, d: int) -> str:
        if d < 0:
            return self.fill(d, "(<a|b> + 1)", "torch.sin(<a|b>)")
        return self.fill(
            d,
            "(<tensor> + <tensor>)",
            "(<tensor> - <tensor>)",
            "torch.tanh(<tensor> * <tensor>)",
            "(<tensor> * <float>)",
            "(<int> - <tensor>)",
            "(<tensor> / (<tensor>.abs() + 1))",
            "torch.<sin|cos|tanh|relu|sigmoid|abs>(<tensor>)",
            "<tensor>.<neg()|exp().clamp(max=3.0)|clone()|detach()|contiguous()|square().sqrt()>",
            "torch.where(<tensor> > <tensor>, <tensor>, <tensor>)",
            "torch.<maximum|minimum>(<tensor>, <tensor>)",
            "<tensor>.softmax(-1)",
            "((<tensor> @ <tensor>.t()) @ <tensor> * 0.1)",
            "<tensor>.t().reshape(3, 4)",
            "<tensor>.view(-1).view(3, 4)",
            "<tensor>.reshape(4, 3).T",
            "<tensor>.flip(0)",
            "torch.cat([<tensor>[:1], <tensor>[1:]])",
            "torch.stack([<tensor>, <tensor>]).mean(0)",
            "(<tensor> + <scalar>)",
            "<tensor>.masked_fill(<tensor> > 0, <float>)",
            "<tensor>[[2, 0, 1]]",
            "(<tensor> + <tensor>[0])",
            "(<tensor> - <tensor>.mean(1, keepdim=True))",
            "<tensor>.roll(<int>, 0)",
            "mix(<tensor>, <tensor>, scale=<float>)",
            "mix(<tensor>, *[<tensor>, <tensor>], **{'p': <tensor>})",
            "<thing>.scaled(<tensor>)",
            "<thing>(<tensor>)",
            "<thing>.weight",
            "(<tensor> if <bool> else <tensor>)",
            "<tensors>[<0|-1|0>]",
            "functools.partial(mix, <tensor>, scale=<float>)(<tensor>)",
            "sum(<tensors>, <tensor>)",
            "torch.full_like(<tensor>, <float>)",
            "torch.nn.functional.gelu(<tensor>)",
            "torch.cumsum(<tensor>, 0)",
            "[<tensor>, <tensor>][<int> % 2]",
        )

    def a_scalar(self, d: int) -> str:
        d = max(d, 0)
        return self.fill(
            d,
            "<tensor>.<sum()|mean()|max()|min()|norm()>",
            "<tensor>[0, <0|1|-1>]",
            "torch.tensor(<float>, dtype=torch.float64)",
            "((<tensor> > 0).sum() * 0.5)",
        )

    def a_ints(self, d: int) -> str:
        if d < 0:
            return "[3, 1, 2]"
        return self.fill(
            d,
            "[<int>, <int>, <int>]",
            "list(range(<int> % 5))",
            "[q * 2 for q in list(<ints>)]",
            "[q + <int> for q in list(<ints>) if q % 2]",
            "sorted(<ints>, key=lambda q: (q % 3, q))",
            "<ints>[::-1]",
            "(<ints> + [<int>])",
            "[*<ints>, <int>]",
            "list(map(abs, <ints>))",
            "list(filter(lambda q: q > <int>, <ints>))",
            "list(itertools.accumulate(<ints>))",
            "list(itertools.islice(itertools.cycle([1, <int>]), 4))",
            "[p - q for p, q in zip(<ints>, <ints>[1:])]",
            "list(<table>.values())",
            "<thing>.notes",
            "list(countdown(<int> % 4))",
            "sorted(set(<ints>))",
            "list(dict.fromkeys(<ints>))",
            "list(collections.deque(<ints>, maxlen=2))",
            "[k for k, q in enumerate(<ints>)]",
        )

    def a_tensors(self, d: int) -> str:
        if d < 0:
            return "[a, b]"
        return self.fill(
            d,
            "[<tensor>, <tensor>]",
            "[<tensor> * q for q in list(<ints>)]",
            "list(<tensor>.unbind(0))",
            "[<tensor> for _ in range(<int> % 3)]",
            "<tensors>[::-1]",
        )

    def a_table(self, d: int) -> str:
        if d < 0:
            return "{'k0': 1, 'k1': 2}"
        return self.fill(
            d,
            "{'k0': <int>, 'k1': <int>}",
            "{**<table>, <key>: <int>}",
            "{k: q + <int> for k, q in <table>.items()}",
            "dict(<table>, k2=<int>)",
            "(<table> | {'k3': <int>})",
            "collections.OrderedDict(sorted(<table>.items()))",
            "collections.Counter(<str>)",
        )

    def a_thing(self, d: int) -> str:
        if d < 0:
            return "Thing(2, a)"
        return self.fill(
            d,
            "Thing(<int>, <tensor>)",
            "Part(<int>, <tensor>)",
            "Part.make(<int>, <tensor>)",
            "(<thing> + <int>)",
        )

    def key(self) -> str:
        return self.pick("'k0'", "'k1'", "'k2'", "'k9'") if self.r.random() < 0.8 else self.expression("str", 0)

    # --- statements --------------------------------------------------------------------------------------------------

    def write(self, text: str) -> None:
        self.lines.append("    " * (self.depth + 1) + text)

    def saved(self) -> dict[str, list[str]]:
        return {k: list(v) for k, v in self.scope.items()}

    def assign(self, name: str, kind: str) -> None:
        for names in self.scope.values():
            if name in names:
                names.remove(name)
        self.scope[kind].append(name)

    def block(self, most: int = 3, loop: bool | None = None) -> None:
        """An indented suite; names first assigned in it are not used after it."""
        was, was_loop = self.saved(), self.in_loop
        self.in_loop = self.in_loop if loop is None else loop
        self.depth += 1
        for _ in range(self.r.randint(1, most)):
            self.statement()
        self.depth -= 1
        self.scope, self.in_loop = was, was_loop

    def statement(self) -> None:
        self.budget -= 1
        nested = self.depth < 3 and self.budget > 0
        compound = (
            "condition for_loop while_loop try_block with_block function generator comprehension_of_tensors match klass "
            "data_condition closure walrus"
        ).split()
        simple = (
            "new new new new new_tensor new_tensor new_tensor rebind augment tensor_in_place tensor_item list_change "
            "table_change thing_change unpack printing delete swap raising early_return assertion global_change "
            "leave_loop item_read"
        ).split()
        name = self.r.choice(compound if nested and self.r.random() < 0.4 else simple)
        getattr(self, name)()

    def new(self) -> None:
        kind = self.r.choice(KINDS)
        text, name = self.expression(kind), self.fresh()
        self.write(f"{name} = {text}")
        self.assign(name, kind)

    def new_tensor(self) -> None:
        text, name = self.expression("tensor", 3), self.fresh()
        self.write(f"{name} = {text}")
        self.assign(name, "tensor")

    def rebind(self) -> None:
        kind = self.r.choice([k for k in KINDS if self.scope[k]])
        self.write(f"{self.r.choice(self.scope[kind])} = {self.expression(kind)}")

    def augment(self) -> None:
        kind = self.pick("int", "float", "tensor", "tensor")
        op = {"int": ["+=", "-=", "*=", "^="], "float": ["+=", "*="], "tensor": ["+=", "-=", "*="]}[kind]
        value = "0.5" if kind == "tensor" and self.r.random() < 0.3 else self.expression(kind, 1)
        self.write(f"{self.r.choice(self.scope[kind])} {self.r.choice(op)} {value}")

    def tensor_in_place(self) -> None:
        t = self.r.choice(self.scope["tensor"])
        self.write(
            f"{t}.{self.pick('add_(1)', 'mul_(0.5)', 'sin_()', 'tanh_()', 'clamp_(-2, 2)', 'zero_()')}"
            if self.r.random() < 0.6
            else f"{t}.copy_({self.expression('tensor', 1)})"
        )

    def tensor_item(self) -> None:
        t = self.r.choice(self.scope["tensor"])
        self.write(
            self.pick(
                f"{t}[0] = {self.expression('float', 1)}",
                f"{t}[:, 1] = {self.expression('tensor', 1)}[:, 0]",
                f"{t}[1:] += 1",
                f"{t}[{self.expression('tensor', 0)} > 0.5] = 0.25",
                f"{t}[{self.expression('int', 1)} % 3, 0] *= 2",
            )
        )

    def list_change(self) -> None:
        v, i = self.r.choice(self.scope["ints"]), self.expression("int", 1)
        self.write(
            self.pick(
                f"{v}.append({i})",
                f"{v}.extend([{i}, 2])",
                f"{v}.insert(0, {i})",
                f"{v}.pop()",
                f"{v}.sort()",
                f"{v}.reverse()",
                f"{v}[0] = {i}",
                f"{v}[1:2] = [{i}, {i}]",
                f"{v} += [{i}]",
                f"del {v}[0]",
                f"{v}.remove({i})",
                f"LOG.append({i})",
            )
        )

    def table_change(self) -> None:
        t, i = self.r.choice(self.scope["table"]), self.expression("int", 1)
        self.write(
            self.pick(
                f"{t}[{self.key()}] = {i}",
                f"{t}.setdefault({self.key()}, {i})",
                f"{t}.pop({self.key()}, None)",
                f"{t}.update(k2={i})",
                f"del {t}[{self.key()}]",
                f"{t}[{self.key()}] += {i}",
                f"{t}.popitem()",
            )
        )

    def thing_change(self) -> None:
        o = self.r.choice(self.scope["thing"])
        self.write(
            self.pick(
                f"{o}.size = {self.expression('int', 1)}",
                f"{o}.size += 1",
                f"{o}.double = {self.expression('int', 1)}",
                f"{o}.weight = {self.expression('tensor', 1)}",
                f"{o}.notes.append({self.expression('int', 1)})",
                f"{o}.extra = {self.expression('str', 1)}",
                f"setattr({o}, 'tag', {self.expression('int', 1)})",
                f"{o}.__dict__['more'] = {self.expression('int', 1)}",
                f"del {o}.{self.pick('extra', 'tag', 'size')}" if self.r.random() < 0.3 else f"{o}.weight.mul_(0.5)",
                f"{o}.__class__ = Part",
            )
        )

    def unpack(self) -> None:
        p, q = self.fresh(), self.fresh()
        if self.r.random() < 0.5:
            self.write(f"{p}, *{q} = {self.expression('ints', 1)}")
            self.assign(q, "ints")
        else:
            self.write(f"{p}, {q} = {self.expression('int', 1)}, {self.expression('tensor', 1)}")
            self.assign(q, "tensor")
        self.assign(p, "int")

    def walrus(self) -> None:
        name = self.fresh()
        self.write(f"if ({name} := {self.expression('int', 1)}) > 1:")
        self.block(most=1)
        self.assign(name, "int")

    def swap(self) -> None:
        kind = self.r.choice([k for k in KINDS if len(self.scope[k]) > 1] or ["tensor"])
        p, q = self.r.choice(self.scope[kind]), self.r.choice(self.scope[kind])
        self.write(f"{p}, {q} = {q}, {p}")

    def printing(self) -> None:
        self.write(f"print({self.expression(self.pick('int', 'str', 'bool', 'ints'), 1)})")

    def item_read(self) -> None:
        name = self.fresh()
        self.write(f"{name} = {self.expression('scalar', 1)}.item()")
        self.assign(name, "float")

    def delete(self) -> None:
        own = [v for v in self.scope["int"] if v.startswith("v")]
        if own and self.r.random() < 0.3:
            name = self.r.choice(own)
            self.write(f"del {name}")
            self.scope["int"].remove(name)
        else:
            self.write("pass")

    def raising(self) -> None:
        self.write(f"if {self.expression('bool', 1)} and {self.expression('bool', 1)}:")
        self.write(f"    raise {self.pick('Problem(3)', 'ValueError(n)', 'KeyError', 'IndexError(1)')}")

    def assertion(self) -> None:
        self.write(f"assert {self.expression('bool', 1)} or {self.expression('bool', 1)}, {self.expression('str', 0)}")

    def early_return(self) -> None:
        self.write(f"if {self.expression('bool', 1)} and {self.expression('bool', 1)}:")
        self.write(f"    return {self.result()}")

    def global_change(self) -> None:
        self.write(self.pick("bump(2)", "LOG.append(COUNT)", f"bump({self.expression('int', 1)})"))

    def leave_loop(self) -> None:
        if self.in_loop:
            self.write(f"if {self.expression('bool', 1)}:")
            self.write(f"    {self.pick('break', 'continue')}")
        else:
            self.new_tensor()

    def condition(self) -> None:
        self.write(f"if {self.expression('bool')}:")
        self.block()
        if self.r.random() < 0.3:
            self.write(f"elif {self.expression('bool')}:")
            self.block()
        if self.r.random() < 0.5:
            self.write("else:")
            self.block()

    def data_condition(self) -> None:
        if self.r.random() < 0.5:
            return self.condition()
        self.write(f"if {self.expression('scalar', 1)} > {self.expression('float', 0)}:")
        self.block()

    def for_loop(self) -> None:
        name = self.fresh()
        kind, text = self.r.choice(
            [
                ("int", f"range({self.r.randint(0, 4)})"),
                ("int", f"range({self.expression('int', 1)} % 4)"),
                ("int", f"list({self.expression('ints', 1)})[:4]"),
                ("int", f"countdown({self.expression('int', 1)} % 4)"),
                ("str", f"list({self.expression('table', 1)})"),
                ("tensor", f"{self.expression('tensors', 1)}"),
                ("int", f"reversed({self.expression('ints', 1)}[:3])"),
            ]
        )
        target = name
        was = self.saved()
        if self.r.random() < 0.2:
            index = self.fresh()
            target, text = f"{index}, {name}", f"enumerate({text})"
            self.assign(index, "int")
        self.write(f"for {target} in {text}:")
        self.assign(name, kind)
        self.block(loop=True)
        self.scope = was
        if self.r.random() < 0.2:
            self.write("else:")
            self.block(most=1)

    def while_loop(self) -> None:
        name = self.fresh()
        self.write(f"{name} = {self.r.randint(1, 3)}")
        self.write(f"while {name} > 0 and {self.expression('bool', 1)}:")
        self.write(f"    {name} -= 1")
        was = self.saved()
        self.block(loop=True)
        self.scope = was

    def try_block(self) -> None:
        self.write("try:")
        self.block()
        caught = self.fresh()
        form = self.r.random()
        if form < 0.8:
            self.write(
                f"except {self.pick('Problem', '(KeyError, IndexError)', 'Exception', 'LookupError')} as {caught}:"
            )
            self.write(f"    LOG.append(type({caught}).__name__)")
            self.block(most=2)
            if self.r.random() < 0.2:
                self.write("else:")
                self.block(most=1)
        if form >= 0.6:
            self.write("finally:")
            self.block(most=2, loop=False)

    def with_block(self) -> None:
        name = self.fresh()
        text = self.pick(
            f"Scope(LOG, {self.pick('True', 'False')})",
            f"scope(LOG, {self.expression('int', 1)})",
            "contextlib.suppress(KeyError, Problem)",
            "torch.no_grad()",
            "contextlib.nullcontext(3)",
        )
        if "scope" in text.lower() or "null" in text:
            self.write(f"with {text} as {name}:")
            was = self.saved()
            self.assign(name, "int")
        else:
            self.write(f"with {text}:")
            was = self.saved()
        self.block()
        self.scope = was

    def inner(self, parameters: dict[str, str], returns: str) -> None:
        """The body of a nested function."""
        was, was_loop = self.saved(), self.in_loop
        for name, kind in parameters.items():
            self.assign(name, kind)
        self.in_loop = False
        self.depth += 1
        for _ in range(self.r.randint(0, 2)):
            # what it binds is its own: only new names
            self.r.choice(
                [self.new, self.new_tensor, self.list_change, self.thing_change, self.printing, self.raising]
            )()
        self.write(f"return {self.expression(returns)}")
        self.depth -= 1
        self.scope, self.in_loop = was, was_loop

    def function(self) -> None:
        name, p, q, out = (self.fresh() for _ in range(4))
        self.write(f"def {name}({p}, {q}={self.expression('int', 1)}):")
        self.inner({p: "tensor", q: "int"}, "tensor")
        t, i = self.expression("tensor", 1), self.expression("int", 1)
        self.write(f"{out} = {name}({t}) + {name}({self.expression('tensor', 1)}, {q}={i})")
        self.assign(out, "tensor")

    def closure(self) -> None:
        name, cell, out = (self.fresh() for _ in range(3))
        kind = self.pick("int", "tensor")
        self.write(f"{cell} = {self.expression(kind, 1)}")
        self.write(f"def {name}(step):")
        self.write(f"    nonlocal {cell}")
        self.write(f"    {cell} = {cell} + step")
        self.write(f"    return {cell} * 2")
        self.write(f"{out} = [{name}(step) for step in range({self.r.randint(1, 3)})][-1]")
        self.assign(cell, kind)
        self.assign(out, kind)

    def generator(self) -> None:
        name, out = self.fresh(), self.fresh()
        self.write(f"def {name}(k):")
        self.write("    try:")
        self.write("        for i in range(k):")
        self.write(f"            yield {self.expression('tensor', 1)} * i")
        self.write("    finally:")
        self.write("        LOG.append('done')")
        self.write(
            self.pick(
                f"{out} = [{self.expression('tensor', 0)}, *{name}({self.expression('int', 1)} % 4)]",
                f"{out} = [next({name}(2)), next({name}(3))]",
                f"{out} = [p + q for p, q in zip({name}(3), {name}(2))]",
            )
        )
        self.assign(out, "tensors")

    def comprehension_of_tensors(self) -> None:
        out = self.fresh()
        self.write(
            f"{out} = [{self.expression('tensor', 1)} * k for k in list({self.expression('ints', 1)}) if k != 1][:3]"
        )
        self.assign(out, "tensors")

    def match(self) -> None:
        p = self.fresh()
        subject = self.pick(self.expression("ints", 1), self.expression("thing", 1), self.expression("table", 1))
        self.write(f"match {subject}:")
        for pattern in self.r.sample(
            ["[1, *_]", f"[{p}, _, _]", "{'k0': 1}", f"{{'k1': {p}, **_r}}", f"Part(size={p})", "Thing(kind='thing')"],
            3,
        ):
            self.write(f"    case {pattern}:")
            self.depth += 1
            self.block(most=1)
            self.depth -= 1
        self.write("    case _:")
        self.depth += 1
        self.block(most=1)
        self.depth -= 1

    def klass(self) -> None:
        name, out = self.fresh(), self.fresh()
        self.write(f"class {name}({self.pick('Thing', 'Part')}):")
        self.write(f"    rate = {self.expression('int', 1)}")
        self.write("    def scaled(self, t, by=1):")
        self.write("        return super().scaled(t, by) * self.rate")
        self.write(f"{out} = {name}({self.expression('int', 1)}, {self.expression('tensor', 1)})")
        self.assign(out, "thing")

    def result(self) -> str:
        kinds = self.r.sample(KINDS, self.r.randint(1, 3))
        parts = [self.expression("tensor", 1)] + [self.r.choice(self.scope[k]) for k in kinds if self.scope[k]]
        return self.pick(f"({', '.join(parts)},)", f"[{', '.join(parts)}]", f"dict(zip('pqrs', ({', '.join(parts)},)))")

    def text(self) -> str:
        while self.budget > 0:
            self.statement()
        self.write(f"return {self.result()}")
        head = "def f(a, b, n, x, flag, numbers, table, thing):"
        return "\n".join([head, *self.lines]) + "\n"


def program(seed: int) -> str:
    """The text of the function `f` of that seed; it runs in a module that begins with PRELUDE."""
    return Generator(seed).text()

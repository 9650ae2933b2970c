"""Functions that reach every opcode, and most of their errors. Each returns something that says what happened."""

import asyncio
import traceback


class Manager:
    def __init__(self, swallow):
        self.swallow = swallow

    def __enter__(self):
        return self

    def __exit__(self, *a):
        return self.swallow

    async def __aenter__(self):
        return self

    async def __aexit__(self, *a):
        return self.swallow


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


class Bad:
    """Fails at everything."""

    __hash__ = None

    def __bool__(self):
        raise ValueError("bool")

    def __iter__(self):
        raise ValueError("iter")

    def __eq__(self, o):
        raise ValueError("eq")

    def __getattr__(self, n):
        raise AttributeError(n)

    def __add__(self, o):
        raise ValueError("add")

    def __getitem__(self, i):
        raise ValueError("item")

    def __setitem__(self, i, v):
        raise ValueError("set item")

    def __format__(self, s):
        raise ValueError("format")

    def __contains__(self, x):
        raise ValueError("contains")

    def __enter__(self):
        raise ValueError("enter")

    def __exit__(self, *a):
        pass

    def __neg__(self):
        raise ValueError("neg")


class Mapping:
    def keys(self):
        return ["p", "q"]

    def __getitem__(self, k):
        return k * 2


bad = Bad()
counter = 0


def where(error):
    """Type, text and lines of an exception, down the frames of this file."""
    frames = traceback.extract_tb(error.__traceback__)
    return type(error).__name__, str(error), [(f.lineno, f.name) for f in frames if f.filename == __file__]


def attempt(f, *a, **k):
    try:
        return f(*a, **k)
    except BaseException as e:
        return where(e)


def keywords(a, /, b, *args, c=1, d, **kws):
    return a, b, args, c, d, kws


def expressions():
    x = [i * 2 for i in range(8)]
    y = {i: str(i) for i in x}
    z = {i for i in x}
    a, *b, c = x
    (d, e), f = (1, 2), 3
    s = ""
    for _ in range(20):
        s += "xy"
        s = s + "z"
    t = f"{a!r:>5}{b!s}{c!a}{d:{f}}{s}"
    x[1:3] = [1]
    x[::2]
    del x[0]
    y["k"] = 1
    del y["k"]
    assert a is not None and d in (1, 2) and e not in (3,), "no"
    u = [-d, +d, ~d, not d, d**2, d // 1, d << 2, 7 % 4, d | 8, d & 1, d ^ 3, d / 2, a or d, d and f, d < f, d is not f]
    d *= 5
    return x, y, z, a, b, c, t, u, d, None if s else 1


def calls():
    x = [1, 2]
    r = [keywords(1, 2, 3, d=4, e=5), keywords(*x, d=1, **{"q": 2}), keywords(*iter(x), **{"d": 1}, **Mapping())]
    r += [[*x, *"ab"], {**{"j": 3}, "k": 1, **Mapping()}, (*x, 1), {*x, *x, 9}]
    r += [sorted(x, key=lambda v: -v), list(map(lambda v: v + r[0][0], x)), max(*x), "%s" % x, "a,b".split(",")]
    r.append(Point(1, 2).__class__(*x).y)
    bound = Point(3, 4).__init__
    bound(5, y=6)
    return r, bound.__self__.x


def closures(k=3):
    z = k
    free = 1

    def inner(q=k, *, r: int = 3):
        nonlocal free
        free += q
        return free, k, r

    class Local(Point):
        w: int = z
        module = __module__

        def __init__(self):
            super().__init__(1, 2)

    global counter
    counter = 5
    counter += 1
    now = counter
    del counter
    gone = attempt(lambda: counter)
    counter = 0
    ns = {}
    exec(
        "x: int = 1\nimport os.path as osp\nfrom os import sep\ndef g(): return x\ny = g()\ndel x\nclass K:\n  y = y",
        ns,
    )
    exec("from collections import *\nfor i in (1,): j = i", ns)
    one, two = inner(), inner(5)
    del z
    unbound = attempt(lambda: z)  # noqa: F821
    return one, two, Local().x, Local.w, Local.module, now, gone, sorted(n for n in ns if len(n) < 4), unbound


def errors():
    def two(seq):
        a, b = seq

    def starred(seq):
        a, *b, c = seq
        return b

    def raising(*a):
        if len(a) == 2:
            raise a[0] from a[1]
        if a:
            raise a[0]
        raise

    def catching(t):
        try:
            1 / 0
        except t:
            return "caught"

    def storing(o):
        o[0] = 1

    def local():
        if 0:
            q = 1
        return q

    r = [
        attempt(f)
        for f in (
            lambda: bad.x, lambda: bad + 1, lambda: bad[0], lambda: not bad, lambda: -bad, lambda: bad == 1,
            lambda: {bad: 1}, lambda: {bad}, lambda: [*bad], lambda: (*bad,), lambda: f"{bad}", lambda: 1 in bad,
            lambda: undefined_name,  # noqa: F821
            lambda: keywords(), lambda: keywords(1, 2, z=1, c=2),
            lambda: keywords(1, 2, **{"a": 1, "d": 2}, **{"d": 3}), lambda: keywords(*bad), lambda: keywords(*1),
            lambda: keywords(**1), lambda: counter(), lambda: keywords(**bad), lambda: (1 if bad else 2),
            lambda: (bad and 1), lambda: (bad or 1), lambda: [x for x in bad], lambda: {**bad},
            lambda: next(iter(())), lambda: {"a": 1}["b"], lambda: [1][5], lambda: (1).foo, lambda: (1).foo(),
            lambda: bad.foo(), lambda: len(5), lambda: [].append(1, 2), lambda: 1 + "a",
            lambda: (yield_from_bad(), 1),
        )
    ]  # fmt: skip
    r += [attempt(two, s) for s in ((1,), (1, 2, 3), bad, iter([1]), 5)]
    r += [attempt(starred, s) for s in ((1,), bad, iter([1]), 5, iter([1, 2, 3, 4]))]
    r += [
        attempt(raising, *a)
        for a in (
            (ValueError,),
            (ValueError("x"),),
            (5,),
            (),
            (ValueError, KeyError),
            (ValueError, None),
            (ValueError, 5),
        )
    ]
    r += [attempt(catching, t) for t in (ValueError, ZeroDivisionError, 5, (ValueError, 3), (ArithmeticError,))]
    r += [
        attempt(storing, bad),
        attempt(local),
        attempt(exec, "import nonexistent_module_x"),
        attempt(exec, "from os import nonexistent_x"),
    ]
    r += [attempt(exec, "del undefined_y"), attempt(exec, "print(undefined_z)")]
    return r


def yield_from_bad():
    def g():
        yield from bad

    return attempt(list, g())


def handlers():
    log = []

    def body(error, swallow):
        try:
            try:
                with Manager(swallow) as m, Manager(False):
                    log.append(m.swallow)
                    if error:
                        raise error
            except KeyError as e:
                log.append(where(e))
                raise RuntimeError("again") from e
            else:
                log.append("else")
            finally:
                log.append("finally")
        except RuntimeError as e:
            try:
                raise
            except RuntimeError as again:
                log.append((again is e, type(e.__cause__)))
        for i in range(3):
            try:
                if i == 1:
                    continue
                if i == 2:
                    return i
            finally:
                log.append(i)

    for error in (None, KeyError("k"), ValueError("v"), ValueError):
        for swallow in (True, False):
            log.append(attempt(body, error, swallow))
    for manager in (bad, 5):
        log.append(attempt(lambda m=manager: with_it(m)))
    return log


def with_it(manager):
    with manager:
        return 1


def groups():
    def f(exc, *types):
        try:
            try:
                raise exc
            except* types as e:
                caught = repr(e)
            except* OSError:
                raise ValueError("new")
            return caught
        except BaseException as e:
            return repr(e)

    r = []
    for t in ((ValueError,), (KeyError, ValueError), (TypeError,), (ExceptionGroup,), (5,)):
        r.append(
            f(ExceptionGroup("g", [ValueError(1), KeyError(2), OSError(3), ExceptionGroup("h", [TypeError(4)])]), *t)
        )
        r.append(f(ValueError("naked"), *t))
    return r


def matching():
    def m(v):
        match v:
            case {"a": 1, **rest}:
                return rest
            case {"a": {"b": x}}:
                return x
            case [1, *_, 3]:
                return "seq"
            case Point(1, y=q):
                return q
            case Point(a, b):
                return a, b
            case int(n) if n > 5:
                return n
            case str() | None:
                return "s"
            case (x, y):
                return x
            case {}:
                return "mapping"
            case _:
                return "default"

    values = (
        {"a": 1, "c": 2},
        {"a": {"b": 3}},
        [1, 2, 3],
        Point(1, 2),
        Point(3, 4),
        7,
        "x",
        None,
        (8, 9),
        bad,
        3.5,
        {},
    )
    return [attempt(m, v) for v in values]


def generators():
    def g():
        try:
            x = yield 1
            yield x
        except ValueError:
            yield "v"
        finally:
            pass
        return 5

    def d():
        r = yield from g()
        r2 = yield from [r, 2]
        return (yield r2)

    r = [list(d())]
    it = d()
    r += [next(it), it.send(3), it.close()]
    it = d()
    r += [next(it), it.throw(ValueError), attempt(it.throw, KeyError)]
    it = (x for x in range(5))
    r += [next(it), it.gi_frame.f_lineno, sum(it), yield_from_bad(), [*d()], dict(zip("ab", d(), strict=False))]
    return r


async def numbers():
    try:
        for i in range(3):
            yield i
    finally:
        pass


async def main():
    r = []
    async with Manager(True):
        1 / 0
    async with Manager(False) as a:
        r.append(a.swallow)
    async for x in numbers():
        r.append(x)
    r.append([x async for x in numbers() if x])
    r.append(await asyncio.gather(*(asyncio.sleep(0, i) for i in range(3))))
    for wrong in (with_5, for_5, await_5):
        try:
            await wrong()
        except TypeError as e:
            r.append(where(e))
    gen = numbers()
    r.append(await gen.asend(None))
    await gen.aclose()
    return r


async def with_5():
    async with 5:
        pass


async def for_5():
    async for _ in 5:
        pass


async def await_5():
    await 5


def coroutines():
    return asyncio.run(main())


ALL = [expressions, calls, closures, errors, handlers, groups, matching, generators, coroutines]


# ---- functions that may be broken off anywhere inside and called again: nothing they do stays
def pure_arithmetic(n=6):
    total = 0
    for i in range(n):
        total += add(i, k=n) if i % 2 else -i
    return total


def add(a, *rest, k=1):
    try:
        return checked(a) + k
    except KeyError:
        return 0


def checked(a):
    with Manager(False):
        if a == 3:
            return Point(a, add.__defaults__ or 2).y
    return [a, {"a": a}["a"]][1]


def pure_strings():
    s = ""
    for c in ("a", "b"):
        s += c.upper()
        s = f"{s}{shown(c)!r}"
    return s, hasattr(Lazy(), "missing"), getattr(Lazy(), "present", None)


def shown(c):
    try:
        return {"c": c, **{"d": c}}["e"]
    except KeyError as e:
        return str(e) + "".join([c, c])


class Lazy:
    def __getattr__(self, name):
        return checked(4) if name == "present" else checked_attribute(self, name)


def checked_attribute(o, name):
    raise AttributeError(checked(name))


PURE = [pure_arithmetic, pure_strings]

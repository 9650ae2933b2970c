"""The interpreter (frontend/cpython) without the tracer: its hooks do what CPython does, and break off as told."""

import dis
import gc
import importlib.util
import subprocess
import sys
import textwrap
import threading

import interp_snippets
import pytest
from interp_build import build

NEVER, AT_COUNT, AT_ROOT, EVERY_ROOT = range(4)


@pytest.fixture(scope="module")
def interp():
    spec = importlib.util.spec_from_file_location("braze_interp_test", build() / "braze_interp_test.so")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def no_policy(interp):
    yield
    interp.set_policy(NEVER, 0, False)


def runners(interp):
    return {"step": interp.step_all, "trace": interp.run_traced}


def test_every_opcode_has_a_handler(interp):
    assert interp.check_opcodes() is None


@pytest.mark.parametrize("name", ["expressions", "errors", "matching", "closures"])
def test_instructions_are_those_of_dis(interp, name):
    code = getattr(interp_snippets, name).__code__
    mine = interp.instructions(code)
    assert [(i, op, arg) for i, op, arg, _ in mine if op != "CACHE"] == [
        (d.offset // 2 - extended(code, d), d.opname, d.arg or 0)
        for d in dis.get_instructions(code)
        if d.opname != "EXTENDED_ARG"
    ]
    lines = {d.offset // 2: d.positions.lineno for d in dis.get_instructions(code)}
    assert all(line == lines[i] for i, _, _, line in mine if lines[i] is not None)


def extended(code, instruction):
    """The number of EXTENDED_ARG before the instruction."""
    n, offset = 0, instruction.offset
    while offset >= 2 and code.co_code[offset - 2] == dis.EXTENDED_ARG:
        n, offset = n + 1, offset - 2
    return n


@pytest.mark.parametrize("mode", ["step", "trace"])
@pytest.mark.parametrize("snippet", interp_snippets.ALL, ids=lambda f: f.__name__)
def test_same_as_cpython(interp, mode, snippet):
    expected = snippet()
    before = interp.stats()
    assert runners(interp)[mode](snippet) == expected
    after = interp.stats()
    assert after["steps" if mode == "step" else "hooks"] > before["steps" if mode == "step" else "hooks"]


def growth(run):
    """Blocks that ten runs leave behind."""
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(10):
        run()
    gc.collect()
    return sys.getallocatedblocks() - before


@pytest.mark.parametrize("mode", ["step", "trace", "breaks"])
@pytest.mark.parametrize("snippet", interp_snippets.ALL, ids=lambda f: f.__name__)
def test_no_leak(interp, mode, snippet):
    interp.set_policy(EVERY_ROOT if mode == "breaks" else NEVER, 3, False)
    run = runners(interp).get(mode, interp.run_traced)
    seen = []
    for _ in range(8):  # caches grow at first, a leak always
        seen.append((growth(lambda: run(snippet)), growth(snippet)))
        if seen[-1][0] < seen[-1][1] + 8:
            return
    raise AssertionError(f"blocks that 10 runs leave behind, and of CPython alone: {seen}")


@pytest.mark.parametrize("leave", [False, True])
@pytest.mark.parametrize("snippet", interp_snippets.ALL, ids=lambda f: f.__name__)
def test_break_at_each_hook_of_the_root(interp, snippet, leave):
    """The state at the break is that before the instruction: CPython, or a step and the next trace, go on from it."""
    expected = snippet()
    breaks = 0
    for n in range(1, 90):
        interp.set_policy(AT_ROOT, n, leave)
        before = interp.stats()["breaks"]
        assert interp.run_traced(snippet) == expected
        broke = interp.stats()["breaks"] - before
        breaks += broke
        if not broke:
            break
    assert breaks > 0


def test_break_in_an_except_block_is_told(interp):
    def root():
        try:
            [][0]
        except IndexError as e:
            return str(e)
        finally:
            abs(1)

    told = 0
    for n in range(1, 20):
        interp.set_policy(AT_COUNT, n, True)
        try:
            assert interp.run_traced(root) == "list index out of range"
        except AssertionError as e:
            assert str(e) == "break in an except block"
            told += 1
    assert 3 < told < 12


@pytest.mark.parametrize("snippet", interp_snippets.PURE, ids=lambda f: f.__name__)
def test_break_at_each_hook_of_all_frames(interp, snippet):
    expected = snippet()
    blocks = None
    for repeat in range(2):
        for n in range(1, 400):
            interp.set_policy(AT_COUNT, n, True)
            assert interp.run_traced(snippet) == expected
        gc.collect()
        grown = 0 if blocks is None else sys.getallocatedblocks() - blocks
        blocks = sys.getallocatedblocks()
    assert grown < 50


def test_handlers_of_nested_frames_do_not_run_at_a_break(interp):
    log = []

    class Manager:
        def __enter__(self):
            return self

        def __exit__(self, kind, value, tb):
            if kind:
                log.append(kind)

    def nested(x):
        done = False
        try:
            with Manager():
                x = -x + len([x, x])
            done = True
            return x
        except BaseException as e:
            log.append(e)
        finally:
            if not done:
                log.append("finally")

    def generator(x):
        try:
            yield nested(x)
        except BaseException as e:
            log.append(e)

    def outer(x):
        return list(generator(x))

    def root():
        return nested(3), outer(4), nested(5)

    expected = root()
    total = interp.stats()["breaks"]
    for n in range(1, 150):
        interp.set_policy(AT_COUNT, n, True)
        assert interp.run_traced(root) == expected
        assert log == []
    assert interp.stats()["breaks"] > total + 60


def test_handled_exception_is_restored(interp):
    def nested():
        try:
            raise ValueError
        except ValueError:
            return len("abc")

    def root():
        a = nested()
        return a, sys.exc_info()

    try:
        raise KeyError("outer")
    except KeyError:
        expected = root()
        for n in range(1, 40):
            interp.set_policy(AT_COUNT, n, True)
            got = interp.run_traced(root)
            assert got[0] == expected[0] and got[1][0] is KeyError and got[1][1] is expected[1][1]
            assert sys.exc_info()[1] is expected[1][1]
    assert sys.exc_info() == (None, None, None)


def test_finaliser_does_not_run_in_an_ending_trace(interp, monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    finalised = []

    class Resource:
        def __del__(self):
            finalised.append(1)

    def nested():
        r = Resource()
        return abs(-1), r and 2

    def root():
        return nested()

    for n in range(1, 30):
        interp.set_policy(AT_COUNT, n, True)
        assert interp.run_traced(root) == (1, 2)
    assert unraisable == [] and finalised


def test_arguments_survive(interp):
    def root(a, b=2, *c, d, e=5, **f):
        x = [a, b, c, d, e, f]
        return x, [i for i in x], (lambda: a)()

    values = [object() for _ in range(4)]
    expected = root(values[0], values[1], values[2], d=values[3], g=1)
    counts = [sys.getrefcount(v) for v in values]
    for n in range(1, 40):
        for leave in (False, True):
            interp.set_policy(AT_ROOT, n, leave)
            result = interp.run_traced(root, values[0], values[1], values[2], d=values[3], g=1)
            assert result == expected
            del result
    assert [sys.getrefcount(v) for v in values] == counts


def test_refused_roots(interp):
    def generator():
        yield 1

    async def coroutine():
        pass

    for f in (generator, coroutine):
        with pytest.raises(TypeError, match="cannot trace .*generator"):
            interp.trace_root(f, 0, 0)
    with pytest.raises(TypeError, match="expected a function"):
        interp.trace_root(len, 0, 0)

    def two(a, b):
        return 1

    with pytest.raises(SystemError, match="expected 2 locals"):
        interp.trace_root(two, 1, 0)
    assert interp.trace_root(two, 2, 0) == 1


def test_unbound_locals_of_the_state(interp):
    def f(a):
        return a

    with pytest.raises(UnboundLocalError, match="'a'"):
        interp.trace_root(f, 1, 0)


def test_a_tracer_sees_its_events(interp):
    def inner():
        return 1

    def f():
        sys.settrace(lambda frame, event, arg: events.append((frame.f_code.co_name, event)))
        inner()
        sys.settrace(None)
        return 2

    events = []
    assert interp.step_all(f) == 2
    assert ("inner", "call") in events


def test_strings_grow_in_linear_time(interp):
    """250,000 appends that copy would move 30 GB."""

    def f(n):
        s = ""
        for _ in range(n):
            s += "x"
        return len(s)

    assert interp.run_traced(f, 250_000) == 250_000
    assert interp.step_all(f, 250_000) == 250_000


def test_threads(interp):
    expected = [f() for f in interp_snippets.ALL[:4]]
    results = []

    def work():
        for _ in range(3):
            for run in (interp.run_traced, interp.step_all):
                results.append([run(f) for f in (interp_snippets.expressions, interp_snippets.calls)] == expected[:2])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [True] * 24


def script(interp, body):
    code = f"import sys; sys.path.insert(0, {str(build())!r}); import braze_interp_test as interp\n" + textwrap.dedent(
        body
    )
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("run", ["step_all", "run_traced"])
def test_deep_recursion_raises(interp, run):
    """The recursion limit may be set beyond what the C stack holds."""
    done = script(
        interp,
        f"""
        sys.setrecursionlimit(10**7)
        def f(n): return 0 if n == 0 else f(n - 1) + 1
        try:
            interp.{run}(f, 10**6)
        except RecursionError as e:
            print("deep")
        print(interp.{run}(f, 100))
        """,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["deep", "100"]), done.stderr[-2000:]


def test_interrupt(interp):
    done = script(
        interp,
        """
        import signal, threading
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had it ignored
        def f():
            i = 0
            while True:
                i += 1
        for run in (interp.step_all, interp.run_traced):
            threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
            try:
                run(f)
            except KeyboardInterrupt:
                print("interrupted")
        """,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["interrupted"] * 2), done.stderr[-2000:]

"""Compiling and calling from many threads at once."""

import concurrent.futures
import subprocess
import sys
import threading

import torch
from support import assert_same, compiles
from torch import nn

import braze

THREADS = 16


def together(work, count=THREADS, timeout=240):
    """The results of work(0), work(1), ..., run by as many threads that start at the same time."""
    barrier = threading.Barrier(count)

    def started(i):
        barrier.wait()
        return work(i)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return [f.result(timeout=timeout) for f in [pool.submit(started, i) for i in range(count)]]


def made(k):
    """A function of its own: with a loop, a break or several results."""
    if k % 3 == 0:

        def f(x):
            for i in range(k % 5 + 1):
                x = x * (i + 1) + k
            return x.sum()

    elif k % 3 == 1:

        def f(x):
            y = x.relu() + k
            if y.sum() > k:  # a graph break
                y = y * 2
            return y.mean()

    else:

        def f(x):
            return torch.softmax(x + k, -1)[0], x.shape[0] * k

    return f


def test_many_functions_in_many_threads():
    functions = [made(k) for k in range(50)]
    compiled = [braze.compile(f) for f in functions]
    inputs = [torch.randn(n, generator=torch.Generator().manual_seed(n)) for n in (4, 5, 9)]
    expected = [[f(x) for x in inputs] for f in functions]

    def work(i):
        for step in range(50):
            k = (step * 7 + i * 3) % 50
            for x, e in zip(inputs, expected[k], strict=True):
                assert_same(compiled[k](x), e)
        return True

    assert together(work) == [True] * THREADS


def test_threads_that_compile_their_own():
    def work(i):
        results = []
        for k in range(6):
            f = braze.compile(made(k + i))
            x = torch.full((4,), float(k))
            assert_same(f(x), made(k + i)(x))
            results.append(k)
        return results

    assert together(work) == [list(range(6))] * THREADS


def test_one_function_is_compiled_once():
    compiled = braze.compile(lambda x: (x * 2).relu().sum())
    with compiles(1):
        assert together(lambda i: compiled(torch.full((3,), float(i))).item()) == [6.0 * i for i in range(THREADS)]


def test_one_module_with_gradients():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    compiled = braze.compile(model)
    x = torch.randn(8, 4)
    expected = torch.autograd.grad(model(x).sum(), list(model.parameters()))

    def work(i):
        for _ in range(5):
            assert_same(torch.autograd.grad(compiled(x).sum(), list(model.parameters())), expected)
        return True

    assert together(work) == [True] * THREADS


def test_reset_while_others_call():
    compiled = [braze.compile(made(k)) for k in range(6)]
    x = torch.ones(4)
    expected = [made(k)(x) for k in range(6)]
    done = threading.Event()

    def forget():
        while not done.wait(0.01):
            braze.reset()

    thread = threading.Thread(target=forget)
    thread.start()
    try:

        def work(i):
            for step in range(12):
                k = (step + i) % 6
                assert_same(compiled[k](x), expected[k])
            return True

        assert together(work, 8) == [True] * 8
    finally:
        done.set()
        thread.join()


def test_a_thread_sees_no_stand_ins():
    """An object that a trace changes for a while looks to other threads as it is."""

    class Counter:
        def __init__(self):
            self.value = torch.zeros(3)
            self.log = []

    counter = Counter()

    def f(x):
        counter.value = x * 2
        counter.log.append(1)
        for _ in range(200):
            x = x + 1
        return x

    stop = threading.Event()
    seen = set()

    def watch():
        while not stop.is_set():
            seen.add((type(counter.value), counter.value.device.type, counter.value.is_meta))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        for n in (3, 4):
            braze.compile(f)(torch.ones(n))
    finally:
        stop.set()
        thread.join()
    assert seen == {(torch.Tensor, "cpu", False)} and len(counter.log) == 2


def test_flags_belong_to_their_thread():
    def breaks(x):
        print(end="")
        return x * 2

    compiled = braze.compile(breaks)

    def work(i):
        if i % 2 == 0:
            return compiled(torch.ones(2)).sum().item()
        try:
            with braze.error_on_graph_break(True):
                compiled(torch.ones(2))
        except braze.GraphBreakError:
            return "error"

    assert together(work) == [4.0, "error"] * (THREADS // 2)


def test_subinterpreter():
    program = (
        "import _xxsubinterpreters as i\n"
        "i.run_string(i.create(), '''try:\n    import braze\n"
        "except ImportError as e:\n    print(e, flush=True)''')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout == ("Braze works in the main interpreter only, as torch does; this is a subinterpreter\n"), (
        done.stderr
    )


def test_thread_local_attributes():
    class Own(threading.local):
        def __init__(self, **values):
            self.__dict__.update(values)

    kept = Own(scale=4)

    def made_inside(x):
        return x * Own(scale=3).scale

    def from_before(x):
        kept.scale += 1
        kept.last = kept.scale
        return x * kept.scale, dict(kept.__dict__)

    one = torch.ones(1)
    compiled = braze.compile(made_inside)
    assert compiled(one).item() == compiled(one).item() == 3
    compiled, results = braze.compile(from_before), []

    def other():
        results.append(compiled(one))

    for _ in range(2):
        other()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert [r[0].item() for r in results] == [5, 5, 6, 5]
    assert [r[1]["last"] for r in results] == [5, 5, 6, 5]

"""Runs modules of CPython's test-suite and writes down each test's outcome, one JSON object a line.

    python worker.py once|thrice|compiled

Reads lines of JSON, [module, file of the outcomes, seconds], and answers each with a line once it is done. Each module runs in
a process of its own, forked from this one.

once: as `python -m test` does. thrice: each test method three times, each time on a TestCase of its own. compiled: the same
with the method under braze.compile: the first time traced, the second time from the cache, the third time with gradients
off, so that a guard fails.
"""

import gc
import inspect
import json
import os
import signal
import sys
import tempfile
import time
import types
import unittest

TURNS = 3


class Recorder:
    """Writes a line when a test begins, so that a crash names its test, and one when it has ended."""

    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8")
        self.turn = 0
        self.outcome = None
        self.errors = []
        self.breaks = []

    def write(self, **data):
        self.file.write(json.dumps(data) + "\n")
        self.file.flush()

    def install(self):
        """Into the class of result that libregrtest uses."""
        from test.libregrtest.testresult import RegressionTestResult

        recorder = self

        class Recording(RegressionTestResult):
            def startTest(self, test):
                recorder.outcome, recorder.errors, recorder.breaks = None, [], []
                recorder.write(begin=test.id(), turn=recorder.turn)
                super().startTest(test)

            def stopTest(self, test):
                super().stopTest(test)
                line = {"test": test.id(), "turn": recorder.turn, "outcome": recorder.outcome or "none"}
                if recorder.errors:
                    line["error"] = recorder.errors[0]
                if recorder.breaks:
                    line["breaks"] = recorder.breaks
                recorder.write(**line)

        for name in ("Success", "Failure", "Error", "Skip", "ExpectedFailure", "UnexpectedSuccess"):
            setattr(Recording, f"add{name}", self.adding(RegressionTestResult, name))
        Recording.addSubTest = self.adding_subtest(RegressionTestResult)
        import test.libregrtest.testresult as module

        module.RegressionTestResult = Recording

    def adding(self, base, name):
        method = getattr(base, f"add{name}")

        def add(result, test, *args):
            if self.outcome != "Failure" or name != "Success":
                self.outcome = name
            if name in ("Failure", "Error"):
                self.errors.append(shown(args[0]))
            method(result, test, *args)

        return add

    def adding_subtest(self, base):
        def add(result, test, subtest, error):
            if error is not None:
                self.outcome = "Failure" if issubclass(error[0], test.failureException) else "Error"
                self.errors.append(shown(error))
            base.addSubTest(result, test, subtest, error)

        return add


def shown(error):
    """A few words about an exception, for whoever looks into a difference."""
    kind, value, traceback = error
    frames = []
    while traceback is not None:
        frames.append(f"{os.path.basename(traceback.tb_frame.f_code.co_filename)}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    try:
        text = str(value)[:300]
    except Exception as e:  # the error of a test may be anything
        text = f"str() raises {e!r}"
    return f"{kind.__name__}: {text} [{' '.join(frames[-4:])}]"


def repeat_tests(recorder):
    """Each test method runs on three instances of its TestCase."""
    run = unittest.TestCase.run

    def run_three_times(case, result=None):
        if recorder.turn or not standard(case):
            return run(case, result)
        run(case, result)
        try:
            for recorder.turn in range(1, TURNS):
                last = run(type(case)(case._testMethodName), result)
        finally:
            recorder.turn = 0
        return last

    unittest.TestCase.run = run_three_times


def standard(case):
    """A test that is a method, on an instance that can be made again."""
    method = getattr(case, getattr(case, "_testMethodName", ""), None)
    return (
        type(case).__init__ is unittest.TestCase.__init__
        and not isinstance(case, unittest.IsolatedAsyncioTestCase)
        and isinstance(method, types.MethodType)
        and isinstance(method.__func__, types.FunctionType)
        and not inspect.iscoroutinefunction(method)
    )


def compile_tests(recorder):
    import torch

    import braze
    from braze import _C, _tables

    # The tests lie in the folder of the standard library, whose own functions no segment begins in.
    library = os.path.dirname(os.__file__) + "/"
    folders = tuple(library + name for name in os.listdir(library) if name != "test")
    _C.configure(
        {
            **_tables.tables((braze.is_compiling, braze.is_dynamo_compiling), braze.is_exporting),
            "stdlib_prefixes": (*folders, library + "test/support"),
        }
    )

    def receive(kind, message, data):
        if kind in ("graph_break", "internal_error", "recompile_limit"):
            recorder.breaks.append(f"{data.get('id', kind)}: {data.get('detail', '')} | {message[:300]}")

    _C.set_logger(receive)
    compiled = {}
    call = unittest.TestCase._callTestMethod

    def call_compiled(case, method):
        if not standard(case):
            return call(case, method)
        key = (type(case), method.__name__)
        if key not in compiled:
            compiled[key] = braze.compile(method.__func__)
        bound = types.MethodType(compiled[key], case)
        if recorder.turn < TURNS - 1:
            return call(case, bound)
        with torch.no_grad():
            return call(case, bound)

    unittest.TestCase._callTestMethod = call_compiled


def run_tests(module, path, mode):
    """In the process of the module: its exit status."""
    recorder = Recorder(path)
    recorder.install()
    import test.libregrtest.main as runner

    setup_process = runner.setup_process

    def setup():
        # It sets the __file__ of every module, which some of torch's refuse.
        hidden = {name: m for name, m in sys.modules.items() if type(m) is not types.ModuleType}
        for name in hidden:
            del sys.modules[name]
        setup_process()
        sys.modules.update(hidden)
        if mode != "once":
            repeat_tests(recorder)
        if mode == "compiled":
            compile_tests(recorder)

    runner.setup_process = setup
    sys.argv = [sys.argv[0]]
    status = None
    try:
        runner.main([module])
    except SystemExit as e:
        status = e.code
    recorder.write(done=True, status=status)
    sys.exit(status)


def fork_tests(module, path, mode, seconds):
    """Runs a module in a new process, with the time limit."""
    with tempfile.TemporaryDirectory() as folder, open(path + ".log", "wb") as log:
        start = time.monotonic()
        process = os.fork()
        if not process:
            os.setsid()
            os.chdir(folder)
            null = os.open(os.devnull, os.O_RDONLY)
            for descriptor, into in ((null, 0), (log.fileno(), 1), (log.fileno(), 2)):
                os.dup2(descriptor, into)
            return run_tests(module, path, mode)
        status = None
        while status is None and time.monotonic() - start < seconds:
            ended, code = os.waitpid(process, os.WNOHANG)
            if ended:
                status = os.waitstatus_to_exitcode(code)
            else:
                time.sleep(0.1)
        try:
            os.killpg(process, signal.SIGKILL)  # and what the tests have left behind
        except ProcessLookupError:
            pass
        if status is None:
            os.waitpid(process, 0)
        with open(path, "a", encoding="utf-8") as f:
            print(json.dumps({"exit": status, "seconds": round(time.monotonic() - start, 1)}), file=f)


def main():
    mode = sys.argv[1]
    sys.path.pop(0)
    if mode != "once":
        import torch  # noqa: F401  (in both runs that are compared)

        import braze  # noqa: F401

        gc.collect()
        gc.freeze()  # the tests collect garbage often, and none of it is theirs
    for line in sys.stdin:
        module, path, seconds = json.loads(line)
        fork_tests(module, path, mode, seconds)
        print("done", flush=True)


if __name__ == "__main__":
    main()

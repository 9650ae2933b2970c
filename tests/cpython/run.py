"""Runs CPython's own tests in a mode of Braze, and compares each test's outcome with a plain run.

    python tests/cpython/run.py [--mode loop|handover|compiled ...] [--again] [test modules]

loop: every frame of every process is interpreted by Braze's loop, nothing is traced. handover: the same, with the frame
handed to CPython after 13 instructions. traced: the loop that traces, with hooks that do what CPython does. stress: traces
of function frames, broken off again and again. compiled: each test method under braze.compile (see worker.py).

What is there from an earlier run is not run again, unless --again. expected.txt lists what may differ, and why.
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import signal
import subprocess
import sys

import modules as lists

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "frontend"))
import interp_build  # noqa: E402

# mode: what it is compared with, how the worker runs the tests
MODES = {
    "plain": ("plain", "once"),
    "loop": ("plain", "once"),
    "handover": ("plain", "once"),
    "traced": ("plain", "once"),
    "stress": ("plain", "once"),
    "thrice": ("thrice", "thrice"),
    "compiled": ("thrice", "compiled"),
}
INTERPRETED = ("loop", "handover", "traced", "stress")
# breaks that no compiler could avoid: the process and the world outside are asked or changed
OUTSIDE = ("io", "clock", "random-state", "thread", "dynamic-import", "frame-inspection", "requested", "disabled")

# and what follows from a break: behind it an object made before would have to be rebuilt, and is one from before
FOLLOWING = ("cannot-rebuild", "iterator-from-before", "recompile_limit")


def start_worker(mode):
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONSTARTUP", "MAKEFLAGS")}
    env["PYTHONHASHSEED"] = "0"  # the order of sets is the same in both runs
    if mode in INTERPRETED:
        env["BRAZE_INTERP"] = mode
        env["BRAZE_INTERP_DIR"] = str(interp_build.build())
        env["PYTHONPATH"] = str(HERE / "site")
    command = [sys.executable, "-X", "faulthandler", str(HERE / "worker.py"), MODES[mode][1]]
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def outcomes(path):
    """({(test, turn): outcome}, {(test, turn): the whole line}) of a module."""
    result, lines, begun = {}, {}, None
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue  # the process died while it wrote
        if "begin" in line:
            begun = (line["begin"], line["turn"])
        elif "test" in line:
            key = (line["test"], line["turn"])
            result[key], lines[key], begun = line["outcome"], line, None
        elif "exit" in line and line["exit"] not in (0, 1, 2, 3, 4):  # a crash, or the time limit
            what = "timeout" if line["exit"] is None else f"crash ({line['exit']})"
            key = begun or (path.stem, 0)
            result[key], lines[key] = what, {"outcome": what}
    return result, lines


class Expected:
    """Lines of expected.txt: mode, pattern of the test's name, reason."""

    def __init__(self):
        self.rules = []
        for text in (HERE / "expected.txt").read_text(encoding="utf-8").splitlines():
            if text.strip() and not text.startswith("#"):
                mode, pattern, reason = text.split(maxsplit=2)
                self.rules.append((mode, pattern, reason))

    def reason(self, mode, test):
        for rule_mode, pattern, reason in self.rules:
            if mode in rule_mode.split(",") and fnmatch.fnmatchcase(test, pattern):
                return reason
        return None


def compare(mode, names, out, show):
    """Prints what differs from the plain run. The numbers of tests, of differences, of those not expected."""
    expected = Expected()
    tests, different, surprising, kinds = set(), {}, [], collections.Counter()
    whole, whole_but_outside, parts, reasons = 0, 0, 0, collections.Counter()
    for name in names:
        base, _ = outcomes(out / MODES[mode][0] / f"{name}.jsonl")
        mine, lines = outcomes(out / mode / f"{name}.jsonl")
        if any("timeout" in v for v in base.values()):
            continue  # says nothing
        tests |= {test for test, _ in base}
        died = [v for v in mine.values() if v == "timeout" or v.startswith("crash")]
        for key in sorted(set(base) | set(mine)):
            if base.get(key) == mine.get(key) or key[0] in different:
                continue
            if died and key not in mine:
                continue  # not reached: the test at which the process died is counted
            different[key[0]] = (
                f"turn {key[1]}: {base.get(key)} -> {mine.get(key)} {lines.get(key, {}).get('error', '')}"
            )
        for (test, turn), line in lines.items():
            if mode != "compiled" or turn or line["outcome"] == "Skip" or (test, 1) not in base:
                continue
            inside = [b for b in line.get("breaks", ()) if b.split(":")[0] not in OUTSIDE]
            whole += not inside
            parts += bool(inside)
            ids = {b.split(":")[0] for b in line.get("breaks", ())}
            whole_but_outside += not ids or not ids.isdisjoint(OUTSIDE) and ids <= {*OUTSIDE, *FOLLOWING}
            reasons.update({b.split(" | ")[0] for b in inside})
            if show:
                for b in inside:
                    print("   ", test, b)
    for test, how in different.items():
        reason = expected.reason(mode, test)
        if reason is None:
            surprising.append(test)
            print(f"  {test}: {how}")
    n = max(len(tests), 1)
    print(
        f"{mode}: {len(names)} modules, {len(tests)} tests, {len(different)} differ ({100 * len(different) / n:.2f} %), "
        f"{len(surprising)} of them not expected"
    )
    if mode == "compiled":
        ran = max(whole + parts, 1)
        print(f"compiled whole: {whole} of {whole + parts} ({100 * whole / ran:.1f} %)")
        print(f"or broken by the outside and what follows from that only: {100 * whole_but_outside / ran:.1f} %")
        for reason, count in reasons.most_common(25):
            print(f"  {count:5} {reason}")
    return len(tests), len(different), len(surprising)


def run(mode, names, out, jobs, timeout, again):
    """Those of the modules that have no outcomes yet."""
    wanted = [n for n in dict.fromkeys(names) if again or not (out / mode / f"{n}.jsonl").exists()]
    (out / mode).mkdir(parents=True, exist_ok=True)
    queue = collections.deque(wanted)
    if mode in INTERPRETED:
        interp_build.build()  # before there are threads: sysconfig is not made for them

    def work():
        worker = start_worker(mode)
        with worker:
            while queue:
                name = queue.popleft()
                part = out / mode / f"{name}.part"
                worker.stdin.write(json.dumps([name, str(part), timeout]) + "\n")
                worker.stdin.flush()
                if not worker.stdout.readline():
                    raise RuntimeError(f"the process that runs {name} has died")
                part.replace(part.with_suffix(".jsonl"))
            worker.stdin.close()

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(work) for _ in range(min(jobs, len(wanted)))]:
            future.result()


def installed(names):
    """Those modules that this Python has."""
    import test

    found = [n for n in dict.fromkeys(names) for folder in test.__path__ if list(pathlib.Path(folder).glob(f"{n}*"))]
    return list(dict.fromkeys(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", action="append", choices=[m for m in MODES if m not in ("plain", "thrice")])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "cpython_tests")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=600, help="seconds for a module")
    parser.add_argument("--again", action="store_true", help="run also what has been run before")
    parser.add_argument("--compare-only", action="store_true")
    parser.add_argument("--breaks", action="store_true", help="list every graph break")
    parser.add_argument("modules", nargs="*")
    args = parser.parse_args()
    # children of a shell's background job would ignore the signal that some tests send themselves
    signal.signal(signal.SIGINT, signal.default_int_handler)
    failed = False
    for mode in args.mode or ["loop", "handover", "compiled"]:
        names = args.modules or (lists.COMPILED if mode == "compiled" else lists.INTERPRETED)
        names = installed(names)
        if not args.compare_only:
            run(MODES[mode][0], names, args.out, args.jobs, args.timeout, False)
            run(mode, names, args.out, args.jobs, args.timeout, args.again)
        else:
            names = [n for n in names if all((args.out / m / f"{n}.jsonl").exists() for m in (mode, MODES[mode][0]))]
        tests, _, surprising = compare(mode, names, args.out, args.breaks)
        failed |= surprising > 0 or tests == 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

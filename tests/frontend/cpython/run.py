"""Runs CPython's own tests with every frame interpreted by Braze, and compares each test's outcome with a plain run.

    python tests/frontend/cpython/run.py [--mode step|trace|stress ...] [test modules]

step: each instruction on the real frame; trace: the traced loop, hooks that do what CPython does; stress: traces of function
frames, broken off again and again.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import interp_build  # noqa: E402

MODULES = """test_grammar test_opcodes test_scope test_generators test_coroutines test_exceptions test_with test_contextlib
test_super test_descr test_class test_dict test_list test_patma test_fstring test_extcall test_except_star test_raise
test_call""".split()
# A trace is not interrupted between instructions: the hooks of the test deliver a signal before a frame begins, not at its RESUME.
SIGNALS = {"test.test_generators.SignalAndYieldFromTest.test_raise_and_yield_from"}
# mode: tests whose outcome may differ
MODES = {"step": set(), "trace": SIGNALS, "stress": SIGNALS}


def outcomes(log):
    """{test: outcome}, from the output of `python -m test -v`."""
    result, name = {}, None
    for line in log.splitlines():
        named = re.match(r"(\S+) \(([\w.<>]+)\)(?: .*?)?(?:$| \.\.\. )", line)
        if named:
            name = named.group(2)
        ended = re.search(r" \.\.\. (ok|FAIL|ERROR|skipped.*|expected failure|unexpected success)\s*$", line)
        if name and (ended or line.strip() in ("ok", "FAIL", "ERROR")):
            result[name] = (ended.group(1) if ended else line.strip()).split()[0]
            name = None
        module = re.match(r"^(test_\w+) (failed|crashed|skipped)", line)
        if module:
            result[module.group(1)] = module.group(2)
    return result


def run(mode, modules, out):
    env = dict(os.environ, PYTHONPATH=str(HERE / "site"), BRAZE_INTERP_DIR=str(interp_build.build()))
    out.mkdir(parents=True, exist_ok=True)
    stats = out / f"{mode}.stats"
    stats.unlink(missing_ok=True)
    env["BRAZE_INTERP_STATS"] = str(stats)
    env["BRAZE_INTERP"] = "" if mode == "plain" else mode
    command = [sys.executable, "-X", "faulthandler", "-m", "test", "-v", *modules]
    process = subprocess.run(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
    )
    (out / f"{mode}.log").write_text(process.stdout)
    return outcomes(process.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", action="append", choices=list(MODES))
    parser.add_argument("--out", type=pathlib.Path, default=interp_build.ROOT / "build" / "cpython_tests")
    parser.add_argument("modules", nargs="*", default=MODULES)
    args = parser.parse_args()
    plain = run("plain", args.modules, args.out)
    print(f"plain: {len(plain)} outcomes")
    different = 0
    for mode in args.mode or list(MODES):
        mine = run(mode, args.modules, args.out)
        names = [k for k in sorted(plain | mine) if plain.get(k) != mine.get(k) and k not in MODES[mode]]
        different += len(names)
        print(
            f"{mode}: {len(mine)} outcomes, {len(names)} differ",
            *(f"  {k}: {plain.get(k)} -> {mine.get(k)}" for k in names[:50]),
            sep="\n",
        )
    return 1 if different or not plain else 0


if __name__ == "__main__":
    sys.exit(main())

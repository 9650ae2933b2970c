"""Random programs against eager: python tests/fuzz [--count 20000] [--seed 0] [--jobs 2] [--show SEED] [--shrink SEED]

Programs run in child processes, a few hundred in each, so that a crash names its program and ends nothing else.
"""

import argparse
import ast
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

BATCH = 200
TIMEOUT = 60  # seconds without a result


def child(first: int, count: int) -> None:
    """Checks seeds in this process; a line for each before it begins, another if it differs."""
    os.environ["BRAZE_STRICT"] = "1"
    import torch
    from check import Difference, check_seed

    import braze

    torch.set_num_threads(1)
    for seed in range(first, first + count):
        print(f"SEED {seed}", flush=True)
        try:
            check_seed(seed)
        except Difference as e:
            print(f"DIFFERS {seed} {' '.join(str(e).split())[:300]}", flush=True)
        braze.reset()
    print("DONE", flush=True)


def batch(first: int, count: int) -> list[tuple[int, str]]:
    """(seed, what differs) of a batch; a program that crashes or hangs is one of them, the rest go on after it."""
    found, end = [], first + count
    while first < end:
        command = [sys.executable, str(Path(__file__).parent), "--child", str(first), str(end - first)]
        try:
            p = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT + (end - first))
            out, why = p.stdout, f"ends the process: {p.returncode} {' '.join(p.stderr.split())[-300:]}"
        except subprocess.TimeoutExpired as e:
            out = e.stdout.decode() if isinstance(e.stdout, bytes) else e.stdout or ""
            why = "hangs"
        lines = out.splitlines()
        for line in lines:
            if line.startswith("DIFFERS "):
                _, seed, text = line.split(" ", 2)
                found.append((int(seed), text))
        if lines and lines[-1] == "DONE":
            break
        last = max([int(line.split()[1]) for line in lines if line.startswith("SEED ")], default=first)
        found.append((last, why))
        first = last + 1
    return found


def shrink(seed: int) -> str:
    """The program of that seed with every statement taken out that its difference does not need."""
    os.environ["BRAZE_STRICT"] = "1"
    from check import Difference, check_text
    from program import program

    def differs(text: str) -> bool:
        try:
            check_text(text, seed)
        except Difference:
            return True
        except Exception:
            return False
        return False

    text = program(seed)
    if not differs(text):
        return "(it does not differ)\n" + text
    smaller = True
    while smaller:
        smaller = False
        for candidate in candidates(text):
            if differs(candidate):
                text, smaller = candidate, True
                break
    return text


def candidates(text: str) -> list[str]:
    """The text with one statement taken out, with one compound statement replaced by its body, or simplified."""
    out = []

    def suites(tree: ast.AST) -> list[list[ast.stmt]]:
        return [
            getattr(node, field)
            for node in ast.walk(tree)
            for field in ("body", "orelse", "finalbody")
            if isinstance(getattr(node, field, None), list)
        ]

    for i, suite in enumerate(suites(ast.parse(text))[1:], 1):
        for j in range(len(suite)):
            tree = ast.parse(text)
            taken = suites(tree)[i].pop(j)
            if not suites(tree)[i]:
                suites(tree)[i].append(ast.Pass())
            if not isinstance(taken, ast.Pass):
                out.append(ast.unparse(ast.fix_missing_locations(tree)))
            for field in ("body", "orelse", "finalbody"):
                if getattr(taken, field, None) and not isinstance(taken, (ast.FunctionDef, ast.ClassDef)):
                    tree = ast.parse(text)
                    inner = suites(tree)[i]
                    inner[j : j + 1] = getattr(inner[j], field)
                    out.append(ast.unparse(ast.fix_missing_locations(tree)))
    expressions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.expr)]
    for i, e in enumerate(expressions):
        for child_of in ast.iter_child_nodes(e):
            if (
                isinstance(child_of, ast.expr)
                and not isinstance(child_of, (ast.Slice, ast.Starred))
                and not any(isinstance(n, ast.Slice) for n in ast.iter_child_nodes(child_of))
                and len(ast.unparse(e)) > 12
            ):
                replacer = Replace(i, ast.unparse(child_of))
                tree = replacer.visit(ast.parse(text))
                out.append(ast.unparse(ast.fix_missing_locations(tree)))
    return [c for c in out if len(c) < len(text)]


class Replace(ast.NodeTransformer):
    """Puts an expression in the place of the i-th one, in the order of ast.walk."""

    def __init__(self, index: int, text: str):
        self.index, self.text = index, text

    def visit_Module(self, tree: ast.Module) -> ast.Module:
        target = [n for n in ast.walk(tree) if isinstance(n, ast.expr)][self.index]
        new = ast.parse(self.text, mode="eval").body
        for node in ast.walk(tree):
            for field, value in ast.iter_fields(node):
                if value is target:
                    setattr(node, field, new)
                elif isinstance(value, list):
                    value[:] = [new if v is target else v for v in value]
        return tree


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--count", type=int, default=20000)
    ap.add_argument("--seed", type=int, default=None, help="the first one; by default the clock says")
    ap.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    ap.add_argument("--show", type=int, default=None)
    ap.add_argument("--shrink", type=int, default=None)
    ap.add_argument("--child", type=int, nargs=2, default=None)
    a = ap.parse_args()
    if a.child:
        child(*a.child)
        return 0
    if a.show is not None:
        from program import program

        print(program(a.show))
        return 0
    if a.shrink is not None:
        print(shrink(a.shrink))
        return 0
    if a.seed is None:
        a.seed = int(time.time()) % 10**6 * 1000
    t, found = time.monotonic(), []
    print(f"seeds {a.seed} to {a.seed + a.count - 1}", flush=True)
    starts = range(a.seed, a.seed + a.count, BATCH)
    with ThreadPoolExecutor(a.jobs) as pool:
        done = 0
        for some in pool.map(lambda s: batch(s, min(BATCH, a.seed + a.count - s)), starts):
            done += 1
            found += some
            for seed, why in some:
                print(f"seed {seed}: {why}", flush=True)
            print(f"\r{min(done * BATCH, a.count)} of {a.count}, {len(found)} differ", end="", flush=True)
    print(f"\n{a.count} programs, {len(found)} differ, {time.monotonic() - t:.0f} s")
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())

#!/usr/bin/env python3
"""Checks the form of the sources: lint.py [--fix] [--only NAME,...] [--skip NAME,...] [--build DIR]

layers        core: no Python.h, no torch; frontend: no torch; the product uses none of torch's own compilers
length        no source file over 1,000 lines
marks         no unfinished work and no switched-off tests
docs          every path that the documents name exists
ruff          Python: style, imports, annotations, formatting
clang-format  C and C++
clang-tidy    core, with the compile commands of --build; files are remembered while they and the headers are unchanged
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CPP = (".cpp", ".h", ".c")
PRODUCT = ("core", "frontend", "bridge", "python")
BIN = Path(sys.executable).parent


def sources(*suffixes: str, under: tuple[str, ...] = ()) -> list[Path]:
    """Files that git knows or would add, so that build folders stay out."""
    out = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    names = out.stdout.split("\n")
    return [
        ROOT / n
        for n in sorted(set(names))
        if n.endswith(suffixes) and (not under or n.split("/")[0] in under) and (ROOT / n).is_file()
    ]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


FORBIDDEN_INCLUDES = {
    "core": re.compile(r'#\s*include\s*[<"]((?:Python\.h|torch/|ATen/|c10/|frontend/|bridge/)[^>"]*)'),
    "frontend": re.compile(r'#\s*include\s*[<"]((?:torch/|ATen/|c10/|bridge/)[^>"]*)'),
}
# The compilers that Braze stands in for. Names in strings count too: importlib would load them all the same.
PEER = re.compile(r"torch\._(dynamo|inductor|functorch)\b|torch/_(dynamo|inductor|functorch)\b")
ENTRY = re.compile(r'\s*"[\w.]+",')


def layers() -> Iterator[str]:
    for path in sources(*CPP, ".def", under=tuple(FORBIDDEN_INCLUDES)):
        layer = path.relative_to(ROOT).parts[0]
        for i, line in enumerate(path.read_text().split("\n"), 1):
            if m := FORBIDDEN_INCLUDES[layer].search(line):
                yield f"{shown(path)}:{i}: {layer} must not include {m.group(1)}"
    for path in sources(*CPP, ".def", ".py", under=PRODUCT):
        for i, line in enumerate(path.read_text().split("\n"), 1):
            code = re.sub(r"(^|\s)(#(?!\s*include)|//).*", "", line)
            if path.name == "_tables.py" and ENTRY.fullmatch(code):  # names what isn't traced, uses nothing
                continue
            if PEER.search(code) and "sys.modules" not in code:
                yield f"{shown(path)}:{i}: the product must not use {PEER.search(code).group(0)}"


def length() -> Iterator[str]:
    for path in sources(*CPP, ".def", ".py", ".cmake"):
        n = path.read_text().count("\n")
        if n > 1000:
            yield f"{shown(path)}: {n} lines; at most 1000 are allowed: split it by concept"


MARKS = re.compile(
    r"\b(TO"
    r"DO|FIX"
    r"ME|XX"
    r"X|HA"
    r"CK)\b|pytest\.(mark\.)?(skip|xfail)|GTEST_"
    r"SKIP|\bTEST(_F|_P)?\(\w+, *DISABLED_"
)


def marks() -> Iterator[str]:
    for path in sources(*CPP, ".def", ".py"):
        if path == Path(__file__).resolve():
            continue
        for i, line in enumerate(path.read_text().split("\n"), 1):
            if m := MARKS.search(line):
                yield f"{shown(path)}:{i}: unfinished or switched off: {m.group(0)}"


def docs() -> Iterator[str]:
    inline = re.compile(r"`([A-Za-z_][\w.-]*/[\w./-]*|[\w-]+\.(?:md|toml|py|cmake))`")
    for path in sources(".md"):
        for i, line in enumerate(path.read_text().split("\n"), 1):
            for m in inline.finditer(line):
                name = m.group(1).rstrip("/")
                if name.startswith((".venv", "build")) or "*" in name:
                    continue
                if not any((base / name).exists() for base in (ROOT, path.parent, ROOT / "python/braze")):
                    yield f"{shown(path)}:{i}: {name} does not exist"


def run(*command: str) -> Iterator[str]:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        yield done.stdout.rstrip() or f"{command[0]} failed"


def ruff(fix: bool) -> Iterator[str]:
    files = [str(p) for p in sources(".py")]
    if files:
        yield from run(str(BIN / "ruff"), "check", "--quiet", *(["--fix"] if fix else []), *files)
        yield from run(str(BIN / "ruff"), "format", "--quiet", *([] if fix else ["--diff"]), *files)


def clang_format(fix: bool) -> Iterator[str]:
    files = [str(p) for p in sources(*CPP)]
    if files:
        yield from run(str(BIN / "clang-format"), *(["-i"] if fix else ["--dry-run", "--Werror"]), *files)


def clang_tidy(build: Path) -> Iterator[str]:
    database = build / "compile_commands.json"
    if not database.exists():
        yield f"{database} is missing: run `make build` first"
        return
    known = {Path(c["file"]).resolve() for c in json.loads(database.read_text())}
    headers = hashlib.sha256(b"".join(p.read_bytes() for p in sources(".h", ".def", under=("core",))))
    headers.update((ROOT / ".clang-tidy").read_bytes())
    passed = build / "clang-tidy"
    passed.mkdir(exist_ok=True)

    def check(path: Path) -> str:
        key = hashlib.sha256(headers.digest() + shown(path).encode() + path.read_bytes()).hexdigest()
        if (passed / key).exists():
            return ""
        command = [str(BIN / "clang-tidy"), "--quiet", "-p", str(build), str(path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode == 0:
            (passed / key).touch()
            return ""
        return (done.stdout or done.stderr).rstrip()

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        files = [p for p in sources(".cpp", under=("core",)) if p in known]
        yield from filter(None, pool.map(check, files))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true", help="format instead of checking the format")
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", default="")
    parser.add_argument("--build", default="build/release")
    args = parser.parse_args()
    checks = {
        "layers": layers,
        "length": length,
        "marks": marks,
        "docs": docs,
        "ruff": lambda: ruff(args.fix),
        "clang-format": lambda: clang_format(args.fix),
        "clang-tidy": lambda: clang_tidy((ROOT / args.build).resolve()),
    }
    named = {n for n in args.only.split(",") + args.skip.split(",") if n}
    if unknown := named - checks.keys():
        parser.error(f"unknown check {', '.join(sorted(unknown))}; there are {', '.join(checks)}")
    only = {n for n in args.only.split(",") if n} or ({"ruff", "clang-format"} if args.fix else set(checks))
    failed = False
    for name, check in checks.items():
        if name in only and name not in args.skip.split(","):
            problems = list(check())
            failed = failed or bool(problems)
            print(f"{name:13} {'ok' if not problems else f'{len(problems)} problem(s)'}")
            for p in problems:
                print("  " + p.replace("\n", "\n  "))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Compiling needs no compiler, no file and no other process."""

import os
import pathlib
import subprocess
import sys

PROGRAM = """
import sys
sys.path.insert(0, {here!r})
import sandbox
import torch
from torch import nn
import braze

written = []

def audit(event, arguments):
    if event in ("os.fork", "os.exec", "os.posix_spawn", "os.system", "subprocess.Popen", "os.mkdir", "os.rename"):
        written.append((event, arguments))
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        written.append((event, arguments))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.LayerNorm(8)
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        x = torch.nn.functional.gelu(self.conv(x))
        x = self.norm(x).softmax(-1)
        if x.sum() > 0:
            x = x + 1
        return self.out(x).mean((2, 3))

torch.manual_seed(0)
model = Model().requires_grad_(False)
inputs = [torch.randn(2, 3, 8, 8), torch.randn(3, 3, 8, 8)]
expected = [model(x) for x in inputs]
sys.addaudithook(audit)
sandbox.enter()
compiled = braze.compile(model)
for x, e in zip(inputs, expected):
    torch.testing.assert_close(compiled(x), e)
assert braze.stats()["kernels"] > 0, braze.stats()
assert not written, written
with open("/proc/self/task/%d/children" % __import__("os").getpid()) as f:
    assert f.read() == "", "a child process is there"
print("compiled", braze.compilations() >= 2)
"""


def snapshot(*folders):
    return {str(p): p.stat().st_mtime_ns for folder in folders for p in [folder, *folder.rglob("*")]}


def run_confined(tmp_path, program):
    """Runs `program` with nothing on PATH and folders that can't be written; returns its output."""
    home, temporary, path = (tmp_path / name for name in ("home", "temporary", "path"))
    for folder in (home, temporary, path):
        folder.mkdir()
        folder.chmod(0o555)
    before = snapshot(tmp_path)
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "BRAZE_", "CXX", "CC"))},
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "PATH": str(path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "BRAZE_STRICT": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=temporary, capture_output=True, text=True
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stderr}"
    assert snapshot(tmp_path) == before
    return done.stdout


def test_no_compiler_no_file_no_process(tmp_path):
    here = str(pathlib.Path(__file__).parent)
    assert run_confined(tmp_path, PROGRAM.format(here=here)) == "compiled True\n"


def test_the_sandbox_would_notice():
    """The check itself: writing, and starting a process, end a confined process."""
    here = str(pathlib.Path(__file__).parent)
    for crime in ("open('/dev/null', 'w')", "os.fork()", "os.execv('/bin/true', ['true'])"):
        program = f"import os, sys; sys.path.insert(0, {here!r}); import sandbox; sandbox.enter(); {crime}"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True)
        assert done.returncode == -31, crime  # SIGSYS


def test_operators_in_place_import_nothing():
    """torch's own shape functions of these import a whole algebra system, which takes longer than compiling."""
    program = """
import sys, torch, braze

def f(x, y):
    x = x * 1
    x.add_(y); x.mul_(y); x.sub_(1); x.div_(2.0); x.copy_(y); x.masked_fill_(y > 0, 1.0); x.addcmul_(y, y)
    return x

before = set(sys.modules)
x, y = torch.ones(3, 3), torch.arange(9.0).view(3, 3)
assert torch.equal(braze.compile(f)(x, y), f(x, y))
assert braze.compilations() == 1
print(sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "sympy" not in done.stdout

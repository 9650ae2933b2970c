"""Objects, references and memory that stay after many calls."""

import pathlib
import subprocess
import sys

LEAK_CHECK = pathlib.Path(__file__).parents[2] / "tools" / "leak_check.py"


def test_nothing_stays():
    done = subprocess.run([sys.executable, LEAK_CHECK], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "call with everything        ok" in done.stdout

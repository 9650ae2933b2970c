"""A part of the random programs; `make fuzz` runs many more."""

import os
import subprocess
import sys
from pathlib import Path

COUNT = 500


def test_random_programs_behave_as_in_eager():
    seed = int(os.environ.get("BRAZE_FUZZ_SEED", 0))
    command = [sys.executable, str(Path(__file__).parent), "--count", str(COUNT), "--seed", str(seed)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, f"seed {seed}:\n{result.stdout[-6000:]}{result.stderr[-2000:]}"

"""The end of the interpreter: nothing of it is used afterwards."""

import subprocess
import sys

import pytest

PROGRAM = """
import torch
import braze

{before}
compiled = braze.compile(lambda x: (x * 2).relu())
torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
"""


@pytest.mark.parametrize(
    "before",
    [
        "braze.config.dump = lambda stage, text: None",
        "seen = []; braze._C.set_logger(lambda kind, message, data: seen.append(message))",
        "import atexit; atexit.register(lambda: compiled(torch.ones(5)))",
    ],
)
def test_ends_while_callables_of_the_program_are_set(before):
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(before=before)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")

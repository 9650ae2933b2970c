"""A part of CPython's own test-suite, as `make cpython` runs the whole list: no outcome may differ from the plain run."""

import pathlib
import subprocess
import sys

import modules
import pytest
import worker

HERE = pathlib.Path(__file__).resolve().parent
PARTS = {
    "loop": modules.PART_INTERPRETED,
    "handover": modules.PART_INTERPRETED,
    "compiled": modules.PART_COMPILED,
}


@pytest.mark.parametrize("mode", list(PARTS))
def test_outcomes_are_those_of_the_plain_run(mode, tmp_path):
    command = [sys.executable, str(HERE / "run.py"), "--mode", mode, "--out", str(tmp_path), *PARTS[mode]]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]


def test_expected_differences_have_a_reason():
    for text in (HERE / "expected.txt").read_text(encoding="utf-8").splitlines():
        if text and not text.startswith("#"):
            mode, pattern, reason = text.split(maxsplit=2)
            assert set(mode.split(",")) <= {"loop", "handover", "compiled"} and "test" in pattern and len(reason) > 10


def test_an_error_is_shown_in_a_few_words():
    try:
        raise KeyError("key")
    except KeyError:
        assert worker.shown(sys.exc_info()).startswith("KeyError: 'key' [test_cpython.py:")

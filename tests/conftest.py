"""Each test starts with nothing compiled; an internal error that a test doesn't provoke on purpose fails it. A tensor of a
trace that outlives it is one (also in the processes that tests start)."""

import logging
import os

import pytest

os.environ.setdefault("BRAZE_CHECK_FAKES", "1")

# Tests of a layer below the Python package work without it.
WHOLE = ("e2e", "errors", "regress")


def pytest_configure(config):
    config.addinivalue_line("markers", "internal_error: the test provokes internal errors on purpose")


class _Collect(logging.Handler):
    def __init__(self):
        super().__init__(logging.DEBUG)
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


@pytest.fixture(autouse=True)
def fresh_state(request):
    """Forgets compiled code, and watches for internal errors."""
    if not any(part in WHOLE for part in request.path.parts):
        yield
        return
    import torch

    import braze

    braze.reset()
    torch.manual_seed(0)
    log = logging.getLogger("braze.internal_errors")
    handler = _Collect()
    log.addHandler(handler)
    yield
    log.removeHandler(handler)
    if not request.node.get_closest_marker("internal_error"):
        assert handler.messages == []

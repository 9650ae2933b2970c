import pytest
from bridge_support import Captured, bridge


@pytest.fixture
def breaks():
    """Expects a graph break with this id."""

    def expect(break_id, fn, *args):
        with pytest.raises(bridge.GraphBreak) as caught:
            Captured(fn, *args)
        assert caught.value.args[0] == break_id, caught.value.args
        return caught.value.args[1]

    return expect

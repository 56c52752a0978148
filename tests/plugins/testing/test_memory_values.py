"""The backend in memory."""

import pytest

from headrace.plugins.stores.contract import StoreUnavailableError
from headrace.plugins.stores.key_values import Key
from headrace.plugins.testing import KeyValueSuite
from headrace.plugins.testing.key_value_suite import PLAIN, Open
from headrace.plugins.testing.memory_values import Memory, MemoryConfig, MemoryValues


class TestMemoryValues(KeyValueSuite):
    """The backend in memory passes the suite."""

    @pytest.fixture
    def opened(self) -> Open:
        """Return what connects to a memory of this test."""
        memory = Memory()
        return lambda: MemoryValues(memory)


def test_a_memory_has_a_name(request: pytest.FixtureRequest) -> None:
    """Connections that name the same memory share its rows."""
    name = request.node.nodeid
    first, second = (MemoryValues.open(MemoryConfig(name=name)) for _ in range(2))
    first.put({Key(PLAIN, "a"): b"1"})

    assert [Key(PLAIN, "a")] == list(second.scan([PLAIN]))


def test_a_memory_that_is_away_does_not_answer() -> None:
    """Every call says so."""
    memory = Memory(away=True)
    with pytest.raises(StoreUnavailableError, match="is away"):
        MemoryValues(memory).read([])

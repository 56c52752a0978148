"""The store in Cassandra over a node that decides conditions: what every store must do."""

from collections.abc import Callable

import pytest

from headrace.connector.stores import QUARANTINE_BYTES_MAX
from headrace.connector.stores.cassandra.store import CassandraStore
from headrace.connector.stores.cassandra.values import CassandraValues
from helpers.stores.drivers import KeyedDriver
from helpers.stores.store_suite import StoreSuite


class CassandraDriver(KeyedDriver):
    """A job in tables that begin without rows."""

    def open(self, job: str, *, quarantine_bytes_max: int = QUARANTINE_BYTES_MAX) -> CassandraStore:
        """Open another store over them."""
        values = self._values()
        assert isinstance(values, CassandraValues)
        return CassandraStore(values, job, quarantine_bytes_max=quarantine_bytes_max)


class TestCassandraStore(StoreSuite):
    """The Cassandra store passes the suite."""

    @pytest.fixture
    def driver(self, one_session: Callable[[], CassandraValues]) -> CassandraDriver:
        """Return a driver."""
        return CassandraDriver(one_session, "job")

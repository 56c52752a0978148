"""The store in Cassandra over a node that decides conditions: what every store must do."""

from collections.abc import Callable

import pytest

from headrace.connector.stores import QUARANTINE_BYTES_MAX, StoreUnavailableError
from headrace.connector.stores.cassandra.store import CassandraStore
from headrace.connector.stores.cassandra.values import CassandraValues
from headrace.plugins import LeaseLostError
from helpers.servers.cql_tables import CqlTables
from helpers.stores.drivers import KeyedDriver
from helpers.stores.store_driver import claim, commit, commit_of, registered
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


def test_a_commit_that_was_not_answered_is_read_back(
    one_session: Callable[[], CassandraValues], tables: CqlTables
) -> None:
    """It is done if it was applied, and can be repeated if it was not (line 30)."""
    store = registered(CassandraDriver(one_session, "job"))
    token = claim(store)
    tables.unanswered = [True]
    commit(store, commit_of(token, seq=1))
    tables.unanswered = [False]
    second = commit_of(token, previous=1, seq=2)
    with pytest.raises(StoreUnavailableError):
        store.commit([second])
    assert [1] == [state.seq for state in store.states() if state.split == "a"]
    commit(store, second)

    assert [2] == [state.seq for state in store.states() if state.split == "a"]


def test_a_commit_that_was_not_answered_is_not_that_of_another(
    one_session: Callable[[], CassandraValues], tables: CqlTables
) -> None:
    """What is read back was written by the owner that claimed meanwhile (I2)."""
    driver = CassandraDriver(one_session, "job")
    store, other = registered(driver), driver.open("job")
    old = claim(store)
    new = claim(other, "w2")
    tables.unanswered = [False]
    refused = store.commit([commit_of(old)])["a"]

    assert isinstance(refused, LeaseLostError)
    commit(other, commit_of(new, worker="w2"))

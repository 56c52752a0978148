"""A node with the store's tables, and one session that the tests of a module share."""

from collections.abc import Callable, Iterator

import pytest

from headrace.connector.stores.cassandra.session import CassandraSession, CassandraStoreConfig
from headrace.connector.stores.cassandra.values import CassandraValues
from helpers.servers.cql_node import CqlNode
from helpers.servers.cql_tables import CqlTables
from helpers.stores.drivers import MADE


class SharedValues(CassandraValues):
    """Leaves the session to the others: to connect takes longer than a test."""

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture(scope="module")
def tables() -> CqlTables:
    """Return the tables of the node."""
    return CqlTables()


@pytest.fixture(scope="module")
def _session(tables: CqlTables) -> Iterator[CassandraSession]:
    with CqlNode(answers=MADE, tables=tables) as node:
        config = CassandraStoreConfig(contact_points=(node.point,))
        session = CassandraSession(config, create=False)
        yield session
        session.close()


@pytest.fixture
def one_session(_session: CassandraSession, tables: CqlTables) -> Callable[[], CassandraValues]:
    """Return what connects to tables without rows."""
    tables.clear()
    return lambda: SharedValues(_session)

"""Exactly once with a store that machines share: copies of what the sink keeps, on a real node."""

import contextlib
import uuid
from collections.abc import Iterator

import pytest
from cassandra.cluster import Session
from servers.cassandra import Cassandra
from table_driver import CassandraDriver

from copy_suite import CopyDriver, CopySuite, Keeper
from headrace.connector.stores.cassandra import CassandraStore
from headrace.connector.stores.cassandra_session import CassandraStoreConfig
from headrace.connector.stores.cassandra_state import lease_key
from headrace.plugins.testing import StoreSuite

pytestmark = pytest.mark.real

KEYSPACE = "Copied"


class TableKeeper(Keeper):
    """A job of its own in a keyspace for all tests."""

    kind = CassandraStore

    def __init__(self, node: Cassandra, session: Session) -> None:
        """Make the tables."""
        super().__init__()
        self.config = CassandraStoreConfig(
            contact_points=(f"{node.host}:{node.port}",), keyspace=KEYSPACE, replication_factor=1
        )
        self.job = f"job-{uuid.uuid4()}"
        self.plain("any").close()
        self._session = session

    def forget_commits(self, *, tokens: bool = False) -> None:
        """Change it as it is written: on condition."""
        job, bucket, _ = lease_key(self.job, "a")
        self._change("heads SET seq = 0, head = null, chunks = '{}'", "job = %s", job)
        if tokens:
            self._change("heads SET fence = 0", "job = %s", job)
            self._change("leases SET fence = 0", "job = %s AND bucket = %s", job, bucket)

    def _change(self, what: str, where: str, *values: object) -> None:
        self._session.set_keyspace(KEYSPACE)
        self._session.execute(f"UPDATE {what} WHERE {where} AND split = 'a' IF EXISTS", values)


@pytest.fixture
def keeper(node: Cassandra, session: Session) -> Iterator[TableKeeper]:
    """Return a keeper of a new job."""
    with contextlib.closing(TableKeeper(node, session)) as made:
        yield made


class TestSharedTransactionalStore(StoreSuite):
    """It is a store like any other."""

    @pytest.fixture
    def driver(self, keeper: TableKeeper, session: Session) -> CopyDriver:
        """Return a driver of a new job."""
        return CopyDriver(keeper, CassandraDriver(keeper.config, session))


class TestCopiesInTables(CopySuite):
    """Its copies are rows of the store's tables."""

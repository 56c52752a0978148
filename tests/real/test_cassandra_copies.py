"""Exactly once with a store that machines share: copies of what the sink keeps, on a real node."""

import contextlib
import uuid
from collections.abc import Iterator

import pytest
from cassandra.cluster import Session
from servers.cassandra import Cassandra

from copy_suite import CopySuite, Keeper
from headrace.connector.runtime.writers import Writers
from headrace.connector.stores import QUARANTINE_BYTES_MAX
from headrace.connector.stores.cassandra import CassandraStore
from headrace.connector.stores.cassandra_session import CassandraStoreConfig
from headrace.connector.stores.cassandra_state import lease_key
from headrace.connector.stores.transactional import TransactionalStore
from headrace.plugins.testing import StoreDriver, StoreSuite
from headrace.plugins.testing.doubles import ChaosConfig, DrivenClock, context
from transactions import TransactionalSink

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
        self._change("heads SET seq = 0, head = null, chunks = '{}'", "job = %s", self.job)
        if tokens:
            self._change("heads SET fence = 0", "job = %s", self.job)
            job, bucket, _ = lease_key(self.job, "a")
            self._change("leases SET fence = 0", "job = %s AND bucket = %s", job, bucket)

    def remove(self, what: str, split: str) -> None:
        """Delete rows."""
        job, bucket, _ = lease_key(self.job, split)
        if what == "position":
            self._change("heads SET head = null", "job = %s", job, split=split)
        elif what == "head":
            self._run("DELETE FROM heads WHERE job = %s AND split = %s IF EXISTS", job, split)
        else:
            lease = "DELETE FROM leases WHERE job = %s AND bucket = %s AND split = %s IF EXISTS"
            self._run(lease, job, bucket, split)

    def set_head_token(self, split: str, token: int) -> None:
        """Set it as a claim does."""
        self._change(f"heads SET fence = {token}", "job = %s", self.job, split=split)

    def _change(self, what: str, where: str, *values: object, split: str = "a") -> None:
        self._run(f"UPDATE {what} WHERE {where} AND split = %s IF EXISTS", *values, split)

    def _run(self, statement: str, *values: object) -> None:
        self._session.execute(f'USE "{KEYSPACE}"')
        self._session.execute(statement, values)


class SharedDriver(StoreDriver):
    """The tables, and a sink that keeps the states."""

    def __init__(self, keeper: TableKeeper) -> None:
        """Begin with an empty sink."""
        self.job = keeper.job
        self._keeper = keeper
        self._sinks: dict[str, TransactionalSink] = {}

    def open(
        self, job: str, *, quarantine_bytes_max: int = QUARANTINE_BYTES_MAX
    ) -> TransactionalStore:
        """Connect to both once more; jobs are apart in the sink, too."""
        clock = DrivenClock()
        sink = self._sinks.setdefault(job, TransactionalSink(ChaosConfig(), context()))
        writers = Writers(sink, clock)
        return self._keeper.transactional(
            job, writers.claimed, clock, quarantine_bytes_max=quarantine_bytes_max
        )

    def set_head_token(self, split: str, token: int) -> None:
        """Set it in the table."""
        self._keeper.set_head_token(split, token)

    def remove(self, what: str, split: str) -> None:
        """Remove it from the sink, which has the chunks; or from the tables."""
        if what != "chunks":
            self._keeper.remove(what, split)
            return
        entries = self._sinks[self.job].entries[split]
        for name in [name for name in entries if name.startswith("chunk/")]:
            del entries[name]


@pytest.fixture
def keeper(node: Cassandra, session: Session) -> Iterator[TableKeeper]:
    """Return a keeper of a new job."""
    with contextlib.closing(TableKeeper(node, session)) as made:
        yield made


class TestSharedTransactionalStore(StoreSuite):
    """It is a store like any other."""

    @pytest.fixture
    def driver(self, keeper: TableKeeper) -> SharedDriver:
        """Return a driver of a new job."""
        return SharedDriver(keeper)


class TestCopiesInTables(CopySuite):
    """Its copies are rows of the store's tables."""

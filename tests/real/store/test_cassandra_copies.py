"""Exactly once with a store that machines share: copies of what the sink keeps, on a real node."""

import contextlib
import uuid
from collections.abc import Iterator

import msgspec
import pytest

from headrace.connector.stores import LeaseRow
from headrace.connector.stores.cassandra.session import CassandraStoreConfig
from headrace.connector.stores.cassandra.store import CassandraStore
from headrace.connector.stores.cassandra.values import CassandraValues
from headrace.connector.stores.keyed.heads import Heads
from headrace.connector.stores.keyed.losses import Losses
from headrace.connector.stores.keyed.rows import JobRows, pack
from headrace.plugins.stores.key_values import Change
from helpers.stores.copy_suite import Copies, CopyDriver, CopySuite
from helpers.stores.store_suite import StoreSuite
from real.servers.cassandra import Cassandra
from real.store.table_driver import CassandraDriver

pytestmark = pytest.mark.real

KEYSPACE = "Copied"


class TableCopies(Copies):
    """A job of its own in a keyspace for all tests."""

    kind = CassandraStore

    def __init__(self, node: Cassandra) -> None:
        """Make the tables."""
        super().__init__()
        self.config = CassandraStoreConfig(
            contact_points=(f"{node.host}:{node.port}",), keyspace=KEYSPACE, replication_factor=1
        )
        self.job = f"job-{uuid.uuid4()}"
        self.plain("any").close()

    def forget_commits(self, *, tokens: bool = False) -> None:
        """Change it as it is written: on condition."""
        token = {"token": 0} if tokens else {}
        with contextlib.closing(CassandraValues.open(self.config)) as values:
            rows = JobRows(values, self.job)
            heads = Heads(rows, Losses(rows, bytes_max=0), lambda: None)
            heads.update("a", lambda _: {"seq": 0, "position": None, "chunks": None, **token})
            if tokens:
                key = rows.lease("a")
                entry = values.read([key])[key]
                lease = msgspec.structs.replace(rows.unpack(LeaseRow, key, entry), token=0)
                change = Change(
                    partition=key.partition,
                    expected={key.name: entry.stamp},
                    rows={key.name: pack(lease)},
                )
                assert [True] == list(values.change([change]))


@pytest.fixture
def copies(node: Cassandra) -> Iterator[TableCopies]:
    """Return a `TableCopies` of a new job."""
    with contextlib.closing(TableCopies(node)) as made:
        yield made


class TestSharedTransactionalStore(StoreSuite):
    """It is a store like any other."""

    @pytest.fixture
    def driver(self, copies: TableCopies) -> CopyDriver:
        """Return a driver of a new job."""
        return CopyDriver(copies, CassandraDriver(copies.config))


class TestCopiesInTables(CopySuite):
    """Its copies are rows of the store's tables."""

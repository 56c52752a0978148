"""What the suite of stores is told about the one in Cassandra."""

import uuid

from cassandra.cluster import Session

from headrace.connector.stores import QUARANTINE_BYTES_MAX
from headrace.connector.stores.cassandra import CassandraStore
from headrace.connector.stores.cassandra_session import CassandraStoreConfig
from headrace.connector.stores.cassandra_state import lease_key
from headrace.plugins.notes import Notes
from headrace.plugins.testing import StoreDriver


class CassandraDriver(StoreDriver):
    """A job of its own in a keyspace for all tests, and a session to spoil it with."""

    def __init__(self, config: CassandraStoreConfig, session: Session) -> None:
        """Choose a job that is not there yet."""
        self.config = config
        self.job = f"job-{uuid.uuid4()}"
        self._session = session

    def open(self, job: str, *, quarantine_bytes_max: int = QUARANTINE_BYTES_MAX) -> CassandraStore:
        """Connect once more."""
        return CassandraStore.open_job(self.config, job, quarantine_bytes_max=quarantine_bytes_max)

    def open_notes(self) -> Notes:
        """Connect once more."""
        return CassandraStore.open_notes(self.config)

    def set_head_token(self, split: str, token: int) -> None:
        """Set it as a claim does."""
        self._spoil("UPDATE heads SET fence = %s WHERE job = %s AND split = %s", token, split=split)

    def remove(self, what: str, split: str) -> None:
        """Delete rows: what was written on condition is removed on condition."""
        if what == "chunks":
            self._session.set_keyspace(self.config.keyspace)
            chunks = "DELETE FROM chunks WHERE job = %s AND split = %s"
            self._session.execute(chunks, (self.job, split))
        elif what == "head":
            self._spoil("DELETE FROM heads WHERE job = %s AND split = %s", split=split)
        elif what == "position":
            self._spoil("UPDATE heads SET head = null WHERE job = %s AND split = %s", split=split)
        else:
            _, bucket, _ = lease_key(self.job, split)
            lease = "DELETE FROM leases WHERE bucket = %s AND job = %s AND split = %s"
            self._spoil(lease, bucket, split=split)

    def _spoil(self, statement: str, *values: int, split: str) -> None:
        self._session.set_keyspace(self.config.keyspace)
        self._session.execute(f"{statement} IF EXISTS", (*values, self.job, split))

"""What the suite of stores needs to know about the one in Cassandra."""

import uuid
from pathlib import Path

from headrace.connector.stores import QUARANTINE_BYTES_MAX
from headrace.connector.stores.cassandra.session import CassandraSession, CassandraStoreConfig
from headrace.connector.stores.cassandra.store import CassandraStore
from headrace.connector.stores.cassandra.values import CassandraValues
from headrace.connector.stores.note_copy import NoteCopy
from helpers.stores.drivers import KeyedDriver


class CassandraDriver(KeyedDriver):
    """A job of its own in a keyspace for all tests, and a session to spoil it with."""

    def __init__(self, config: CassandraStoreConfig) -> None:
        """Choose a job that does not exist yet."""
        self.config = config
        super().__init__(self._connected, f"job-{uuid.uuid4()}")

    def _connected(self) -> CassandraValues:
        return CassandraValues(CassandraSession(self.config, create=True))

    def open(self, job: str, *, quarantine_bytes_max: int = QUARANTINE_BYTES_MAX) -> CassandraStore:
        """Connect again."""
        return CassandraStore.open_job(self.config, job, quarantine_bytes_max=quarantine_bytes_max)

    def open_notes(self) -> NoteCopy:
        """Connect again."""
        return CassandraStore.open_notes(self.config, beside=Path())

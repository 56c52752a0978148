"""Drivers of the suite of stores for a file and for any backend, and nodes for other tests."""

import struct
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from headrace.connector.stores import ALL_JOBS, QUARANTINE_BYTES_MAX
from headrace.connector.stores.cassandra import session as cassandra_session
from headrace.connector.stores.cassandra.session import TABLES
from headrace.connector.stores.keyed.heads import Heads
from headrace.connector.stores.keyed.losses import Losses
from headrace.connector.stores.keyed.rows import JobRows
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.sqlite.store import SqliteConfig, SqliteStore, SqliteValues
from headrace.plugins.stores.key_values import Change, Key, KeyValues
from helpers.servers.cql_node import TEXT, TEXT_MAP, pieces, rows
from helpers.stores.store_driver import StoreDriver

VERSION: Final = "SELECT config FROM configs"
_MADE: Final = pieces(b"version", b"%d" % cassandra_session.VERSION)
MADE: Final = {
    "SELECT table_name": rows(
        {"table_name": TEXT},
        *([name.encode()] for name in TABLES),
    ),
    VERSION: rows(
        {"config": TEXT_MAP},
        [struct.pack(">i", 1) + _MADE],
    ),
}


class KeyedDriver(StoreDriver):
    """Any backend, damaged over a separate connection."""

    def __init__(self, values: Callable[[], KeyValues], job: str) -> None:
        """*values* opens another connection."""
        self.job = job
        self._values = values

    def open(self, job: str, *, quarantine_bytes_max: int = QUARANTINE_BYTES_MAX) -> Store:
        """Open another connection to the store."""
        return Store(self._values(), job, quarantine_bytes_max=quarantine_bytes_max)

    def open_notes(self) -> NoteCopy:
        """Open another connection to the notes."""
        values = self._values()
        return NoteCopy(values, ALL_JOBS, partial(Store, values), beside=Path())

    def set_head_token(self, split: str, token: int) -> None:
        """Replace the token in the row."""
        self._replace(split, token=token)

    def remove(self, what: str, split: str) -> None:
        """Remove rows, or a field of the head."""
        with closing(self._values()) as values:
            rows = JobRows(values, self.job)
            if what == "position":
                self._replace(split, position=None)
            elif what == "chunks":
                chunks = rows.chunks(split)
                values.put({Key(chunks, name): None for name in values.names(chunks)})
            else:
                key = rows.lease(split) if what == "lease" else rows.head(split)
                stamp = values.read([key])[key].stamp
                gone = Change(
                    partition=key.partition, expected={key.name: stamp}, rows={key.name: None}
                )
                assert [True] == list(values.change([gone]))

    def _replace(self, split: str, **fields: int | None) -> None:
        with closing(self._values()) as values:
            rows = JobRows(values, self.job)
            heads = Heads(rows, Losses(rows, bytes_max=0), lambda: None)
            heads.update(split, lambda _: fields)


class SqliteDriver(KeyedDriver):
    """A state file."""

    def __init__(self, path: Path) -> None:
        """Start without an open store."""
        self.config = SqliteConfig(path=str(path))
        super().__init__(lambda: SqliteValues.open(self.config), "job")

    def open(self, job: str, *, quarantine_bytes_max: int = QUARANTINE_BYTES_MAX) -> SqliteStore:
        """Open another connection to the file."""
        return SqliteStore.open_job(self.config, job, quarantine_bytes_max=quarantine_bytes_max)

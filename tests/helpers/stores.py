"""What the suite of stores is told about the one in a file, and what a node knows of another."""

import sqlite3
import struct
from pathlib import Path
from typing import Final

from cql_node import TEXT, TEXT_MAP, pieces, rows
from headrace.connector.stores import QUARANTINE_BYTES_MAX
from headrace.connector.stores.cassandra_session import ADDED, TABLES
from headrace.connector.stores.sqlite import SqliteConfig, SqliteStore
from headrace.plugins.testing import StoreDriver

VERSION: Final = "SELECT config FROM configs"
MADE: Final = {
    "SELECT table_name": rows(
        {"table_name": TEXT, "column_name": TEXT},
        *([name.encode(), b"job"] for name in TABLES),
        *([table.encode(), column.encode()] for table, column in ADDED),
    ),
    VERSION: rows({"config": TEXT_MAP}, [struct.pack(">i", 1) + pieces(b"version", b"1")]),
}


class SqliteDriver(StoreDriver):
    """A file, and a connection of its own to spoil it with."""

    job = "job"

    def __init__(self, path: Path) -> None:
        """Look at nothing yet."""
        self.path = path

    def open(self, job: str, *, quarantine_bytes_max: int = QUARANTINE_BYTES_MAX) -> SqliteStore:
        """Open the file once more."""
        config = SqliteConfig(path=str(self.path))
        return SqliteStore.open_job(config, job, quarantine_bytes_max=quarantine_bytes_max)

    def set_head_token(self, split: str, token: int) -> None:
        """Set it with SQL."""
        self._execute("UPDATE heads SET token = ? WHERE split = ?", token, split)

    def remove(self, what: str, split: str) -> None:
        """Delete rows with SQL."""
        if what == "position":
            self._execute("UPDATE heads SET head = NULL WHERE split = ?", split)
            return
        table = {"lease": "leases", "head": "heads"}.get(what, what)
        self._execute(f"DELETE FROM {table} WHERE split = ?", split)  # noqa: S608 (names from above)

    def _execute(self, statement: str, *values: int | str) -> None:
        raw = sqlite3.connect(self.path)
        raw.execute(statement, values)
        raw.commit()
        raw.close()

"""What the suite of stores is told about the one in a file."""

import sqlite3
from pathlib import Path

from headrace.connector.stores import QUARANTINE_BYTES_MAX
from headrace.connector.stores.sqlite import SqliteConfig, SqliteStore
from headrace.plugins.testing import StoreDriver


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
        table = {"lease": "leases", "head": "heads"}.get(what, what)
        self._execute(f"DELETE FROM {table} WHERE split = ?", split)  # noqa: S608 (names from above)

    def _execute(self, statement: str, *values: int | str) -> None:
        raw = sqlite3.connect(self.path)
        raw.execute(statement, values)
        raw.commit()
        raw.close()

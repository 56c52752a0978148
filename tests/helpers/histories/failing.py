"""The file of a history whose disk fails at a statement."""

import sqlite3
from typing import Any

from headrace.connector.history.store.file import HistoryFile
from headrace.plugins import AbortedError, TransactionalWriter
from helpers.histories.kept import FOREVER_MS


class Failing:
    """Fails at the statement of a number, as SQLite does when the disk is full."""

    def __init__(self, file: HistoryFile, at: int) -> None:
        """Stand before *file*'s connection."""
        self._run, self._run_many = file.run, file.run_many
        self.left = at
        file.run, file.run_many = self.run, self.run_many

    def run(self, *given: Any) -> Any:  # noqa: ANN401 (as sqlite3 has it)
        """Run a statement, or fail."""
        self._count(given[0])
        return self._run(*given)

    def run_many(self, *given: Any) -> Any:  # noqa: ANN401 (as sqlite3 has it)
        """Run a statement, or fail."""
        self._count(given[0])
        return self._run_many(*given)

    def _count(self, statement: str) -> None:
        if statement == "ROLLBACK":
            return
        self.left -= 1
        if not self.left:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error


def committed(writer: TransactionalWriter) -> bool:
    """Commit; return False if it was aborted."""
    try:
        return writer.commit({"head": b"1"}, FOREVER_MS)
    except AbortedError:
        return False

"""The store of a history which fails at a statement, or stops before what decides."""

import sqlite3
from collections.abc import Callable
from typing import Any

from headrace.connector.history.sink import HistoryWriter
from headrace.connector.history.store.file import HistoryFile
from headrace.connector.history.store.tables import HistoryTables
from headrace.plugins import AbortedError, FencedError, TransactionalWriter
from helpers.histories import places
from helpers.histories.kept import FOREVER_MS
from helpers.histories.places import TablePlaces


class Failing:
    """Fails at the statement of a number, as SQLite does when the disk is full, or a node."""

    def __init__(self, writer: HistoryWriter, at: int) -> None:
        """Stand before *writer*'s connection."""
        self.left = at
        store = writer._file  # noqa: SLF001 (its store)
        if isinstance(store, HistoryFile):
            self._run, self._run_many = store.run, store.run_many
            store.run, store.run_many = self.run, self.run_many
        else:
            assert isinstance(places.chosen, TablePlaces)
            places.chosen.tables.refused_at = at
            places.chosen.tables.is_away = True

    def heal(self) -> None:
        """Fail no more."""
        self.left = -1
        if isinstance(places.chosen, TablePlaces):
            places.chosen.tables.refused_at = 0
            places.chosen.tables.is_away = False

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
    """Commit; return False if it was aborted, or its outcome is not known."""
    try:
        return writer.commit({"head": b"1"}, FOREVER_MS)
    except (AbortedError, FencedError):
        return False


def call_before_decision(writer: HistoryWriter, call: Callable[[], None]) -> None:
    """Have the next commits of *writer* call it when all is written, and nothing decided."""
    store = writer._file  # noqa: SLF001 (its store)
    if isinstance(store, HistoryFile):
        run = store.run

        def run_or_call(*given: Any) -> Any:  # noqa: ANN401 (as sqlite3 has it)
            if given[0] == "COMMIT":
                call()
            return run(*given)

        store.run = run_or_call
        return
    assert isinstance(store, HistoryTables)
    deciding = store._deciding  # noqa: SLF001 (what decides)
    decide = deciding.decide

    def call_and_decide(*given: Any) -> None:  # noqa: ANN401 (as it takes them)
        call()
        decide(*given)

    deciding.decide = call_and_decide  # type: ignore[method-assign, assignment]

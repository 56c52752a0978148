"""The store of a history which fails at a statement, or stops before what decides."""

import sqlite3
from collections.abc import Callable
from typing import Any

from headrace.connector.history.store.contract import HistoryStore
from headrace.connector.history.store.file import HistoryFile
from headrace.connector.history.store.group import HistoryGroup
from headrace.connector.history.store.tables import HistoryTables
from headrace.connector.history.writing.writer import HistoryWriter
from headrace.plugins import AbortedError, FencedError, TransactionalWriter
from helpers.histories import places
from helpers.histories.kept import FOREVER_MS
from helpers.histories.places import TablePlaces

Run = Callable[..., Any]  # As sqlite3 has it.


class Failing:
    """Fails at the statement of a number, as SQLite does when the disk is full, or a node."""

    def __init__(self, writer: HistoryWriter, at: int) -> None:
        """Stand before *writer*'s connection."""
        self.left = at
        store = writer._file  # noqa: SLF001 (its store)
        files = files_of(store)
        for file in files:
            file.run, file.run_many = self._counted(file.run), self._counted(file.run_many)
        if not files:
            assert isinstance(places.chosen, TablePlaces)
            places.chosen.tables.refused_at = at
            places.chosen.tables.is_away = True

    def heal(self) -> None:
        """Fail no more."""
        self.left = -1
        if isinstance(places.chosen, TablePlaces):
            places.chosen.tables.refused_at = 0
            places.chosen.tables.is_away = False

    def _counted(self, run: Run) -> Run:
        """Return what runs a statement, or fails."""

        def counted(*given: Any) -> Any:  # noqa: ANN401 (as sqlite3 has it)
            self._count(given[0])
            return run(*given)

        return counted

    def _count(self, statement: str) -> None:
        if statement == "ROLLBACK":
            return
        self.left -= 1
        if not self.left:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error


def files_of(store: HistoryStore) -> list[HistoryFile]:
    """Return the files of a history, the head first; none of one in tables."""
    if isinstance(store, HistoryGroup):
        return [store._head, *store.files]  # noqa: SLF001 (its disk)
    return [store] if isinstance(store, HistoryFile) else []


def committed(writer: TransactionalWriter) -> bool:
    """Commit; return False if it was aborted, or its outcome is not known."""
    try:
        return writer.commit({"head": b"1"}, FOREVER_MS)
    except (AbortedError, FencedError):
        return False


def call_before_decision(writer: HistoryWriter, call: Callable[[], None]) -> None:
    """Have the next commits of *writer* call it when all is written, and nothing decided."""
    store = writer._file  # noqa: SLF001 (its store)
    if files := files_of(store):
        run = files[0].run

        def run_or_call(*given: Any) -> Any:  # noqa: ANN401 (as sqlite3 has it)
            if given[0] == "COMMIT":
                call()
            return run(*given)

        files[0].run = run_or_call
        return
    assert isinstance(store, HistoryTables)
    deciding = store._deciding  # noqa: SLF001 (what decides)
    decide = deciding.decide

    def call_and_decide(*given: Any) -> None:  # noqa: ANN401 (as it takes them)
        call()
        decide(*given)

    deciding.decide = call_and_decide  # type: ignore[method-assign, assignment]

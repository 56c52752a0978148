"""Tables that a source waits for, while it reads the others: told to the store and the log.

Each has a row beside those of the splits, by which the status of its data source is known.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from headrace.connector.states import Observed
from headrace.connector.stores import Seen, Store
from headrace.plugins import ConfigError, HeadraceError, Problem, Source

ROW_MARK: Final = "~table "  # Before a table's name, where rows of splits have the split's.


class Lacking:
    """What one run has told of it. For the control thread."""

    def __init__(
        self, source: Source, worker: str, generation: int, log: structlog.stdlib.BoundLogger
    ) -> None:
        """Have told nothing yet."""
        self._source = source
        self._worker = worker
        self._generation = generation
        self._log = log
        self._told: Mapping[str, Problem] | None = None

    @staticmethod
    def errors(source: Source) -> Sequence[HeadraceError]:
        """Return why a run that was to take all there is did not: each table that lacks."""
        return [ConfigError([problem]) for problem in source.lacking().values()]

    def look(self, store: Store) -> None:
        """Tell what changed: once of each table, also of one of which a run before this told."""
        now = self._source.lacking()
        if now == self._told:
            return
        told = self._told or {}
        shown = lacking_tables(store.seen())  # Perhaps by a run before this one.
        rows = [self._row(table, Observed.FAILED, _reason(why)) for table, why in now.items()]
        gone = [self._row(table, Observed.UNASSIGNED, "") for table in shown if table not in now]
        store.see(rows + gone)
        for table in sorted(now.keys() - told):
            why = now[table]
            self._log.warning("table_lacking", table=table, error=why.message, hint=why.hint)
        for table in sorted(told.keys() - now):
            self._log.info("table_found", table=table)
        self._told = now

    def _row(self, table: str, state: Observed, reason: str) -> Seen:
        return Seen(
            split=f"{ROW_MARK}{table}",
            state=state,
            generation=self._generation,
            worker=self._worker,
            reason=reason,
        )


def lacking_tables(rows: Mapping[str, Seen]) -> Mapping[str, str]:
    """Return the tables of which *rows* say that they lack, and why."""
    return {
        split.removeprefix(ROW_MARK): row.reason
        for split, row in rows.items()
        if split.startswith(ROW_MARK) and row.state is Observed.FAILED
    }


def _reason(problem: Problem) -> str:
    return f"{ConfigError.code}: {problem.message}; {problem.hint}"

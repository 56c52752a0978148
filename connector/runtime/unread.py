"""Reports parts of a source that cannot be read, such as a node's log, and missing tables.

The store has a row for each beside those of the splits. The row of a part is written again while it
cannot be read: several workers write rows of the same parts, and a row is valid as long as its
worker lives. The row of a table gives the status of its data source.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from headrace.connector.foundation.states import Observed
from headrace.connector.runtime.splits.watch import REFRESH_MS, PartRows
from headrace.connector.stores import Seen
from headrace.connector.stores.keyed.store import Store
from headrace.plugins import ConfigError, HeadraceError, PartialReading, Problem, Source, Tables

# Prefixes of the name of a part or a table, where rows of splits have the split's name.
PART_MARK: Final = "~unread "
TABLE_MARK: Final = "~table "


@dataclass(frozen=True, slots=True)
class UnreadPart:
    """A part that cannot be read since `since_ms`, and the consequences."""

    name: str
    since_ms: int
    reason: str


class Unread:
    """Reports unreadable parts during one run. For the control thread."""

    def __init__(self, source: Source, worker: str, generation: int) -> None:
        """Start with nothing reported."""
        self._source = source
        self._rows = PartRows(PART_MARK, generation, worker)
        self._reported: Mapping[str, str] = {}
        self._reported_ms = -REFRESH_MS

    def look(self, store: Store, now_ms: int) -> None:
        """Report changed parts at once, and unchanged ones periodically."""
        source = self._source
        problems = source.unreadable() if isinstance(source, PartialReading) else {}
        now = {part: f"{why.message}; {why.hint}" for part, why in problems.items()}
        if not (now or self._reported):
            return
        if now == self._reported and now_ms - self._reported_ms < REFRESH_MS:
            return
        store.see(self._rows.of(now, Observed.STALLED, before=self._reported))
        self._reported, self._reported_ms = now, now_ms


def unread_errors(source: Source) -> Sequence[HeadraceError]:
    """Return why a run until idle did not read everything: each part that cannot be read."""
    return source.unread() if isinstance(source, PartialReading) else ()


def unread_parts(rows: Mapping[str, Seen], workers: Collection[str]) -> list[UnreadPart]:
    """Return the parts that the live *workers* reported they cannot read."""
    return [
        UnreadPart(split.removeprefix(PART_MARK), row.since_ms, row.reason)
        for split, row in sorted(rows.items())
        if split.startswith(PART_MARK) and row.state is Observed.STALLED and row.worker in workers
    ]


class MissingTables:
    """Reports, during one run, tables that its source waits for. For the control thread."""

    def __init__(
        self, source: Source, worker: str, generation: int, log: structlog.stdlib.BoundLogger
    ) -> None:
        """Start with nothing reported."""
        self._source = source
        self._rows = PartRows(TABLE_MARK, generation, worker)
        self._log = log
        self._reported: Mapping[str, Problem] | None = None

    @staticmethod
    def errors(source: Source) -> Sequence[HeadraceError]:
        """Return why a run until idle did not read everything: each missing table."""
        return [ConfigError([problem]) for problem in _missing_tables(source).values()]

    def look(self, store: Store) -> None:
        """Report changes: each table once, also one that an earlier run reported."""
        now = _missing_tables(self._source)
        if now == self._reported:
            return
        reported = self._reported or {}
        shown = missing_tables_in(store.seen())  # An earlier run may have stored it.
        reasons = {table: _reason(why) for table, why in now.items()}
        store.see(self._rows.of(reasons, Observed.FAILED, before=shown))
        for table in sorted(now.keys() - reported):
            why = now[table]
            self._log.warning("table_missing", table=table, error=why.message, hint=why.hint)
        for table in sorted(reported.keys() - now):
            self._log.info("table_found", table=table)
        self._reported = now


def missing_tables_in(rows: Mapping[str, Seen]) -> Mapping[str, str]:
    """Return the tables that are missing according to *rows*, and why."""
    return {
        split.removeprefix(TABLE_MARK): row.reason
        for split, row in rows.items()
        if split.startswith(TABLE_MARK) and row.state is Observed.FAILED
    }


def _missing_tables(source: Source) -> Mapping[str, Problem]:
    return source.missing_tables() if isinstance(source, Tables) else {}


def _reason(problem: Problem) -> str:
    return f"{ConfigError.code}: {problem.message}; {problem.hint}"

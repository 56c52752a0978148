"""Writes that no commit log has: by the options of a table and of its keyspace. Pure.

Cassandra takes `cdc = true` for all of them, and logs nothing of what it writes elsewhere.
"""

from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from headrace.plugins import Problem, TableWarning
from headrace.sources.cassandra.schema.tables import KeyspaceSchema, TableSchema

COUNTER, ACCORD, DURABLE, TRACKED = "counter", "accord", "durable_writes", "tracked"
# Modes in which ordinary writes are logged, and only transactions go through Accord.
_ORDINARY: Final = frozenset({"unsafe", "unsafe_writes", "test_unsafe", "test_unsafe_writes"})
_OFF, _NONE = "off", "none"
_HINTS: Final = {
    COUNTER: "a log holds the totals of one node, neither what was added nor the count",
    ACCORD: "Cassandra writes them to its accord_journal: set transactional_mode = 'off', and let "
    "the migration end",
    DURABLE: "ALTER KEYSPACE … WITH durable_writes = true",
    TRACKED: "Cassandra writes them to its mutation journal: replication_type = 'untracked'",
}
_WORDS: Final = {
    COUNTER: "holds counters",
    ACCORD: "is transactional: its writes are in no commit log",
    DURABLE: "is in a keyspace with durable_writes = false: its writes are in no commit log",
    TRACKED: "is in a keyspace with replication_type = 'tracked': its writes are in no commit log",
}


class Unlogged(NamedTuple):
    """Why a table cannot be delivered, or, where only a *part* of its writes is missing, wholly."""

    reason: str
    part: bool = False

    @property
    def hint(self) -> str:
        """What can be done about it."""
        return _HINTS[self.reason]

    def problem(self, table: str) -> Problem:
        """Say what is wrong with *table*."""
        return Problem("tables", f"{table} {_WORDS[self.reason]}", self.hint)

    @property
    def event(self) -> str:
        """What a running job logs; also the code of the warning."""
        return "table_incomplete" if self.part else "table_skipped"

    def warning(self, table: str) -> TableWarning:
        """Say what is not delivered of *table*."""
        said = f"{table} {_WORDS[self.reason]}, so nothing of it is delivered"
        if self.part:
            said = f"{table}: a part of its writes is in no commit log, and is not delivered"
        return TableWarning(self.event, f"table {said} ({self.reason})", self.hint)


def unlogged(table: TableSchema, keyspace: KeyspaceSchema | None) -> Unlogged | None:
    """Return what is missing of a table with CDC in commit logs; None if that is nothing."""
    if table.is_counter:
        return Unlogged(COUNTER)
    if keyspace is not None and not keyspace.durable_writes:
        return Unlogged(DURABLE)
    if keyspace is not None and keyspace.is_tracked:
        return Unlogged(TRACKED)
    return _through_accord(table.transactional_mode, table.transactional_migration_from)


def _through_accord(mode: str, migrates_from: str) -> Unlogged | None:
    """Tell by the two options of a table; modes that are not known are taken for whole ones.

    While a table migrates, some of its ranges are written in one way and some in the other.
    """
    modes = {mode or _OFF}
    if migrates_from not in ("", _NONE):
        modes.add(migrates_from)
    if modes == {_OFF}:
        return None
    return Unlogged(ACCORD, part=not modes.isdisjoint(_ORDINARY | {_OFF}))


class Announcer:
    """Reports each table once for what is missing of it. For one thread.

    `skipped` are the tables of which nothing is logged, as of the place that a log came to last.
    """

    def __init__(
        self, warn: Callable[..., object], given: Callable[[UUID], TableSchema | None]
    ) -> None:
        """*warn* takes an event and its fields; *given* is asked what a log does not tell.

        6.0 does not write the modes of tables into `system_schema`, and so not into its log.
        """
        self._warn = warn
        self._given = given
        self._reported: set[tuple[str, Unlogged]] = set()
        self.skipped: dict[str, Unlogged] = {}

    def tell(self, table: TableSchema, keyspace: KeyspaceSchema | None) -> None:
        """Report a table with CDC, if something of it is missing, and that is new."""
        if not table.transactional_mode:
            table = self._given(table.table_id) or table
        found = unlogged(table, keyspace)
        if found is None or found.part:
            self.skipped.pop(table.qualified, None)
        else:
            self.skipped[table.qualified] = found
        if found is None or (table.qualified, found) in self._reported:
            return
        self._reported.add((table.qualified, found))
        self._warn(found.event, table=table.qualified, reason=found.reason, hint=found.hint)

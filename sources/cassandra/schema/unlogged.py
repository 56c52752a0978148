"""Finds writes that no commit log contains, from the options of a table and its keyspace. Pure.

Cassandra accepts `cdc = true` for all of them, but does not log writes that go elsewhere.
"""

from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from headrace.plugins import Problem, TableWarning
from headrace.sources.cassandra.schema.tables import KeyspaceSchema, TableSchema

COUNTER, ACCORD, DURABLE, TRACKED = "counter", "accord", "durable_writes", "tracked"
# Modes in which ordinary writes are logged, and only transactions use Accord.
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
    """Why a table cannot be delivered; with *part*, only a part of its writes is missing."""

    reason: str
    part: bool = False

    @property
    def hint(self) -> str:
        """A hint for the user."""
        return _HINTS[self.reason]

    def problem(self, table: str) -> Problem:
        """Return the problem with *table*."""
        return Problem("tables", f"{table} {_WORDS[self.reason]}", self.hint)

    @property
    def event(self) -> str:
        """The event that a running job logs; also the code of the warning."""
        return "table_incomplete" if self.part else "table_skipped"

    def warning(self, table: str) -> TableWarning:
        """Return a warning about the missing part of *table*."""
        said = f"{table} {_WORDS[self.reason]}, so nothing of it is delivered"
        if self.part:
            said = f"{table}: a part of its writes is in no commit log, and is not delivered"
        return TableWarning(self.event, f"table {said} ({self.reason})", self.hint)


def unlogged(table: TableSchema, keyspace: KeyspaceSchema | None) -> Unlogged | None:
    """Return the reason why commit logs have not all writes of a table; None if they have."""
    if table.is_counter:
        return Unlogged(COUNTER)
    if keyspace is not None and not keyspace.durable_writes:
        return Unlogged(DURABLE)
    if keyspace is not None and keyspace.is_tracked:
        return Unlogged(TRACKED)
    return _through_accord(table.transactional_mode, table.transactional_migration_from)


def _through_accord(mode: str, migrates_from: str) -> Unlogged | None:
    """Return the result for the two options of a table; unknown modes count as full Accord.

    While a table migrates, some of its ranges are written in one way and some in the other.
    """
    modes = {mode or _OFF}
    if migrates_from not in ("", _NONE):
        modes.add(migrates_from)
    if modes == {_OFF}:
        return None
    return Unlogged(ACCORD, part=not modes.isdisjoint(_ORDINARY | {_OFF}))


class Announcer:
    """Reports each table with missing writes once. For one thread.

    `skipped` are the tables without any logged writes, as of the latest place in a log.
    """

    def __init__(
        self, warn: Callable[..., object], given: Callable[[UUID], TableSchema | None]
    ) -> None:
        """*warn* logs an event with fields; *given* returns a table that the log does not describe.

        6.0 does not write the modes of tables into `system_schema`, so they are not in its log.
        """
        self._warn = warn
        self._given = given
        self._reported: set[tuple[str, Unlogged]] = set()
        self.skipped: dict[str, Unlogged] = {}

    def tell(self, table: TableSchema, keyspace: KeyspaceSchema | None) -> None:
        """Report a table with CDC if some of its writes are missing, unless it was reported."""
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

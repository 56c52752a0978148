"""Jobs that parted and want the same again: which they are, who makes them one, and doing so."""

import sqlite3
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from headrace.connector.states import Desired
from headrace.connector.stores import Counters
from headrace.connector.stores.board import FORK_MARK, Board
from headrace.connector.stores.sqlite import COPIED
from headrace.connector.stores.sqlite_file import named_errors, transaction
from headrace.connector.stores.sqlite_state import counters_text, replace_positions
from headrace.plugins import EncodedPosition

ASKED_MS_MAX: Final = 60_000  # So long both jobs have to stop; then they go on as they are.
PAUSE_MS: Final = 600_000  # Before the next try, when one came to nothing.

_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS joins (fork TEXT PRIMARY KEY, asked_ms INTEGER NOT NULL, "
    "owner TEXT NOT NULL, not_before_ms INTEGER NOT NULL) STRICT"
)


class Pair(NamedTuple):
    """A job that parted from another, and that one."""

    fork: str
    base: str


class Joins:
    """The joins in one state file. Belongs to the connection's thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Make the table if it is missing."""
        self._connection = connection
        self._board = Board(connection)
        with named_errors():
            connection.execute(_TABLE)

    def pair(self, job: str) -> Pair | None:
        """Return two jobs that want the same, one of which is *job*, and may be tried now."""
        routes = self._board.routes()
        base = job.partition(FORK_MARK)[0]
        wishes = {(r.state, r.sink) for r in routes if r.job == base}
        if len(wishes) != 1 or next(iter(wishes))[0] is not Desired.RUNNING:
            return None
        for fork in sorted({r.job for r in routes if r.job.startswith(f"{base}{FORK_MARK}")}):
            same = {(r.state, r.sink) for r in routes if r.job == fork} == wishes
            if same and job in (fork, base) and self._may_try(fork):
                return Pair(fork, base)
        return None

    def ask(self, pair: Pair) -> None:
        """Ask whoever runs the two to stop; whoever stops first and alone makes them one."""
        with named_errors():
            self._connection.execute(
                "INSERT INTO joins VALUES (?1, ?2, '', 0) ON CONFLICT (fork) DO UPDATE "
                "SET asked_ms = ?2, owner = '' WHERE asked_ms = 0",
                (pair.fork, _now_ms()),
            )

    def is_asked(self, pair: Pair) -> bool:
        """Say whether somebody has asked for it; that is forgotten after a while."""
        row = self._row(pair.fork)
        return row is not None and row[0] > 0

    def claim(self, pair: Pair, worker: str, *, others: Callable[[], Collection[str]]) -> bool:
        """Let *worker* make the two one, if nobody else does and no other owns a split.

        *others* tells who lives; it is asked in the transaction that claims, so that of two that
        claim at once the second sees the first. What was asked for too long ago is given up.
        """
        with transaction(self._connection):
            row = self._row(pair.fork)
            busy = set(others())
            if row is None or row[0] == 0 or row[1] in busy:
                return False
            owners = self._connection.execute(
                "SELECT owner FROM leases WHERE job IN (?, ?)", (pair.fork, pair.base)
            )
            if {owner for (owner,) in owners} & busy:
                if _now_ms() - row[0] > ASKED_MS_MAX:
                    self.give_up(pair)
                return False
            self._connection.execute(
                "UPDATE joins SET owner = ? WHERE fork = ?", (worker, pair.fork)
            )
        return True

    def give_up(self, pair: Pair) -> None:
        """Let both go on as they are, and try again later."""
        self._connection.execute(
            "UPDATE joins SET asked_ms = 0, owner = '', not_before_ms = ? WHERE fork = ?",
            (_now_ms() + PAUSE_MS, pair.fork),
        )

    def unite(self, pair: Pair, states: Mapping[str, tuple[EncodedPosition, Counters]]) -> None:
        """Let the one job go on with *states*, by split, and all that was the other's."""
        with transaction(self._connection):
            execute = self._connection.execute
            positions = {split: position for split, (position, _) in states.items()}
            replace_positions(self._connection, pair.base, positions)
            for split, (_, counters) in states.items():
                execute(
                    "UPDATE heads SET counters = ? WHERE job = ? AND split = ?",
                    (counters_text(counters), pair.base, split),
                )
            for table in (*COPIED, "workers", "wishes", "seen", "plans"):
                execute(f"DELETE FROM {table} WHERE job = ?", (pair.fork,))  # noqa: S608 (constants)
            execute("UPDATE quarantine SET job = ? WHERE job = ?", (pair.base, pair.fork))
            execute("UPDATE routes SET job = ? WHERE job = ?", (pair.base, pair.fork))
            execute("DELETE FROM joins WHERE fork = ?", (pair.fork,))
            self._board.changed(pair.base)

    def _may_try(self, fork: str) -> bool:
        row = self._row(fork)
        return row is None or row[2] <= _now_ms()

    def _row(self, fork: str) -> tuple[int, str, int] | None:
        query = "SELECT asked_ms, owner, not_before_ms FROM joins WHERE fork = ?"
        with named_errors():
            row: tuple[int, str, int] | None = self._connection.execute(query, (fork,)).fetchone()
        return row


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""Jobs that parted and want the same again: which they are, and how far somebody is with them.

The notes decide it: who makes two jobs one is whoever claimed that last, and from when on they are
one is a single transaction. Each claim writes, so what an earlier one still has under way is over.
"""

import sqlite3
import time
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from headrace.connector.states import Desired
from headrace.connector.stores.board import FORK_MARK, Board
from headrace.connector.stores.notes import job_store
from headrace.connector.stores.sqlite_file import named_errors, transaction

ASKED_MS_MAX: Final = 60_000  # So long both jobs have to stop; then they go on as they are.
PAUSE_MS: Final = 600_000  # Before the next try, when one came to nothing.
_DECIDED: Final = -1  # In the place of when it was asked for.

TABLES: Final = """
CREATE TABLE IF NOT EXISTS joins (
    fork TEXT PRIMARY KEY, asked_ms INTEGER NOT NULL, owner TEXT NOT NULL,
    not_before_ms INTEGER NOT NULL
) STRICT;
"""


class Pair(NamedTuple):
    """A job that parted from another, and that one."""

    fork: str
    base: str


class Joins:
    """The joins among the notes. Belongs to the connection's thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Make the table if it is missing."""
        self._connection = connection
        self._board = Board(connection)
        with named_errors(self._connection):
            connection.execute(TABLES)

    def pair(self, job: str) -> Pair | None:
        """Return two jobs, one of which is *job*, that somebody began to make one.

        Or else two that want the same, and may be tried now.
        """
        base = job.partition(FORK_MARK)[0]
        begun = [Pair(fork, base) for fork in self._begun(base) if job in (fork, base)]
        if begun:
            return begun[0]
        forks = {route.job for route in self._board.routes()}
        pairs = [Pair(fork, base) for fork in sorted(forks) if _is_fork(fork, base)]
        fit = (p for p in pairs if job in p and self._may_try(p.fork) and self.want_the_same(p))
        return next(fit, None)

    def is_begun(self, job: str) -> bool:
        """Say whether somebody is making *job* one with one that parted from it, or began to."""
        return bool(self._begun(job))

    def ask(self, pair: Pair) -> None:
        """Ask whoever runs the two to stop; whoever stops first and alone makes them one."""
        with transaction(self._connection):
            self._connection.execute(
                "INSERT INTO joins VALUES (?1, ?2, '', 0) ON CONFLICT (fork) DO UPDATE "
                "SET asked_ms = ?2, owner = '' WHERE asked_ms = 0",
                (pair.fork, _now_ms()),
            )

    def is_asked(self, pair: Pair) -> bool:
        """Say whether somebody has asked for it; that is forgotten after a while."""
        row = self._row(pair.fork)
        return row is not None and row[0] != 0

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
            leases = [row for job in pair for row in job_store(self._connection, job).leases()]
            if {row.owner for row in leases} & busy:
                if not row[1] and _now_ms() - row[0] > ASKED_MS_MAX:
                    self.give_up(pair, "")
                return False
            self._connection.execute(
                "UPDATE joins SET owner = ? WHERE fork = ?", (worker, pair.fork)
            )
        return True

    def is_decided(self, pair: Pair) -> bool:
        """Say whether the two are one, though not all of it may be done."""
        row = self._row(pair.fork)
        return row is not None and row[0] == _DECIDED

    def decide(self, pair: Pair, worker: str) -> bool:
        """Let them be one from now on, if *worker* is still at it and they still want the same."""
        with transaction(self._connection):
            row = self._row(pair.fork)
            if row is None or row[1] != worker or not self.want_the_same(pair):
                return False
            execute = self._connection.execute
            execute("UPDATE routes SET job = ? WHERE job = ?", (pair.base, pair.fork))
            execute("DELETE FROM wishes WHERE job = ?", (pair.fork,))
            execute("UPDATE joins SET asked_ms = ? WHERE fork = ?", (_DECIDED, pair.fork))
            self._board.changed(pair.base)
        return True

    def finish(self, pair: Pair) -> None:
        """Forget that they were two: all of it is done."""
        with transaction(self._connection):
            self._connection.execute("DELETE FROM joins WHERE fork = ?", (pair.fork,))

    def give_up(self, pair: Pair, worker: str) -> None:
        """Let both go on as they are, and try again later, if *worker* is still at it."""
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE joins SET asked_ms = 0, owner = '', not_before_ms = ? "
                "WHERE fork = ? AND owner = ?",
                (_now_ms() + PAUSE_MS, pair.fork, worker),
            )

    def want_the_same(self, pair: Pair) -> bool:
        """Say whether both are to run, into the same sink."""
        wishes = [{r.wish for r in self._board.routes(job)} for job in pair]
        return wishes[0] == wishes[1] and [Desired.RUNNING] == [state for state, _ in wishes[0]]

    def _begun(self, base: str) -> list[str]:
        with named_errors(self._connection):
            rows = self._connection.execute("SELECT fork FROM joins WHERE owner != ''")
            return [fork for (fork,) in rows if _is_fork(fork, base)]

    def _may_try(self, fork: str) -> bool:
        row = self._row(fork)
        return row is None or row[2] <= _now_ms()

    def _row(self, fork: str) -> tuple[int, str, int] | None:
        query = "SELECT asked_ms, owner, not_before_ms FROM joins WHERE fork = ?"
        with named_errors(self._connection):
            row: tuple[int, str, int] | None = self._connection.execute(query, (fork,)).fetchone()
        return row


def _is_fork(job: str, base: str) -> bool:
    return job.startswith(f"{base}{FORK_MARK}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""The board: what is wanted of each job, and what its workers see of it, in the state file.

Two kinds of tables with two kinds of writers: `routes` and `wishes` belong to the command service,
`seen` to the workers. Nobody waits for anybody: a worker looks at the board every second.
"""

import json
import secrets
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.connector.states import Desired, Observed
from headrace.connector.stores.sqlite_file import named_errors, transaction

FORK_MARK: Final = "~"  # In no name that a user can give; see `Board.separate`.
LOG_LEVEL: Final = "log_level"  # A setting.
PLAN: Final = 1  # The first plan generation: it grows when a job has other splits.
JOB_KEY_BYTES: Final = 16
WHOLE_JOB: Final = ""  # The "split" under which a job's own state and restarts are kept.

# `routes.job` is the job that runs a source, also where the source's own config names none.
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS routes (
    source TEXT PRIMARY KEY, job TEXT NOT NULL, sink TEXT NOT NULL, state TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS wishes (
    job TEXT PRIMARY KEY, generation INTEGER NOT NULL, restarts TEXT NOT NULL DEFAULT '{}'
) STRICT;
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS seen (
    job TEXT NOT NULL, split TEXT NOT NULL, state TEXT NOT NULL, generation INTEGER NOT NULL,
    worker TEXT NOT NULL, reason TEXT NOT NULL, attempt INTEGER NOT NULL,
    next_attempt_ms INTEGER, since_ms INTEGER NOT NULL, seen_ms INTEGER NOT NULL,
    PRIMARY KEY (job, split)
) STRICT;
"""
COPIED: Final = {
    "jobs": "job_key, plan, splits",
    "leases": "split, token, beat, lease_ms",
    "heads": "split, plan, token, seq, head, chunks, counters",
    "chunks": "split, name, content",
}


@dataclass(frozen=True, slots=True)
class Route:
    """A source as its job sees it: which job, which sink, and what is wanted."""

    source: str
    job: str
    sink: str
    state: Desired


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of a job. Each number in `restarts`, by split, grows with each request.

    `mixed` says that its routes no longer want the same: they must be separated.
    """

    state: Desired = Desired.RUNNING
    generation: int = 0
    restarts: Mapping[str, int] = field(default_factory=dict)
    mixed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the worker `worker` saw of a split, or of the whole job. Times are since 1970."""

    split: str
    state: Observed
    generation: int
    worker: str = ""
    reason: str = ""
    attempt: int = 0
    next_attempt_ms: int | None = None
    since_ms: int = 0
    seen_ms: int = 0


class Board:
    """The board of one state file. Belongs to the connection's thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Make the tables if they are missing."""
        self._connection = connection
        with named_errors():
            known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'seen'")
            if not known.fetchone():
                with transaction(connection):
                    for statement in _TABLES.split(";"):
                        connection.execute(statement)
                    self._take_sources()

    # The command service's. All are called inside its transaction.

    def add_route(self, route: Route) -> None:
        """Let the job of *route* take a source."""
        self._connection.execute("INSERT INTO routes VALUES (?, ?, ?, ?)", _values(route))
        self.changed(route.job)

    def remove_route(self, source: str) -> None:
        """Take a source from its job. What the job has committed stays."""
        for route in self.routes():
            if route.source == source:
                self._connection.execute("DELETE FROM routes WHERE source = ?", (source,))
                self.changed(route.job)

    def point(self, source: str, *, job: str, sink: str) -> None:
        """Let a source be run by *job* and write into *sink*."""
        for route in self.routes():
            if route.source == source:
                self._connection.execute(
                    "UPDATE routes SET job = ?, sink = ? WHERE source = ?", (job, sink, source)
                )
                for changed in {route.job, job}:
                    self.changed(changed)

    def beside(self, job: str, source: str) -> str:
        """Make a job for *source* that begins anew beside *job*, and return its name.

        It knows mutations by the same digests, so that the two can become one.
        """
        self._connection.execute(
            "INSERT OR IGNORE INTO jobs (job, job_key, plan, splits) VALUES (?, ?, ?, '[]')",
            (job, secrets.token_bytes(JOB_KEY_BYTES), PLAN),
        )
        fork = fork_name(job, source)
        for table in (*COPIED, "plans"):
            self._connection.execute(f"DELETE FROM {table} WHERE job = ?", (fork,))  # noqa: S608 (constants)
        self._connection.execute(
            "INSERT INTO jobs (job, job_key, plan, splits) "
            "SELECT ?, job_key, plan, '[]' FROM jobs WHERE job = ?",
            (fork, job),
        )
        return fork

    def want(self, source: str, state: Desired) -> None:
        """Say what is wanted of a source; the same twice changes nothing."""
        self._connection.execute(
            "UPDATE routes SET state = ? WHERE source = ?", (state.value, source)
        )

    def changed(self, job: str) -> int:
        """Count a change of the job's configuration, and return its new generation."""
        self._connection.execute(
            "INSERT INTO wishes (job, generation) VALUES (?, 1) "
            "ON CONFLICT (job) DO UPDATE SET generation = generation + 1",
            (job,),
        )
        return self.wanted(job).generation

    def ask_restart(self, job: str, splits: Iterable[str]) -> None:
        """Ask for a restart of *splits*, or of the `WHOLE_JOB`."""
        before = self.wanted(job).restarts
        asked = {split: before.get(split, 0) + 1 for split in splits}
        self._connection.execute(
            "INSERT INTO wishes (job, generation, restarts) VALUES (?, 0, ?) "
            "ON CONFLICT (job) DO UPDATE SET restarts = excluded.restarts",
            (job, json.dumps({**before, **asked})),
        )

    def set_setting(self, name: str, value: str | None) -> None:
        """Keep a setting of the whole state file; None forgets it."""
        self._connection.execute("DELETE FROM settings WHERE name = ?", (name,))
        if value is not None:
            self._connection.execute("INSERT INTO settings VALUES (?, ?)", (name, value))

    # The workers'.

    def see(self, job: str, rows: Iterable[Seen]) -> None:
        """Replace what was seen of some splits."""
        now_ms = time.time_ns() // 1_000_000
        with transaction(self._connection):
            for row in rows:
                self._connection.execute(
                    "INSERT INTO seen VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                    "ON CONFLICT (job, split) DO UPDATE SET state = excluded.state, "
                    "generation = excluded.generation, worker = excluded.worker, "
                    "reason = excluded.reason, attempt = excluded.attempt, "
                    "next_attempt_ms = excluded.next_attempt_ms, seen_ms = excluded.seen_ms, "
                    "since_ms = CASE WHEN state = excluded.state THEN since_ms "
                    "ELSE excluded.since_ms END",
                    (
                        *(job, row.split, row.state.value, row.generation, row.worker),
                        *(row.reason, row.attempt, row.next_attempt_ms, now_ms, now_ms),
                    ),
                )

    def adopt(self, job: str, sources: Iterable[str]) -> None:
        """Note that *job* runs *sources* from now on; its generation is the highest of theirs."""
        routes = {route.source: route.job for route in self.routes()}
        moved = [name for name in sources if routes.get(name) != job]
        if not moved:
            return
        with transaction(self._connection):
            generations = [self.wanted(routes[name]).generation for name in moved]
            self._connection.executemany(
                "UPDATE routes SET job = ? WHERE source = ?", [(job, name) for name in moved]
            )
            self._connection.execute(
                "INSERT INTO wishes (job, generation) VALUES (?1, ?2) ON CONFLICT (job) "
                "DO UPDATE SET generation = MAX(generation, ?2)",
                (job, max(generations)),
            )

    def separate(self, job: str, *, busy: frozenset[str]) -> bool:
        """Give each route that wants something else than the others a job of its own.

        The new job begins with a copy of what *job* has committed, so nothing is lost or
        repeated: from here on both go their ways. *busy* are the workers that are not known to
        be dead. Returns False, having done nothing, while one of them owns a split.
        """
        with transaction(self._connection):
            routes = self.routes(job)
            if not _differ(routes):
                return True
            owners = self._connection.execute("SELECT owner FROM leases WHERE job = ?", (job,))
            if busy.intersection(owner for (owner,) in owners):
                return False
            leading = _leading(routes)
            for route in routes:
                if _wish(route) != leading:
                    self._fork(route)
            self.changed(job)
        return True

    # Everybody's.

    def routes(self, job: str | None = None) -> Sequence[Route]:
        """Return all routes, or those of *job*, by source."""
        query = "SELECT source, job, sink, state FROM routes WHERE job = ? OR ? ORDER BY source"
        with named_errors():
            rows = self._connection.execute(query, (job, job is None)).fetchall()
        return [Route(source, owner, sink, Desired(state)) for source, owner, sink, state in rows]

    def wanted(self, job: str) -> Wanted:
        """Return what is wanted of *job*; of one that has no routes, that it runs."""
        query = "SELECT generation, restarts FROM wishes WHERE job = ?"
        with named_errors():
            generation, restarts = self._connection.execute(query, (job,)).fetchone() or (0, "{}")
        routes = self.routes(job)
        state = _leading(routes)[0] if routes else Desired.RUNNING
        return Wanted(state, generation, json.loads(restarts), _differ(routes))

    def setting(self, name: str) -> str | None:
        """Return a setting of the whole state file."""
        with named_errors():
            row = self._connection.execute("SELECT value FROM settings WHERE name = ?", (name,))
            return next((str(value) for (value,) in row), None)

    def seen(self, job: str) -> Mapping[str, Seen]:
        """Return what was seen of each split of *job*, and of the `WHOLE_JOB`."""
        query = (
            "SELECT split, state, generation, worker, reason, attempt, next_attempt_ms, "
            "since_ms, seen_ms FROM seen WHERE job = ?"
        )
        with named_errors():
            rows = self._connection.execute(query, (job,)).fetchall()
        return {
            split: Seen(
                split=split,
                state=Observed(state),
                generation=number,
                worker=worker,
                reason=reason,
                attempt=attempt,
                next_attempt_ms=next_ms,
                since_ms=since_ms,
                seen_ms=seen_ms,
            )
            for split, state, number, worker, reason, attempt, next_ms, since_ms, seen_ms in rows
        }

    def _take_sources(self) -> None:
        """Make routes for the sources of a file that an older headrace wrote."""
        known = self._connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sources'")
        if known.fetchone():
            self._connection.execute(
                "INSERT INTO routes SELECT name, CASE job WHEN '' THEN sink ELSE job END, sink, "
                "'RUNNING' FROM sources"
            )

    def _fork(self, route: Route) -> None:
        fork = fork_name(route.job, route.source)
        known = self._connection.execute("SELECT 1 FROM jobs WHERE job = ?", (fork,)).fetchone()
        self._connection.execute("DELETE FROM plans WHERE job = ?", (fork,))
        for table, columns in COPIED.items():
            if known:  # It went its own way once: what it committed then is out of date.
                self._connection.execute(f"DELETE FROM {table} WHERE job = ?", (fork,))  # noqa: S608 (constants)
            self._connection.execute(
                f"INSERT INTO {table} (job, {columns}) SELECT ?, {columns} "  # noqa: S608 (constants)
                f"FROM {table} WHERE job = ?",
                (fork, route.job),
            )
        # I3: what the job did before is in its own books.
        self._connection.execute("UPDATE heads SET counters = '{}' WHERE job = ?", (fork,))
        self._connection.execute("UPDATE routes SET job = ? WHERE source = ?", (fork, route.source))
        self.changed(fork)


def fork_name(job: str, source: str) -> str:
    """Return the name of the job that *source* has when it parts from *job*."""
    return f"{job.partition(FORK_MARK)[0]}{FORK_MARK}{source}"


def _values(route: Route) -> tuple[str, str, str, str]:
    return route.source, route.job, route.sink, route.state.value


def _wish(route: Route) -> tuple[Desired, str]:
    return route.state, route.sink


def _differ(routes: Sequence[Route]) -> bool:
    return len({_wish(route) for route in routes}) > 1


def _leading(routes: Sequence[Route]) -> tuple[Desired, str]:
    """Return what most of those routes want that run, or else what most want."""
    wishes = [_wish(route) for route in routes]
    running = [wish for wish in wishes if wish[0] is Desired.RUNNING]
    return max(running or wishes, key=(running or wishes).count)

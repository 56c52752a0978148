"""The board: which job runs which source, and what is wanted of it, among the notes.

The command service writes it. Nobody waits for anybody: a worker looks at the board every second,
and what it sees of its job it tells its store.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.connector.states import Desired
from headrace.connector.stores.sqlite_file import named_errors, transaction
from headrace.connector.stores.stored import UnreadableError, decoded, one_of

FORK_MARK: Final = "~"  # In no name that a user can give; see `Board.separate`.
LOG_LEVEL: Final = "log_level"  # A setting.
WHOLE_JOB: Final = ""  # The "split" under which a job's own state and restarts are kept.

# `routes.job` is the job that runs a source, also where the source's own config names none.
TABLES: Final = """
CREATE TABLE IF NOT EXISTS routes (
    source TEXT PRIMARY KEY, job TEXT NOT NULL, sink TEXT NOT NULL, state TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS wishes (
    job TEXT PRIMARY KEY, generation INTEGER NOT NULL, restarts TEXT NOT NULL DEFAULT '{}'
) STRICT;
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""


@dataclass(frozen=True, slots=True)
class Route:
    """A source as its job sees it: which job, which sink, and what is wanted."""

    source: str
    job: str
    sink: str
    state: Desired

    @property
    def wish(self) -> tuple[Desired, str]:
        """What must be the same for routes to share a job."""
        return self.state, self.sink


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of a job. Each number in `restarts`, by split, grows with each request.

    `mixed` says that its routes no longer want the same: they must be separated.
    """

    state: Desired = Desired.RUNNING
    generation: int = 0
    restarts: Mapping[str, int] = field(default_factory=dict)
    mixed: bool = False


class Board:
    """The board of all jobs. Belongs to the connection's thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Make the tables if they are missing."""
        self._connection = connection
        with named_errors(self._connection):
            query = "SELECT name FROM sqlite_schema WHERE name IN ('routes', 'wishes')"
            known = {name for (name,) in connection.execute(query)}
            if known == {"wishes"}:  # Made anew, all would run whatever was wanted.
                raise UnreadableError("table routes: found no such table")
            if not known:
                with transaction(connection):
                    for statement in TABLES.split(";"):
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

    def note_sink(self, job: str, host: str, mark: str) -> None:
        """Keep that *job* opened the sink that *mark* stands for, on *host*."""
        if self.setting(_opened(job, host)) != mark:
            with transaction(self._connection):
                self.set_setting(_opened(job, host), mark)

    # Everybody's.

    def opened_sink(self, job: str, host: str) -> str | None:
        """Return what stands for the sink that *job* opened last on *host*."""
        return self.setting(_opened(job, host))

    def routes(self, job: str | None = None) -> Sequence[Route]:
        """Return all routes, or those of *job*, by source."""
        query = "SELECT source, job, sink, state FROM routes WHERE job = ? OR ? ORDER BY source"
        with named_errors(self._connection):
            rows = self._connection.execute(query, (job, job is None)).fetchall()
            return [
                Route(source, owner, sink, one_of(Desired, state, f"table routes, source {source}"))
                for source, owner, sink, state in rows
            ]

    def wanted(self, job: str) -> Wanted:
        """Return what is wanted of *job*; of one that has no routes, that it runs."""
        query = "SELECT generation, restarts FROM wishes WHERE job = ?"
        with named_errors(self._connection):
            generation, restarts = self._connection.execute(query, (job,)).fetchone() or (0, "{}")
            what = f"table wishes, job {job}, column restarts"
            asked = decoded(restarts, dict[str, int], what)
        routes = self.routes(job)
        state = leading(routes)[0] if routes else Desired.RUNNING
        return Wanted(state, generation, asked, differ(routes))

    def setting(self, name: str) -> str | None:
        """Return a setting of the whole state file."""
        with named_errors(self._connection):
            row = self._connection.execute("SELECT value FROM settings WHERE name = ?", (name,))
            return next((str(value) for (value,) in row), None)

    def _take_sources(self) -> None:
        """Make routes for the sources of a file that an older headrace wrote."""
        known = self._connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sources'")
        if known.fetchone():
            self._connection.execute(
                "INSERT INTO routes SELECT name, CASE job WHEN '' THEN sink ELSE job END, sink, "
                "'RUNNING' FROM sources"
            )


def _opened(job: str, host: str) -> str:
    """Return the name of the setting that keeps it."""
    return f"sink.{host}.{job}"


def fork_name(job: str, source: str) -> str:
    """Return the name of the job that *source* has when it parts from *job*."""
    return f"{job.partition(FORK_MARK)[0]}{FORK_MARK}{source}"


def _values(route: Route) -> tuple[str, str, str, str]:
    return route.source, route.job, route.sink, route.state.value


def differ(routes: Sequence[Route]) -> bool:
    """Say whether they want different things."""
    return len({route.wish for route in routes}) > 1


def leading(routes: Sequence[Route]) -> tuple[Desired, str]:
    """Return what most of those routes want that run, or else what most want."""
    wishes = [route.wish for route in routes]
    running = [wish for wish in wishes if wish[0] is Desired.RUNNING]
    return max(running or wishes, key=(running or wishes).count)

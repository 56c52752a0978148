"""The board: which job runs which source, and what is wanted of it, among the notes.

The command service writes it, and waits for no worker: a worker reads the board every second, and
reports the state of its job to its store.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from headrace.connector.foundation.states import Desired
from headrace.connector.stores.note_copy import NoteCopy

FORK_MARK: Final = "~"  # In no name of a job that a user gives; see `job_forks`.
# Of a job's name as URLs have it: a file's name has at most 255 bytes, some with a suffix.
FORK_BYTES_MAX: Final = 200
JOB_BYTES_MAX: Final = 180  # The rest is for the source of a job that is forked from it.
LOG_LEVEL: Final = "log_level"  # A setting.
WHOLE_JOB: Final = ""  # The "split" under which a job's own state and restarts are kept.
# Kinds of notes. A route is named by its source, a target state by its job.
ROUTES: Final = "routes"
WISHES: Final = "wishes"
SETTINGS: Final = "settings"
SERVICE: Final = "service."  # Before the name of a service, in its setting's.


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a worker stopped one source alone: `code: place: message`, and what helps."""

    problem: str
    hint: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Route:
    """A source as its job sees it: which job, which sink, and what is wanted.

    A source with a `failure` does not run, whatever `state` says, until a user asks for it.
    """

    source: str
    job: str  # Also where the source's own config names none.
    sink: str
    state: Desired
    failure: Failure | None = None

    @property
    def wish(self) -> tuple[Desired, str]:
        """What must be the same for routes to share a job."""
        return self.state if self.failure is None else Desired.STOPPED, self.sink


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of a job. Each number in `restarts`, by split, grows with each request.

    `mixed` says that its routes no longer want the same: they must be separated.
    """

    state: Desired = Desired.RUNNING
    generation: int = 0
    restarts: Mapping[str, int] = field(default_factory=dict)
    mixed: bool = False


@dataclass(frozen=True, slots=True)
class _Wish:
    """What a note keeps of what is wanted of a job."""

    generation: int = 0
    restarts: Mapping[str, int] = field(default_factory=dict)


class Board:
    """The board of all jobs. Belongs to the thread of its notes."""

    def __init__(self, notes: NoteCopy) -> None:
        """Look at nothing yet."""
        self._notes = notes

    # The command service's. Several of them are one change in a transaction of the notes.

    def add_route(self, route: Route) -> None:
        """Let the job of *route* take a source."""
        self._put(route)
        self.changed(route.job)

    def remove_route(self, source: str) -> None:
        """Take a source from its job. What the job has committed stays."""
        route = self._route(source)
        if route is not None:
            self._notes.put(ROUTES, source, None)
            self.changed(route.job)

    def point(self, source: str, *, job: str, sink: str) -> None:
        """Let a source be run by *job* and write into *sink*."""
        route = self._route(source)
        if route is not None:
            self._put(replace(route, job=job, sink=sink))
            for changed in {route.job, job}:
                self.changed(changed)

    def want(self, source: str, state: Desired) -> None:
        """Say what is wanted of a source; the same twice changes nothing.

        A failure of it is forgotten.
        """
        self.forget_failure(source)
        route = self._route(source)
        if route is not None:
            self._put(replace(route, state=state))

    def forget_failure(self, source: str) -> None:
        """Let a source that failed run again, if it is wanted to.

        That counts as a change of its job, so that workers which met the failure restart
        instead of noting it again.
        """
        route = self._route(source)
        if route is not None and route.failure is not None:
            self._put(replace(route, failure=None))
            self.changed(route.job)

    def changed(self, job: str) -> int:
        """Count a change of the job's configuration, and return its new generation."""
        wish = self._wish(job)
        self._notes.put_document(WISHES, job, replace(wish, generation=wish.generation + 1))
        return wish.generation + 1

    def ask_restart(self, job: str, splits: Iterable[str]) -> None:
        """Ask for a restart of *splits*, or of the `WHOLE_JOB`."""
        wish = self._wish(job)
        asked = {split: wish.restarts.get(split, 0) + 1 for split in splits}
        self._notes.put_document(WISHES, job, replace(wish, restarts={**wish.restarts, **asked}))

    def set_setting(self, name: str, value: str | None) -> None:
        """Keep a setting of all jobs; None forgets it."""
        self._notes.put(SETTINGS, name, value)

    # The workers'.

    def fail(self, source: str, failure: Failure) -> None:
        """Stop a source because it failed. Called inside a transaction."""
        route = self._route(source)
        if route is not None:
            self._put(replace(route, failure=failure))

    def adopt(self, job: str, sources: Iterable[str]) -> None:
        """Note that *job* runs *sources* from now on; its generation is the highest of theirs."""
        names = set(sources)
        moved = [r for r in self.routes() if r.source in names and r.job != job]
        if not moved:
            return
        with self._notes.transaction():
            wish = self._wish(job)
            highest = max([wish.generation, *(self._wish(r.job).generation for r in moved)])
            for route in moved:
                self._put(replace(route, job=job))
            self._notes.put_document(WISHES, job, replace(wish, generation=highest))

    def note_sink(self, job: str, host: str, mark: str) -> None:
        """Keep that *job* opened the sink that *mark* stands for, on *host*."""
        if self.setting(_opened(job, host)) != mark:
            self.set_setting(_opened(job, host), mark)

    # Everybody's.

    def opened_sink(self, job: str, host: str) -> str | None:
        """Return what stands for the sink that *job* opened last on *host*."""
        return self.setting(_opened(job, host))

    def routes(self, job: str | None = None) -> Sequence[Route]:
        """Return all routes, or those of *job*, by source."""
        routes = self._notes.documents(ROUTES, Route).values()
        return [route for route in routes if job in (None, route.job)]

    def wanted(self, job: str) -> Wanted:
        """Return what is wanted of *job*; of one that has no routes, that it runs."""
        wish, routes = self._wish(job), self.routes(job)
        state = leading(routes)[0] if routes else Desired.RUNNING
        return Wanted(state, wish.generation, wish.restarts, differ(routes))

    def setting(self, name: str) -> str | None:
        """Return a setting of all jobs."""
        return self._notes.get(SETTINGS, name)

    def _route(self, source: str) -> Route | None:
        return self._notes.document(ROUTES, source, Route)

    def _put(self, route: Route) -> None:
        self._notes.put_document(ROUTES, route.source, route)

    def _wish(self, job: str) -> _Wish:
        return self._notes.document(WISHES, job, _Wish) or _Wish()


def _opened(job: str, host: str) -> str:
    """Return the name of the setting that keeps it."""
    return f"sink.{host}.{job}"


def fork_name(job: str, source: str) -> str:
    """Return the name of the job that *source* has when it leaves *job*: always the same one."""
    base = job.partition(FORK_MARK)[0]
    name, cut, end = f"{base}{FORK_MARK}{source}", source, ""
    while len(quote(name)) > FORK_BYTES_MAX:  # Cut, it must still be that of no other source.
        cut, end = cut[:-1], sha256(source.encode()).hexdigest()[:8]
        name = f"{base}{FORK_MARK}{cut}.{end}"
    return name


def differ(routes: Sequence[Route]) -> bool:
    """Say whether they want different things."""
    return len({route.wish for route in routes}) > 1


def leading(routes: Sequence[Route]) -> tuple[Desired, str]:
    """Return what most of those routes want that run, or else what most want."""
    wishes = [route.wish for route in routes]
    running = [wish for wish in wishes if wish[0] is Desired.RUNNING]
    return max(running or wishes, key=(running or wishes).count)

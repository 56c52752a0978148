"""The board: the target state of every source and job, in the control store.

The command service writes it and does not wait for workers. A worker reads it every second, and
reports the observed state of its job to the job's store.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from headrace.connector.foundation.states import Desired
from headrace.plugins.stores.kept_modes import AskedMode, newest

if TYPE_CHECKING:
    from headrace.connector.stores.note_copy import NoteCopy

FORK_MARK: Final = "~"  # Users cannot use it in names of jobs; see `job_forks`.
# Of a job's name as URLs encode it: a file name has at most 255 bytes, suffix included.
FORK_BYTES_MAX: Final = 200
JOB_BYTES_MAX: Final = 180  # Names of its forks also contain the source's name.
LOG_LEVEL: Final = "log_level"  # A setting.
WHOLE_JOB: Final = ""  # The "split" with the state and the restarts of the job itself.
# Kinds of notes. A route is named by its source, a target state by its job.
ROUTES: Final = "routes"
TARGET_STATES: Final = "wishes"  # The name in stores.
SETTINGS: Final = "settings"
SERVICE: Final = "service."  # In the name of a service's setting, before the service's name.


class Failure(msgspec.Struct, frozen=True):
    """Why a worker stopped one source: `code: place: message`, and a hint."""

    problem: str
    hint: str
    since_ms: int


class Route(msgspec.Struct, frozen=True):
    """A source's job, sink and target state.

    A source with a `failure` does not run in any `state`, until a user resumes it.
    """

    source: str
    job: str  # Set even if the source's config names no job.
    sink: str
    state: Desired
    failure: Failure | None = None

    @property
    def target(self) -> tuple[Desired, str]:
        """The state and sink that all routes of a job must share."""
        return self.state if self.failure is None else Desired.STOPPED, self.sink


class Wanted(msgspec.Struct, frozen=True):
    """The target state of a job. Each request increases the number of a split in `restarts`.

    `mixed` says that its routes now differ: the job must be forked. All jobs have one `log_level`.
    `modes` are the requested ones, by log or for `ALL_LOGS`.
    """

    state: Desired = Desired.RUNNING
    generation: int = 0
    restarts: Mapping[str, int] = msgspec.field(default_factory=dict)
    mixed: bool = False
    log_level: str | None = None
    modes: Mapping[str, AskedMode] = msgspec.field(default_factory=dict)


class _TargetState(msgspec.Struct, frozen=True):
    """The stored part of the target state of a job."""

    generation: int = 0
    restarts: Mapping[str, int] = msgspec.field(default_factory=dict)
    modes: Mapping[str, AskedMode] = msgspec.field(default_factory=dict)


class Board:
    """The board of all jobs. Use it from the thread of *notes* only."""

    def __init__(self, notes: "NoteCopy") -> None:
        """Read nothing yet."""
        self._notes = notes
        self._wanted = 0, "", Wanted()  # The notes' version at the last read, and the job.

    # For the command service. A transaction of the notes makes several calls one change.

    def add_route(self, route: Route) -> None:
        """Add a source to the job of *route*."""
        self._put(route)
        self.changed(route.job)

    def remove_route(self, source: str) -> None:
        """Remove a source from its job. The job's committed state stays."""
        route = self._route(source)
        if route is not None:
            self._notes.put(ROUTES, source, None)
            self.changed(route.job)

    def point(self, source: str, *, job: str, sink: str) -> None:
        """Move a source to *job* and *sink*."""
        route = self._route(source)
        if route is not None:
            self._put(replace(route, job=job, sink=sink))
            for changed in {route.job, job}:
                self.changed(changed)

    def want(self, source: str, state: Desired) -> None:
        """Set the target state of a source, and clear its failure. Safe to repeat."""
        self.forget_failure(source)
        route = self._route(source)
        if route is not None:
            self._put(replace(route, state=state))

    def forget_failure(self, source: str) -> None:
        """Clear the failure of a source; it runs again if its target state says so.

        This counts as a change of its job, so that workers that met the failure restart and do not
        report it again.
        """
        route = self._route(source)
        if route is not None and route.failure is not None:
            self._put(replace(route, failure=None))
            self.changed(route.job)

    def changed(self, job: str) -> int:
        """Count a change of the job's configuration, and return its new generation."""
        target = self._target_state(job)
        self._notes.put_document(
            TARGET_STATES, job, replace(target, generation=target.generation + 1)
        )
        return target.generation + 1

    def ask_restart(self, job: str, splits: Iterable[str]) -> None:
        """Request a restart of *splits*, or of the `WHOLE_JOB`."""
        target = self._target_state(job)
        asked = {split: target.restarts.get(split, 0) + 1 for split in splits}
        self._notes.put_document(
            TARGET_STATES, job, replace(target, restarts={**target.restarts, **asked})
        )

    def ask_mode(self, job: str, log: str, asked: AskedMode) -> None:
        """Request the mode of a log of *job*, or of `ALL_LOGS`."""
        target = self._target_state(job)
        modes = newest(target.modes, {log: asked})
        self._notes.put_document(TARGET_STATES, job, replace(target, modes=modes))

    def set_setting(self, name: str, value: str | None) -> None:
        """Store a setting of all jobs; None deletes it."""
        self._notes.put(SETTINGS, name, value)

    # For the workers.

    def fail(self, source: str, failure: Failure) -> None:
        """Store the failure of a source, which stops it. Call it inside a transaction."""
        route = self._route(source)
        if route is not None:
            self._put(replace(route, failure=failure))

    def adopt(self, job: str, routes: Sequence[Route]) -> None:
        """Move *routes* to *job*; its generation becomes the highest of their jobs'."""
        with self._notes.transaction():
            target = self._target_state(job)
            highest = max(
                [target.generation, *(self._target_state(r.job).generation for r in routes)]
            )
            for route in routes:
                self._put(replace(route, job=job))
            self._notes.put_document(TARGET_STATES, job, replace(target, generation=highest))

    # For all.

    def routes(self, job: str | None = None) -> Sequence[Route]:
        """Return all routes, or those of *job*, by source."""
        routes = self._notes.documents(ROUTES, Route).values()
        return [route for route in routes if job in (None, route.job)]

    def forks(self, job: str) -> Sequence[Route]:
        """Return the routes of all jobs that were forked from *job*."""
        return [route for route in self.routes() if route.job.startswith(f"{job}{FORK_MARK}")]

    def wanted(self, job: str) -> Wanted:
        """Return the target state of *job*; a job without routes runs.

        A worker calls it every second; the object is the same while the notes are.
        """
        with self._notes.snapshot() as version:
            if version and self._wanted[:2] == (version, job):
                return self._wanted[2]
            target, routes = self._target_state(job), self.routes(job)
            log_level = self.setting(LOG_LEVEL)
        state = leading(routes)[0] if routes else Desired.RUNNING
        wanted = Wanted(
            state, target.generation, target.restarts, differ(routes), log_level, target.modes
        )
        self._wanted = version, job, wanted
        return wanted

    def setting(self, name: str) -> str | None:
        """Return a setting of all jobs."""
        return self._notes.get(SETTINGS, name)

    def _route(self, source: str) -> Route | None:
        return self._notes.document(ROUTES, source, Route)

    def _put(self, route: Route) -> None:
        self._notes.put_document(ROUTES, route.source, route)

    def _target_state(self, job: str) -> _TargetState:
        return self._notes.document(TARGET_STATES, job, _TargetState) or _TargetState()


def fork_name(job: str, source: str) -> str:
    """Return the name of the job of *source* after a fork from *job*: always the same."""
    base = job.partition(FORK_MARK)[0]
    name, cut, end = f"{base}{FORK_MARK}{source}", source, ""
    while len(quote(name)) > FORK_BYTES_MAX:  # A shortened name must still be unique.
        cut, end = cut[:-1], sha256(source.encode()).hexdigest()[:8]
        name = f"{base}{FORK_MARK}{cut}.{end}"
    return name


def differ(routes: Sequence[Route]) -> bool:
    """Return whether the target states or sinks of *routes* differ."""
    return len({route.target for route in routes}) > 1


def leading(routes: Sequence[Route]) -> tuple[Desired, str]:
    """Return the most frequent target of the routes that run, or else of all routes."""
    targets = [route.target for route in routes]
    running = [target for target in targets if target[0] is Desired.RUNNING]
    return max(running or targets, key=(running or targets).count)

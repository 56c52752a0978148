"""Keeps pumps, which are processes, for each job of a state file or store that should run.

Dead ones are restarted; others of the job own their splits meanwhile.

The processes are children that run one job each (`headrace run FILE --job NAME`); they follow the
target state of their job by themselves. The supervisor does not call plugins, so none can block it.
"""

import os
import select
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec
import structlog

from headrace.connector.control.catalogue import engine_of
from headrace.connector.control.commands import Commands
from headrace.connector.control.entries import SPARK
from headrace.connector.control.health.missing import missing
from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.processes import COMMAND
from headrace.connector.foundation.states import Desired, Observed
from headrace.connector.obs.logging import shows_messages
from headrace.connector.runtime.splits.watch import RestartPolicy, Restarts
from headrace.connector.stores import Seen, StoreUnavailableError
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.target_state import WHOLE_JOB, Wanted
from headrace.plugins import Clock, ConfigError, Problem

LOOK_EVERY_SECONDS: Final = 0.5
STOP_SECONDS_MAX: Final = 30.0
_CONFIG_STATUS: Final = 2
_ENVIRONMENT_STATUS: Final = 3
_LINE_BYTES_MAX: Final = 64


class Child(Protocol):
    """A process that runs one job."""

    def poll(self) -> int | None:
        """Return its exit status, or None while it lives."""

    def terminate(self) -> None:
        """Request it to settle, commit and end."""

    def kill(self) -> None:
        """Kill it at once."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""

    def metrics_port(self) -> int:
        """Return the port of its metrics; 0 until it has reported one."""


class JobProcess:
    """`headrace run` for one job; it ends with this process, even if that is killed."""

    def __init__(self, path: Path, job: str, log_level: str, *more: str) -> None:
        """Start it, with *more* options."""
        self._process = subprocess.Popen(  # noqa: S603 (headrace itself)
            [
                *(*COMMAND, "--log-level", log_level),
                *(["--debug"] if shows_messages() else []),
                *("run", str(path), "--job", job, "--with-parent", *more),
            ],
            stdin=subprocess.PIPE,  # Never written: its end tells the child of ours.
            stdout=subprocess.PIPE,
        )
        self.poll = self._process.poll
        self.terminate = self._process.terminate
        self.kill = self._process.kill
        self.wait = self._process.wait
        self._said = b""

    def metrics_port(self) -> int:
        """See `Child`."""
        said = self._process.stdout
        assert said is not None  # noqa: S101 (it is a pipe)
        while not self._said.endswith(b"\n") and select.select([said], [], [], 0)[0]:
            more = os.read(said.fileno(), _LINE_BYTES_MAX)
            if not more:
                return 0
            self._said += more
        return int(self._said or b"0") if self._said.endswith(b"\n") else 0


class _Pump(msgspec.Struct):
    """A slot for a process. If `not_before_ms` is None, it is not restarted automatically."""

    number: int
    child: Child | None = None
    not_before_ms: int | None = 0
    leaving: bool = False
    wanted: Wanted = msgspec.field(default_factory=Wanted)
    """The job's target state when the process was started."""


class _Job(msgspec.Struct):
    """The supervisor's data about a job."""

    pumps: Sequence[_Pump]
    is_on_spark: bool
    wanted: Wanted = msgspec.field(default_factory=Wanted)
    troubled: bool = False


class Supervisor:
    """See the module. `run` on a thread of its own; `stop` at any time."""

    def __init__(  # noqa: PLR0913 (its surroundings, two of them with a default)
        self,
        state: Path,
        start: Callable[[str], Child],
        *,
        log: structlog.stdlib.BoundLogger,
        policy: RestartPolicy,
        pumps: int = 1,
        clock: Clock | None = None,
    ) -> None:
        """*start* starts a child for a job, by name; each job has *pumps* children."""
        self._state = state
        self._start = start
        self._log = log
        self._pumps = pumps
        self._clock = clock or SystemClock()
        self._restarts = Restarts(policy)
        self._jobs: dict[str, _Job] = {}
        self._stopped = threading.Event()
        self._is_idle_said = False

    def metrics_ports(self) -> Mapping[int, str]:
        """Return the ports of the children's metrics, and the numbers of their pumps.

        Any one thread may call.
        """
        pumps = [(pump.number, pump.child) for pump in self._all()]
        return {
            port: str(number)
            for number, child in pumps
            if child is not None and (port := child.metrics_port())
        }

    def kill(self) -> None:
        """End all children at once. Any thread may call it, and then ends this process."""
        for pump in self._all():
            if pump.child is not None:
                pump.child.kill()

    def stop(self) -> None:
        """Request the end. Any thread may call it."""
        self._stopped.set()

    def run(self) -> None:
        """Supervise the jobs until stopped, then end all children."""
        notes = open_notes(self._state)
        try:
            while not self._stopped.wait(LOOK_EVERY_SECONDS):
                try:
                    self.look(notes)
                except StoreUnavailableError as error:
                    self._log.warning("store_unavailable", error=str(error))
        finally:
            notes.close()
            self._end()

    def look(self, notes: NoteCopy) -> None:
        """Start, stop and check children.

        Raises:
            StateLostError: the state file is gone.

        """
        notes.check()
        board = notes.board
        routes = {route.job for route in board.routes()}
        self._say_what_is_missing(notes, is_idle=not routes)
        for name in routes | set(self._jobs):
            if name not in self._jobs:
                pumps = [_Pump(number) for number in range(1, self._pumps + 1)]
                self._jobs[name] = _Job(pumps, is_on_spark=engine_of(notes, name) == SPARK)
            job, wanted = self._jobs[name], board.wanted(name)
            if wanted != job.wanted:  # The target state changed: a failed job may work now.
                job.wanted, job.is_on_spark = wanted, engine_of(notes, name) == SPARK
                for pump in job.pumps:
                    pump.not_before_ms = 0
                    self._restarts.forget(_key(name, pump))
            store = notes.store(name)
            for pump in job.pumps:
                self._check_child(store, name, pump)
            if job.troubled and any(pump.child for pump in job.pumps) and not store.problem():
                job.troubled = False
                self._show(store, name, job.pumps[0], Observed.UNASSIGNED, "")
            to_run = name in routes and (wanted.state is not Desired.STOPPED or wanted.mixed)
            for pump in job.pumps:
                is_extra = job.is_on_spark and pump.number > 1  # On Spark a job has one driver.
                self._settle(name, pump, to_run=to_run and not is_extra)
            if not to_run and not any(pump.child for pump in job.pumps):
                del self._jobs[name]

    def _say_what_is_missing(self, notes: NoteCopy, *, is_idle: bool) -> None:
        """Log once, while there is no job, which statement would make one."""
        if is_idle and not self._is_idle_said:
            commands = Commands(notes)
            for each in missing(len(commands.sinks()), len(commands.sources())):
                self._log.warning("nothing_to_run", missing=each.key, hint=each.hint)
        self._is_idle_said = is_idle

    def _settle(self, name: str, pump: _Pump, *, to_run: bool) -> None:
        """Start the child of a job that should run, and end that of a job that should not."""
        if not to_run and pump.child is not None and not pump.leaving:
            pump.leaving = True
            pump.child.terminate()
        elif to_run and pump.child is None and self._is_due(pump):
            pump.child, pump.leaving = self._start(name), False
            pump.wanted = self._jobs[name].wanted
            self._log.info("job_started", job=name, pump=pump.number)

    def _is_due(self, pump: _Pump) -> bool:
        return pump.not_before_ms is not None and self._clock.monotonic_ms() >= pump.not_before_ms

    def _check_child(self, store: Store, name: str, pump: _Pump) -> None:
        status = None if pump.child is None else pump.child.poll()
        if status is None:
            return
        pump.child = None
        # The target state may have changed since the end: the only source of the job may have been
        # dropped, and created again before this look.
        is_outdated = pump.wanted != self._jobs[name].wanted
        if status == 0 or pump.leaving:
            is_over = status == 0 and not pump.leaving and not is_outdated
            pump.not_before_ms = None if is_over else 0
            return
        problem = store.problem()
        again_ms = self._again_ms(_key(name, pump), status, problem)
        if again_ms is None and is_outdated:
            again_ms = 0
        pump.not_before_ms = again_ms
        is_again = again_ms is not None
        self._log.error("job_failed", job=name, pump=pump.number, status=status, again=is_again)
        job = self._jobs[name]
        if not any(other.child for other in job.pumps):  # Else others own its splits.
            job.troubled = True
            state = Observed.RESTARTING if is_again else Observed.FAILED
            reason = problem or f"its process ended with status {status}"
            self._show(store, name, pump, state, reason)

    def _again_ms(self, key: str, status: int, problem: str) -> int | None:
        """Return when to restart a pump that ended; a missing thing may appear at any time."""
        now_ms = self._clock.monotonic_ms()
        if status == _ENVIRONMENT_STATUS:
            return self._restarts.awaits(key, now_ms)
        error = ConfigError([Problem("", problem)]) if status == _CONFIG_STATUS else None
        return self._restarts.failed(key, now_ms, error)

    def _show(self, store: Store, name: str, pump: _Pump, state: Observed, reason: str) -> None:
        next_ms = None
        if state is Observed.RESTARTING and pump.not_before_ms is not None:
            left_ms = pump.not_before_ms - self._clock.monotonic_ms()
            next_ms = self._clock.wall_ms() + left_ms
        row = Seen(
            split=WHOLE_JOB,
            state=state,
            generation=self._jobs[name].wanted.generation,
            reason=reason,
            attempt=self._restarts.count(_key(name, pump)),
            next_attempt_ms=next_ms,
        )
        store.see([row])

    def _all(self) -> Sequence[_Pump]:
        return [pump for job in list(self._jobs.values()) for pump in job.pumps]

    def _end(self) -> None:
        children = [pump.child for pump in self._all() if pump.child is not None]
        for child in children:
            child.terminate()
        until_ms = self._clock.monotonic_ms() + int(STOP_SECONDS_MAX * 1000)
        for child in children:
            left_ms = max(0, until_ms - self._clock.monotonic_ms())
            try:
                child.wait(left_ms / 1000)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _key(job: str, pump: _Pump) -> str:
    return f"{pump.number} {job}"

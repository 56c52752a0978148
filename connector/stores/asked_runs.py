"""Runs of bulk work that statements request, such as snapshots, and their progress; kept as notes.

Statements write the order of a run, and the process that takes it writes the progress; neither
writes the other's. The run table has the shards that are done, under the name of the run.
"""

import datetime as dt
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from headrace.connector.foundation.states import Desired
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.note_copy import NoteCopy

# Kinds of notes, by the names of runs.
ASKED: Final = "asked_runs"
SEEN: Final = "asked_runs_seen"
NAMES_MAX: Final = 100  # Runs kept of one source; the oldest that are over are removed first.


class RunKind(StrEnum):
    """The kind of a run."""

    SNAPSHOT = "snapshot"
    """Sends the rows of a table."""
    REPLAY = "replay"
    """Sends changes of the logs again."""
    RECONCILE = "reconcile"
    """Compares the logs with the topic, and the topic with the table."""


class RunState(StrEnum):
    """The state of a run."""

    WAITING = "WAITING"
    """No worker takes it: the job does not run, or takes another one first."""
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    COMPLETED = "COMPLETED"


OVER: Final = (RunState.STOPPED, RunState.COMPLETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a run, by the process that takes it. Times are ms since 1970.

    `shards` are the parts of a run, ranges of tokens of a snapshot. `changes` counts those of
    finished shards that the target has accepted, `size_bytes` the bytes of their values; `lost`
    counts changes that it rejected permanently, or that could not be made into records. `rate` is
    the number of changes a second since the attempt started. `differences` counts the findings of a
    comparison, and `result` describes the outcome of a run. `attempt` is the last request to
    continue that was followed.
    """

    state: RunState = RunState.WAITING
    shards: int = 0
    done: int = 0
    changes: int = 0
    size_bytes: int = 0
    rate: float = 0
    lost: int = 0
    differences: int | None = None
    result: str = ""
    problem: str = ""
    attempt: int = 0
    begun_ms: int | None = None
    ended_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order of a run.

    For a snapshot, a range in `tokens` excludes its first token and includes its last, and `key`
    has the columns of a partition key, with values as JSON. Other runs read changes written from
    `from_us` on and before `to_us`, in µs since 1970. `options` are as the statement gave them.
    """

    kind: RunKind = RunKind.SNAPSHOT
    tokens: tuple[tuple[int, int], ...] = ()
    key: Mapping[str, str | int | float | bool] | None = None
    from_us: int | None = None
    to_us: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRun:
    """A run of `source`. Each request to continue increases `attempt`."""

    name: str
    source: str
    asked_ms: int
    order: Order = field(default_factory=Order)
    wanted: Desired = Desired.RUNNING
    attempt: int = 0

    def state(self, seen: Progress) -> RunState:
        """Return the state to show: a pause or a stop counts at once."""
        if seen.state is RunState.COMPLETED or self.wanted is Desired.RUNNING:
            is_retried = seen.state is RunState.FAILED and seen.attempt != self.attempt
            return RunState.WAITING if is_retried else seen.state
        is_paused = self.wanted is Desired.PAUSED
        return RunState.PAUSED if is_paused else RunState.STOPPED


class AskedRuns:
    """The runs of all sources. Use it from the thread of *notes* only."""

    def __init__(self, notes: NoteCopy) -> None:
        """Read nothing yet."""
        self._notes = notes

    # For the command service, inside its transactions.

    def ask(self, source: str, now_ms: int, order: Order, *, name: str | None = None) -> str:
        """Request a run, and return its name; an existing one of that *name* is unchanged.

        Runs are in the order of their requests, even within a millisecond.
        """
        at = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC)
        name = name or f"{order.kind}-{at:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
        if self._notes.get(ASKED, name) is not None:
            return name
        known = self.all()
        asked_ms = max([now_ms, *(each.asked_ms + 1 for each, _ in known[:1])])
        mine = [(each, seen) for each, seen in known if each.source == source]
        over = [each.name for each, seen in mine if each.state(seen) in OVER]
        for old in over[NAMES_MAX - 1 :]:
            self.forget(old)
        made = AskedRun(name=name, source=source, asked_ms=asked_ms, order=order)
        self._notes.put_document(ASKED, name, made)
        return name

    def want(self, run: AskedRun, wanted: Desired) -> None:
        """Set the target state of a run; RUNNING also repeats its failed shards."""
        attempt = run.attempt + (wanted is Desired.RUNNING)
        self._notes.put_document(ASKED, run.name, replace(run, wanted=wanted, attempt=attempt))

    def forget_source(self, source: str) -> None:
        """Remove the runs of a dropped source."""
        for each, _ in self.all(source):
            self.forget(each.name)

    def forget(self, name: str) -> None:
        """Remove a run; a process that takes it ends within a second."""
        self._notes.put(ASKED, name, None)
        self._notes.put(SEEN, name, None)

    # For the process that takes them.

    def report(self, name: str, progress: Progress) -> None:
        """Store the progress of a run, unless the run was removed."""
        with self._notes.transaction():
            if self._notes.get(ASKED, name) is not None:
                self._notes.put_document(SEEN, name, progress)

    # For all.

    def get(self, name: str) -> tuple[AskedRun, Progress] | None:
        """Return the run with this name, and its progress; None if it does not exist."""
        with self._notes.snapshot():
            found = self._notes.document(ASKED, name, AskedRun)
            seen = self._notes.document(SEEN, name, Progress)
        return None if found is None else (found, seen or Progress())

    def all(
        self, source: str | None = None, kind: RunKind | None = None
    ) -> Sequence[tuple[AskedRun, Progress]]:
        """Return all runs, or those of a *source* or *kind*, newest first, with their progress."""
        with self._notes.snapshot():
            seen = self._notes.documents(SEEN, Progress)
            found = self._notes.documents(ASKED, AskedRun).values()
        mine = [
            each
            for each in found
            if source in (None, each.source) and kind in (None, each.order.kind)
        ]
        mine.sort(key=lambda each: (each.asked_ms, each.name), reverse=True)
        return [(each, seen.get(each.name, Progress())) for each in mine]


def not_followed(store: Store) -> Sequence[str] | None:
    """Return the splits of a job that have no position yet; None if it has no splits yet.

    A table is read only once all splits have one: a change before the positions is in the table, a
    change after them is in the logs that are read, and one between both would be in neither.
    """
    begun = {state.split for state in store.states() if state.position is not None}
    splits = store.plans().in_force.splits
    return [split for split in splits if split not in begun] if splits else None

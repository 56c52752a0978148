"""Runs of bulk work that statements ask for, and how far each is: snapshots and others. As notes.

Statements write what is wanted of a run, and the process that takes it how far it is; neither
writes the other's. Which of its shards are done is in the run table, under the name of the run.
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
NAMES_MAX: Final = 100  # Runs of one source that are kept; the oldest that are over go first.


class RunKind(StrEnum):
    """What a run does."""

    SNAPSHOT = "snapshot"
    """Sends what a table holds."""
    REPLAY = "replay"
    """Sends changes of the logs again."""
    RECONCILE = "reconcile"
    """Compares the logs with what was sent, and with the table."""


class RunState(StrEnum):
    """How a run is."""

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
    """What the process that takes a run has seen. Times are ms since 1970.

    `shards` are the parts of a run, ranges of tokens of a snapshot. `changes` are those that the
    target has accepted of shards that are done, `size_bytes` the bytes of their values; `lost`
    are changes that it refused permanently, or that could not be made into records. `rate` is
    the number of changes a second since the attempt started. `differences` is what a comparison
    found, and `result` says what a run came to. `attempt` is the request to continue that was
    followed last.
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
    """What a run is to do.

    Of a snapshot, a range in `tokens` excludes its first token and includes its last, and `key`
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
        """Return what is shown of it: a pause or a stop counts at once."""
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
        """Ask for a run, and return its name; one of that *name* is left as it is.

        Runs have the order in which they were asked for, also in the same millisecond.
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
        """Set what is wanted of a run; RUNNING also repeats what failed."""
        attempt = run.attempt + (wanted is Desired.RUNNING)
        self._notes.put_document(ASKED, run.name, replace(run, wanted=wanted, attempt=attempt))

    def forget_source(self, source: str) -> None:
        """Remove the runs of a source that is dropped."""
        for each, _ in self.all(source):
            self.forget(each.name)

    def forget(self, name: str) -> None:
        """Remove a run; a process that takes it ends within a second."""
        self._notes.put(ASKED, name, None)
        self._notes.put(SEEN, name, None)

    # For the process that takes them.

    def report(self, name: str, progress: Progress) -> None:
        """Store how far a run is; nothing of one that was removed."""
        with self._notes.transaction():
            if self._notes.get(ASKED, name) is not None:
                self._notes.put_document(SEEN, name, progress)

    # For all.

    def get(self, name: str) -> tuple[AskedRun, Progress] | None:
        """Return the run of that name, and how far it is; None if there is none."""
        with self._notes.snapshot():
            found = self._notes.document(ASKED, name, AskedRun)
            seen = self._notes.document(SEEN, name, Progress)
        return None if found is None else (found, seen or Progress())

    def all(
        self, source: str | None = None, kind: RunKind | None = None
    ) -> Sequence[tuple[AskedRun, Progress]]:
        """Return all runs, or those of a *source* or *kind*, newest first, and how far each is."""
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

    A table is read only when there is none: a change before the positions is in the table, one
    after them is in the logs that are read, and one between both would be in neither.
    """
    begun = {state.split for state in store.states() if state.position is not None}
    splits = store.plans().in_force.splits
    return [split for split in splits if split not in begun] if splits else None

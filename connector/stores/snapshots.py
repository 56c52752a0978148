"""Snapshots of tables: those that were asked for, and how far each is. Kept as notes.

Statements write what is wanted of a snapshot, and the process that takes it how far it is; neither
writes the other's. Which ranges of tokens are done is in the run of the snapshot's name.
"""

import datetime as dt
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from headrace.connector.foundation.states import Desired
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.note_copy import NoteCopy

# Kinds of notes, by the names of snapshots.
ASKED: Final = "snapshots"
SEEN: Final = "snapshots_seen"
NAMES_MAX: Final = 100  # Snapshots of one source that are kept; the oldest that are over go first.


class SnapshotState(StrEnum):
    """How a snapshot is."""

    WAITING = "WAITING"
    """No worker reads it: the job does not run, or does not follow the logs yet."""
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    COMPLETED = "COMPLETED"


OVER: Final = (SnapshotState.STOPPED, SnapshotState.COMPLETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the process that takes a snapshot has seen. Times are ms since 1970.

    `rows` are changes that the sink has accepted of ranges that are done; `lost` those that it
    refused permanently, or that could not be made into records. `attempt` is the request to
    continue that was followed last.
    """

    state: SnapshotState = SnapshotState.WAITING
    ranges: int = 0
    done: int = 0
    rows: int = 0
    lost: int = 0
    problem: str = ""
    attempt: int = 0
    begun_ms: int | None = None
    ended_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot of the table of `source`: of all of it, or of a part.

    A range in `tokens` excludes its first token and includes its last. `key` has the columns of a
    partition key, with values as JSON. Each request to continue increases `attempt`.
    """

    name: str
    source: str
    asked_ms: int
    wanted: Desired = Desired.RUNNING
    attempt: int = 0
    tokens: tuple[tuple[int, int], ...] = ()
    key: Mapping[str, str | int | float | bool] | None = None

    def state(self, seen: Progress) -> SnapshotState:
        """Return what is shown of it: a pause or a stop counts at once."""
        if seen.state is SnapshotState.COMPLETED or self.wanted is Desired.RUNNING:
            is_retried = seen.state is SnapshotState.FAILED and seen.attempt != self.attempt
            return SnapshotState.WAITING if is_retried else seen.state
        is_paused = self.wanted is Desired.PAUSED
        return SnapshotState.PAUSED if is_paused else SnapshotState.STOPPED


class Snapshots:
    """The snapshots of all sources. Use it from the thread of *notes* only."""

    def __init__(self, notes: NoteCopy) -> None:
        """Read nothing yet."""
        self._notes = notes

    # For the command service, inside its transactions.

    def ask(
        self,
        source: str,
        now_ms: int,
        *,
        tokens: tuple[tuple[int, int], ...] = (),
        key: Mapping[str, str | int | float | bool] | None = None,
        name: str | None = None,
    ) -> str:
        """Ask for a snapshot, and return its name; one of that *name* is left as it is."""
        at = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC)
        name = name or f"snapshot-{at:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
        if self._notes.get(ASKED, name) is not None:
            return name
        over = [each.name for each, seen in self.all(source) if each.state(seen) in OVER]
        for old in over[NAMES_MAX - 1 :]:
            self._forget(old)
        made = Snapshot(name=name, source=source, asked_ms=now_ms, tokens=tokens, key=key)
        self._notes.put_document(ASKED, name, made)
        return name

    def want(self, snapshot: Snapshot, wanted: Desired) -> None:
        """Set what is wanted of a snapshot; RUNNING also repeats what failed."""
        attempt = snapshot.attempt + (wanted is Desired.RUNNING)
        changed = replace(snapshot, wanted=wanted, attempt=attempt)
        self._notes.put_document(ASKED, snapshot.name, changed)

    def forget(self, source: str) -> None:
        """Remove the snapshots of a source that is dropped."""
        for each, _ in self.all(source):
            self._forget(each.name)

    def _forget(self, name: str) -> None:
        self._notes.put(ASKED, name, None)
        self._notes.put(SEEN, name, None)

    # For the process that takes them.

    def report(self, name: str, progress: Progress) -> None:
        """Store how far a snapshot is; nothing of one that was removed."""
        with self._notes.transaction():
            if self._notes.get(ASKED, name) is not None:
                self._notes.put_document(SEEN, name, progress)

    # For all.

    def get(self, name: str) -> tuple[Snapshot, Progress] | None:
        """Return the snapshot of that name, and how far it is; None if there is none."""
        with self._notes.snapshot():
            found = self._notes.document(ASKED, name, Snapshot)
            seen = self._notes.document(SEEN, name, Progress)
        return None if found is None else (found, seen or Progress())

    def all(self, source: str | None = None) -> Sequence[tuple[Snapshot, Progress]]:
        """Return all snapshots, or those of *source*, the newest first, and how far they are."""
        with self._notes.snapshot():
            seen = self._notes.documents(SEEN, Progress)
            found = self._notes.documents(ASKED, Snapshot).values()
        mine = [each for each in found if source in (None, each.source)]
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

"""The control thread's view of its splits: their states, and when to retry a failed one.

It makes rows of the board from events. It decides about restarts; `LeaseHolder` and the pipeline
carry them out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final

from msgspec.structs import replace

from headrace.connector.foundation.states import Event, Observed, follows
from headrace.connector.stores import Seen
from headrace.plugins import HeadraceError

RESTART_PAUSE_MS_MAX: Final = 600_000
AWAIT_PAUSE_MS_MAX: Final = 30_000
HEALTHY_MS: Final = 600_000  # After it, a split has its whole budget of restarts again.
REFRESH_MS: Final = 5_000
REFRESHED_MAX: Final = 64  # How many unchanged rows to return at a time.
_DOUBLINGS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Pulse:
    """The progress of the pipeline: when each split moved last, and why it has not moved since.

    A split moves when something of it is read or settled, and when there is nothing to read. At
    `looked_ms` the source reported no news of the splits that are not in `moved_ms`; None: all are
    in it.
    """

    moved_ms: Mapping[str, int]
    reasons: Mapping[str, str]
    paused: bool
    looked_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often to retry a failed split, with doubling pauses that start with `pause_ms`."""

    restarts_max: int
    pause_ms: int


@dataclass(slots=True)
class _Attempts:
    count: int = 0
    failed_ms: int = 0


class Restarts:
    """The budget of restarts of each split, or of each job."""

    def __init__(self, policy: RestartPolicy) -> None:
        """Start with whole budgets."""
        self._policy = policy
        self._attempts: dict[str, _Attempts] = {}

    def awaits(self, name: str, now_ms: int) -> int:
        """Return when to check again for something that is missing; without a limit."""
        attempts = self._attempts.setdefault(name, _Attempts())
        attempts.failed_ms = now_ms
        pause_ms = self._policy.pause_ms << min(attempts.count, _DOUBLINGS_MAX)
        attempts.count += 1
        return now_ms + min(pause_ms, AWAIT_PAUSE_MS_MAX)

    def failed(self, name: str, now_ms: int, error: HeadraceError | None) -> int | None:
        """Return when to retry, or None: the budget is spent, or a retry is useless.

        *error* is None for a process that died without an error, for any cause.
        """
        attempts = self._attempts.setdefault(name, _Attempts())
        if now_ms - attempts.failed_ms > HEALTHY_MS:
            attempts.count = 0
        attempts.failed_ms = now_ms
        hopeless = error is not None and not error.restartable
        if hopeless or attempts.count >= self._policy.restarts_max:
            return None
        pause_ms = self._policy.pause_ms << min(attempts.count, _DOUBLINGS_MAX)
        attempts.count += 1
        return now_ms + min(pause_ms, RESTART_PAUSE_MS_MAX)

    def count(self, name: str) -> int:
        """Return how many times in a row *name* was retried."""
        return self._attempts.get(name, _Attempts()).count

    def forget(self, name: str) -> None:
        """Restore the whole budget: a user requested a restart."""
        self._attempts.pop(name, None)


class SplitWatch:
    """The rows of the splits that this worker owns, or that failed here."""

    def __init__(
        self, *, worker: str, generation: int, stall_ms: int, policy: RestartPolicy
    ) -> None:
        """*stall_ms* without moving is a stall."""
        self._worker = worker
        self._generation = generation
        self._stall_ms = stall_ms
        self._restarts = Restarts(policy)
        self._rows: dict[str, Seen] = {}
        self._odd: set[str] = set()  # The splits that do not run, or are stalled.
        self._unreported: dict[str, None] = {}  # Those whose rows changed, in their order.
        self._reported_ms: dict[str, int] = {}  # When the others were returned, in that order.

    @property
    def waiting(self) -> Sequence[str]:
        """The splits that wait for a retry."""
        return [s for s in self._odd if self._rows[s].state is Observed.RESTARTING]

    def states(self) -> Mapping[str, Observed]:
        """Return the observed state of each split. Any thread may call."""
        return {split: row.state for split, row in dict(self._rows).items()}

    def claimed(self, splits: Iterable[str]) -> None:
        """Record that splits were gained."""
        for split in splits:
            self._happens(split, Event.CLAIMED)

    def released(self, split: str) -> None:
        """Record that a split was given back, or lost."""
        self._happens(split, Event.RELEASED)

    def failed(self, split: str, error: HeadraceError, *, now_ms: int, wall_ms: int) -> int | None:
        """Record that a split failed; return when to retry, on the clock of *now_ms*."""
        again_ms = self._restarts.failed(split, now_ms, error)
        event = Event.FAILED_FOR_GOOD if again_ms is None else Event.FAILED_FOR_NOW
        next_ms = None if again_ms is None else wall_ms + again_ms - now_ms
        self._happens(split, event, reason=f"{error.code}: {error}", next_ms=next_ms)
        return again_ms

    def asked(self, split: str) -> None:
        """Record that a restart of *split* was requested."""
        self._restarts.forget(split)

    def pulse(self, pulse: Pulse, now_ms: int) -> None:
        """Update the splits from the pipeline's report."""
        for split, moved_ms in pulse.moved_ms.items():
            self._pulsed(split, moved_ms, pulse, now_ms)
        if pulse.looked_ms is not None:  # Other splits change only if they did not run.
            others = list(self._rows) if pulse.paused else list(self._odd)
            for split in others:
                if split not in pulse.moved_ms:
                    self._pulsed(split, pulse.looked_ms, pulse, now_ms)

    def _pulsed(self, split: str, moved_ms: int, pulse: Pulse, now_ms: int) -> None:
        if pulse.paused:
            self._happens(split, Event.PAUSED)
        elif now_ms - moved_ms >= self._stall_ms:
            still = f"{(now_ms - moved_ms) // 1000} s without progress"
            reason = f"{still}: {pulse.reasons.get(split, 'nothing was read')}"
            self._happens(split, Event.HELD_UP, reason=reason)
        else:
            self._happens(split, Event.MOVED)

    def silent(self, silent_ms: int, place: str) -> None:
        """Record that the pipeline has not responded for *silent_ms*: a call of a plugin hangs."""
        if silent_ms < self._stall_ms:
            return
        reason = f"a call has not returned for {silent_ms // 1000} s ({place})"
        for split, row in self._rows.items():
            if row.state in (Observed.RUNNING, Observed.STALLED):
                self._happens(split, Event.HELD_UP, reason=reason)

    def changed_rows(self, now_ms: int) -> Sequence[Seen]:
        """Return the rows that changed since the last call, and some others, in turns.

        The row of a split that was given away is returned once: its next owner reports it after
        that.
        """
        old = takewhile(lambda s: now_ms - self._reported_ms[s] >= REFRESH_MS, self._reported_ms)
        splits = [*self._unreported, *islice(old, REFRESHED_MAX)]
        rows = [self._rows[split] for split in splits]
        self._unreported.clear()
        for row in rows:
            self._reported_ms.pop(row.split, None)
            if row.state is Observed.UNASSIGNED:
                del self._rows[row.split]
                self._odd.discard(row.split)
            else:
                self._reported_ms[row.split] = now_ms
        return rows

    def _happens(
        self, split: str, event: Event, *, reason: str = "", next_ms: int | None = None
    ) -> None:
        before = self._rows.get(split)
        if before is None:
            before = Seen(
                split=split,
                state=Observed.UNASSIGNED,
                generation=self._generation,
                worker=self._worker,
            )
        if event in (Event.MOVED, Event.PAUSED, Event.HELD_UP) and not _owned(before.state):
            return  # The pulse is from before the split was given back.
        state, attempt = follows(before.state, event), self._restarts.count(split)
        now = (state, reason, attempt, next_ms)
        if split in self._rows and now == _standing(before):
            return
        self._rows[split] = replace(
            before, state=state, reason=reason, attempt=attempt, next_attempt_ms=next_ms
        )
        self._unreported[split] = None
        self._reported_ms.pop(split, None)
        if state is Observed.RUNNING:
            self._odd.discard(split)
        else:
            self._odd.add(split)


def _standing(row: Seen) -> tuple[Observed, str, int, int | None]:
    return row.state, row.reason, row.attempt, row.next_attempt_ms


def _owned(state: Observed) -> bool:
    return state in (Observed.RUNNING, Observed.STALLED, Observed.PAUSED)


@dataclass(frozen=True, slots=True)
class PartRows:
    """Makes the rows in which a worker reports parts of a source, beside those of splits.

    Their key is `mark` and the part's name, where rows of splits have the split's name.
    """

    mark: str
    generation: int
    worker: str

    def of(self, now: Mapping[str, str], state: Observed, *, before: Iterable[str]) -> list[Seen]:
        """Return rows for the parts in *now*, with the reasons, and for those only in *before*."""
        states = {part: (state, reason) for part, reason in now.items()}
        gone = {part: (Observed.UNASSIGNED, "") for part in before if part not in now}
        return [
            Seen(
                split=f"{self.mark}{part}",
                state=state,
                generation=self.generation,
                worker=self.worker,
                reason=reason,
            )
            for part, (state, reason) in (states | gone).items()
        ]

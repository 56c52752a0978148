"""What the control thread sees of its splits: their states, and when a failed one is tried again.

It turns what happens into rows of the board. It decides about restarts; the keeper and the pipeline
carry them out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace.connector.states import Event, Observed, follows
from headrace.connector.stores import Seen
from headrace.plugins import HeadraceError

RESTART_PAUSE_MS_MAX: Final = 600_000
AWAIT_PAUSE_MS_MAX: Final = 30_000
HEALTHY_MS: Final = 600_000  # Who has run for so long has its whole budget of restarts again.
REFRESH_MS: Final = 5_000
_DOUBLINGS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Pulse:
    """How the pipeline fares: when each split moved last, and what holds it up since.

    A split moves when something of it is read or settled, and when there is nothing to read.
    """

    moved_ms: Mapping[str, int]
    reasons: Mapping[str, str]
    paused: bool


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often what failed is tried again: doubling pauses, from `pause_ms` on."""

    restarts_max: int
    pause_ms: int


@dataclass(slots=True)
class _Attempts:
    count: int = 0
    failed_ms: int = 0


class Restarts:
    """The budget of restarts, by split; also of whole jobs."""

    def __init__(self, policy: RestartPolicy) -> None:
        """Everything has its whole budget."""
        self._policy = policy
        self._attempts: dict[str, _Attempts] = {}

    def awaits(self, name: str, now_ms: int) -> int:
        """Return when to look again for something that is not there: that has no end."""
        attempts = self._attempts.setdefault(name, _Attempts())
        attempts.failed_ms = now_ms
        pause_ms = self._policy.pause_ms << min(attempts.count, _DOUBLINGS_MAX)
        attempts.count += 1
        return now_ms + min(pause_ms, AWAIT_PAUSE_MS_MAX)

    def failed(self, name: str, now_ms: int, error: HeadraceError | None) -> int | None:
        """Return when to try again, or None: the budget is spent, or trying is useless.

        None as *error* is a death without last words, which may have any cause.
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
        """Return how many times in a row *name* was tried again."""
        return self._attempts.get(name, _Attempts()).count

    def forget(self, name: str) -> None:
        """Give the whole budget back: somebody asked for a restart."""
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
        self._told: dict[str, Seen] = {}
        self._told_ms: int | None = None

    @property
    def waiting(self) -> Sequence[str]:
        """The splits that are to be tried again."""
        return [s for s, row in self._rows.items() if row.state is Observed.RESTARTING]

    def states(self) -> Mapping[str, Observed]:
        """Return in what state each split is seen. Any thread may ask."""
        return {split: row.state for split, row in dict(self._rows).items()}

    def claimed(self, splits: Iterable[str]) -> None:
        """Note that splits were gained."""
        for split in splits:
            self._happens(split, Event.CLAIMED)

    def released(self, split: str) -> None:
        """Note that a split was given back, or lost."""
        self._happens(split, Event.RELEASED)

    def failed(self, split: str, error: HeadraceError, *, now_ms: int, wall_ms: int) -> int | None:
        """Note that a split failed; return when to try again, on the clock of *now_ms*."""
        again_ms = self._restarts.failed(split, now_ms, error)
        event = Event.FAILED_FOR_GOOD if again_ms is None else Event.FAILED_FOR_NOW
        next_ms = None if again_ms is None else wall_ms + again_ms - now_ms
        self._happens(split, event, reason=f"{error.code}: {error}", next_ms=next_ms)
        return again_ms

    def asked(self, split: str) -> None:
        """Note that somebody asked for a restart of *split*."""
        self._restarts.forget(split)

    def pulse(self, pulse: Pulse, now_ms: int) -> None:
        """Take over what the pipeline says of the splits it runs."""
        for split, moved_ms in pulse.moved_ms.items():
            if pulse.paused:
                self._happens(split, Event.PAUSED)
            elif now_ms - moved_ms >= self._stall_ms:
                still = f"{(now_ms - moved_ms) // 1000} s without progress"
                reason = f"{still}: {pulse.reasons.get(split, 'nothing was read')}"
                self._happens(split, Event.HELD_UP, reason=reason)
            else:
                self._happens(split, Event.MOVED)

    def silent(self, silent_ms: int, place: str) -> None:
        """Note that the pipeline has not answered for *silent_ms*: a call of a plugin hangs."""
        if silent_ms < self._stall_ms:
            return
        reason = f"a call has not returned for {silent_ms // 1000} s ({place})"
        for split, row in self._rows.items():
            if row.state in (Observed.RUNNING, Observed.STALLED):
                self._happens(split, Event.HELD_UP, reason=reason)

    def changed_rows(self, now_ms: int) -> Sequence[Seen]:
        """Return the rows that differ from those returned before; now and then, all.

        The row of a split that was given away is returned once: what becomes of the split is for
        its next owner to tell.
        """
        if self._told_ms is None or now_ms - self._told_ms >= REFRESH_MS:
            self._told_ms, self._told = now_ms, {}
        changed = [row for split, row in self._rows.items() if self._told.get(split) != row]
        self._told |= {row.split: row for row in changed}
        for row in changed:
            if row.state is Observed.UNASSIGNED:
                del self._rows[row.split], self._told[row.split]
        return changed

    def _happens(
        self, split: str, event: Event, *, reason: str = "", next_ms: int | None = None
    ) -> None:
        before = self._rows.get(split)
        if before is None:
            before = self._rows[split] = Seen(
                split=split,
                state=Observed.UNASSIGNED,
                generation=self._generation,
                worker=self._worker,
            )
        if event in (Event.MOVED, Event.PAUSED, Event.HELD_UP) and not _owned(before.state):
            return  # A pulse from before it was given back.
        self._rows[split] = replace(
            before,
            state=follows(before.state, event),
            reason=reason,
            attempt=self._restarts.count(split),
            next_attempt_ms=next_ms,
        )


def _owned(state: Observed) -> bool:
    return state in (Observed.RUNNING, Observed.STALLED, Observed.PAUSED)

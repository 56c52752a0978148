"""The target state of a connector, the observed states of its splits, and their transitions.

The command service stores target states, the worker stores observed states; neither writes the
other's. Pure: only this module defines which state may follow which, and the state of a connector
whose splits differ.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from headrace.plugins.stores.control_store import Observed, Seen

__all__ = [
    "TRANSITIONS",
    "Desired",
    "Event",
    "Observed",
    "connector_state",
    "follows",
    "split_state",
    "worst",
]


class Desired(StrEnum):
    """The target state that a user asked for."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    """Nothing is read; leases and readers are kept, batches in flight settle and are committed."""
    STOPPED = "STOPPED"
    """Leases and readers are given back; positions are kept and may be edited."""


class Event(StrEnum):
    """An event of a split, as its worker observes it."""

    CLAIMED = "claimed"
    MOVED = "moved"
    HELD_UP = "held_up"
    PAUSED = "paused"
    RELEASED = "released"
    FAILED_FOR_NOW = "failed_for_now"
    FAILED_FOR_GOOD = "failed_for_good"


_UNASSIGNED, _RUNNING, _STALLED = Observed.UNASSIGNED, Observed.RUNNING, Observed.STALLED
_PAUSED, _RESTARTING, _FAILED = Observed.PAUSED, Observed.RESTARTING, Observed.FAILED

_OWNED: Final = {
    Event.CLAIMED: _RUNNING,
    Event.MOVED: _RUNNING,
    Event.HELD_UP: _STALLED,
    Event.PAUSED: _PAUSED,
    Event.RELEASED: _UNASSIGNED,
    Event.FAILED_FOR_NOW: _RESTARTING,
    Event.FAILED_FOR_GOOD: _FAILED,
}
# A split that fails first gives its lease back: a renewal in between finds the lease lost. A split
# whose lease was lost and gained again may fail under both tokens, one after the other.
_NOT_OWNED: Final = {
    Event.CLAIMED: _RUNNING,
    Event.RELEASED: _UNASSIGNED,
    Event.FAILED_FOR_NOW: _RESTARTING,
    Event.FAILED_FOR_GOOD: _FAILED,
}

TRANSITIONS: Final[Mapping[Observed, Mapping[Event, Observed]]] = {
    _UNASSIGNED: _NOT_OWNED,
    _RUNNING: _OWNED,
    _STALLED: _OWNED,
    _PAUSED: _OWNED,
    _RESTARTING: _NOT_OWNED,
    _FAILED: _NOT_OWNED,
}

# Most urgent first.
_WORST_FIRST: Final = (
    Observed.FAILED,
    Observed.RESTARTING,
    Observed.STALLED,
    Observed.UNASSIGNED,
    Observed.RUNNING,
    Observed.PAUSED,
    Observed.STOPPED,
)


def follows(state: Observed, event: Event) -> Observed:
    """Return the state of a split after *event* in *state*. Raises KeyError if it cannot happen."""
    return TRANSITIONS[state][event]


def split_state(owner: str | None, problem: str, seen: Seen | None) -> Observed:
    """Return the state of a split.

    *owner* is the live worker that has its lease, *problem* is why the last owner gave it up.
    *seen* counts only if *owner* wrote it, because a process that is killed cannot update it.
    """
    if owner:
        return seen.state if seen is not None and seen.worker == owner else _RUNNING
    if not problem:
        return _UNASSIGNED
    is_tried_again = seen is not None and seen.state is _RESTARTING
    return _RESTARTING if is_tried_again else _FAILED


def connector_state(desired: Desired, job: Observed, splits: Iterable[Observed]) -> Observed:
    """Return the state of a connector.

    *job* is UNASSIGNED unless the job as a whole failed, or is restarting. A connector with the
    target state STOPPED is STOPPED once no split has an owner, unless it failed.
    """
    if job in (Observed.FAILED, Observed.RESTARTING) and desired is not Desired.STOPPED:
        return job
    found = set(splits)
    if desired is Desired.STOPPED and found <= {_UNASSIGNED, _FAILED, _RESTARTING}:
        return Observed.STOPPED
    return worst(found)


def worst(states: Iterable[Observed]) -> Observed:
    """Return the most urgent of *states*; UNASSIGNED if there are none."""
    return min(states, key=_WORST_FIRST.index, default=Observed.UNASSIGNED)

"""States: what is wanted of a connector, what is seen of a split, and how one follows another.

What is wanted is stored by the command service, what is seen by the worker; neither writes the
other's. Pure: this is the one place that says which state may follow which, and what a connector
is called whose splits differ.
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
    """What a user asked for."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    """Nothing is read; leases and readers are kept, what is under way settles and is committed."""
    STOPPED = "STOPPED"
    """Leases and readers are given back; positions are kept and may be edited."""


class Event(StrEnum):
    """What happens to a split, as its worker sees it."""

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
# Who fails gives the lease back first: a renewal in between finds it lost. One that was lost and
# gained again may fail under both tokens, one after the other.
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

# From what a person should look at first.
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
    """Return the state of a split in *state* to which *event* happens. KeyError: it cannot."""
    return TRANSITIONS[state][event]


def split_state(owner: str | None, problem: str, seen: Seen | None) -> Observed:
    """Return the state of a split.

    *owner* is the live worker that has its lease, *problem* why the last one gave it up. What is
    *seen* counts only as far as the owner saw it: a process that was killed does not say so.
    """
    if owner:
        return seen.state if seen is not None and seen.worker == owner else _RUNNING
    if not problem:
        return _UNASSIGNED
    is_tried_again = seen is not None and seen.state is _RESTARTING
    return _RESTARTING if is_tried_again else _FAILED


def connector_state(desired: Desired, job: Observed, splits: Iterable[Observed]) -> Observed:
    """Return what a connector is called.

    *job* is UNASSIGNED unless the job as a whole failed, or is tried again. A connector that is
    stopped is STOPPED when no split is owned any more, unless it failed.
    """
    if job in (Observed.FAILED, Observed.RESTARTING) and desired is not Desired.STOPPED:
        return job
    found = set(splits)
    if desired is Desired.STOPPED and found <= {_UNASSIGNED, _FAILED, _RESTARTING}:
        return Observed.STOPPED
    return worst(found)


def worst(states: Iterable[Observed]) -> Observed:
    """Return the one that a person should look at first; of none, UNASSIGNED."""
    return min(states, key=_WORST_FIRST.index, default=Observed.UNASSIGNED)

"""Gaps of a job: lists those that its splits met, and moves the splits past them (I10)."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from headrace.connector.control.errors import NotFoundError, NotStoppedError
from headrace.connector.control.status import live_workers, time_text
from headrace.connector.foundation.processes import is_dead
from headrace.connector.stores import Owner, SplitState
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import Gap, LeaseLostError, Position, Source
from headrace.plugins.positions import ACCEPTED


class JobGap(msgspec.Struct, frozen=True):
    """A gap, and the splits that met it."""

    gap: Gap
    splits: Sequence[str]

    def is_for(self, policy: str) -> bool:
        """Whether the gap can be accepted with *policy*.

        It can be accepted again until its splits are past it, because an error can leave a first
        attempt half done: positions and target states may be in different stores.
        """
        return self.gap.is_open or (self.gap.state, self.gap.policy) == (ACCEPTED, policy)


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """A request that *job* continue after these open gaps; `policy` is `expire` or `assume`."""

    job: str
    names: Sequence[str]
    policy: str

    @property
    def name(self) -> str:
        """The subject in the audit."""
        return f"{self.job}: {', '.join(self.names)} ({self.policy})"


class Gaps:
    """The gaps of all jobs. Use it from the thread of *notes* only."""

    def __init__(self, notes: NoteCopy, *, dead: Callable[[Owner], bool] = is_dead) -> None:
        """*dead* returns True only if the owner is certain to be dead."""
        self._notes = notes
        self._dead = dead

    def of(self, job: str, source: type[Source]) -> Sequence[JobGap]:
        """Return the gaps of *job*, in the order in which its splits found them."""
        return _gaps_in(_positions(self._notes.store(job).states(), source))

    def accept(self, acceptance: Acceptance, source: type[Source]) -> Sequence[JobGap]:
        """Move the splits that stopped at the gaps past them, and restart these splits.

        Raises:
            NotFoundError: one of the names is not that of an open gap.
            NotStoppedError: one of the splits is owned by a live worker, or its sink may have a
                newer position.

        """
        store = self._notes.store(acceptance.job)
        with self._notes.transaction():
            positions = _positions(store.states(), source)
            accepted = _accepted(acceptance, _gaps_in(positions))
            splits = sorted({split for each in accepted for split in each.splits})
            moved = {
                split: positions[split].without_gaps(acceptance.names, acceptance.policy).encode()
                for split in splits
            }
            if unknown := self._notes.behind(acceptance.job).intersection(splits):
                message = f"split {min(unknown)} is still stopping"
                hint = "wait a moment; if nothing runs the job, run it"
                raise NotStoppedError("gap", message, hint)
            try:
                store.reposition(moved, busy=live_workers(store, self._dead))
            except LeaseLostError as error:
                message = f"{error.place} is still stopping"
                raise NotStoppedError("gap", message, "wait a moment") from error
            self._notes.board.ask_restart(acceptance.job, splits)
        return accepted


def gap_facts(each: JobGap) -> Mapping[str, object]:
    """Return the displayed facts about a gap, by name."""
    gap = each.gap
    return {
        "gap": gap.name,
        "state": gap.state,
        "policy": gap.policy or "-",
        "kind": gap.kind,
        "noticed": time_text(gap.noticed_ms),
        "from": _place(gap.begin),
        "to": _place(gap.end),
        "bytes": gap.size_bytes or "-",
        "splits": ",".join(each.splits),
    }


def _place(offset: Mapping[str, int | str]) -> str:
    return ":".join(str(part) for part in offset.values())


def _positions(states: Sequence[SplitState], source: type[Source]) -> Mapping[str, Position]:
    return {
        state.split: source.decode_position(state.position)
        for state in states
        if state.position is not None
    }


def _gaps_in(positions: Mapping[str, Position]) -> Sequence[JobGap]:
    found: dict[tuple[str, str], tuple[Gap, list[str]]] = {}
    for split, position in positions.items():
        for gap in position.gaps():
            found.setdefault((gap.name, gap.state), (gap, []))[1].append(split)
    made = [JobGap(gap, splits) for gap, splits in found.values()]
    return sorted(made, key=lambda each: (each.gap.noticed_ms, each.gap.name))


def _accepted(acceptance: Acceptance, gaps: Sequence[JobGap]) -> Sequence[JobGap]:
    found = [each for each in gaps if each.is_for(acceptance.policy)]
    names = {each.gap.name for each in found}
    if unknown := sorted(set(acceptance.names) - names):
        known = ", ".join(sorted(names)) or "none"
        raise NotFoundError("gap", f"no open gap is {unknown[0]!r}", f"there are: {known}")
    return [each for each in found if each.gap.name in acceptance.names]

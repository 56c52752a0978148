"""Shows positions as Kafka Connect does, and changes those of a job that no worker runs.

Only the source's plugin can interpret a position: it describes it, and moves it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from headrace.connector.control.errors import NotStoppedError
from headrace.connector.control.status import live_workers
from headrace.connector.foundation.processes import is_dead
from headrace.connector.stores import Owner, SplitState
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import (
    ConfigError,
    EncodedPosition,
    LeaseLostError,
    Position,
    Problem,
    Relocation,
    Source,
)

SPLIT_KEY: Final = "split"  # In a partition: the split that the part belongs to.
AT_KEY: Final = "at"  # In an offset, instead of the keys of the source: a place as in SET POSITION.


class Offset(msgspec.Struct, frozen=True):
    """A part of a split's position: `partition` has the split and the keys that the source adds.

    In a change, a part without `offset` restarts from the beginning.
    """

    partition: Mapping[str, str]
    offset: Mapping[str, int | str] | None


class OffsetsChange(msgspec.Struct, frozen=True):
    """The offsets of the changed splits before and after a change; of a dry run, as predicted."""

    before: Sequence[Offset]
    after: Sequence[Offset]


class Offsets:
    """Reads and changes the positions of all jobs. Use it from the thread of *notes* only."""

    def __init__(self, notes: NoteCopy, *, dead: Callable[[Owner], bool] = is_dead) -> None:
        """*dead* returns True only if the owner is certain to be dead."""
        self._notes = notes
        self._dead = dead

    def live(self, job: str) -> frozenset[str]:
        """Return the workers of *job* that are not known to be dead."""
        return frozenset(live_workers(self._notes.store(job), self._dead))

    def of(self, job: str, source: type[Source]) -> Sequence[Offset]:
        """Return the committed position of every split of *job*."""
        return [part for state in self.states(job) for part in _shown(state, source)]

    def alter(
        self, job: str, source: type[Source], wanted: Sequence[Offset], *, dry_run: bool
    ) -> OffsetsChange:
        """Move parts of positions. Raises ConfigError with every part that cannot be moved."""
        states = {state.split: state for state in self.states(job)}
        moved: dict[str, Position | None] = {}
        problems: list[Problem] = []
        for number, part in enumerate(wanted):
            partition = dict(part.partition)
            split = partition.pop(SPLIT_KEY, "")
            before = _position(states[split], source) if split in states else None
            if before is None:
                known = ", ".join(s for s, found in states.items() if found.position) or "none"
                problems.append(
                    Problem(
                        f"offsets[{number}].partition.split",
                        f"split {split!r} does not exist, or has no position",
                        f"there are: {known}",
                    )
                )
                continue
            position = moved.get(split) or before
            try:
                after = position.moved(partition, part.offset)
                restarts = part.offset is None and len(position.describe()) == 1
                moved[split] = None if restarts else after
            except ConfigError as error:
                problems += [
                    Problem(f"offsets[{number}].{p.key}", p.message, p.hint) for p in error.problems
                ]
        if problems:
            raise ConfigError(problems)
        return self.move(job, source, dict(moved), dry_run=dry_run)

    def reset(self, job: str, source: type[Source], *, dry_run: bool) -> OffsetsChange:
        """Make every split of *job* restart from the beginning."""
        restarted = {state.split: None for state in self.states(job)}
        return self.move(job, source, restarted, dry_run=dry_run)

    def move(
        self,
        job: str,
        source: type[Source],
        positions: Mapping[str, Position | None],
        *,
        dry_run: bool,
    ) -> OffsetsChange:
        """Replace whole positions; with None a split restarts from the beginning."""
        if not dry_run:
            self._know(job, positions)
        concerned = [state for state in self.states(job) if state.split in positions]
        before = [part for state in concerned for part in _shown(state, source)]
        after = [
            Offset({SPLIT_KEY: split, **partition}, offset)
            for split, position in positions.items()
            for partition, offset in (position.describe() if position else ())
        ]
        if not dry_run:
            encoded: dict[str, EncodedPosition | None] = {
                split: position.encode() if position else None
                for split, position in positions.items()
            }
            try:
                self._notes.store(job).reposition(encoded, busy=self.live(job))
            except LeaseLostError as error:
                hint = "wait a moment"
                raise NotStoppedError("table", f"job {job} is still stopping", hint) from error
        return OffsetsChange(before, after)

    def _know(self, job: str, splits: Iterable[str]) -> None:
        """Create the states of splits that were never read, to set their positions."""
        known = [state.split for state in self.states(job)]
        if not set(splits) <= set(known):
            self._notes.store(job).register([*known, *splits])

    def states(self, job: str) -> Sequence[SplitState]:
        """Return the committed state of each split of *job*."""
        return self._notes.store(job).states()


def _position(state: SplitState, source: type[Source]) -> Position | None:
    if state.position is None:
        return source.first_position() if issubclass(source, Relocation) else None
    return source.decode_position(state.position)


def _shown(state: SplitState, source: type[Source]) -> Sequence[Offset]:
    if state.position is None:
        return []
    described = source.decode_position(state.position).describe()
    return [Offset({SPLIT_KEY: state.split, **part}, offset) for part, offset in described]

"""Damage in the logs: each place is reported once, by the split that books its log."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from headrace.plugins import HeadraceError, Quarantined
from headrace.sources.cassandra.reading.split_feed import OwnedSplit
from headrace.sources.cassandra.ring.splits import number_of, place_of
from headrace.sources.cassandra.state.cdc_state import StoredGap

DAMAGE_MAX: Final = 1_000  # Damaged places that are reported individually.


class Lost(msgspec.Struct, frozen=True):
    """One damaged place in a node's log: an entry, a section, or the rest of a segment."""

    node: str
    item: Quarantined


class Losses:
    """The damage so far by place, and `bytes`, the size of what was not yet taken."""

    def __init__(self, home: Callable[[str], int], splits: int) -> None:
        """*home* returns the token whose split, one of *splits*, books the losses of a log."""
        self.damage: dict[str, HeadraceError] = {}
        self.bytes = 0
        self._home = home
        self._splits = splits
        self._lost: dict[int, list[Lost]] = {}

    def booking(self, node: str) -> tuple[int, int]:
        """Return the split that books what belongs to no split, and the log's token."""
        token = self._home(node)
        return number_of(token, self._splits), token

    def add(
        self,
        owned: Mapping[int, OwnedSplit],
        gap: StoredGap,
        error: HeadraceError,
        item: Quarantined | None,
    ) -> None:
        """Record damage in a log, unless another process books it."""
        number, token = self.booking(gap.node)
        books = owned.get(number)
        if books is None or gap.end <= books.resumed_at(gap.node, place_of(token)):
            return
        if len(self.damage) < DAMAGE_MAX:
            self.damage.setdefault(error.place, error)
        if item is not None:
            self._lost.setdefault(number, []).append(Lost(gap.node, item))
            self.bytes += len(item.content)

    def take(self, number: int) -> Sequence[Lost]:
        """Return the damage since the last call that split *number* books."""
        lost = self._lost.pop(number, ())
        for each in lost:
            self.bytes -= len(each.item.content)
        return lost

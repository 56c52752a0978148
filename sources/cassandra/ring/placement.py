"""Computes the replicas of each token range, as Cassandra's strategies place them. Pure.

The driver computes them too, but counts a node of several tokens twice if a data centre has more
copies than racks.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class Place(NamedTuple):
    """The data centre and the rack of a node."""

    centre: str
    rack: str


class _Lack:
    """The nodes that a data centre still needs; only some may be of racks that have one already."""

    def __init__(self, copies: int, racks: Sequence[str]) -> None:
        """Set the number of copies, and the rack of each node of the data centre."""
        self.nodes = min(copies, len(racks))
        self._repeats = copies - len(set(racks))
        self._racks: set[str] = set()

    def takes(self, rack: str) -> bool:
        """Return whether the next node, which has no copy yet, becomes a replica."""
        if self.nodes == 0 or (rack in self._racks and self._repeats <= 0):
            return False
        self._repeats -= rack in self._racks
        self._racks.add(rack)
        self.nodes -= 1
        return True


def holders(
    ring: Sequence[tuple[int, str]], places: Mapping[str, Place], copies: Mapping[str, int]
) -> Iterator[tuple[int, frozenset[str]]]:
    """Yield, for each token of *ring*, the replicas of the range that ends with it.

    *ring* has the tokens, ascending, and the names of their nodes. *copies* are counted by data
    centre; SimpleStrategy is one data centre, in which each node has a rack of its own.
    """
    racks = {c: [at.rack for at in places.values() if at.centre == c] for c in copies}
    walk = [name for _, name in ring] * 2
    for start, (token, _) in enumerate(ring):
        wanted = {centre: _Lack(count, racks[centre]) for centre, count in copies.items()}
        found: set[str] = set()
        missing = sum(lack.nodes for lack in wanted.values())
        for at in range(start, start + len(ring)):
            if missing == 0:
                break
            name = walk[at]
            centre, rack = places[name]
            if name not in found and centre in wanted and wanted[centre].takes(rack):
                found.add(name)
                missing -= 1
        yield token, frozenset(found)

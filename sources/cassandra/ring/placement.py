"""Which nodes have copies of each range of tokens, as Cassandra's strategies place them. Pure.

The driver has them too, but where copies outnumber racks it counts a node of several tokens twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class Place(NamedTuple):
    """Where a node stands."""

    centre: str
    rack: str


class _Lack:
    """What a data centre still needs: nodes, of which only some may be of racks that have one."""

    def __init__(self, copies: int, racks: Sequence[str]) -> None:
        """Begin; *racks* are those of its nodes, each as often as it has nodes."""
        self.nodes = min(copies, len(racks))
        self._repeats = copies - len(set(racks))
        self._racks: set[str] = set()

    def takes(self, rack: str) -> bool:
        """Say whether the next node is taken that has no copy yet."""
        if self.nodes == 0 or (rack in self._racks and self._repeats <= 0):
            return False
        self._repeats -= rack in self._racks
        self._racks.add(rack)
        self.nodes -= 1
        return True


def holders(
    ring: Sequence[tuple[int, str]], places: Mapping[str, Place], copies: Mapping[str, int]
) -> Iterator[tuple[int, frozenset[str]]]:
    """Yield, for each token of *ring*, the nodes with copies of the range that ends with it.

    *ring* has the tokens, ascending, and the names of their nodes. *copies* are counted by data
    centre; SimpleStrategy is one centre, in which each node has a rack of its own.
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

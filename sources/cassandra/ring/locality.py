"""Computes the part of each split that a node has copies of. Pure."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from headrace.sources.cassandra.ring.splits import RING, Arc, arc_of, place_of
from headrace.sources.cassandra.ring.topology import Topology


def shares(
    version: Topology, keyspaces: Sequence[str], splits: Sequence[str]
) -> Mapping[str, Mapping[str, float]]:
    """Return the part of the tokens in *keyspaces* that each node holds, by split and node.

    Raises:
        TopologyError: the replicas of a keyspace cannot be determined.

    """
    rings = [  # Per keyspace, the place after each range, and its replicas.
        ([place_of(each.token) + 1 for each in ranges], [each.replicas for each in ranges])
        for keyspace in keyspaces
        if (ranges := version.ring(keyspace))
    ]
    found: dict[str, Mapping[str, float]] = {}
    for split in splits:
        arc = arc_of(split)
        assert arc is not None  # noqa: S101 (a split of the ring)
        held: Counter[str] = Counter()
        for ends, replicas in rings:
            for number, size in _pieces(arc, ends):
                for node in replicas[number]:
                    held[node] += size
        whole = max(1, len(rings) * (arc.behind - arc.first))
        found[split] = {node: size / whole for node, size in sorted(held.items())}
    return found


def _pieces(arc: Arc, ends: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the ranges that overlap an arc, and the size of each overlap."""
    number, first = bisect_left(ends, arc.first + 1), arc.first
    while first < arc.behind:
        behind = min(arc.behind, ends[number] if number < len(ends) else RING)
        yield number % len(ends), behind - first
        number, first = number + 1, behind

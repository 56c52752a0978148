"""Which part of a split each node holds, against counting tokens one by one."""

from collections import Counter
from random import Random

import pytest

from headrace.sources.cassandra.ring.locality import shares
from headrace.sources.cassandra.ring.splits import count_for, names
from headrace.sources.cassandra.ring.topology import Node, Topology
from headrace.sources.cassandra.schema.tables import KeyspaceSchema

SIMPLE = {"class": "SimpleStrategy", "replication_factor": "2"}
PLACES = 1 << 12


def test_shares_are_those_of_the_tokens() -> None:
    """Of evenly spread tokens of a split, so many are held by each node, of two keyspaces."""
    random = Random(5)  # noqa: S311 (a test's dice)
    nodes = [
        Node(f"n{n}", tuple(random.randrange(-(1 << 63), 1 << 63) for _ in range(4)))
        for n in range(5)
    ]
    keyspaces = [
        KeyspaceSchema("a", SIMPLE),
        KeyspaceSchema("b", SIMPLE | {"replication_factor": "3"}),
    ]
    version = Topology.of(nodes, keyspaces, "ONE")
    found = shares(version, ["a", "b"], names(7))
    assert set(names(7)) == found.keys()

    held: Counter[tuple[int, str]] = Counter()
    for keyspace in ("a", "b"):
        ring = version.ring(keyspace)
        for place in range(PLACES):
            token = (place << 52) - (1 << 63)
            owner = next((each for each in ring if token <= each.token), ring[0])
            for node in owner.replicas:
                held[place * 7 // PLACES, node] += 1
    for (number, node), count in held.items():
        expected = count * 7 / PLACES / 2
        assert expected == pytest.approx(found[f"{number + 1}-of-7"].get(node, 0), abs=0.01)
    assert 2.5 == pytest.approx(sum(found["1-of-7"].values()))


def test_a_ring_without_tokens_holds_all_everywhere() -> None:
    """Each node is near to all of each split."""
    nodes = [Node("n1"), Node("n2")]
    version = Topology.of(nodes, [KeyspaceSchema("a", SIMPLE)], "ONE")

    assert {"1-of-1": {"n1": 1.0, "n2": 1.0}} == shares(version, ["a", "unknown"], names(1))


@pytest.mark.parametrize(
    ("workers", "nodes", "expected"),
    [(1, 3, 8), (2, 3, 8), (3, 3, 16), (4, 64, 64), (500, 64, 2048), (5_000, 64, 4096)],
)
def test_the_number_follows_ring_and_workers(workers: int, nodes: int, expected: int) -> None:
    """At least four for each worker and one for each node, in powers of two, up to a bound."""
    assert expected == count_for(workers, nodes)

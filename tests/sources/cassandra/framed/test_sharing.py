"""Which replica sends a mutation's bytes: of those whose logs are read, each an equal part."""

import pytest

from headrace.sources.cassandra.framed.sharing import Shares, no_shares, shares_of
from headrace.sources.cassandra.ring.topology import Node, Topology
from headrace.sources.cassandra.schema.ddl import parse_schema

pytestmark = pytest.mark.hot

NODES = ("a", "b", "c", "d")
_KEYSPACE = """
CREATE KEYSPACE %s WITH replication = {'class': 'SimpleStrategy', 'replication_factor': '%d'};
CREATE TABLE %s.t (k blob PRIMARY KEY) WITH cdc = true AND ID = %s;
"""
_ID = "%d0000000-3b1e-11ef-9d2b-0f1e2d3c4b5a"
SCHEMA = parse_schema(
    "".join(
        _KEYSPACE % (name, copies, name, _ID % number)
        for number, (name, copies) in enumerate((("k3", 3), ("k1", 1), ("away", 2)))
    )
)
TOPOLOGY = Topology.of(
    [Node(name, (-300 + 200 * number,)) for number, name in enumerate(NODES)],
    [SCHEMA.keyspaces["k3"], SCHEMA.keyspaces["k1"]],
    "QUORUM",
)
TOKENS = (-(1 << 63), -301, -300, -299, 0, 299, 300, 301, (1 << 63) - 1)


def shares(node: str, *read: str) -> Shares:
    """Return the shares of a node's log, of the delivered keyspaces."""
    return shares_of(TOPOLOGY, ["k3", "k1"], SCHEMA, node, read or NODES)


def senders(table: str, token: int, digest: int, *read: str) -> list[str]:
    """Return the nodes that send the bytes of a mutation."""
    found = SCHEMA.table(table)
    assert found is not None
    raw = found.table_id.bytes
    high, low = int.from_bytes(raw[:8]), int.from_bytes(raw[8:])
    named = []
    for node in read or NODES:
        made = shares(node, *read)
        share = made.of(high, low, token)
        if share == 0 or made.sends(share, digest):
            named.append(node)
    return named


def replicas(token: int) -> set[str]:
    """Return the three that have a token, by the ring's definition: its owner and the next two."""
    owner = next((n for n in range(4) if token <= -300 + 200 * n), 0)
    return {NODES[(owner + step) % 4] for step in range(3)}


@pytest.mark.parametrize("token", TOKENS)
def test_one_replica_sends_each_mutation(token: int) -> None:
    """By its digest, each of the three sends a third; the log that has none of it is not asked."""
    (other,) = set(NODES) - replicas(token)
    found = [senders("k3.t", token, digest) for digest in (3, 4, 5, (1 << 64) - 1)]

    assert replicas(token) == {node for each in found[:3] for node in each if node != other}
    assert all(len(set(each) - {other}) == 1 for each in found)


def test_only_logs_that_are_read_count() -> None:
    """Of two replicas that are read, each sends half; one alone sends all, as does one of RF 1."""
    token = 0  # c, d and a have it.

    assert [["c"], ["d"]] == [senders("k3.t", token, digest, "c", "d") for digest in (0, 1)]
    assert [["c", "b"]] * 2 == [senders("k3.t", token, digest, "c", "b") for digest in (0, 1)]
    assert list(NODES) == senders("k1.t", token, 1)


def test_what_is_not_delivered_is_sent_by_all() -> None:
    """Its replicas are not known: nor are those of a table that is in no schema."""
    assert list(NODES) == senders("away.t", 0, 1)
    assert 0 == shares("a").of(1, 2, 0) == no_shares().of(1, 2, 0)

"""The ring as the driver's metadata has it: names, data centres, vnodes, what changed."""

from ipaddress import IPv4Address
from uuid import UUID

import pytest
from cassandra.connection import DefaultEndPoint
from cassandra.metadata import Metadata
from cassandra.policies import SimpleConvictionPolicy
from cassandra.pool import Host

from headrace.sources.cassandra.errors import TopologyError
from headrace.sources.cassandra.ring.live_ring import nodes_of
from headrace.sources.cassandra.ring.topology import Node

MURMUR3 = "org.apache.cassandra.dht.Murmur3Partitioner"
RANDOM = "org.apache.cassandra.dht.RandomPartitioner"


def host(number: int, *, dc: str = "dc1", rack: str = "rack1") -> Host:
    """Return a member as the driver keeps it."""
    address = str(IPv4Address("10.0.0.0") + number)
    made = Host(DefaultEndPoint(address), SimpleConvictionPolicy, host_id=UUID(int=number))
    made.set_location_info(dc, rack)
    made.broadcast_address = str(IPv4Address("192.168.0.0") + number)
    return made


def metadata(tokens: dict[Host, list[str]], partitioner: str = MURMUR3) -> Metadata:
    """Return the driver's metadata of a cluster."""
    made = Metadata()
    for each in tokens:
        made.add_or_return_host(each)
    made.rebuild_token_map(partitioner, tokens)
    return made


def test_members_have_our_names() -> None:
    """A node is found by its address among nodes or clients, or by its host id."""
    one, two, three, four = (host(n, rack=f"r{n}") for n in range(1, 5))
    cluster = metadata({one: ["-5", "7"], two: ["1"], three: ["2"], four: ["9"]})
    names = {"192.168.0.1": "a", "10.0.0.2": "b", str(UUID(int=3)): "c", "unknown": "d"}

    assert [
        Node(str(UUID(int=4)), (9,), "dc1", "r4"),
        Node("a", (-5, 7), "dc1", "r1"),
        Node("b", (1,), "dc1", "r2"),
        Node("c", (2,), "dc1", "r3"),
    ] == nodes_of(cluster, names)


def test_a_ring_that_changes_is_another_one() -> None:
    """A node that came, and one that moved, show as soon as the driver knows."""
    one, two = host(1), host(2, dc="dc2")
    cluster = metadata({one: ["1"]})
    before = nodes_of(cluster, {})
    cluster.add_or_return_host(two)
    cluster.rebuild_token_map(MURMUR3, {one: ["3"], two: ["2"]})
    after = nodes_of(cluster, {})

    assert [(1,)] == [node.tokens for node in before]
    assert [("dc1", (3,)), ("dc2", (2,))] == [(node.datacenter, node.tokens) for node in after]


def test_other_partitioners_are_refused() -> None:
    """Tokens that are not Murmur3's say nothing of the keys in a log."""
    with pytest.raises(TopologyError, match="MD5Tokens"):
        nodes_of(metadata({host(1): ["1"]}, RANDOM), {})


def test_nothing_is_known_yet() -> None:
    """Before the driver has read the ring there are no nodes."""
    assert () == nodes_of(Metadata(), {})

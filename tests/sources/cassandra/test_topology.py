"""Which nodes hold a token: as the driver's metadata has it; and what is refused."""

from collections.abc import Mapping, Sequence

import pytest
from cassandra.metadata import KeyspaceMetadata, Metadata, Murmur3Token
from cassandra.policies import SimpleConvictionPolicy
from cassandra.pool import Host
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.cassandra.agreement import Agreement
from headrace.sources.cassandra.errors import TopologyError
from headrace.sources.cassandra.records import Groups
from headrace.sources.cassandra.schema import KeyspaceSchema
from headrace.sources.cassandra.topology import HOSTS_MAX, LEVELS, Node, replica_groups

tokens = st.integers(-(1 << 63) + 1, (1 << 63) - 1)
NEEDED = {"ONE": 1, "TWO": 2, "THREE": 3}


@st.composite
def rings(draw: st.DrawFn) -> list[Node]:
    """Draw nodes with tokens, in data centres and racks."""
    count = draw(st.integers(1, 7))
    size = draw(st.integers(1, 4))
    drawn = draw(st.lists(tokens, min_size=count * size, max_size=count * size, unique=True))
    return [
        Node(
            f"n{i}",
            tuple(drawn[i * size : (i + 1) * size]),
            draw(st.sampled_from(["dc1", "dc2"])),
            draw(st.sampled_from(["r1", "r2", "r3"])),
        )
        for i in range(count)
    ]


def keyspace(**replication: str) -> KeyspaceSchema:
    """Return a keyspace replicated like this; `class_` is the strategy."""
    strategy = replication.pop("class_")
    return KeyspaceSchema("ks", {"class": strategy, **replication})


def simple(copies: int) -> KeyspaceSchema:
    """Return a keyspace of SimpleStrategy."""
    name = "org.apache.cassandra.locator.SimpleStrategy"
    return keyspace(class_=name, replication_factor=str(copies))


def oracle(
    nodes: Sequence[Node], replication: Mapping[str, str], wanted: Sequence[int]
) -> list[set[str]]:
    """Return the names of the replicas of each token, as a driver's session would route."""
    metadata = Metadata()
    token_map = {}
    for i, node in enumerate(nodes):
        host = Host(f"127.0.0.{i + 1}", SimpleConvictionPolicy, host_id=i)
        host.set_location_info(node.datacenter, node.rack)
        metadata.add_or_return_host(host)
        token_map[host] = [str(token) for token in node.tokens]
    metadata.keyspaces = {}
    metadata.rebuild_token_map("org.apache.cassandra.dht.Murmur3Partitioner", token_map)
    options = {name: value for name, value in replication.items() if name != "class"}
    metadata.keyspaces["ks"] = KeyspaceMetadata(
        "ks", durable_writes=True, strategy_class=replication["class"], strategy_options=options
    )
    metadata.token_map.rebuild_keyspace("ks", build_if_absent=True)
    return [
        {
            nodes[int(host.host_id)].name
            for host in metadata.token_map.get_replicas("ks", Murmur3Token(token))
        }
        for token in wanted
    ]


def replicas(groups: Groups, nodes: Sequence[Node], token: int) -> set[str]:
    """Return who holds *token*: those whose copy alone satisfies ONE."""
    agreement = Agreement(groups)
    return {
        node.name
        for host, node in enumerate(nodes)
        if agreement.observe(host, 1, host, 0, token, 1, 1, 10)
    }


@given(nodes=rings(), copies=st.integers(1, 5), others=st.lists(tokens, max_size=5))
def test_simple_replicas_are_the_drivers(nodes: list[Node], copies: int, others: list[int]) -> None:
    """Every token, those of the ring and their neighbours too, has the replicas a driver uses."""
    groups = replica_groups(nodes, [simple(copies)], "ONE")
    wanted = interesting(nodes, others)

    assert oracle(
        nodes, {"class": "SimpleStrategy", "replication_factor": str(copies)}, wanted
    ) == [replicas(groups, nodes, token) for token in wanted]


@given(
    nodes=rings(), one=st.integers(1, 3), two=st.integers(0, 3), others=st.lists(tokens, max_size=5)
)
def test_replicas_in_data_centres_are_the_drivers(
    nodes: list[Node], one: int, two: int, others: list[int]
) -> None:
    """Racks and data centres are minded as a driver minds them."""
    factors = {"dc1": str(one), "dc2": str(two)}
    wanted = interesting(nodes, others)
    expected = oracle(nodes, {"class": "NetworkTopologyStrategy", **factors}, wanted)
    made = keyspace(class_="NetworkTopologyStrategy", **factors)
    if not all(expected):
        with pytest.raises(TopologyError, match="the job reads 0"):
            replica_groups(nodes, [made], "ONE")
        return

    groups = replica_groups(nodes, [made], "ONE")

    assert expected == [replicas(groups, nodes, token) for token in wanted]


def interesting(nodes: Sequence[Node], others: Sequence[int]) -> list[int]:
    """Return the ring's tokens, the ones beside them, the ends, and some more."""
    ring = [token for node in nodes for token in node.tokens]
    beside = [token + step for token in ring for step in (-1, 0, 1)]
    low, high = -(1 << 63), (1 << 63) - 1
    return [token for token in (*beside, low, high, *others) if low <= token <= high]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("copies", [3, 4, 5])
def test_a_level_asks_for_so_many_copies(level: str, copies: int) -> None:
    """ONE, TWO and THREE say it; QUORUM is more than half of the copies, ALL is all of them."""
    nodes = [Node(f"n{i}") for i in range(copies)]
    needed = NEEDED.get(level) or {"QUORUM": copies // 2 + 1, "ALL": copies}[level]
    agreement = Agreement(replica_groups(nodes, [simple(copies)], level))

    verdicts = [agreement.observe(host, 1, 2, 0, 5, 1, 1, 10) for host in range(copies)]

    assert [0] * (needed - 1) + [needed] + [0] * (copies - needed) == verdicts


def test_nodes_without_tokens_hold_everything() -> None:
    """Where each node must have a copy of every row, no tokens are needed."""
    nodes = [Node("a"), Node("b"), Node("c")]

    assert {"a", "b", "c"} == replicas(replica_groups(nodes, [simple(3)], "ONE"), nodes, 77)
    assert {"a", "b", "c"} == replicas(replica_groups(nodes, [simple(5)], "ONE"), nodes, -77)


THREE = [Node("a"), Node("b"), Node("c")]


@pytest.mark.parametrize(
    ("nodes", "replication", "level", "expected"),
    [
        (THREE, simple(2), "ONE", "keyspace ks: 3 nodes but replication factor 2: who holds what"),
        (THREE, simple(5), "ALL", "keyspace ks: level ALL needs 5 of 5 copies, the job reads 3"),
        (THREE[:1], simple(3), "QUORUM", "level QUORUM needs 2 of 3 copies, the job reads 1"),
        (THREE, simple(1), "ONE", "replication factor 1"),
        (THREE, simple(0), "ONE", "is not understood"),
        (THREE, keyspace(class_="SimpleStrategy"), "ONE", "is not understood"),
        (
            THREE,
            keyspace(class_="SimpleStrategy", replication_factor="three"),
            "ONE",
            "is not understood",
        ),
        (THREE, keyspace(class_="LocalStrategy", replication_factor="3"), "ONE", "LocalStrategy"),
        ([Node(f"n{i}") for i in range(HOSTS_MAX + 1)], simple(65), "ONE", "65 nodes; one job"),
        (
            THREE,
            keyspace(class_="NetworkTopologyStrategy", dc1="3", dc2="3"),
            "QUORUM",
            "needs 4 of 6 copies, the job reads 3",
        ),
    ],
)
def test_replicas_that_cannot_be_told_are_refused(
    nodes: Sequence[Node], replication: KeyspaceSchema, level: str, expected: str
) -> None:
    """A level that could never be met, or met by the wrong nodes, is a named error with a hint."""
    with pytest.raises(TopologyError, match=expected) as caught:
        replica_groups(nodes, [replication], level)

    assert caught.value.hint
    assert 2 == caught.value.exit_status


def test_each_keyspace_has_its_own_replicas() -> None:
    """A token may lie on other nodes, and need another count, in another keyspace."""
    nodes = [Node("a", (0,)), Node("b", (100,)), Node("c", (200,))]
    agreement = Agreement(replica_groups(nodes, [simple(3), simple(1)], "QUORUM"))

    assert [0, 2] == [agreement.observe(host, 1, 1, 0, 50, 1, 1, 10) for host in (0, 2)]
    assert [0, 0, 3] == [agreement.observe(host, 2, 2, 1, 50, 1, 1, 10) for host in (0, 2, 1)]

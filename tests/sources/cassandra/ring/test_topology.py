"""Which nodes hold a token: as the driver's metadata has it; and what is refused."""

from collections.abc import Mapping, Sequence

import pytest
from cassandra.metadata import KeyspaceMetadata, Metadata, Murmur3Token
from cassandra.policies import SimpleConvictionPolicy
from cassandra.pool import Host
from hypothesis import given
from hypothesis import strategies as st

from headrace.plugins import ConfigError
from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.errors import TopologyError
from headrace.sources.cassandra.ring.replica_groups import Groups
from headrace.sources.cassandra.ring.topology import (
    LEVELS,
    WHOLE,
    Node,
    Topology,
    can_meet,
    check_readable,
    coverage,
    local_datacenter,
    replica_groups,
    set_replicas,
)
from headrace.sources.cassandra.schema.tables import KeyspaceSchema

tokens = st.integers(-(1 << 63) + 1, (1 << 63) - 1)
NEEDED = {"ONE": 1, "TWO": 2, "THREE": 3, "LOCAL_ONE": 1}


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
    """Return the holders of *token*: their copy alone satisfies ONE."""
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
    missing = {dc for dc in factors if int(factors[dc])} - {node.datacenter for node in nodes}
    if missing:
        with pytest.raises(TopologyError, match=r"the job reads 0|of all data centres; none .* dc"):
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
    """ONE, TWO and THREE say it; a QUORUM is more than half of the copies, ALL is all of them."""
    nodes = [Node(f"n{i}") for i in range(copies)]
    needed = NEEDED.get(level) or (copies if level == "ALL" else copies // 2 + 1)
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
        (THREE, simple(2), "ONE", "keyspace ks: 3 nodes but replication factor 2: the holders"),
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
        (
            THREE,
            keyspace(class_="NetworkTopologyStrategy", dc1="3", dc2="3"),
            "QUORUM",
            "needs the logs of all data centres; none is given of dc2",
        ),
        (
            [Node("a", (0,)), Node("b", (9,)), Node("c", (99,), "dc2")],
            keyspace(class_="NetworkTopologyStrategy", dc1="3", dc2="3"),
            "QUORUM",
            "needs 4 of 6 copies, the job reads 3",
        ),
        (
            [Node("a", (0,)), Node("b", (9,)), Node("c", (99,), "dc2")],
            keyspace(class_="NetworkTopologyStrategy", dc1="3", dc2="3"),
            "EACH_QUORUM",
            "needs 2 of 6 copies, the job reads 1",
        ),
        (
            [Node("a"), Node("b", datacenter="dc2"), Node("c", datacenter="dc2")],
            keyspace(class_="NetworkTopologyStrategy", dc1="2", dc2="1"),
            "ONE",
            "2 nodes but replication factor 1",
        ),
    ],
)
def test_replicas_that_cannot_be_known_are_refused(
    nodes: Sequence[Node], replication: KeyspaceSchema, level: str, expected: str
) -> None:
    """A level that could never be met, or met by the wrong nodes, is a named error with a hint."""
    with pytest.raises(TopologyError, match=expected) as caught:
        replica_groups(nodes, [replication], level)

    assert caught.value.hint
    assert 2 == caught.value.exit_status


ROUND = [Node(f"n{i}", (i * 1_000,)) for i in range(5)]


@pytest.mark.parametrize(
    ("level", "nodes", "read", "can"),
    [
        ("ONE", {"n1"}, 5, True),
        ("QUORUM", {"n1"}, 5, False),
        ("QUORUM", {"n1", "n2"}, 5, True),
        ("QUORUM", {"n0", "n2"}, 5, True),
        ("QUORUM", {"n0", "n3"}, 5, True),
        ("QUORUM", {"n1"}, 4, True),  # It shares tokens with n4, whose log is not read.
        ("QUORUM", {"n2"}, 4, True),
        ("ALL", {"n1", "n2"}, 5, False),
        ("ALL", {"n1", "n2", "n3"}, 5, True),
        ("ALL", {"n1", "n2", "n4"}, 5, False),
    ],
)
def test_nodes_that_can_meet_the_level_by_themselves(
    level: str, nodes: set[str], read: int, *, can: bool
) -> None:
    """They hold some token together, with those whose logs are not read."""
    version = Topology.of(ROUND, [simple(3)], level)
    names = frozenset(node.name for node in ROUND[:read])
    assert can == can_meet(version, "ks", WHOLE, frozenset(nodes), names)
    assert not can_meet(version, "other", WHOLE, frozenset(nodes), names)


def test_only_tokens_of_the_part_count() -> None:
    """Of three copies of the tokens up to 1000 none is on n0."""
    version = Topology.of(ROUND, [simple(3)], "QUORUM")
    names = frozenset(node.name for node in ROUND)
    both = frozenset({"n0", "n1"})
    assert can_meet(version, "ks", (-5, 0), both, names)
    assert not can_meet(version, "ks", (1, 1_000), both, names)


def test_each_keyspace_has_its_own_replicas() -> None:
    """A token may lie on other nodes, and need another count, in another keyspace."""
    nodes = [Node("a", (0,)), Node("b", (100,)), Node("c", (200,))]
    other = KeyspaceSchema("other", simple(1).replication)
    agreement = Agreement(replica_groups(nodes, [simple(3), other], "QUORUM"))

    assert [0, 2] == [agreement.observe(host, 1, 1, 0, 50, 1, 1, 10) for host in (0, 2)]
    assert [0, 0, 3] == [agreement.observe(host, 2, 2, 1, 50, 1, 1, 10) for host in (0, 2, 1)]


TWO_CENTRES = [
    *(Node(f"a{i}", (10 * i,), "east", f"r{i}") for i in range(3)),
    *(Node(f"b{i}", (10 * i + 5,), "west", f"r{i}") for i in range(3)),
]
BOTH = keyspace(class_="NetworkTopologyStrategy", east="3", west="3")


def emitted_at(level: str, order: Sequence[int], local: str = "east") -> int | None:
    """Return how many copies have come, in this order of hosts, when the level is met."""
    agreement = Agreement(replica_groups(TWO_CENTRES, [BOTH], level, local))
    verdicts = [agreement.observe(host, 1, 2, 0, 7, 1, 1, 10) for host in order]
    return next((i + 1 for i, copies in enumerate(verdicts) if copies), None)


@pytest.mark.parametrize(
    ("level", "order", "expected"),
    [
        ("ONE", (5, 0), 1),
        ("LOCAL_ONE", (3, 4, 5, 1), 4),
        ("LOCAL_QUORUM", (3, 4, 5, 0, 2), 5),
        ("LOCAL_QUORUM", (0, 1), 2),
        ("LOCAL_QUORUM", (3, 4, 5, 0), None),
        ("QUORUM", (3, 4, 5, 0), 4),
        ("EACH_QUORUM", (3, 4, 5, 0), None),
        ("EACH_QUORUM", (3, 4, 5, 0, 1), 5),
        ("EACH_QUORUM", (0, 3, 1, 4), 4),
        ("ALL", (0, 1, 2, 3, 4), None),
        ("ALL", (0, 1, 2, 3, 4, 5), 6),
    ],
)
def test_levels_mind_data_centres(level: str, order: Sequence[int], expected: int | None) -> None:
    """LOCAL_ levels count one centre's copies, EACH_QUORUM those of each, the others all."""
    assert expected == emitted_at(level, order)


def test_a_local_level_needs_the_logs_of_one_centre_only() -> None:
    """TP06: what the other centre logs is neither read nor waited for; no copies are refused."""
    east = TWO_CENTRES[:3]
    agreement = Agreement(replica_groups(east, [BOTH], "LOCAL_QUORUM", "east"))
    assert [0, 2] == [agreement.observe(host, 1, 2, 0, 7, 1, 1, 10) for host in (0, 1)]

    only_west = keyspace(class_="NetworkTopologyStrategy", west="3")
    with pytest.raises(TopologyError, match="needs 1 of 3 copies, the job reads 0"):
        replica_groups(TWO_CENTRES, [only_west], "LOCAL_ONE", "east")


def test_the_local_data_centre_is_the_only_one_or_must_be_said() -> None:
    """Several need an option, for the levels that mean one; a centre without nodes is refused."""
    assert "east" == local_datacenter(TWO_CENTRES[:3], "LOCAL_ONE", None)
    assert "west" == local_datacenter(TWO_CENTRES, "LOCAL_ONE", "west")
    assert "" == local_datacenter(TWO_CENTRES, "QUORUM", None)
    with pytest.raises(ConfigError, match="is required for LOCAL_QUORUM"):
        local_datacenter(TWO_CENTRES, "LOCAL_QUORUM", None)
    with pytest.raises(ConfigError, match="no node is in north"):
        local_datacenter(TWO_CENTRES, "ONE", "north")


def test_nodes_without_a_data_centre_are_in_the_only_one() -> None:
    """Its name need not be repeated with each node, with tokens or without."""
    made = keyspace(class_="NetworkTopologyStrategy", datacenter1="2")
    for nodes in ([Node("a"), Node("b")], [Node("a", (0,)), Node("b", (100,))]):
        agreement = Agreement(replica_groups(nodes, [made], "LOCAL_QUORUM"))
        assert [0, 2] == [agreement.observe(host, 1, 2, 0, 5, 1, 1, 10) for host in (0, 1)]


def test_a_joining_node_is_no_replica() -> None:
    """Its log is read, but its copy counts for nothing until it has joined."""
    nodes = [Node("a", (0,)), Node("b", (100,)), Node("c", (50,), joining=True)]

    assert {"b"} == replicas(replica_groups(nodes, [simple(1)], "ONE"), nodes, 40)


@given(
    old=rings(),
    new=rings(),
    copies=st.integers(1, 4),
    level=st.sampled_from(["ONE", "TWO", "QUORUM", "ALL"]),
    wanted=st.lists(tokens, min_size=1, max_size=5),
    data=st.data(),
)
def test_one_of_the_versions_is_enough(  # noqa: PLR0913, PLR0917 (two rings, what is asked of them)
    old: list[Node],
    new: list[Node],
    copies: int,
    level: str,
    wanted: list[int],
    data: st.DataObject,
) -> None:
    """With two versions a record is met when either alone says so, and complete when both do."""
    hosts = sorted({node.name for node in (*old, *new)})
    versions = [Topology.of(nodes, [simple(copies)], level) for nodes in (new, old)]
    alone = [Groups(len(hosts)) for _ in versions]
    both = Groups(len(hosts))
    try:
        for groups, version in zip(alone, versions, strict=True):
            check_readable(version, "ks", hosts)
            set_replicas(groups, hosts, [version], ["ks"])
    except TopologyError:
        return
    set_replicas(both, hosts, versions, ["ks"])
    for token in wanted:
        order = data.draw(st.permutations(range(len(hosts))))

        first = [emission(groups, order, token) for groups in alone]

        assert min(first) == emission(both, order, token)
        last = [completion(groups, order, token) for groups in alone]
        assert max(last) == completion(both, order, token)


def emission(groups: Groups, order: Sequence[int], token: int) -> int:
    """Return after how many hosts a mutation is emitted."""
    agreement = Agreement(groups)
    verdicts = [agreement.observe(host, 1, 2, 0, token, 1, 1, 10) for host in order]
    return [bool(copies) for copies in verdicts].index(True)


def completion(groups: Groups, order: Sequence[int], token: int) -> int:
    """Return after how many hosts a record is complete: then it is forgotten at once."""
    agreement = Agreement(groups)
    for number, host in enumerate(order):
        agreement.observe(host, 1, 2, 0, token, 1, 1, 10)
        agreement.forget_old(1 << 40, 0)
        if agreement.live == 0:
            return number
    raise AssertionError("it is never complete")


@given(nodes=rings(), copies=st.integers(1, 5), level=st.sampled_from(LEVELS))
def test_a_version_is_read_back(nodes: list[Node], copies: int, level: str) -> None:
    """Stored and read back it is the same version, for any order of its nodes."""
    version = Topology.of(nodes, [simple(copies)], level, "dc1")

    assert version == Topology.decode(version.encode())
    assert version == Topology.of(nodes[::-1], [simple(copies)], level, "dc1")


TWO_DCS = keyspace(class_="NetworkTopologyStrategy", dc1="3", dc2="3")


@pytest.mark.parametrize(
    ("level", "replication", "read", "expected"),
    [
        ("QUORUM", simple(3), "abc", None),
        ("QUORUM", simple(3), "ac", (3, 2, 2, ("b",), 3)),
        ("ONE", simple(3), "a", (3, 1, 1, ("b", "c"), 3)),
        ("ONE", simple(3), "ac", (3, 2, 1, ("b",), 2)),
        ("QUORUM", simple(5), "abc", None),
        ("QUORUM", TWO_DCS, "abcdef", None),
        ("QUORUM", TWO_DCS, "abcd", (6, 4, 4, ("e", "f"), 6)),
        ("LOCAL_QUORUM", TWO_DCS, "abc", None),
        ("LOCAL_QUORUM", TWO_DCS, "abd", (3, 2, 2, ("c",), 3)),
        ("EACH_QUORUM", TWO_DCS, "abcef", (3, 2, 2, ("d",), 3)),
    ],
)
def test_copies_that_are_read(
    level: str, replication: KeyspaceSchema, read: str, expected: tuple[object, ...] | None
) -> None:
    """Copies that the level counts and that are not read are reported, also for a whole ring.

    A ring of fewer nodes than copies is read whole by reading all of its nodes.
    """
    names = "abcdef" if replication is TWO_DCS else "abc"
    nodes = [Node(n, (i * 10,), "dc1" if n in "abc" else "dc2") for i, n in enumerate(names)]
    version = Topology.of(nodes, [replication], level, "dc1")
    found = coverage(version, "ks", list(read))

    shown = found and (found.copies, found.read, found.needed, found.unread, found.sure)
    assert expected == shown


@pytest.mark.parametrize(("read", "expected"), [("abc", None), ("ac", (3, 2, 2, (), 3))])
def test_copies_of_a_ring_that_is_not_known(read: str, expected: tuple[object, ...] | None) -> None:
    """Without tokens the nodes that are given are all that is known: the replication has more."""
    version = Topology.of([Node(name) for name in read], [simple(3)], "QUORUM")
    found = coverage(version, "ks", list(read))

    assert expected == (
        found and (found.copies, found.read, found.needed, found.unread, found.sure)
    )

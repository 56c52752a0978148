"""Which versions of the topology a split goes by, from when it sees one until it is retired."""

import pytest

from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.errors import StateError, TopologyError
from headrace.sources.cassandra.reading.topology_versions import Replicas, SplitVersions
from headrace.sources.cassandra.ring.log_slots import LOG_SLOTS_WANTED
from headrace.sources.cassandra.ring.topology import Node, Topology
from headrace.sources.cassandra.schema.tables import KeyspaceSchema
from headrace.sources.cassandra.state.cdc_state import StoredTopology
from headrace.sources.cassandra.state.chunks import Chunk

HOSTS = ("a", "b", "c", "d")
RETIRE = 1000
TOKEN = 50


def keyspace(name: str = "ks", copies: int = 3) -> KeyspaceSchema:
    """Return a keyspace with so many copies."""
    return KeyspaceSchema(name, {"class": "SimpleStrategy", "replication_factor": str(copies)})


def ring(*order: str) -> list[Node]:
    """Return nodes that stand in the ring in this order; TOKEN is the first one's."""
    return [Node(name, (100 * i + 99,)) for i, name in enumerate(order)]


def job(level: str = "ALL", copies: int = 2, splits: int = 1) -> Replicas:
    """Return a job over four nodes, at first with TOKEN on a and b."""
    version = Topology.of(ring(*HOSTS), [keyspace(copies=copies)], level)
    return Replicas(HOSTS, version, ["ks"], splits)


def emitted(agreement: Agreement, number: int, *hosts: int) -> bool:
    """Feed mutation *number* from these hosts; say whether one of them completes it."""
    return any(agreement.observe(host, number, 1, 0, TOKEN, 1, 1, 10) for host in hosts)


def test_a_mutation_may_be_met_under_the_old_ring_or_the_new_one() -> None:
    """Until the old one is retired either is enough; a mixture of the two is not (line 3)."""
    replicas = job()
    versions = SplitVersions(replicas, 0, (), 0)
    agreement = Agreement(versions.groups)
    replicas.follow_nodes(ring("c", "d", "a", "b"))
    assert versions.follow(7, RETIRE)
    agreement.regroup(versions.groups)

    assert emitted(agreement, 1, 0, 1)
    assert emitted(agreement, 2, 2, 3)
    assert not emitted(agreement, 3, 0, 2)

    assert not versions.follow(7 + RETIRE - 1, RETIRE)
    assert versions.follow(7 + RETIRE, RETIRE)
    agreement.regroup(versions.groups)
    assert not emitted(agreement, 4, 0, 1)
    assert emitted(agreement, 5, 2, 3)


@pytest.mark.parametrize(("greatest", "read"), [((1 << 63) - 1, 1), ((1 << 63) - 2, 2)])
def test_the_widest_split_ends_with_the_ring(greatest: int, read: int) -> None:
    """Behind the greatest token there is no part of the ring, which the first node would have."""
    nodes = [Node("a", (-1,)), Node("b", (greatest,))]
    version = Topology.of(nodes, [keyspace(copies=1)], "ALL")

    assert read == Replicas(HOSTS, version, ["ks"], 2)._widest(2)  # noqa: SLF001 (only the bound of 64 shows it)


def test_what_waits_is_judged_again_when_a_version_is_learned() -> None:
    """A copy of a node that was not a replica counts once it is one (lines 13 and 18)."""
    replicas = job()
    versions = SplitVersions(replicas, 0, (), 0)
    agreement = Agreement(versions.groups)
    assert not emitted(agreement, 1, 2, 3)
    assert [] == agreement.ready(agreement.oldest_pending(1))

    replicas.follow_nodes(ring("c", "d", "a", "b"))
    versions.follow(0, RETIRE)
    agreement.regroup(versions.groups)

    assert 1 == len(agreement.ready(agreement.oldest_pending(1)))


def test_a_version_of_an_unread_log_is_not_retired() -> None:
    """As long as the log of one of its nodes is missing, copies that count may come (line 9)."""
    replicas = job(level="ONE")
    versions = SplitVersions(replicas, 0, (), 0)
    replicas.follow_nodes(ring("b", "c", "d"))
    versions.follow(0, RETIRE)
    assert {*HOSTS} == versions.needed()

    assert not versions.follow(2 * RETIRE, RETIRE, lambda _: {"a"})
    assert not versions.follow(2 * RETIRE, RETIRE, lambda _: {"a", "b"})
    assert versions.follow(2 * RETIRE, RETIRE, lambda _: {"z"})
    assert {"b", "c", "d"} == versions.needed()


def test_versions_are_stored_with_their_times() -> None:
    """A split continues with what was not retired, also when the ring changed in between."""
    replicas = job()
    versions = SplitVersions(replicas, 0, (), 0)
    assert [None] == [version.superseded for version in versions.stored()]
    replicas.follow_nodes(ring("c", "d", "a", "b"))
    versions.follow(100, RETIRE)
    stored = versions.stored()
    assert [None, 100] == [version.superseded for version in stored]

    third = Topology.of(ring("b", "c", "d", "a"), [keyspace(copies=2)], "ALL")
    again = SplitVersions(Replicas(HOSTS, third, ["ks"]), 0, stored, 500)

    agreement = Agreement(again.groups)
    assert [True] * 3 == [
        emitted(agreement, i, *pair) for i, pair in enumerate([(0, 1), (2, 3), (1, 2)])
    ]
    assert sorted([100, 500]) == sorted(v.superseded for v in again.stored() if v.superseded)
    assert again.follow(100 + RETIRE, RETIRE)
    assert [None, 500] == [version.superseded for version in again.stored()]


def test_a_ring_that_comes_back_is_in_force_again() -> None:
    """From one ring to another and back leaves the other one to be retired."""
    replicas = job()
    versions = SplitVersions(replicas, 0, (), 0)
    replicas.follow_nodes(ring("c", "d", "a", "b"))
    versions.follow(1, RETIRE)
    replicas.follow_nodes(ring(*HOSTS))
    versions.follow(2, RETIRE)

    assert [None, 2] == [version.superseded for version in versions.stored()]
    assert versions.follow(2 + RETIRE, RETIRE)
    assert [None] == [version.superseded for version in versions.stored()]


def test_another_replication_is_a_version() -> None:
    """ALTER KEYSPACE asks for more copies of what comes, and for no more of what came."""
    replicas = job(level="QUORUM", copies=1)
    versions = SplitVersions(replicas, 0, (), 0)
    replicas.follow_replication({"ks": keyspace(copies=3), "other": keyspace("other")})
    assert versions.follow(0, RETIRE)
    agreement = Agreement(versions.groups)
    assert emitted(agreement, 1, 0)
    assert emitted(agreement, 2, 1, 2)

    versions.follow(RETIRE, RETIRE)
    agreement.regroup(versions.groups)
    assert not emitted(agreement, 3, 0)

    replicas.follow_replication({"ks": KeyspaceSchema("ks", {})})  # It was dropped.
    assert not versions.follow(RETIRE, RETIRE)


def test_a_new_keyspace_supersedes_nothing() -> None:
    """It is known at once to all splits; those before it are judged as they were."""
    replicas = job(level="QUORUM", copies=1, splits=2)
    versions = [SplitVersions(replicas, split, (), 0) for split in range(2)]
    agreements = [Agreement(each.groups) for each in versions]

    assert 1 == replicas.number(keyspace("new", 3))

    for agreement in agreements:
        assert 0 == agreement.observe(0, 9, 9, 1, TOKEN, 1, 1, 10)
        assert 2 == agreement.observe(1, 9, 9, 1, TOKEN, 1, 1, 10)
        assert emitted(agreement, 1, 0)
    assert not versions[0].follow(0, RETIRE)
    assert [None] == [version.superseded for version in versions[0].stored()]


def test_a_ring_in_which_the_level_cannot_be_met_is_refused() -> None:
    """A log that is not read is named before mutations wait for it."""
    replicas = job(level="ALL")

    with pytest.raises(TopologyError, match="level ALL needs 2 of 2 copies, the job reads 1"):
        replicas.follow_nodes(ring("a", "x", "b", "c"))
    assert replicas.current.names() == {*HOSTS}


def test_a_chunk_that_is_no_topology_is_refused() -> None:
    """Other bytes in its place are a named error."""
    with pytest.raises(StateError, match="expected a topology"):
        SplitVersions(job(), 0, (StoredTopology(Chunk(b"\x01rows"), None),), 0)


@pytest.mark.parametrize("least", [1, 3])
def test_there_are_no_more_splits_than_log_slots_need(least: int) -> None:
    """The number is doubled until no split reads more logs than it should, and no further."""
    hosts = [f"n{i:03}" for i in range(130)]
    version = Topology.of(
        [Node(name, ((i - 65) * 2**57,)) for i, name in enumerate(hosts)], [keyspace()], "QUORUM"
    )

    def widest(count: int) -> int:
        made = Replicas(hosts, version, ["ks"], count)
        return max(len(made.needed(split, [version])) for split in range(count))

    fitting = Replicas(hosts, version, ["ks"], least).fitting(least)

    assert widest(fitting) <= LOG_SLOTS_WANTED < widest(fitting // 2)

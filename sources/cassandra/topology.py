"""Which nodes hold a token, and how many copies a consistency level asks for; a fixed topology.

The replicas come from cassandra-driver's own replication strategies. Pure: no I/O, no clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.sources.cassandra.errors import TopologyError
from headrace.sources.cassandra.records import Groups
from headrace.sources.cassandra.schema import KeyspaceSchema

HOSTS_MAX: Final = 64  # A record's seen hosts are the bits of one word.
LEVELS: Final = ("ONE", "TWO", "THREE", "QUORUM", "ALL")
STRATEGIES: Final = ("SimpleStrategy", "NetworkTopologyStrategy")
_COUNTS: Final = {"ONE": 1, "TWO": 2, "THREE": 3}


@dataclass(frozen=True)
class Node:
    """A replica whose log is read. Without tokens it can only be one that holds everything."""

    name: str
    tokens: tuple[int, ...] = ()
    datacenter: str = "dc1"
    rack: str = "rack1"
    # The driver's strategies compare hosts by identity and ask for these two words.
    host_id: str = field(default="", compare=False)


def replica_groups(
    nodes: Sequence[Node], keyspaces: Sequence[KeyspaceSchema], level: str
) -> Groups:
    """Return, for each keyspace in order, its ring and what *level* needs of it.

    Raises:
        TopologyError: as `set_replicas`.

    """
    groups = Groups(len(nodes))
    set_replicas(groups, nodes, keyspaces, level)
    return groups


def set_replicas(
    groups: Groups, nodes: Sequence[Node], keyspaces: Sequence[KeyspaceSchema], level: str
) -> None:
    """Give *groups* the rings of these keyspaces; more of them leave the groups of others alone.

    Raises:
        TopologyError: the replicas of a keyspace cannot be told, or are too few for the level.

    """
    if len(nodes) > HOSTS_MAX:
        raise TopologyError(
            f"{len(nodes)} nodes; one job reads {HOSTS_MAX} logs at most",
            place="source.nodes",
            hint="run one job per part of the ring",
        )
    masks: list[int] = []
    needed: list[int] = []
    rings: list[list[tuple[int, int]]] = []
    known: dict[tuple[int, int], int] = {}
    for keyspace in keyspaces:
        ring = []
        for token, mask, copies in _ring(nodes, keyspace):
            count = _needed(keyspace, level, copies, mask)
            group = known.setdefault((mask, count), len(known))
            if group == len(masks):
                masks.append(mask)
                needed.append(count)
            ring.append((token, group))
        rings.append(ring)
    groups.set(masks, needed, rings)


def replication_factor(keyspace: KeyspaceSchema) -> int:
    """Return how many copies of a row the keyspace keeps, over all data centres."""
    options = {k: v for k, v in keyspace.replication.items() if k != "class"}
    try:
        counts = [int(count.partition("/")[0]) for count in options.values()]
    except ValueError:
        counts = []
    if not counts or sum(counts) < 1 or _strategy(keyspace) not in STRATEGIES:
        raise TopologyError(
            f"replication {dict(keyspace.replication)} is not understood",
            place=f"keyspace {keyspace.name}",
            hint=f"{' and '.join(STRATEGIES)} with numbers of copies are",
        )
    return sum(counts)


def _strategy(keyspace: KeyspaceSchema) -> str:
    return keyspace.replication.get("class", "").rpartition(".")[2]


def _ring(nodes: Sequence[Node], keyspace: KeyspaceSchema) -> Sequence[tuple[int, int, int]]:
    """Return (ring token, mask of the hosts we read, copies kept) in ascending order."""
    copies = replication_factor(keyspace)
    everyone = (1 << len(nodes)) - 1
    if not all(node.tokens for node in nodes):
        if copies >= len(nodes):
            return [(0, everyone, copies)]
        raise TopologyError(
            f"{len(nodes)} nodes but replication factor {copies}: who holds what is not known",
            place=f"keyspace {keyspace.name}",
            hint="give each node its tokens: {path: …, tokens: […]}, or contact_points",
        )
    # Only here: a job that names no tokens starts without the driver's imports.
    from cassandra.metadata import Murmur3Token, ReplicationStrategy  # noqa: PLC0415

    owners = {Murmur3Token(token): node for node in nodes for token in node.tokens}
    ring = sorted(owners)
    strategy = ReplicationStrategy.create(
        _strategy(keyspace), {k: v for k, v in keyspace.replication.items() if k != "class"}
    )
    replicas: Mapping[Murmur3Token, Sequence[Node]] = strategy.make_token_replica_map(owners, ring)
    numbers = {node.name: i for i, node in enumerate(nodes)}
    return [
        (token.value, sum(1 << numbers[name] for name in {n.name for n in replicas[token]}), copies)
        for token in ring
    ]


def _needed(keyspace: KeyspaceSchema, level: str, copies: int, mask: int) -> int:
    needed = {"ALL": copies, "QUORUM": copies // 2 + 1}.get(level) or _COUNTS[level]
    if needed > mask.bit_count():
        raise TopologyError(
            f"level {level} needs {needed} of {copies} copies, the job reads {mask.bit_count()}",
            place=f"keyspace {keyspace.name}",
            hint="give the cdc_raw of more nodes under source.nodes, or lower the level",
        )
    return needed

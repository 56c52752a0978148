"""Versions of a topology: the replicas of a token, and the copies that a level requires.

Pure: no I/O, no clock. Lines are those of docs/agreement.md.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

import msgspec
from msgspec.structs import replace

from headrace.plugins import ConfigError, Problem
from headrace.sources.cassandra.errors import TopologyError
from headrace.sources.cassandra.ring.placement import Place, holders
from headrace.sources.cassandra.ring.replica_groups import GROUPS_MAX, Group, Groups, Ring, Terms
from headrace.sources.cassandra.schema.tables import KeyspaceSchema

LOCAL_LEVELS: Final = ("LOCAL_ONE", "LOCAL_QUORUM")
LEVELS: Final = ("ONE", "TWO", "THREE", "QUORUM", *LOCAL_LEVELS, "EACH_QUORUM", "ALL")
STRATEGIES: Final = ("SimpleStrategy", "NetworkTopologyStrategy")
_BY_CENTRE: Final = STRATEGIES[1]
_COUNTS: Final = {"ONE": 1, "TWO": 2, "THREE": 3, "LOCAL_ONE": 1}
_FACTOR: Final = "replication_factor"
_CENTRE: Final = "dc1"
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_TOKEN: Final = attrgetter("token")

Part = tuple[int, int]  # Of the ring: the first token and the last.
WHOLE: Final[Part] = (_LOWEST, _HIGHEST)


class Node(msgspec.Struct, frozen=True):
    """A node of the ring. Without tokens, it must be a replica of everything.

    If `datacenter` is empty, the node is in the only data centre in which a keyspace has copies,
    else in `dc1`. A joining node logs writes of its future ranges, but is not a replica yet.
    """

    name: str
    tokens: tuple[int, ...] = ()
    datacenter: str = ""
    rack: str = "rack1"
    joining: bool = False


Replication = tuple[tuple[str, str], ...]  # A keyspace's options, in order.


@dataclass(frozen=True)
class Topology:
    """One version: the nodes, the replication of each keyspace, and the configured level.

    Versions with the same content are the same version. *local* is the data centre of the LOCAL_
    levels.
    """

    nodes: tuple[Node, ...]
    keyspaces: tuple[tuple[str, Replication], ...]
    level: str
    local: str = ""
    _rings: "dict[str, Sequence[_Range]]" = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        nodes: Sequence[Node],
        keyspaces: Sequence[KeyspaceSchema],
        level: str,
        local: str = "",
    ) -> "Topology":
        """Return the version with these nodes and keyspaces."""
        replication = ((k.name, tuple(sorted(k.replication.items()))) for k in keyspaces)
        ordered = sorted(nodes, key=lambda node: node.name)
        return cls(tuple(ordered), tuple(sorted(replication)), level, local)

    def encode(self) -> bytes:
        """Return the bytes that `decode` reads back; equal versions have equal bytes."""
        nodes = [(n.name, n.tokens, n.datacenter, n.rack, n.joining) for n in self.nodes]
        return msgspec.msgpack.encode((nodes, self.keyspaces, self.level, self.local))

    @classmethod
    def decode(cls, encoded: bytes) -> "Topology":
        """Decode the result of `encode`.

        Raises:
            msgspec.MsgspecError: *encoded* is something else.

        """
        nodes, keyspaces, level, local = msgspec.msgpack.decode(encoded, type=_Encoded)
        return cls(tuple(Node(*node) for node in nodes), keyspaces, level, local)

    def with_keyspace(self, keyspace: KeyspaceSchema) -> "Topology":
        """Return the version with the replication of *keyspace* added or changed."""
        options = tuple(sorted(keyspace.replication.items()))
        known = {**dict(self.keyspaces), keyspace.name: options}
        if known == dict(self.keyspaces):
            return self
        return Topology(self.nodes, tuple(sorted(known.items())), self.level, self.local)

    def is_part_of(self, other: "Topology") -> bool:
        """Return whether *other* differs at most by additional keyspaces."""
        same = (self.nodes, self.level, self.local) == (other.nodes, other.level, other.local)
        return same and set(self.keyspaces) <= set(other.keyspaces)

    def names(self) -> frozenset[str]:
        """Return the names of all nodes whose logs count now or in future (line 10)."""
        return frozenset(node.name for node in self.nodes)

    def joined(self) -> "Topology":
        """Return the version in which all joining nodes have joined."""
        if not any(node.joining for node in self.nodes):
            return self
        nodes = tuple(replace(node, joining=False) for node in self.nodes)
        return Topology(nodes, self.keyspaces, self.level, self.local)

    def ring(self, keyspace: str) -> "Sequence[_Range]":
        """Return the ranges of a keyspace, ascending; empty if the version does not have it.

        Raises:
            TopologyError: the replicas cannot be determined.

        """
        if keyspace not in self._rings:
            options = dict(self.keyspaces).get(keyspace)
            self._rings[keyspace] = _ring(self, keyspace, dict(options)) if options else ()
        return self._rings[keyspace]

    def at(self, keyspace: str, token: int) -> "Sequence[tuple[frozenset[str], int]]":
        """Return the nodes whose copies of a token count, and the number needed; see `_Range`."""
        ring = self.ring(keyspace)
        return ring[bisect_left(ring, token, key=_TOKEN) % len(ring)].terms if ring else ()


_Encoded = tuple[
    tuple[tuple[str, tuple[int, ...], str, str, bool], ...],
    tuple[tuple[str, tuple[tuple[str, str], ...]], ...],
    str,
    str,
]


class _Range(msgspec.Struct, frozen=True):
    """The replicas of the tokens up to `token`, by data centre, and the terms of the level.

    Terms are (nodes that count, number needed); all terms must be met.
    """

    token: int
    terms: tuple[tuple[frozenset[str], int], ...]
    replicas: frozenset[str]


def replica_groups(
    nodes: Sequence[Node], keyspaces: Sequence[KeyspaceSchema], level: str, local: str = ""
) -> Groups:
    """Return the ring of each keyspace, in order, and the copies that *level* needs.

    Raises:
        TopologyError: the replicas of a keyspace are unknown, or too few of them are read for the
            level.

    """
    version = Topology.of(nodes, keyspaces, level, local)
    hosts = [node.name for node in nodes]
    groups = Groups(len(hosts))
    for keyspace in keyspaces:
        check_readable(version, keyspace.name, hosts)
    set_replicas(groups, hosts, [version], [keyspace.name for keyspace in keyspaces])
    return groups


def set_replicas(
    groups: Groups,
    hosts: Sequence[str],
    versions: Sequence[Topology],
    keyspaces: Sequence[str],
    part: Part = WHOLE,
) -> None:
    """Set *groups* for *part* of these keyspaces' rings, by all *versions*.

    *hosts* are the nodes whose logs are read, by their numbers in the records. Adding keyspaces
    does not change the groups of others.

    Raises:
        TopologyError: the replicas of a keyspace are unknown, or there are too many groups.

    """
    bits = {name: 1 << number for number, name in enumerate(hosts)}
    known: dict[Group, int] = {}
    rings: list[Ring] = []
    for keyspace in keyspaces:
        ring = []
        for token, cells in _cells(versions, keyspace, part):
            alternatives = dict.fromkeys(_masked(cell, bits) for cell in cells)
            expected = 0
            for cell in cells:
                expected |= _mask(cell.replicas, bits)
            group = Group(tuple(alternatives), expected)
            ring.append((token, known.setdefault(group, len(known))))
        rings.append(ring)
    if len(known) > GROUPS_MAX:
        raise TopologyError(
            f"{len(known)} groups of replicas; {GROUPS_MAX} of a split are distinguished",
            place="source.nodes",
            hint="give more `splits`",
        )
    groups.set(list(known), rings)


def can_meet(
    version: Topology, keyspace: str, part: Part, nodes: frozenset[str], read: frozenset[str]
) -> bool:
    """Return whether copies on *nodes* and on nodes that are not *read* can meet the level.

    True if this holds for any token of *part*.
    """
    options = dict(version.keyspaces).get(keyspace)
    if options is None:
        return False
    copies = _copies(KeyspaceSchema(keyspace, dict(options)))
    totals = [sum(copies.get(c, 0) for c in centres) for centres, _ in _counted(version, copies)]
    is_reported = all(node.tokens for node in version.nodes)
    for _, (cell,) in _cells([version], keyspace, part):
        unread = [
            (len(replicas) if is_reported else total) - len(replicas & read)
            for (replicas, _), total in zip(cell.terms, totals, strict=True)
        ]
        if all(
            len(replicas & read & nodes) + more >= needed
            for (replicas, needed), more in zip(cell.terms, unread, strict=True)
        ):
            return True
    return False


def holding(versions: Sequence[Topology], keyspaces: Sequence[str], part: Part) -> frozenset[str]:
    """Return the nodes that hold a token of *part* in any of the versions."""
    return frozenset(
        name
        for keyspace in keyspaces
        for _, cells in _cells(versions, keyspace, part)
        for cell in cells
        for name in cell.replicas
    )


def _cells(
    versions: Sequence[Topology], keyspace: str, part: Part
) -> Iterator[tuple[int, Sequence["_Range"]]]:
    """Yield the tokens at which ranges of any version end, with each version's range there."""
    rings = [ring for version in versions if (ring := version.ring(keyspace))]
    if not rings:
        return
    first, last = part
    ends = {last}  # The rest of the last range belongs to the next part.
    for ring in rings:
        begin = bisect_left(ring, first, key=_TOKEN)
        ends.update(each.token for each in ring[begin : bisect_left(ring, last, key=_TOKEN)])
    for token in sorted(ends):
        yield token, [ring[bisect_left(ring, token, key=_TOKEN) % len(ring)] for ring in rings]


def local_datacenter(nodes: Sequence[Node], level: str, given: str | None) -> str:
    """Return the data centre of the LOCAL_ levels: *given*, or the only one.

    Raises:
        ConfigError: the level is a LOCAL_ level, and the data centre is ambiguous; or *given* is
            unknown.

    """
    known = sorted({node.datacenter for node in nodes})
    if given is not None and given not in known:
        raise ConfigError([Problem("datacenter", f"no node is in {given}", ", ".join(known))])
    if given is None and len(known) > 1 and level in LOCAL_LEVELS:
        hint = f"say which of {', '.join(known)} is meant"
        raise ConfigError([Problem("datacenter", f"is required for {level}", hint)])
    return given or (known[0] if len(known) == 1 else "")


def check_readable(version: Topology, keyspace: str, hosts: Sequence[str]) -> None:
    """Raise TopologyError if the logs of *hosts* can never meet the level.

    For a keyspace in several data centres, logs of each are needed unless the level is local: a
    write to another data centre first would wait for copies that may never arrive.

    Raises:
        TopologyError: it says which copies are missing.

    """
    read = frozenset(hosts)
    ring = version.ring(keyspace)
    if ring:
        _check_centres(version, _keyspace(version, keyspace), read)
    for each in ring:
        for replicas, needed in each.terms:
            if needed > len(replicas & read):
                copies = replication_factor(_keyspace(version, keyspace))
                raise TopologyError(
                    f"level {version.level} needs {needed} of {copies} copies, "
                    f"the job reads {len(replicas & read)}",
                    place=f"keyspace {keyspace}",
                    hint="give the cdc_raw of more nodes under source.nodes, or lower the level",
                )


class Coverage(msgspec.Struct, frozen=True):
    """How many copies of a keyspace are read, for the tokens with the fewest.

    `copies` are those that the level counts together, and `needed` is the number it needs. `unread`
    are the nodes that are known to hold the others.
    """

    copies: int
    read: int
    needed: int
    unread: tuple[str, ...] = ()

    @property
    def sure(self) -> int:
        """The number of nodes with a write at which the logs read certainly meet the level."""
        return self.needed + self.copies - self.read


def coverage(version: Topology, keyspace: str, hosts: Sequence[str]) -> Coverage | None:
    """Return how many copies of a keyspace the logs of *hosts* have; None if they have all.

    Without a known ring, the number of copies is that of the replication.

    Raises:
        TopologyError: the replicas are unknown.

    """
    options = dict(version.keyspaces).get(keyspace)
    if options is None:
        return None
    read, copies = frozenset(hosts), _copies(KeyspaceSchema(keyspace, dict(options)))
    totals = [sum(copies.get(c, 0) for c in centres) for centres, _ in _counted(version, copies)]
    is_reported = all(node.tokens for node in version.nodes)
    found: list[Coverage] = []
    for each in version.ring(keyspace):
        for (replicas, needed), total in zip(each.terms, totals, strict=True):
            here = len(replicas & read)
            known = len(replicas) if is_reported else total
            if here < known:
                unread = tuple(sorted(replicas - read))
                found.append(Coverage(known, here, needed, unread))
    return max(found, key=lambda each: (each.copies - each.read, -each.read), default=None)


def replication_factor(keyspace: KeyspaceSchema) -> int:
    """Return the number of copies of a row in *keyspace*, over all data centres."""
    return sum(_copies(keyspace).values())


def _copies(keyspace: KeyspaceSchema) -> Mapping[str, int]:
    """Return the number of copies per data centre; "" is all of them for SimpleStrategy."""
    options = {k: v for k, v in keyspace.replication.items() if k != "class"}
    try:
        counts = {k: int(count.partition("/")[0]) for k, count in options.items()}
    except ValueError:
        counts = {}
    strategy, fewest = _strategy(keyspace), min(counts.values(), default=-1)
    if fewest < 0 or not any(counts.values()) or strategy not in STRATEGIES:
        raise TopologyError(
            f"replication {dict(keyspace.replication)} is not understood",
            place=f"keyspace {keyspace.name}",
            hint=f"{' and '.join(STRATEGIES)} with numbers of copies are",
        )
    if strategy == _BY_CENTRE:
        if _FACTOR in counts:
            raise TopologyError(
                f"replication {dict(keyspace.replication)} does not say how many copies each data "
                "centre has",
                place=f"keyspace {keyspace.name}",
                hint="Cassandra replaces replication_factor by the data centres that it knows: "
                "say it as DESCRIBE KEYSPACE does",
            )
        return {centre: count for centre, count in counts.items() if count}
    return {"": sum(counts.values())}


def _strategy(keyspace: KeyspaceSchema) -> str:
    return keyspace.replication.get("class", "").rpartition(".")[2]


def _keyspace(version: Topology, name: str) -> KeyspaceSchema:
    return KeyspaceSchema(name, dict(dict(version.keyspaces)[name]))


def _ring(version: Topology, name: str, replication: Mapping[str, str]) -> Sequence[_Range]:
    keyspace = KeyspaceSchema(name, replication)
    copies = _copies(keyspace)
    unnamed = _unnamed(copies)
    nodes = [
        replace(node, datacenter=node.datacenter or unnamed)
        for node in version.nodes
        if not node.joining
    ]
    centres = {node.name: node.datacenter for node in nodes}
    is_reported = all(node.tokens for node in nodes)
    everyone = [] if is_reported else [(_LOWEST, _all_nodes(keyspace, copies, centres))]
    held = everyone or _held(nodes, copies)
    return [
        _Range(token, tuple(_terms(version, copies, centres, replicas)), replicas)
        for token, replicas in held
    ]


def _unnamed(copies: Mapping[str, int]) -> str:
    """Return the data centre of nodes without one."""
    return next(iter(copies)) if len(copies) == 1 else _CENTRE


def _check_centres(version: Topology, keyspace: KeyspaceSchema, read: frozenset[str]) -> None:
    copies = _copies(keyspace)
    nodes = [n for n in version.nodes if n.name in read and not n.joining]
    missing = copies.keys() - {n.datacenter or _unnamed(copies) for n in nodes} - {""}
    if missing and len(copies) > 1 and version.level not in LOCAL_LEVELS:
        raise TopologyError(
            f"level {version.level} needs the logs of all data centres; none is given of "
            f"{', '.join(sorted(missing))} (copies: {dict(copies)})",
            place=f"keyspace {keyspace.name}",
            hint="give the cdc_raw of nodes there under source.nodes, or use LOCAL_QUORUM "
            "or LOCAL_ONE",
        )


def _all_nodes(
    keyspace: KeyspaceSchema, copies: Mapping[str, int], centres: Mapping[str, str]
) -> frozenset[str]:
    """Return the replicas of every token when no tokens are known."""
    for centre, count in copies.items():
        held = [name for name in centres if centre in {"", centres[name]}]
        if count < len(held):
            raise TopologyError(
                f"{len(held)} nodes but replication factor {count}: the holders are not known",
                place=f"keyspace {keyspace.name}",
                hint="give each node its tokens: {path: …, tokens: […]}, or contact_points",
            )
    return frozenset(n for n in centres if centres[n] in copies or "" in copies)


def _held(nodes: Sequence[Node], copies: Mapping[str, int]) -> Sequence[tuple[int, frozenset[str]]]:
    places = {
        node.name: Place("", node.name) if "" in copies else Place(node.datacenter, node.rack)
        for node in nodes
    }
    ring = sorted((token, node.name) for node in nodes for token in node.tokens)
    return list(holders(ring, places, copies))


def _terms(
    version: Topology,
    copies: Mapping[str, int],
    centres: Mapping[str, str],
    replicas: frozenset[str],
) -> Sequence[tuple[frozenset[str], int]]:
    """Return the terms of the level for the replicas of one range, as Cassandra counts."""
    return [
        (frozenset(n for n in replicas if "" in found or centres[n] in found), needed)
        for found, needed in _counted(version, copies)
    ]


def _counted(version: Topology, copies: Mapping[str, int]) -> Sequence[tuple[tuple[str, ...], int]]:
    """Return the data centres whose copies the level counts together, and the number it needs."""
    level, total, found = version.level, sum(copies.values()), tuple(copies)
    if level == "EACH_QUORUM":
        return [((centre,), count // 2 + 1) for centre, count in copies.items()]
    if level in LOCAL_LEVELS and "" not in copies:
        local = version.local or _unnamed(copies)
        total, found = copies.get(local, 1), (local,)  # Without replicas, none can be read.
    needed = _COUNTS.get(level) or (total if level == "ALL" else total // 2 + 1)
    return [(found, needed)]


def _masked(cell: _Range, bits: Mapping[str, int]) -> Terms:
    return tuple((_mask(names, bits), needed) for names, needed in cell.terms)


def _mask(names: frozenset[str], bits: Mapping[str, int]) -> int:
    return sum(bits.get(name, 0) for name in names)

"""A ring whose nodes log what a test says, and what is certain about it: the model's truth.

Replicas and levels are computed here independently, from Cassandra's documentation.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import cycle, islice
from pathlib import Path
from typing import Final, NamedTuple

from cassandra.murmur3 import murmur3

from headrace.sources.cassandra.commitlog.manifest import file_of
from helpers.model.logs import SCHEMA, Mutation, NodeLog

RETIRE_S: Final = 60
TOKENS: Final = {
    "a": (-8_000_000_000_000_000_000, 1_000_000_000_000_000_000),
    "b": (-5_000_000_000_000_000_000, 4_000_000_000_000_000_000),
    "c": (-2_000_000_000_000_000_000, 7_000_000_000_000_000_000),
    "d": (-6_000_000_000_000_000_000, 2_500_000_000_000_000_000),
}
SPARES: Final = {"e": (-3_500_000_000_000_000_000, 5_500_000_000_000_000_000)}
CENTRES: Final = {"a": "east", "b": "east", "c": "west", "d": "west", "e": "east"}
LOCAL: Final = "east"
KEYS: Final = (0, 5, 13, 6, 3)  # With different replicas, in both halves.
_PLACES: Final = 1 << 32  # Of the ring, by the upper half of a token.

Place = tuple[str, int, int]  # Node, segment, logical end of the entry.
Tokens = Mapping[str, tuple[int, ...]]

# Copies of each row by data centre; "" where there are no data centres.
Factors = tuple[tuple[str, int], ...]
ONE_CENTRE: Final[tuple[Factors, ...]] = ((("", 3),), (("", 2),))
TWO_CENTRES: Final[tuple[Factors, ...]] = (
    (("east", 2), ("west", 1)),
    (("east", 1), ("west", 1)),
    (("east", 2), ("west", 2)),
)
LEVELS: Final = ("ONE", "QUORUM", "ALL", "TWO", "THREE")
LOCAL_LEVELS: Final = ("LOCAL_ONE", "LOCAL_QUORUM")
LEVELS_OF_CENTRES: Final = (*LOCAL_LEVELS, "EACH_QUORUM", *LEVELS)


class Part(NamedTuple):
    """Places on the ring: from `first` to the one before `behind`."""

    first: int
    behind: int

    def has(self, place: int) -> bool:
        """Return whether a place is one of them."""
        return self.first <= place < self.behind

    def meets(self, other: "Part") -> bool:
        """Return whether a place is in both."""
        return self.first < other.behind and other.first < self.behind


def part_of(split: str) -> Part:
    """Return the places of a split, whose name has its index and the number of equal parts."""
    number, count = map(int, split.split("-of-"))
    return Part(*(-(-n * _PLACES // count) for n in (number - 1, number)))


@cache
def token_of(key: int) -> int:
    """Return the token of a partition key."""
    return int(murmur3(key.to_bytes(4, "big")))


@cache
def place_of(key: int) -> int:
    """Return the place of a key on the ring."""
    return (token_of(key) + (1 << 63)) >> 32


@dataclass(frozen=True)
class Version:
    """A ring: the tokens of each node, the number of copies of a row, how many must agree."""

    tokens: tuple[tuple[str, tuple[int, ...]], ...]
    factors: Factors
    level: str

    @cached_property
    def members(self) -> tuple[str, ...]:
        """The nodes."""
        return tuple(name for name, _ in self.tokens)

    @property
    def has_centres(self) -> bool:
        """Whether it has data centres."""
        return self.factors[0][0] != ""

    @property
    def replication(self) -> dict[str, str]:
        """The options of the keyspace."""
        counts = {centre or "replication_factor": str(n) for centre, n in self.factors}
        kind = "NetworkTopologyStrategy" if self.has_centres else "SimpleStrategy"
        return {"class": kind, **counts}

    def replicas(self, key: int) -> tuple[str, ...]:
        """Return the replicas of a key, data centre by data centre."""
        found = (_replicas(self.tokens, centre, n, key) for centre, n in self.factors)
        return tuple(name for names in found for name in names)

    def is_met(self, key: int, hosts: Collection[str]) -> bool:
        """Return whether enough replicas of a key are among *hosts*."""
        copies = dict(self.factors)
        seen = {
            centre: len(set(_replicas(self.tokens, centre, n, key)) & set(hosts))
            for centre, n in self.factors
        }
        if self.level == "EACH_QUORUM":
            return all(seen[centre] > n // 2 for centre, n in self.factors)
        if self.level in LOCAL_LEVELS:
            least = 1 if self.level == "LOCAL_ONE" else copies[LOCAL] // 2 + 1
            return seen[LOCAL] >= least
        return sum(seen.values()) >= _needed(self.level, sum(copies.values()))

    @property
    def is_possible(self) -> bool:
        """Whether each token has one owner, all copies have nodes, and the level has copies."""
        tokens = [token for _, own in self.tokens for token in own]
        members = [CENTRES[name] if self.has_centres else "" for name in self.members]
        copies = sum(n for _, n in self.factors)
        level_fits = self.level in LOCAL_LEVELS or self.level == "EACH_QUORUM"
        level_fits = level_fits and self.has_centres
        level_fits |= self.level in LEVELS and _needed(self.level, copies) <= copies
        has_nodes = all(members.count(centre) >= n for centre, n in self.factors)
        return level_fits and has_nodes and len(tokens) == len(set(tokens))


def _needed(level: str, copies: int) -> int:
    counts = {"ONE": 1, "TWO": 2, "THREE": 3, "QUORUM": copies // 2 + 1, "ALL": copies}
    return counts[level]


@cache
def _replicas(
    tokens: tuple[tuple[str, tuple[int, ...]], ...], centre: str, count: int, key: int
) -> tuple[str, ...]:
    """Walk clockwise from a key's token, past the nodes of other data centres."""
    ring = sorted((t, node) for node, own in tokens for t in own if centre in {"", CENTRES[node]})
    start = next((i for i, (token, _) in enumerate(ring) if token >= token_of(key)), 0)
    walk = islice(cycle(ring), start, start + len(ring))
    return tuple(dict.fromkeys(node for _, node in walk))[:count]


@dataclass
class Ring:
    """All nodes, also those that may join, and what was written.

    `versions` are the rings so far, each with the time at which the next one replaced it.
    """

    folder: Path
    first: Version
    nodes: dict[str, NodeLog] = field(default_factory=dict)
    written: list[Mutation] = field(default_factory=list)
    versions: list[tuple[Version, float]] = field(default_factory=list)
    rows: int = 0

    def __post_init__(self) -> None:
        """Make the nodes' directories, the schema and the file of the ring."""
        self.nodes = {name: NodeLog(name, self.folder / name) for name in CENTRES}
        self._put(self.first)

    @property
    def version(self) -> Version:
        """The current ring."""
        return self.versions[-1][0]

    def versions_since(self, now_ms: int) -> set[Version]:
        """Return the rings that were current at some time since."""
        return {version for version, until_ms in self.versions if until_ms >= now_ms}

    def age_of(self, version: Version) -> int:
        """Return when a ring was last current, in the order of rings."""
        return max(n for n, (each, _) in enumerate(self.versions) if each == version)

    def replicas(self, key: int) -> tuple[str, ...]:
        """Return the replicas of a key in the current ring."""
        return self.version.replicas(key)

    def options(self, turn: int) -> dict[str, object]:
        """Return the source's options for the ring; *turn* is the node that is named first."""
        names = [*self.nodes][turn % len(self.nodes) :] + [*self.nodes][: turn % len(self.nodes)]
        return {
            "nodes": {name: str(self.nodes[name].home) for name in names},
            "topology": str(self.folder / "ring.yaml"),
            "max_hint_window_seconds": RETIRE_S,
            "schema": str(self.folder / "schema.cql"),
            "consistency": self.version.level,
            "datacenter": LOCAL if self.version.has_centres else None,
        }

    def can_become(self, **changes: object) -> bool:
        """Return whether a ring with *changes* can be read by a job."""
        return self._changed(changes).is_possible

    def change(self, now_ms: int, **changes: object) -> None:
        """Change the current ring; what was written so far was written to the last one."""
        for log in self.nodes.values():
            log.sync(now_ms)
        changed = self._changed(changes)
        assert changed.is_possible
        self.versions[-1] = (self.version, now_ms)
        self._put(changed)

    def _changed(self, changes: Mapping[str, object]) -> Version:
        """Return the current ring with other tokens, factors or level."""
        if isinstance(tokens := changes.get("tokens"), Mapping):
            changes = {**changes, "tokens": tuple(sorted(tokens.items()))}
        return replace(self.version, **changes)  # type: ignore[arg-type]  # Of its fields.

    def _put(self, version: Version) -> None:
        self.versions.append((version, float("inf")))
        (self.folder / "schema.cql").write_text(SCHEMA.format(replication=version.replication))
        named = {
            node: {"tokens": [*tokens]} | ({"dc": CENTRES[node]} if version.has_centres else {})
            for node, tokens in version.tokens
        }
        (self.folder / "ring.yaml").write_text(json.dumps(named))

    def write(
        self, key: int, count: int, nodes: Sequence[str], *, damaged: Collection[str] = ()
    ) -> Mutation:
        """Write *count* new rows of a partition in one mutation, which *nodes* log."""
        rows = range(self.rows, self.rows + count)
        self.rows += count
        made = Mutation(key, tuple(rows))
        self.written.append(made)
        self.log(made, nodes, damaged=damaged)
        return made

    def log(
        self, mutation: Mutation, nodes: Sequence[str], *, damaged: Collection[str] = ()
    ) -> None:
        """Let *nodes* log a mutation, new or not."""
        for name in nodes:
            self.nodes[name].write(mutation, damaged=name in damaged)

    def hosts(self, content: frozenset[int]) -> set[str]:
        """Return the nodes that logged *content* durably, in any bytes."""
        return {
            name
            for name, log in self.nodes.items()
            for copy in log.copies
            if copy.mutation.content == content and copy.durable_ms is not None and not copy.damaged
        }

    def is_met(self, mutation: Mutation, skipped: Collection[int]) -> bool:
        """Return whether enough replicas have logged a mutation's content, by one of the rings.

        For a ring that is no longer current, what was logged until it was replaced counts. Copies
        with ids in *skipped* were skipped.
        """
        copies = [
            (name, copy.durable_ms or 0)
            for name, log in self.nodes.items()
            for copy in log.copies
            if copy.mutation.content == mutation.content and copy.counts
            if id(copy) not in skipped
        ]
        return any(
            version.is_met(mutation.key, {n for n, ms in copies if ms <= until_ms})
            for version, until_ms in self.versions
        )

    def at(self, place: Place) -> Mutation | None:
        """Return the mutation whose durable entry ends at *place*."""
        node, segment, end = place
        for copy in self.nodes[node].copies:
            sound = copy.durable_ms is not None and not copy.damaged
            if (file_of(copy.segment), copy.end) == (segment, end) and sound:
                return copy.mutation
        return None

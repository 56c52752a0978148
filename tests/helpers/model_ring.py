"""A ring whose nodes log what a test says, and what is known of it for certain: the model's truth.

The logs are real directories of forged segments that grow, are completed, torn and disposed of.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from cassandra.murmur3 import murmur3

from headrace.sources.cassandra.ddl import parse_schema
from headrace.sources.cassandra.forge.mutations import encode_mutation
from headrace.sources.cassandra.forge.segments import SegmentWriter

FACTOR: Final = 3
SCHEMA: Final = """
CREATE KEYSPACE m
    WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': '{factor}'}};
CREATE TABLE m.t (k int, c int, v blob, PRIMARY KEY (k, c))
    WITH cdc = true AND ID = 0f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a;
"""
TABLE: Final = "m.t"
RETIRE_S: Final = 60
TOKENS: Final = {
    "a": (-8_000_000_000_000_000_000, 1_000_000_000_000_000_000),
    "b": (-5_000_000_000_000_000_000, 4_000_000_000_000_000_000),
    "c": (-2_000_000_000_000_000_000, 7_000_000_000_000_000_000),
    "d": (-6_000_000_000_000_000_000, 2_500_000_000_000_000_000),
}
SPARES: Final = {"e": (-3_500_000_000_000_000_000, 5_500_000_000_000_000_000)}
KEYS: Final = (0, 5, 13, 6, 3)  # With other replicas each, in both halves.
SPLITS: Final = ("1-of-2", "2-of-2")
END: Final = (1 << 31) - 1
FIRST_SEGMENT: Final = 1_000
_CRC_BYTES: Final = 4  # Behind an entry.
_NOW_US: Final = 1_700_000_000_000_000
_PARSED: Final = parse_schema(SCHEMA.format(factor=FACTOR))

Place = tuple[str, int, int]  # Node, segment, logical end of the entry.


@dataclass(frozen=True)
class Mutation:
    """Rows of one partition, each named by a number; `form` tells other bytes of the same rows."""

    key: int
    rows: tuple[int, ...]
    form: int = 0

    @cached_property
    def content(self) -> frozenset[int]:
        """What it says, whatever its bytes."""
        return frozenset(self.rows)


@dataclass
class Copy:
    """A mutation in a node's log; `durable_ms` is since when it may be read."""

    mutation: Mutation
    segment: int
    end: int
    durable_ms: int | None = None
    damaged: bool = False
    lost: bool = False

    @property
    def counts(self) -> bool:
        """Whether whoever comes now can read it."""
        return self.durable_ms is not None and not self.damaged and not self.lost


@dataclass(frozen=True)
class Version:
    """A ring: who has which tokens, and how many copies there are of a row."""

    tokens: tuple[tuple[str, tuple[int, ...]], ...]
    factor: int

    @cached_property
    def members(self) -> tuple[str, ...]:
        """The nodes."""
        return tuple(name for name, _ in self.tokens)

    def replicas(self, key: int) -> tuple[str, ...]:
        """Return who holds a key."""
        return _replicas(self.tokens, self.factor, key)

    def is_met(self, level: str, key: int, hosts: Collection[str]) -> bool:
        """Tell whether enough replicas of a key are among *hosts*."""
        needed = {"ONE": 1, "QUORUM": self.factor // 2 + 1, "ALL": self.factor}[level]
        return len(set(hosts) & set(self.replicas(key))) >= needed


@cache
def raw(mutation: Mutation) -> bytes:
    """Return the bytes that a node logs: other forms have empty updates behind the rows."""
    key = _hex(mutation.key)
    updates = [{"table": TABLE, "key": key, "items": [_row(n) for n in mutation.rows]}]
    updates += [{"table": TABLE, "key": key, "items": []}] * mutation.form
    return encode_mutation({"updates": updates}, _PARSED, 12)


def _row(number: int) -> dict[str, object]:
    cell = {"ts": _NOW_US + number, "value": f"{number:04x}"}
    return {"clustering": [_hex(number)], "liveness": {"ts": cell["ts"]}, "columns": {"v": cell}}


def _hex(number: int) -> str:
    return number.to_bytes(4, "big").hex()


@cache
def token_of(key: int) -> int:
    """Return the token of a partition key."""
    return int(murmur3(key.to_bytes(4, "big")))


def split_of(key: int) -> str:
    """Return the half of the ring that a key is in."""
    return SPLITS[token_of(key) >= 0]


@cache
def _replicas(
    tokens: tuple[tuple[str, tuple[int, ...]], ...], factor: int, key: int
) -> tuple[str, ...]:
    """Walk clockwise from a key's token, as SimpleStrategy does."""
    ring = sorted((token, node) for node, own in tokens for token in own)
    start = next((i for i, (token, _) in enumerate(ring) if token >= token_of(key)), 0)
    walk = islice(cycle(ring), start, start + len(ring))
    return tuple(dict.fromkeys(node for _, node in walk))[:factor]


class NodeLog:
    """One node's commit log as Cassandra writes it: entries, sync markers, an index, segments."""

    def __init__(self, name: str, folder: Path) -> None:
        """Begin with nothing on disk."""
        self.name = name
        self.folder = folder
        self.copies: list[Copy] = []
        self._segment = FIRST_SEGMENT
        self._sections: list[list[Copy]] = [[]]
        self._durable = 0
        self._lost: set[int] = set()
        folder.mkdir()

    @property
    def segment(self) -> int:
        """The segment that is written."""
        return self._segment

    def write(self, mutation: Mutation, *, damaged: bool = False) -> None:
        """Append an entry, in memory; one that is *damaged* gets a wrong byte on its way."""
        self._sections[-1].append(Copy(mutation, self._segment, 0, damaged=damaged))

    def sync(self, now_ms: int, *, index: bool = True) -> None:
        """End a section with its marker; without *index* nobody is told that it is durable."""
        if self._sections[-1]:
            self._sections.append([])
        self._store(now_ms if index else None)

    def roll(self, now_ms: int) -> None:
        """Complete the segment and begin the next one."""
        self.sync(now_ms)
        if len(self._sections) > 1:
            self._index(f"{self._durable}\nCOMPLETED")
        self._begin()

    def crash(self, now_ms: int, *, torn: bool) -> None:
        """Lose what has no marker, and if *torn* also what no index told of; start again.

        What has a marker is read by Cassandra when it starts, and so by everybody.
        """
        if torn:
            kept = [s for s in self._sections if s and s[0].durable_ms is not None]
            lost = [copy for s in self._sections[len(kept) :] for copy in s]
            self._sections = [*kept, lost]
        if self._index_path(self._segment).exists():
            durable = self._durable
            self._store(None)
            for copy in self._marked():  # Final once there is a later one.
                copy.durable_ms = now_ms if copy.durable_ms is None else copy.durable_ms
            self._index(str(durable))
        self._begin()

    def _begin(self) -> None:
        self._segment += 1
        self._sections = [[]]
        self._durable = 0
        content = SegmentWriter(segment_id=self._segment).forged(zeros=64).content
        self._path(self._segment).write_bytes(content)
        self._index("0")

    def _marked(self) -> Iterator[Copy]:
        yield from (copy for section in self._sections[:-1] for copy in section)

    def _store(self, durable_ms: int | None) -> None:
        writer = SegmentWriter(segment_id=self._segment)
        for section in self._sections[:-1]:
            for copy in section:
                writer.add(raw(copy.mutation))
            writer.sync()
        for copy in self._sections[-1]:
            writer.add(raw(copy.mutation))
        made = writer.forged(zeros=64)
        known = {id(copy) for copy in self.copies}
        for copy, end in zip(self._marked(), made.ends, strict=True):
            copy.end = end
            if id(copy) not in known:
                self.copies.append(copy)
            if durable_ms is not None and copy.durable_ms is None:
                copy.durable_ms = durable_ms
        content = bytearray(made.content)
        for copy in self._marked():
            content[copy.end - _CRC_BYTES - 1] ^= copy.damaged
        self._path(self._segment).write_bytes(content)
        if durable_ms is not None:
            self._durable = made.durable
        if durable_ms is not None or not self._index_path(self._segment).exists():
            self._index(str(self._durable))

    def _index(self, text: str) -> None:
        self._index_path(self._segment).write_text(text)

    def _path(self, segment: int) -> Path:
        return self.folder / f"CommitLog-7-{segment}.log"

    def _index_path(self, segment: int) -> Path:
        return self.folder / f"CommitLog-7-{segment}_cdc.idx"

    def lose(self, count: int) -> None:
        """Lose the oldest segments, as whoever needs room removes them; not the one in use."""
        there = [n for n in range(FIRST_SEGMENT, self._segment) if self._path(n).exists()]
        for segment in there[:count]:
            self._path(segment).unlink()
            self._index_path(segment).unlink(missing_ok=True)
            self._lost.add(segment)
        for copy in self.copies:
            copy.lost |= copy.segment in self._lost

    def released(self) -> set[int]:
        """Return the segments that had durable entries and were disposed of."""
        return self.gone() - self._lost

    def gone(self) -> set[int]:
        """Return the segments that had durable entries and are not there any more."""
        had = {copy.segment for copy in self.copies if copy.durable_ms is not None}
        return {segment for segment in had if not self._path(segment).exists()}


@dataclass
class Ring:
    """All nodes, those that may join too, and what was written.

    `versions` are the rings so far, each with the time at which the next one took its place.
    """

    folder: Path
    level: str
    nodes: dict[str, NodeLog] = field(default_factory=dict)
    written: list[Mutation] = field(default_factory=list)
    versions: list[tuple[Version, float]] = field(default_factory=list)
    rows: int = 0

    def __post_init__(self) -> None:
        """Make the nodes' directories, the schema and the file of the ring."""
        self.nodes = {name: NodeLog(name, self.folder / name) for name in (*TOKENS, *SPARES)}
        self._put(Version(tuple(TOKENS.items()), FACTOR))

    @property
    def version(self) -> Version:
        """The ring that is in force."""
        return self.versions[-1][0]

    def versions_since(self, now_ms: int) -> set[Version]:
        """Return the rings that were in force at some time since."""
        return {version for version, until_ms in self.versions if until_ms >= now_ms}

    def replicas(self, key: int) -> tuple[str, ...]:
        """Return who holds a key now."""
        return self.version.replicas(key)

    def options(self, turn: int) -> dict[str, object]:
        """Return the source's options that tell of the ring; *turn* is which is named first."""
        names = [*self.nodes][turn % len(self.nodes) :] + [*self.nodes][: turn % len(self.nodes)]
        return {
            "nodes": {name: str(self.nodes[name].folder) for name in names},
            "topology": str(self.folder / "ring.yaml"),
            "max_hint_window_seconds": RETIRE_S,
            "schema": str(self.folder / "schema.cql"),
            "consistency": self.level,
            "splits": len(SPLITS),
        }

    def change(self, tokens: Mapping[str, tuple[int, ...]], factor: int, now_ms: int) -> None:
        """Let another ring be in force; what was written so far was written under the last one."""
        for log in self.nodes.values():
            log.sync(now_ms)
        self.versions[-1] = (self.version, now_ms)
        self._put(Version(tuple(sorted(tokens.items())), factor))

    def _put(self, version: Version) -> None:
        self.versions.append((version, float("inf")))
        (self.folder / "schema.cql").write_text(SCHEMA.format(factor=version.factor))
        named = {node: {"tokens": [*tokens]} for node, tokens in version.tokens}
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
        """Return the nodes that logged *content* durably, in whatever bytes."""
        return {
            name
            for name, log in self.nodes.items()
            for copy in log.copies
            if copy.mutation.content == content and copy.durable_ms is not None and not copy.damaged
        }

    def is_met(self, mutation: Mutation) -> bool:
        """Tell whether enough replicas have logged what a mutation says, under one of the rings.

        Of a ring that is not in force any more, what was logged until then counts.
        """
        copies = [
            (name, copy.durable_ms or 0)
            for name, log in self.nodes.items()
            for copy in log.copies
            if copy.mutation.content == mutation.content and copy.counts
        ]
        return any(
            version.is_met(self.level, mutation.key, {n for n, ms in copies if ms <= until_ms})
            for version, until_ms in self.versions
        )

    def at(self, place: Place) -> Mutation | None:
        """Return the mutation whose durable entry ends at *place*."""
        node, segment, end = place
        for copy in self.nodes[node].copies:
            sound = copy.durable_ms is not None and not copy.damaged
            if (copy.segment, copy.end) == (segment, end) and sound:
                return copy.mutation
        return None

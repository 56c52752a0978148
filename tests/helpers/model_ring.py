"""A ring whose nodes log what a test says, and what is known of it for certain: the model's truth.

The logs are real directories of forged segments that grow, are completed, torn and disposed of.
"""

from collections.abc import Iterator, Sequence
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
SCHEMA: Final = f"""
CREATE KEYSPACE m
    WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': '{FACTOR}'}};
CREATE TABLE m.t (k int, c int, v blob, PRIMARY KEY (k, c))
    WITH cdc = true AND ID = 0f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a;
"""
TOKENS: Final = {
    "a": (-8_000_000_000_000_000_000, 1_000_000_000_000_000_000),
    "b": (-5_000_000_000_000_000_000, 4_000_000_000_000_000_000),
    "c": (-2_000_000_000_000_000_000, 7_000_000_000_000_000_000),
    "d": (-6_000_000_000_000_000_000, 2_500_000_000_000_000_000),
}
KEYS: Final = (0, 5, 13, 6, 3)  # With other replicas each, in both halves.
SPLITS: Final = ("1-of-2", "2-of-2")
END: Final = (1 << 31) - 1
FIRST_SEGMENT: Final = 1_000
_NOW_US: Final = 1_700_000_000_000_000
_PARSED: Final = parse_schema(SCHEMA)

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


@cache
def raw(mutation: Mutation) -> bytes:
    """Return the bytes that a node logs: other forms have empty updates behind the rows."""
    key = _hex(mutation.key)
    updates = [{"table": "m.t", "key": key, "items": [_row(n) for n in mutation.rows]}]
    updates += [{"table": "m.t", "key": key, "items": []}] * mutation.form
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
def replicas(key: int) -> tuple[str, ...]:
    """Return the nodes that hold a key: clockwise from its token, as SimpleStrategy does."""
    ring = sorted((token, node) for node, tokens in TOKENS.items() for token in tokens)
    start = next((i for i, (token, _) in enumerate(ring) if token >= token_of(key)), 0)
    walk = islice(cycle(ring), start, start + len(ring))
    return tuple(dict.fromkeys(node for _, node in walk))[:FACTOR]


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
        folder.mkdir()

    @property
    def segment(self) -> int:
        """The segment that is written."""
        return self._segment

    def write(self, mutation: Mutation) -> None:
        """Append an entry, in memory."""
        self._sections[-1].append(Copy(mutation, self._segment, 0))

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
        self._path(self._segment).write_bytes(made.content)
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

    def gone(self) -> set[int]:
        """Return the segments that had durable entries and are not there any more."""
        had = {copy.segment for copy in self.copies if copy.durable_ms is not None}
        return {segment for segment in had if not self._path(segment).exists()}


@dataclass
class Ring:
    """All nodes, and what was written."""

    folder: Path
    level: str
    nodes: dict[str, NodeLog] = field(default_factory=dict)
    written: list[Mutation] = field(default_factory=list)
    rows: int = 0

    def __post_init__(self) -> None:
        """Make the nodes' directories and the schema."""
        (self.folder / "schema.cql").write_text(SCHEMA)
        self.nodes = {name: NodeLog(name, self.folder / name) for name in TOKENS}

    @property
    def needed(self) -> int:
        """How many copies the level asks for."""
        return {"ONE": 1, "QUORUM": FACTOR // 2 + 1, "ALL": FACTOR}[self.level]

    def options(self) -> dict[str, object]:
        """Return the source's options that tell of the ring."""
        return {
            "nodes": {
                n: {"path": str(x.folder), "tokens": [*TOKENS[n]]} for n, x in self.nodes.items()
            },
            "schema": str(self.folder / "schema.cql"),
            "consistency": self.level,
            "splits": len(SPLITS),
        }

    def write(self, key: int, count: int, nodes: Sequence[str]) -> Mutation:
        """Write *count* new rows of a partition in one mutation, which *nodes* log."""
        rows = range(self.rows, self.rows + count)
        self.rows += count
        made = Mutation(key, tuple(rows))
        self.written.append(made)
        self.log(made, nodes)
        return made

    def log(self, mutation: Mutation, nodes: Sequence[str]) -> None:
        """Let *nodes* log a mutation, new or not."""
        for name in nodes:
            self.nodes[name].write(mutation)

    def hosts(self, content: frozenset[int]) -> set[str]:
        """Return the nodes that logged *content* durably, in whatever bytes."""
        return {
            name
            for name, log in self.nodes.items()
            for copy in log.copies
            if copy.mutation.content == content and copy.durable_ms is not None
        }

    def is_met(self, mutation: Mutation) -> bool:
        """Tell whether enough replicas have logged what a mutation says."""
        found = self.hosts(mutation.content) & set(replicas(mutation.key))
        return len(found) >= self.needed

    def at(self, place: Place) -> Mutation | None:
        """Return the mutation whose durable entry ends at *place*."""
        node, segment, end = place
        for copy in self.nodes[node].copies:
            if (copy.segment, copy.end) == (segment, end) and copy.durable_ms is not None:
                return copy.mutation
        return None

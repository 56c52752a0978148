"""What the copies in recorded logs justify, according to Cassandra's own reader.

A content is what a mutation says, in any bytes: a set of atoms. An atom is one cell, row liveness
or deletion with its time, identified by table, key, clustering and column, and a deleted range from
end to end. Nothing of the code under test is used.
"""

import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import cramjam
import msgspec

from helpers.recordings.corpora import recording

NODES: Final = ("node1", "node2", "node3")
# Of three copies in one data centre.
NEEDED: Final = {
    "ONE": 1,
    "TWO": 2,
    "THREE": 3,
    "LOCAL_ONE": 1,
    "LOCAL_QUORUM": 2,
    "QUORUM": 2,
    "EACH_QUORUM": 2,
    "ALL": 3,
}
KILLED: Final = "node3-killed"

_INCLUSIVE_STARTS: Final = ("INCL_START_BOUND", "EXCL_END_INCL_START_BOUNDARY")
_INCLUSIVE_ENDS: Final = ("INCL_END_BOUND", "INCL_END_EXCL_START_BOUNDARY")
NO_LIMIT: Final = 1 << 31
_PARAMETERS_AT: Final = 12  # After version and id: their length, then they.
_MARKER_BYTES: Final = 8
_CHECKSUM_BYTES: Final = 4  # After a mutation, at the end of its entry.

Atom = tuple[object, ...]
Content = frozenset[Atom]
Document = Mapping[str, Any]  # Any: parsed JSON.


class Entry(NamedTuple):
    """A mutation in a node's log: its end, its bytes, and the oracle's line for it."""

    node: str
    segment: int
    end: int
    raw: bytes
    text: bytes


class _Line(msgspec.Struct):
    """Where the oracle found a mutation."""

    segment: int
    position: int
    size: int
    cdc: bool


@dataclass(frozen=True)
class Logs:
    """The logs of a ring's nodes: contents by the SHA-256 of a mutation's bytes.

    `entries` counts each node's; `nodes` are those that logged a content, in any bytes; `places`
    has the ends of entries, by node and segment.
    """

    contents: Mapping[bytes, Content]
    entries: Counter[str]
    nodes: Mapping[Content, frozenset[str]]
    places: Mapping[tuple[str, int], Sequence[tuple[int, Content]]]

    def justified(self, level: str) -> set[Content]:
        """Return the contents that enough nodes logged for *level*."""
        return {content for content, nodes in self.nodes.items() if len(nodes) >= NEEDED[level]}

    def pending(self, level: str) -> set[Content]:
        """Return what must wait: contents on too few nodes that also have something new."""
        said = union(self.justified(level))
        return {content for content in self.nodes if not content <= said}


class Durable:
    """The nodes that have logged a content durably, according to their index files."""

    def __init__(self, folder: Path, logs: Logs) -> None:
        """Start with nothing durable; *folder* has the nodes' directories."""
        self._folder = folder
        self._places = logs.places
        self._passed: Counter[tuple[str, int]] = Counter()
        self.nodes: defaultdict[Content, set[str]] = defaultdict(set)

    def look(self) -> None:
        """Read the index files of what was not yet durable."""
        for index in self._folder.glob("*/*_cdc.idx"):
            segment = index.parent.name, int(index.stem.split("-")[2].removesuffix("_cdc"))
            ends = self._places.get(segment, ())
            if self._passed[segment] == len(ends):
                continue
            limit = durable_end(index)
            for end, content in ends[self._passed[segment] :]:
                if end > limit:
                    break
                self.nodes[content].add(segment[0])
                self._passed[segment] += 1


def durable_end(index: Path) -> int:
    """Return up to where a segment is durable by its index file; None without one."""
    text = index.read_text() if index.exists() else "0"
    return NO_LIMIT if "COMPLETED" in text else int(text)


def union(contents: set[Content]) -> set[Atom]:
    """Return all atoms of *contents*."""
    return set().union(*contents)


@cache
def logs_of(name: str, *, killed: bool = False) -> Logs:
    """Return what is in the logs of recording *name*.

    *killed*: node 3's log is as it was after its SIGKILL, up to the ends in its index files.
    """
    folder = recording(name)
    found = list(_entries(folder / "oracle.jsonl", _segments(folder, killed=False)))
    if killed:
        segments = _segments(folder, killed=True)
        found = [entry for entry in found if entry.node != NODES[2]]
        found += _entries(folder / f"oracle-{KILLED}.jsonl", segments)
    return _logs(found)


@cache
def log_of(name: str, *, killed: bool) -> Logs:
    """Return what is in the log of a single node.

    *killed*: up to the ends in the index files at its SIGKILL, otherwise to the last sync markers.
    """
    folder = recording(name)
    segments = {
        number: (NODES[0], content, limit if killed else NO_LIMIT)
        for number, content, limit in _durable(folder / "killed" / "cdc_raw")
    }
    return _logs(list(_entries(folder / "oracle-killed.jsonl", segments)))


def entries_of(name: str) -> Sequence[Entry]:
    """Return a single node's mutations of tables with CDC, in the log of recording *name*."""
    folder = recording(name)
    segments = {n: (NODES[0], content, NO_LIMIT) for n, content, _ in _durable(folder / "segments")}
    return list(_entries(folder / "oracle.jsonl", segments))


def _durable(place: Path) -> Iterator[tuple[int, bytes, int]]:
    """Yield each segment's id and bytes, and up to where its index says that they are durable."""
    for path in place.glob("*.log"):
        limit = durable_end(path.with_name(f"{path.stem}_cdc.idx"))
        yield int(path.stem.rpartition("-")[2]), _unpacked(path.read_bytes()), limit


def _unpacked(content: bytes) -> bytes:
    """Return a segment as positions count in it: with LZ4 sections unpacked."""
    (length,) = struct.unpack_from(">H", content, _PARAMETERS_AT)
    at = _PARAMETERS_AT + 2 + length + _CHECKSUM_BYTES
    if b"LZ4Compressor" not in content[:at]:
        return content
    found = bytearray(content[:at])
    while at + _MARKER_BYTES < len(content):
        following, _, size = struct.unpack_from(">III", content, at)
        block = content[at + _MARKER_BYTES + 2 * _CHECKSUM_BYTES : following]
        found += bytes(_MARKER_BYTES) + cramjam.lz4.decompress_block(block, output_len=size)
        at = following
    return bytes(found)


def _logs(found: Sequence[Entry]) -> Logs:
    contents: dict[bytes, Content] = {}
    nodes: defaultdict[Content, set[str]] = defaultdict(set)
    places: defaultdict[tuple[str, int], list[tuple[int, Content]]] = defaultdict(list)
    for entry in found:
        digest = sha256(entry.raw).digest()
        if digest not in contents:
            contents[digest] = frozenset(atoms(msgspec.json.decode(entry.text)))
        nodes[contents[digest]].add(entry.node)
        places[entry.node, entry.segment].append((entry.end, contents[digest]))
    return Logs(
        contents,
        Counter(entry.node for entry in found),
        {content: frozenset(names) for content, names in nodes.items()},
        {segment: sorted(ends, key=itemgetter(0)) for segment, ends in places.items()},
    )


def _segments(folder: Path, *, killed: bool) -> dict[int, tuple[str, bytes, int]]:
    """Return by id the node of each segment, its bytes, and up to where they count."""
    places = {node: folder / "segments" / node for node in NODES}
    if killed:
        places = {NODES[2]: folder / KILLED / "cdc_raw"}
    return {
        number: (node, content, limit if killed else NO_LIMIT)
        for node, place in places.items()
        for number, content, limit in _durable(place)
    }


def _entries(oracle: Path, segments: Mapping[int, tuple[str, bytes, int]]) -> Iterator[Entry]:
    """Yield each mutation of a table with CDC."""
    with oracle.open("rb") as lines:
        for text in lines:
            line = msgspec.json.decode(text, type=_Line)
            if not line.cdc:
                continue
            node, content, limit = segments[line.segment]
            end = line.position - _CHECKSUM_BYTES
            if line.position <= limit:
                raw = content[end - line.size : end]
                yield Entry(node, line.segment, line.position, raw, text)


def atoms(mutation: Document) -> Iterator[Atom]:
    """Yield the atoms of a mutation in mutation JSON."""
    for update in mutation["updates"]:
        place = (update["id"], update["key"])
        if "partition_deletion" in update:
            yield (*place, "partition", _members(update["partition_deletion"]))
        if "static" in update:
            yield from _row_atoms((*place, "static"), update["static"])
        opened: Atom = ()
        for item in update["items"]:
            if "marker" not in item:
                yield from _row_atoms((*place, *item["clustering"]), item)
                continue
            bound = tuple(item["values"])
            if "close" in item:
                end = (bound, item["marker"] in _INCLUSIVE_ENDS)
                yield (*place, "range", *opened, end, _members(item["close"]))
            if "open" in item:
                opened = (bound, item["marker"] in _INCLUSIVE_STARTS)


def _row_atoms(place: Atom, row: Document) -> Iterator[Atom]:
    for part in ("liveness", "deletion"):
        if part in row:
            yield (place, part, _members(row[part]))
    for name, column in row["columns"].items() if "columns" in row else ():
        if "deletion" in column:
            yield (place, name, "deletion", _members(column["deletion"]))
        for cell in column.get("cells", [column] if "ts" in column else []):
            yield (place, name, "cell", _members(cell))


def _members(part: Document) -> Atom:
    """Return all members but the comment."""
    return tuple(sorted((name, value) for name, value in part.items() if name != "text"))

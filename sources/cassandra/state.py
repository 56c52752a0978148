"""The CDC state of a split: markers per log, counters, and the records seen; a source's position.

A state is an immutable value. Its head holds markers and counters, its chunks the records, as
changes since the chunk before; a chunk is named after its content and is written once. Layout of
both: 4 bytes magic, 2 bytes version, 4 bytes CRC-32 of the rest, then a zstd frame.
"""

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final, NamedTuple

import cramjam
import msgspec

from headrace.plugins import (
    ConfigError,
    EncodedPosition,
    Gap,
    Position,
    Problem,
    offset_numbers,
)
from headrace.sources.cassandra.errors import StateError
from headrace.sources.cassandra.groups import Group, Groups
from headrace.sources.cassandra.records import Records

VERSION: Final = 1
CONTENT_BYTES_MAX: Final = 64 * 1024 * 1024  # More is refused before it is decompressed.
# The states of a gap.
OPEN: Final = "open"
ACCEPTED: Final = "accepted"
_HEAD, _CHUNK = b"HRSH", b"HRSC"
_PREFIX_BYTES: Final = 14  # Magic, version, CRC, length.


class Marker(msgspec.Struct, frozen=True, array_like=True, order=True):
    """How far one log has been read: `offset` is the logical end of the last entry."""

    segment_id: int
    offset: int

    def shown(self) -> Mapping[str, int | str]:
        """Return it as an offset map."""
        return {"segment_id": self.segment_id, "position": self.offset}


class StoredGap(msgspec.Struct, frozen=True, array_like=True):
    """What of a node's log was lost unread: all after `begin`, up to `end` (line 21).

    `kind`, `state` and `policy` are words of the module `gaps`; `tau` is when it was met, in split
    time, and `noticed_ms` the same by the clock on the wall.
    """

    node: str
    begin: Marker
    end: Marker
    kind: str
    state: str = ""
    policy: str = ""
    tau: int = 0
    noticed_ms: int = 0

    @property
    def name(self) -> str:
        """The name by which people speak of it; the splits that share it say the same."""
        return f"{self.node}:{self.begin.segment_id}:{self.begin.offset}"

    def shown(self) -> Gap:
        """Return it as people see it."""
        return Gap(
            name=self.name,
            partition={"node": self.node},
            begin=self.begin.shown(),
            end=self.end.shown(),
            kind=self.kind,
            state=self.state,
            policy=self.policy,
            noticed_ms=self.noticed_ms,
        )


class _Head(msgspec.Struct, frozen=True):
    tau: int
    number: int
    hosts: tuple[str, ...]
    keyspaces: tuple[str, ...]
    markers: dict[str, Marker]
    counters: dict[str, int]
    chunks: tuple[str, ...]
    # States before there were any have none of these.
    schemas: dict[str, tuple[tuple[Marker, str], ...]] = {}
    gaps: tuple[StoredGap, ...] = ()
    unread: dict[str, tuple[int, ...]] = {}
    starts: dict[str, Marker] = {}
    topologies: tuple[tuple[str, int | None], ...] = ()


class Chunk:
    """Rows of records as `Agreement.changed_rows` makes them, or of a schema; sealed when stored.

    Keeps one form only, since the rows of all chunks are about as large as the records in memory.
    """

    __slots__ = ("_name", "_rows", "_sealed")

    def __init__(self, rows: bytes = b"", *, sealed: bytes = b"") -> None:
        """Take *rows*, or what `sealed` returned.

        Raises:
            StateError: *sealed* is damaged, or of a newer version.

        """
        self._rows: bytes | None = rows
        self._sealed = sealed
        self._name = ""
        if sealed:
            self._name = _chunk_name(sealed)
            _open(_CHUNK, sealed, f"chunk {self._name}")
            self._rows = None

    @property
    def rows(self) -> bytes:
        """The rows."""
        if self._rows is None:
            return _open(_CHUNK, self._sealed, f"chunk {self._name}")
        return self._rows

    @property
    def sealed(self) -> bytes:
        """The bytes that are stored."""
        if self._rows is not None:
            self._sealed = _seal(_CHUNK, self._rows)
            self._name = _chunk_name(self._sealed)
            self._rows = None
        return self._sealed

    @property
    def name(self) -> str:
        """Its name: the same content has the same name everywhere."""
        return self._name if self.sealed else ""

    def __eq__(self, other: object) -> bool:
        """Compare the rows."""
        return isinstance(other, Chunk) and self.rows == other.rows

    def __hash__(self) -> int:
        """Hash the rows."""
        return hash(self.rows)


class StoredVersion(NamedTuple):
    """The rows of a schema in force in one log after the entry that ends at `since`."""

    since: Marker
    chunk: Chunk


class StoredTopology(NamedTuple):
    """A version of the topology, and the split time at which another took its place, if one did."""

    chunk: Chunk
    superseded: int | None


@dataclass(frozen=True)
class CdcState(Position):
    """See the module. `tau` is split time in ms, `number` the last record's number.

    `hosts` and `keyspaces` are what the numbers in the rows mean. `needs` lists, per node, the
    segments that hold copies of unpublished records; it is for release and is not stored.
    `schemas` has, per node, the versions of the schema that what is pending and what is yet to be
    read is of, the newest last. `met_gaps` were met on the way here; `unread` has, per node, the
    ids of the segments that were listed and not begun; `starts` are the markers that reading began
    at, where that was not the beginning.
    `topologies` are the versions that records are judged by (line 9).
    """

    tau: int
    number: int
    hosts: tuple[str, ...]
    keyspaces: tuple[str, ...]
    markers: Mapping[str, Marker]
    counters: Mapping[str, int]
    chunks: tuple[Chunk, ...] = field(default=(), repr=False)
    needs: Mapping[str, frozenset[int]] = field(default_factory=dict, compare=False)
    schemas: Mapping[str, tuple[StoredVersion, ...]] = field(default_factory=dict, repr=False)
    met_gaps: tuple[StoredGap, ...] = ()
    unread: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    starts: Mapping[str, Marker] = field(default_factory=dict, repr=False)
    topologies: tuple[StoredTopology, ...] = field(default=(), repr=False)

    def encode(self) -> EncodedPosition:
        """Return the head and the chunks it lists."""
        head = _Head(
            self.tau,
            self.number,
            self.hosts,
            self.keyspaces,
            dict(self.markers),
            dict(self.counters),
            tuple(chunk.name for chunk in self.chunks),
            {
                node: tuple((version.since, version.chunk.name) for version in versions)
                for node, versions in self.schemas.items()
            },
            self.met_gaps,
            dict(self.unread),
            dict(self.starts),
            tuple((each.chunk.name, each.superseded) for each in self.topologies),
        )
        versions = [version.chunk for each in self.schemas.values() for version in each]
        versions += [each.chunk for each in self.topologies]
        return EncodedPosition(
            _seal(_HEAD, msgspec.msgpack.encode(head)),
            {chunk.name: chunk.sealed for chunk in (*self.chunks, *versions)},
        )

    @classmethod
    def decode(cls, encoded: EncodedPosition) -> "CdcState":
        """Read what `encode` wrote.

        Raises:
            StateError: a newer version, or bytes that are damaged, missing or no state at all.

        """
        try:
            head = msgspec.msgpack.decode(_open(_HEAD, encoded.head, "head"), type=_Head)
        except msgspec.MsgspecError as error:
            raise _damaged("head", f"fields that do not fit: {error}") from error
        known: dict[str, Chunk] = {}

        def chunk(name: str) -> Chunk:
            if name not in known:
                known[name] = _chunk_in(encoded, name)
            return known[name]

        return cls(
            head.tau,
            head.number,
            head.hosts,
            head.keyspaces,
            head.markers,
            head.counters,
            tuple(chunk(name) for name in head.chunks),
            schemas={
                node: tuple(StoredVersion(since, chunk(name)) for since, name in versions)
                for node, versions in head.schemas.items()
            },
            met_gaps=head.gaps,
            unread=head.unread,
            starts=head.starts,
            topologies=tuple(StoredTopology(chunk(name), at) for name, at in head.topologies),
        )

    def describe(self) -> Sequence[tuple[Mapping[str, str], Mapping[str, int | str]]]:
        """Return each log's marker as an offset."""
        return [({"node": node}, marker.shown()) for node, marker in sorted(self.markers.items())]

    def moved(
        self, partition: Mapping[str, str], offset: Mapping[str, int | str] | None
    ) -> "CdcState":
        """Read the log of a node from elsewhere; None is its oldest segment.

        What is remembered of mutations goes: else nothing that was published would come again.
        Those that were pending count as expired, so that the books balance (I3).
        """
        node = partition.get("node", "")
        if set(partition) != {"node"} or node not in self.hosts:
            hint = f"the nodes are {', '.join(self.hosts)}"
            raise ConfigError([Problem("partition", f"has no log {dict(partition)}", hint)])
        markers = {host: marker for host, marker in self.markers.items() if host != node}
        if offset is not None:
            segment_id, position = offset_numbers(offset, "segment_id", "position")
            markers[node] = Marker(segment_id, position)
        counters = dict(self.counters)
        if pending := counters.get("mutations.pending", 0):
            counters["mutations.expired"] = counters.get("mutations.expired", 0) + pending
            counters["mutations.pending"] = 0
        schemas = dict(self.schemas)
        schemas[node] = _until(schemas.get(node, ()), markers.get(node, Marker(0, 0)))
        starts = {host: marker for host, marker in self.starts.items() if host != node}
        if node in markers:
            starts[node] = markers[node]
        unread = {host: ids for host, ids in self.unread.items() if host != node}
        return replace(
            self,
            markers=markers,
            counters=counters,
            chunks=(),
            needs={},
            schemas=schemas,
            met_gaps=tuple(g for g in self.met_gaps if g.node != node or g.state != OPEN),
            unread=unread,
            starts=starts,
        )

    def books(self) -> Mapping[str, int]:
        """Return the counters (I3)."""
        return self.counters

    def began(self) -> Sequence[tuple[Mapping[str, str], Mapping[str, int | str] | None]]:
        """Return where reading of each log began; it is known since states tell of it."""
        return [({"node": n}, marker.shown()) for n, marker in sorted(self.starts.items())]

    def contradictions(self) -> Sequence[str]:
        """Count the pending records, and hold them against the books."""
        hosts = list(range(len(self.hosts)))
        groups = Groups(len(hosts))
        groups.set([Group((), 0)], [[(0, 0)] for _ in self.keyspaces])
        records = Records(groups)
        for chunk in self.chunks:
            rows = memoryview(chunk.rows).cast("Q")
            records.restore(rows, hosts, list(range(len(self.keyspaces))))
        booked = self.counters.get("mutations.pending", 0)
        if records.pending == booked:
            return ()
        return [f"mutations: the state holds {records.pending} that are pending, not {booked}"]

    def gaps(self) -> Sequence[Gap]:
        """Return the gaps that were met, the newest last."""
        return [gap.shown() for gap in self.met_gaps]

    def without_gaps(self, names: Collection[str], policy: str) -> "CdcState":
        """Let reading go on behind open gaps (line 21); what was known stays known."""
        markers, met = dict(self.markers), list(self.met_gaps)
        for place, gap in enumerate(met):
            if gap.state == OPEN and gap.name in names:
                markers[gap.node] = max(markers.get(gap.node, gap.end), gap.end)
                met[place] = msgspec.structs.replace(gap, state=ACCEPTED, policy=policy)
        return replace(self, markers=markers, met_gaps=tuple(met))


def _until(versions: Sequence[StoredVersion], marker: Marker) -> tuple[StoredVersion, ...]:
    """Return the versions that stand before *marker*, or the oldest of all."""
    return tuple(v for v in versions if v.since <= marker) or tuple(versions[:1])


def _chunk_in(encoded: EncodedPosition, name: str) -> Chunk:
    if name not in encoded.chunks:
        raise _damaged(f"chunk {name}", "nothing")
    sealed = encoded.chunks[name]
    if _chunk_name(sealed) != name:
        raise _damaged(f"chunk {name}", f"{len(sealed)} bytes of another name")
    return Chunk(sealed=sealed)


def _chunk_name(sealed: bytes) -> str:
    return sha256(sealed).hexdigest()[:32]


def _seal(magic: bytes, content: bytes) -> bytes:
    body = len(content).to_bytes(4, "big") + bytes(cramjam.zstd.compress(content, level=1))
    return magic + VERSION.to_bytes(2, "big") + zlib.crc32(body).to_bytes(4, "big") + body


def _open(magic: bytes, sealed: bytes, what: str) -> bytes:
    if len(sealed) < _PREFIX_BYTES or sealed[:4] != magic:
        raise _damaged(what, f"{len(sealed)} bytes that begin {sealed[:4]!r}")
    version = int.from_bytes(sealed[4:6], "big")
    if version != VERSION:
        raise StateError(
            f"version {version}; this release reads {VERSION}",
            place=f"CDC state, {what}",
            hint="run the release that wrote it, or a newer one",
        )
    if zlib.crc32(sealed[10:]) != int.from_bytes(sealed[6:10], "big"):
        raise _damaged(what, "a wrong checksum")
    length = int.from_bytes(sealed[10:14], "big")
    if length > CONTENT_BYTES_MAX:
        raise _damaged(what, f"a content of {length} bytes")
    content = bytearray(length)
    try:
        written = cramjam.zstd.decompress_into(sealed[14:], content)
    except cramjam.DecompressionError as error:
        raise _damaged(what, "content that cannot be decompressed") from error
    if written != length:
        raise _damaged(what, f"{written} bytes of content instead of {length}")
    return bytes(content)


def _damaged(what: str, found: str) -> StateError:
    return StateError(
        f"expected a CDC state, found {found}",
        place=f"CDC state, {what}",
        hint="restore the store from a backup, or start the job under a new name",
    )

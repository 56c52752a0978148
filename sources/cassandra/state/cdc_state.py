"""The CDC state of a split: markers per log, counters, and the records seen; a source's position.

A state is immutable. Its head holds markers and counters, its chunks the records, as changes since
the previous chunk.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import msgspec

from headrace.plugins import (
    ConfigError,
    EncodedPosition,
    Gap,
    Position,
    Problem,
    Waiting,
    offset_numbers,
)
from headrace.plugins.positions import ACCEPTED, OPEN
from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.commitlog.manifest import (
    GENERATION_BEHIND,
    Manifest,
    Stored,
    file_of,
    number_in,
    place_of,
)
from headrace.sources.cassandra.commitlog.segment import ID_BEHIND
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.ring.replica_groups import Group, Groups
from headrace.sources.cassandra.ring.splits import Arc
from headrace.sources.cassandra.ring.topology import Topology
from headrace.sources.cassandra.state.chunks import (
    HEAD_BYTES_MAX,
    Chunk,
    chunk_in,
    damaged,
    pieces_of,
    seal,
    unseal,
    version_of,
    whole_of,
)
from headrace.sources.cassandra.state.rows import (
    Row,
    is_pending,
    keyspace_of,
    latest_rows,
    places_in,
)
from headrace.sources.cassandra.state.unavailable_logs import Absence

DAMAGED: Final = "damaged"  # A kind of gap: its bytes exist, but cannot be read.
HEAD_VERSION: Final = 2  # Version 1 had no manifests: its segments were numbered by their ids.
PIECES_VERSION: Final = 3  # The names of the pieces that a head is stored in.
GENERATION: Final = "incarnation"  # The key in offsets.
_HEAD: Final = b"HRSH"
_HIGHEST: Final = (1 << 63) - 1  # Above the id of every segment.
_HALF: Final = 1 << 63
_WHOLE: Final = 1 << 64
_MS: Final = 1_000


class Marker(msgspec.Struct, frozen=True, array_like=True, order=True):
    """How far one log has been read: `offset` is the logical end of the last entry.

    `segment_id` is the segment's number in the log's `Manifest`.
    """

    segment_id: int
    offset: int

    def shown(self) -> Mapping[str, int | str]:
        """Return it as an offset map; the first log generation is not named."""
        generation, file_id = place_of(self.segment_id)
        shown = {"segment_id": file_id, "position": self.offset}
        return shown | {GENERATION: generation} if generation else shown


class StoredGap(msgspec.Struct, frozen=True, array_like=True):
    """The part of a node's log that was lost unread: all after `begin`, up to `end` (line 21).

    `kind`, `state` and `policy` are constants of the module `gaps`. `split_time_ms` and
    `noticed_ms` are when it was met, in split time and in wall time. `arcs` are the parts of the
    split that it concerns; none means all. `size_bytes` is how many bytes are damaged, 0 if they
    are missing.
    """

    node: str
    begin: Marker
    end: Marker
    kind: str
    state: str = ""
    policy: str = ""
    split_time_ms: int = 0
    noticed_ms: int = 0
    arcs: tuple[Arc, ...] = ()
    size_bytes: int = 0

    @property
    def name(self) -> str:
        """Its name for users; splits that share the gap have the same name."""
        return ":".join([self.node, *map(str, self.begin.shown().values())])

    def shown(self) -> Gap:
        """Return it as users see it."""
        return Gap(
            name=self.name,
            partition={"node": self.node},
            begin=self.begin.shown(),
            end=self.end.shown(),
            kind=self.kind,
            state=self.state,
            policy=self.policy,
            noticed_ms=self.noticed_ms,
            size_bytes=self.size_bytes,
        )


class Ahead(msgspec.Struct, frozen=True, array_like=True):
    """A part of a split that had been read further than the rest when states were merged (33).

    It is `arc` of the ring; `markers` are those ahead of the split's own.
    """

    arc: Arc
    markers: dict[str, Marker]


class _Head(msgspec.Struct, frozen=True):
    split_time_ms: int = msgspec.field(name="tau")  # The name in stored heads.
    number: int
    hosts: tuple[str, ...]
    keyspaces: tuple[str, ...]
    markers: dict[str, Marker]
    counters: dict[str, int]
    chunks: tuple[str, ...]
    # Older states have none of these.
    schemas: dict[str, tuple[tuple[Marker, str], ...]] = {}
    gaps: tuple[StoredGap, ...] = ()
    unread: dict[str, tuple[int, ...]] = {}
    starts: dict[str, Marker] = {}
    job: str = ""
    tables: tuple[str, ...] | None = None
    topologies: tuple[tuple[str, int | None], ...] = ()
    ahead: tuple[Ahead, ...] = ()
    manifests: dict[str, Stored] = {}
    absences: dict[str, Absence] = {}
    parted: dict[str, tuple[str, ...]] = {}  # The pieces of large chunks.


class StoredVersion(NamedTuple):
    """The rows of a schema in force in one log after the entry that ends at `since`."""

    since: Marker
    chunk: Chunk


class StoredTopology(NamedTuple):
    """A version of the topology, and the split time when it was superseded, if it was."""

    chunk: Chunk
    superseded: int | None


@dataclass(frozen=True)
class CdcState(Position):
    """The state of a split. `number` is the last record's number.

    `hosts` and `keyspaces` give the numbers in the rows a meaning. The logs of `hosts` are those
    that the split reads; an empty name is a free number. `needs` has, per node, where copies of
    unpublished records lie; it is for release and is not stored.
    `schemas` has, per node, the schema versions of pending and unread mutations, the newest last.
    `met_gaps` has the gaps so far; `unread` has, per node, the ids of the segments that were listed
    and not started; `starts` has the markers where reading started, if not at the oldest segment.
    The books are those of `job`; all pending mutations belong to `tables`: none means all, None
    means unknown.
    `topologies` has the versions that records are checked against (line 9). For the tokens in
    `ahead` more has been read than `markers` say, and the state includes it.
    `manifests` has what was listed of each log: it distinguishes an old segment with a lower id
    from another log generation. `absences` has the logs that could recently not be read to their
    ends (line 8). `size_bytes` is the size of rows that are in no store yet; it is not stored.
    """

    split_time_ms: int
    number: int
    hosts: tuple[str, ...]
    keyspaces: tuple[str, ...]
    markers: Mapping[str, Marker]
    counters: Mapping[str, int]
    chunks: tuple[Chunk, ...] = field(default=(), repr=False)
    needs: Mapping[str, Mapping[int, Sequence[tuple[int, int]]]] = field(
        default_factory=dict, compare=False
    )
    schemas: Mapping[str, tuple[StoredVersion, ...]] = field(default_factory=dict, repr=False)
    met_gaps: tuple[StoredGap, ...] = ()
    unread: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    starts: Mapping[str, Marker] = field(default_factory=dict, repr=False)
    job: str = ""
    tables: tuple[str, ...] | None = None
    topologies: tuple[StoredTopology, ...] = field(default=(), repr=False)
    ahead: tuple[Ahead, ...] = ()
    manifests: Mapping[str, Stored] = field(default_factory=dict, repr=False)
    absences: Mapping[str, Absence] = field(default_factory=dict)
    size_bytes: int = field(default=0, compare=False, repr=False)

    def encode(self) -> EncodedPosition:
        """Return the head and the chunks it lists, none larger than its limit (line 29).

        Released chunks are only named: the split's store has them.
        """
        versions = [version.chunk for each in self.schemas.values() for version in each]
        versions += [each.chunk for each in self.topologies]
        chunks: dict[str, bytes] = {}
        kept: set[str] = set()
        parted: dict[str, tuple[str, ...]] = {}
        for chunk in (*self.chunks, *versions):
            pieces = [] if chunk.kept else pieces_of(chunk.sealed, chunk.name)
            names = chunk.kept or tuple(name for name, _ in pieces)
            chunks |= pieces
            kept.update(chunk.kept)
            if len(names) > 1:
                parted[chunk.name] = names
        head = _Head(
            self.split_time_ms,
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
            self.job,
            self.tables,
            tuple((each.chunk.name, each.superseded) for each in self.topologies),
            self.ahead,
            dict(self.manifests),
            dict(self.absences),
            parted,
        )
        sealed = seal(_HEAD, msgspec.msgpack.encode(head), HEAD_VERSION)
        if parted or len(sealed) > HEAD_BYTES_MAX:
            pieces = pieces_of(sealed)
            chunks |= pieces
            sealed = seal(_HEAD, msgspec.msgpack.encode([n for n, _ in pieces]), PIECES_VERSION)
        return EncodedPosition(sealed, chunks, frozenset(kept.difference(chunks)))

    @classmethod
    def decode(cls, encoded: EncodedPosition) -> "CdcState":
        """Decode what `encode` returned.

        Raises:
            StateError: a newer version, or bytes that are damaged, missing or not a state.

        """
        try:
            content = unseal(_HEAD, encoded.head, "head", PIECES_VERSION)
            if version_of(encoded.head) == PIECES_VERSION:
                names = msgspec.msgpack.decode(content, type=tuple[str, ...])
                whole = whole_of(encoded, names, "head")
                content = unseal(_HEAD, whole, "head", HEAD_VERSION)
            head = msgspec.msgpack.decode(content, type=_Head)
        except msgspec.MsgspecError as error:
            raise damaged("head", f"fields that do not fit: {error}") from error
        known: dict[str, Chunk] = {}

        def chunk(name: str) -> Chunk:
            if name not in known:
                known[name] = chunk_in(encoded, name, head.parted)
            return known[name]

        return cls(
            head.split_time_ms,
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
            job=head.job,
            tables=head.tables,
            topologies=tuple(StoredTopology(chunk(name), at) for name, at in head.topologies),
            ahead=head.ahead,
            manifests=head.manifests,
            absences=head.absences,
        )

    def describe(self) -> Sequence[tuple[Mapping[str, str], Mapping[str, int | str]]]:
        """Return each log's marker as an offset."""
        return [({"node": node}, marker.shown()) for node, marker in sorted(self.markers.items())]

    def moved(
        self, partition: Mapping[str, str], offset: Mapping[str, int | str] | None
    ) -> "CdcState":
        """Return the state with the log of a node at another marker; None is its oldest segment.

        All records are dropped: otherwise published mutations would not be emitted again. Pending
        ones count as expired, so that the books balance (I3).
        """
        node = partition.get("node", "")
        if set(partition) != {"node"} or node not in self.nodes:
            hint = f"the nodes are {', '.join(self.nodes)}"
            raise ConfigError([Problem("partition", f"has no log {dict(partition)}", hint)])
        markers = {host: marker for host, marker in self.markers.items() if host != node}
        if offset is not None:
            markers[node] = self._place(node, offset)
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
            ahead=left_ahead(self.ahead, {node: Marker(_HIGHEST, 0)}),
            absences={host: each for host, each in self.absences.items() if host != node},
        )

    def _place(self, node: str, offset: Mapping[str, int | str]) -> Marker:
        """Return the marker of an offset map; by default in the newest log generation with it."""
        given = {GENERATION: 0, **offset}
        segment_id, position, generation = offset_numbers(
            given, "segment_id", "position", GENERATION
        )
        if segment_id >= ID_BEHIND or generation >= GENERATION_BEHIND:
            raise ConfigError([Problem("segment_id", f"no log has segment {segment_id}")])
        if GENERATION in offset:
            return Marker(number_in(generation, segment_id), position)
        known = Manifest(self.manifests.get(node, ()))
        newest = number_in(known.generation, segment_id)
        return Marker(known.number(segment_id) or newest, position)

    def books(self) -> Mapping[str, int]:
        """Return the counters (I3)."""
        return self.counters

    @property
    def nodes(self) -> Sequence[str]:
        """The nodes whose logs are read: `hosts` without free log slots."""
        return [node for node in self.hosts if node]

    def furthest(self, node: str) -> Marker:
        """Return the furthest position up to which any of a log was read."""
        none = Marker(0, 0)
        ahead = [each.markers.get(node, none) for each in self.ahead]
        return max([self.markers.get(node, none), *ahead])

    def began(self) -> Sequence[tuple[Mapping[str, str], Mapping[str, int | str] | None]]:
        """Return where reading of each log started, if the state has it."""
        return [({"node": n}, marker.shown()) for n, marker in sorted(self.starts.items())]

    def contradictions(self) -> Sequence[str]:
        """Count the pending records, and compare the count with the books."""
        hosts = list(range(len(self.hosts)))
        groups = Groups(len(hosts))
        groups.set([Group((), 0)], [[(0, 0)] for _ in self.keyspaces])
        records = Agreement(groups)
        for chunk in self.chunks:
            records.restore(chunk.words, hosts, list(range(len(self.keyspaces))))
        booked = self.counters.get("mutations.pending", 0)
        if records.pending == booked:
            return ()
        return [f"mutations: the state holds {records.pending} that are pending, not {booked}"]

    def waiting(self) -> Sequence[Waiting]:
        """Return the pending mutations, with the places of their copies, oldest first."""
        in_force = [Topology.decode(v.chunk.rows) for v in self.topologies if v.superseded is None]
        rows = [row for row in latest_rows(self.chunks).values() if is_pending(row)]
        rows.sort(key=lambda row: (row[constants.SINCE], row[constants.NUMBER]))
        return [_waiting(row, self, in_force[0] if in_force else None) for row in rows]

    def gaps(self) -> Sequence[Gap]:
        """Return the gaps that were met, the newest last."""
        return [gap.shown() for gap in self.met_gaps]

    def without_gaps(self, names: Collection[str], policy: str) -> "CdcState":
        """Continue reading after open gaps (line 21); records are kept."""
        markers, met, absences = dict(self.markers), list(self.met_gaps), dict(self.absences)
        for place, gap in enumerate(met):
            if gap.state == OPEN and gap.name in names:
                if gap.kind != DAMAGED:  # Damage is read again, and booked with its bytes.
                    markers[gap.node] = max(markers.get(gap.node, gap.end), gap.end)
                met[place] = msgspec.structs.replace(gap, state=ACCEPTED, policy=policy)
                absences.pop(gap.node, None)  # The rest of the log counts from now on.
        return replace(self, markers=markers, met_gaps=tuple(met), absences=absences)


def _until(versions: Sequence[StoredVersion], marker: Marker) -> tuple[StoredVersion, ...]:
    """Return the versions before *marker*, or the oldest of all."""
    return tuple(v for v in versions if v.since <= marker) or tuple(versions[:1])


def left_ahead(ahead: Sequence[Ahead], markers: Mapping[str, Marker]) -> tuple[Ahead, ...]:
    """Return the parts of *ahead* that *markers* have not reached."""
    none = Marker(0, 0)
    left = (
        Ahead(each.arc, {n: m for n, m in each.markers.items() if m > markers.get(n, none)})
        for each in ahead
    )
    return tuple(each for each in left if each.markers)


def _waiting(row: Row, state: CdcState, topology: Topology | None) -> Waiting:
    token = row[constants.TOKEN]
    token -= _WHOLE if token >= _HALF else 0
    keyspace = state.keyspaces[keyspace_of(row)]
    seen = {name for host, name in enumerate(state.hosts) if row[constants.SEEN] >> host & 1}
    terms = topology.at(keyspace, token) if topology is not None else ()
    replicas: frozenset[str] = frozenset().union(*(names for names, _ in terms))
    places = {state.hosts[host]: (number, at) for host, number, at, _ in places_in(row)}
    return Waiting(
        subject=f"keyspace {keyspace}, token {token}",
        copies={
            node: f"{file_of(number)}:{position}" for node, (number, position) in places.items()
        },
        missing=sorted(replicas - seen),
        needed=" and ".join(f"{needed} of {', '.join(sorted(names))}" for names, needed in terms),
        seconds=max(0, state.split_time_ms - row[constants.SINCE]) // _MS,
    )

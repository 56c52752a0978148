"""What the judge keeps: a split's states, each with the one before it, and what was sent of it."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.plugins import EncodedPosition
from headrace.sources.cassandra import codes
from headrace.sources.cassandra.state import OPEN, CdcState
from headrace.sources.cassandra.topology import Topology
from model_ring import RETIRE_S, Copy, Mutation, Place, Version

PUBLISHED = (codes.PUBLISHED, codes.EXPIRED_PUBLISHED)
_ROW_WORDS = 10
_RETIRE_MS = RETIRE_S * 1_000

Digest = tuple[int, int]
At = tuple[int, int]  # Segment, logical end.


@dataclass(frozen=True)
class Known:
    """A record as a state has it."""

    kind: int
    seen: frozenset[str]
    places: frozenset[tuple[str, int]]


@dataclass(frozen=True)
class Passed:
    """A part of a log that a state says was lost: all after `begin`, up to `end`."""

    node: str
    begin: At
    end: At
    assumed: bool

    @property
    def name(self) -> Place:
        """What tells it apart."""
        return self.node, *self.begin


@dataclass(eq=False)
class Line:
    """One state of a split and, through `parent`, those before it.

    `covered` tells who logged a content before the markers, `came` what has a copy between the last
    markers and these, `read` counts the split's entries before them, `damaged` those of them that
    were; `lost` were gone before they were read; a gap may stop it. `said` is its batch's.
    `version` is the ring that it knows to be in force, `superseded` the split time, at least and at
    most, since when others are not.
    """

    split: str
    version: Version
    parent: "Line | None" = None
    tau: int = 0
    markers: Mapping[str, At] = field(default_factory=dict)
    records: Mapping[Digest, Known] = field(default_factory=dict)
    books: Mapping[str, int] = field(default_factory=dict)
    gaps: Collection[Passed] = ()
    is_stopped: bool = False
    superseded: Mapping[Version, tuple[int, int]] = field(default_factory=dict)
    has_changes: bool = False
    covered: dict[frozenset[int], set[str]] = field(default_factory=lambda: defaultdict(set))
    came: set[Mutation] = field(default_factory=set)
    read: Counter[str] = field(default_factory=Counter)
    damaged: Counter[str] = field(default_factory=Counter)
    lost: list[tuple[str, Copy]] = field(default_factory=list)
    said: list[Mutation] = field(default_factory=list)
    flights: list["Flight"] = field(default_factory=list)
    made_ms: int = 0

    def back(self) -> Iterator["Line"]:
        """Yield this and all before it, the last one first."""
        line: Line | None = self
        while line is not None:
            yield line
            line = line.parent

    def covers(self, node: str, copy: Copy) -> bool:
        """Tell whether an entry is before the marker."""
        return (copy.segment, copy.end) <= self.markers.get(node, (0, 0))

    def passes(self, node: str, copy: Copy) -> bool:
        """Tell whether an entry is in a part of a log that the state says was lost."""
        at = copy.segment, copy.end
        return any(gap.node == node and gap.begin < at <= gap.end for gap in self.gaps)

    def rows(self) -> set[int]:
        """Return all rows that were said up to here."""
        return {row for line in self.back() for mutation in line.said for row in mutation.rows}

    def sure_versions(self) -> set[Version]:
        """Return the rings that count for certain (line 9)."""
        old = self.superseded.items()
        return {self.version, *(v for v, (since, _) in old if self.tau < since + _RETIRE_MS)}

    def possible_versions(self) -> set[Version]:
        """Return those that may count: its own, and those of the state before."""
        found = {self.version}
        for line in filter(None, (self, self.parent)):
            old = line.superseded.items()
            found |= {line.version}
            found |= {v for v, (_, since) in old if line.tau <= since + _RETIRE_MS}
        return found

    def follow(self, version: Version) -> None:
        """Take over which rings count from the state before, and that *version* is in force."""
        assert self.parent is not None
        self.superseded = dict(self.parent.superseded)
        if version != self.parent.version:
            self.superseded[self.parent.version] = (self.parent.tau, self.tau)
            self.superseded.pop(version, None)


@dataclass
class Change:
    """A record on its way to the sink; without rows it tells of a gap."""

    row: int
    place: Place
    copies: int
    key: int
    arrived: bool = False
    rejected: bool = False


@dataclass(eq=False)
class Flight:
    """A delivery, in the order of submission; `token` is that of the lease it was made under."""

    number: int
    line: Line
    token: int
    changes: list[Change]
    size_bytes: int

    def rows(self) -> list[Change]:
        """Return the changes of rows."""
        return [change for change in self.changes if change.row >= 0]


def change_of(value: bytes) -> Change:
    """Return what the sink is given."""
    told = json.loads(value)
    if "control" in told:
        begin = told["from"]
        return Change(-1, (told["node"], begin["segment_id"], begin["position"]), 0, -1)
    place = told["node"], told["segment"], told["position"]
    return Change(told["clustering"]["c"], place, told["copies"], told["key"]["k"])


def head_of(position: EncodedPosition | None) -> bytes | None:
    """Return what names a stored state."""
    return position.head if position else None


# ---- what a state says ----


def versions_in(state: CdcState) -> tuple[Version, set[Version]]:
    """Return the ring that a state says is in force, and the others that count."""
    current, others = None, set()
    for each in state.topologies:
        topology = Topology.decode(each.chunk.rows)
        (replication,) = (dict(options) for _, options in topology.keyspaces)
        tokens = tuple((node.name, node.tokens) for node in topology.nodes)
        version = Version(tokens, int(replication["replication_factor"]))
        if each.superseded is None:
            current = version
        else:
            others.add(version)
    assert current is not None
    return current, others


def gaps_in(state: CdcState) -> Collection[Passed]:
    """Return the gaps that a state says reading goes on behind."""
    return [
        Passed(
            gap.node,
            (gap.begin.segment_id, gap.begin.offset),
            (gap.end.segment_id, gap.end.offset),
            gap.policy == "assume",
        )
        for gap in state.met_gaps
        if gap.state != OPEN
    ]


def rows_of(rows: bytes, hosts: Sequence[str]) -> Iterator[tuple[Digest, Known]]:
    """Yield the records in a chunk."""
    words = memoryview(rows).cast("Q").tolist()
    at = 0
    while at < len(words):
        row = words[at : at + _ROW_WORDS]
        at += _ROW_WORDS
        kind = row[codes.META] & 0xFF
        places = set()
        if kind in PUBLISHED:
            places = {(hosts[row[codes.META] >> 48 & 0x3F], row[codes.BORN])}
        if kind in (codes.PENDING, codes.EXPIRED_DROPPED):
            for _ in range(row[codes.LOCATIONS]):
                places.add((hosts[words[at]], words[at + 1]))
                at += codes.LOCATION_WORDS - 1
        seen = (host for i, host in enumerate(hosts) if row[codes.SEEN] >> i & 1)
        yield (row[codes.D0], row[codes.D1]), Known(kind, frozenset(seen), frozenset(places))

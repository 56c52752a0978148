"""What the checks keep: a split's states, each with the one before it, and what was sent."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from headrace.plugins import EncodedPosition
from headrace.plugins.positions import OPEN
from headrace.sources.cassandra.commitlog.manifest import number_in
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.ring.topology import Topology
from headrace.sources.cassandra.state.cdc_state import GENERATION, CdcState, Marker
from headrace.sources.cassandra.state.gaps import COVERED, RETURNED
from helpers.model.logs import Copy, Mutation
from helpers.model.ring import RETIRE_S, Part, Place, Version, part_of, place_of

PUBLISHED = (constants.PUBLISHED, constants.EXPIRED_PUBLISHED)
WAITING = (constants.PENDING, constants.EXPIRED_DROPPED)
_ROW_WORDS = 10
_RETIRE_MS = RETIRE_S * 1_000

Digest = tuple[int, int]
At = tuple[int, int]  # Segment, logical end.
NOWHERE: At = (0, 0)


@dataclass(frozen=True)
class Known:
    """A record in a state; `times` are τ of its kind, of its last copy and of its first."""

    kind: int
    seen: frozenset[str]
    places: frozenset[tuple[str, int]]
    times: tuple[int, ...]
    number: int

    def ages(self, split_time_ms: int) -> tuple[int, ...]:
        """Return the ages that follow from its times."""
        return tuple(split_time_ms - time for time in self.times)


@dataclass(frozen=True)
class Passed:
    """A part of a log that a state says was lost: all after `begin`, up to `end`."""

    node: str
    begin: At
    end: At
    kind: str

    def has(self, node: str, copy: Copy) -> bool:
        """Return whether an entry is in it."""
        return self.node == node and self.begin < (copy.segment, copy.end) <= self.end

    @property
    def name(self) -> Place:
        """Its identity."""
        return self.node, *self.begin


@dataclass(eq=False)
class Course:
    """A split during one plan: its first state and its committed state."""

    split: str
    root: "Line" = field(init=False)
    committed: "Line" = field(init=False)

    @cached_property
    def part(self) -> Part:
        """Its places on the ring."""
        return part_of(self.split)

    def begin(self, root: "Line") -> None:
        """Start with *root*."""
        self.root = self.committed = root

    def counts(self, copy: Copy) -> bool:
        """Return whether it counts an entry; the first split counts all damage."""
        if copy.damaged:
            return copy.durable_ms is not None and self.part.first == 0
        return copy.durable_ms is not None and self.part.has(place_of(copy.mutation.key))


@dataclass(eq=False)
class Line:
    """One state of a split and, through `parent`, the states before it.

    The first state of a plan was merged from its `origins`, the last states of the plan before.
    `covered` has the nodes that logged a content before the markers, `came` the contents with a
    copy between the last markers and these. `read` is the number of the split's entries before the
    markers, `damaged` how many of them were damaged; `lost` were gone before they were read; a gap
    may stop it. `said` is what its batch emitted. `version` is the ring that it has as current;
    `superseded` is the split time, at least and at most, since when others are not current. Of the
    parts in `ahead` more was read than `markers` say. `unread` has, for logs that could not be
    read, for how long, in ms, and when they were last read, in τ; `rings` are all that the state
    says count. `reported` are the gaps it reports, `set_aside` the contents that were dropped for
    room (line 25). `assumed` are the nodes that count for what lost parts of their logs may have
    had.
    """

    course: Course
    version: Version
    parent: "Line | None" = None
    split_time_ms: int = 0
    markers: Mapping[str, At] = field(default_factory=dict)
    ahead: Sequence[tuple[Part, Mapping[str, At]]] = ()
    records: Mapping[Digest, Known] = field(default_factory=dict)
    books: Counter[str] = field(default_factory=Counter)
    gaps: Collection[Passed] = ()
    assumed: Collection[str] = ()
    is_stopped: bool = False
    superseded: Mapping[Version, tuple[int, int]] = field(default_factory=dict)
    unread: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    rings: Collection[Version] = ()
    gone_without: Collection[str] = ()  # Logs that are not waited for, or were not just before.
    has_changes: bool = False
    covered: dict[frozenset[int], set[str]] = field(default_factory=lambda: defaultdict(set))
    came: set[Mutation] = field(default_factory=set)
    read: Counter[str] = field(default_factory=Counter)
    damaged: Counter[str] = field(default_factory=Counter)
    lost: list[tuple[str, Copy]] = field(default_factory=list)
    said: list[Mutation] = field(default_factory=list)
    reported: set[tuple[Place, At, str]] = field(default_factory=set)
    set_aside: set[frozenset[int]] = field(default_factory=set)
    said_before: frozenset[int] = frozenset()  # Rows, by the plans before.
    flights: list["Flight"] = field(default_factory=list)
    origins: Sequence["Line"] = ()
    made_ms: int = 0

    @property
    def gave_way(self) -> int:
        """The number of pending mutations that were dropped for room since the state before."""
        return self._more("mutations.overflow")

    @property
    def forgot_early(self) -> int:
        """The number of published or expired mutations that were dropped for room."""
        return self._more("memory_shortened")

    def _more(self, name: str) -> int:
        return self.books[name] - (self.parent.books[name] if self.parent else 0)

    def back(self) -> Iterator["Line"]:
        """Yield this state and all before it in its plan, the last one first."""
        line: Line | None = self
        while line is not None:
            yield line
            line = line.parent

    def past(self, key: int) -> Iterator[tuple["Line", int]]:
        """Yield this state and all before it that contain a key, of any plan.

        Each comes with what must be added to its split times to be comparable to this state's.
        """
        line: Line | None = self
        shift = 0
        while line is not None:
            yield line, shift
            origin = line.origin(key)
            shift += line.split_time_ms - origin.split_time_ms if origin else 0
            line = origin or line.parent

    def origin(self, key: int) -> "Line | None":
        """Return the state that this one was merged from, for a key."""
        place = place_of(key)
        return next((each for each in self.origins if each.course.part.has(place)), None)

    def marker(self, node: str, place: int) -> At:
        """Return how far a log was read for a place on the ring."""
        ahead = [more.get(node, NOWHERE) for part, more in self.ahead if part.has(place)]
        return max([self.markers.get(node, NOWHERE), *ahead])

    def covers(self, node: str, copy: Copy) -> bool:
        """Return whether an entry is before the marker; a damaged entry has no key of its own."""
        place = 0 if copy.damaged else place_of(copy.mutation.key)
        return (copy.segment, copy.end) <= self.marker(node, place)

    def passes(self, node: str, copy: Copy) -> bool:
        """Return whether an entry is in a part of a log that the state says was lost."""
        return any(gap.has(node, copy) for gap in self.gaps)

    def skips(self, node: str, copy: Copy) -> bool:
        """Return whether an entry is in what a log that returned too late contained."""
        return any(gap.kind == RETURNED and gap.has(node, copy) for gap in self.gaps)

    def rows(self) -> set[int]:
        """Return all rows that were emitted up to here."""
        mine = {row for line in self.back() for mutation in line.said for row in mutation.rows}
        return mine | self.course.root.said_before

    def sure_versions(self) -> set[Version]:
        """Return the rings that certainly count (line 9)."""
        old = self.superseded.items()
        return {
            self.version,
            *(v for v, (since, _) in old if self.split_time_ms < since + _RETIRE_MS),
        }

    def possible_versions(self) -> set[Version]:
        """Return the rings that may count: its own, and those of the state before."""
        found = {self.version}
        for line in filter(None, (self, self.parent)):
            old = line.superseded.items()
            found |= {line.version}
            found |= {v for v, (_, since) in old if line.split_time_ms <= since + _RETIRE_MS}
            found |= {v for v in line.rings if line.unread.keys() & {*v.members}}
        return found

    def follow(self, version: Version) -> None:
        """Take the counting rings from the state before; *version* is the current one."""
        assert self.parent is not None
        self.superseded = dict(self.parent.superseded)
        if version != self.parent.version:
            self.superseded[self.parent.version] = (self.parent.split_time_ms, self.split_time_ms)
            self.superseded.pop(version, None)


@dataclass
class Change:
    """A record on its way to the sink; without rows it reports a gap, with its `state`."""

    row: int
    place: Place
    copies: int
    key: int
    arrived: bool = False
    rejected: bool = False
    state: str = ""
    until: At = NOWHERE


@dataclass(eq=False)
class Flight:
    """A delivery, in the order of submission; `token` is that of its lease."""

    number: int
    line: Line
    token: int
    changes: list[Change]
    size_bytes: int

    def rows(self) -> list[Change]:
        """Return the changes of rows."""
        return [change for change in self.changes if change.row >= 0]


def change_of(value: bytes) -> Change:
    """Return the change of a value that the sink was given."""
    reported = json.loads(value)
    if "control" in reported:
        begin, until = (
            (number_in(end.get(GENERATION, 0), end["segment_id"]), end["position"])
            for end in (reported["from"], reported["to"])
        )
        return Change(-1, (reported["node"], *begin), 0, -1, state=reported["state"], until=until)
    place = reported["node"], reported["segment"], reported["position"]
    return Change(reported["clustering"]["c"], place, reported["copies"], reported["key"]["k"])


def head_of(position: EncodedPosition | None) -> bytes | None:
    """Return the name of a stored state."""
    return position.head if position else None


# ---- what a state contains ----


def line_of(course: Course, version: Version, state: CdcState) -> Line:
    """Return a line with what a state contains, without its records."""
    return Line(
        course,
        version,
        split_time_ms=state.split_time_ms,
        markers=_places(state.markers),
        ahead=[(Part(*each.arc), _places(each.markers)) for each in state.ahead],
        books=Counter(state.counters),
        gaps=gaps_in(state),
        assumed={gap.node for gap in state.met_gaps if gap.policy == "assume"},
        is_stopped=any(gap.state == OPEN for gap in state.met_gaps),
        unread={
            node: (each.unread_ms, each.split_time_ms) for node, each in state.absences.items()
        },
    )


def _places(markers: Mapping[str, Marker]) -> Mapping[str, At]:
    return {node: (marker.segment_id, marker.offset) for node, marker in markers.items()}


def versions_in(state: CdcState) -> tuple[set[Version], set[Version]]:
    """Return the current rings of a state, and the others that count.

    A merged state can have several rings that were current for one of its parts.
    """
    current: set[Version] = set()
    others: set[Version] = set()
    for each in state.topologies:
        topology = Topology.decode(each.chunk.rows)
        (options,) = (dict(options) for _, options in topology.keyspaces)
        del options["class"]
        factors = sorted((c.replace("replication_factor", ""), int(n)) for c, n in options.items())
        tokens = tuple((node.name, node.tokens) for node in topology.nodes)
        version = Version(tokens, tuple(factors), topology.level)
        (current if each.superseded is None else others).add(version)
    return current, others


def gaps_in(state: CdcState) -> Collection[Passed]:
    """Return the gaps behind which reading continues, according to a state."""
    return [
        Passed(
            gap.node,
            (gap.begin.segment_id, gap.begin.offset),
            (gap.end.segment_id, gap.end.offset),
            gap.kind,
        )
        for gap in state.met_gaps
        if gap.state not in (OPEN, COVERED)
    ]


def rows_of(rows: bytes, hosts: Sequence[str]) -> Iterator[tuple[Digest, Known]]:
    """Yield the records in a chunk."""
    words = memoryview(rows).cast("Q").tolist()
    at = 0
    while at < len(words):
        row = words[at : at + _ROW_WORDS]
        at += _ROW_WORDS
        kind = row[constants.META] & 0xFF
        places = set()
        times = [row[constants.SINCE], row[constants.LAST]]
        if kind in PUBLISHED:
            places = {(hosts[row[constants.META] >> 48 & 0x3F], row[constants.BORN])}
        if kind in WAITING:
            times.append(row[constants.BORN])
            for _ in range(row[constants.LOCATIONS]):
                places.add((hosts[words[at]], words[at + 1]))
                at += constants.LOCATION_WORDS - 1
        seen = (host for i, host in enumerate(hosts) if row[constants.SEEN] >> i & 1)
        number = row[constants.NUMBER]
        known = Known(kind, frozenset(seen), frozenset(places), tuple(times), number)
        yield (row[constants.D0], row[constants.D1]), known

"""Stored indexes of segments: the entries that change the schema, and the sections.

Reading from the middle of a log needs the schema statements before that place. Framing finds them.
Reading only some tables or times can skip sections that have none of them, once their entries were
decoded. The index of a final segment is stored in a folder, where all processes of a job find it.
It can be made again at any time, so a file that is damaged, or does not fit its segment, is
ignored. Blocking file I/O.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from headrace.sources.cassandra.agreement.intake import Intake, Routes
from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.commitlog.heads import first_table_id
from headrace.sources.cassandra.commitlog.opening import open_segment
from headrace.sources.cassandra.errors import END_OFFSET, CorruptSegmentError, StateError
from headrace.sources.cassandra.keystore.keys import Keys
from headrace.sources.cassandra.logs.directory import NO_LIMIT, LogDirectory, NodeLog, SegmentInfo
from headrace.sources.cassandra.logs.pins import write
from headrace.sources.cassandra.mutation.errors import BadMutationError
from headrace.sources.cassandra.mutation.parser import Cutter
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.reading.log_tables import LogTables, is_of_cassandra
from headrace.sources.cassandra.schema import system_schema
from headrace.sources.cassandra.schema.system_table_ids import is_system_table
from headrace.sources.cassandra.schema_versions.epochs import Epoch
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker, StoredVersion
from headrace.sources.cassandra.state.chunks import seal, unseal
from headrace.sources.cassandra.state.gaps import START

SUFFIX: Final = ".index"
UNTOLD: Final = ""
_LATEST: Final = (1 << 63) - 1
_CUTTER: Final = "cutter of sections"
_INDEX: Final = b"HRSI"
_VERSION: Final = 1
_NO_BOUND: Final = (1 << 31) - 1
_KEY: Final = bytes(16)  # Digests are not compared.


class SchemaChange(msgspec.Struct, frozen=True, array_like=True):
    """An entry that changes the schema and ends at `position`: its raw mutation."""

    position: int
    messaging: int
    raw: bytes


class Section(msgspec.Struct, frozen=True, array_like=True):
    """The section between two sync markers, by logical positions.

    `tables` counts the entries of each table, as `keyspace.table`; UNTOLD counts those whose
    table or time is unknown. `oldest_us` and `newest_us` bound the write times of the others.
    """

    begin: int
    end: int
    tables: dict[str, int]
    oldest_us: int
    newest_us: int


class SegmentIndex(msgspec.Struct, frozen=True, array_like=True):
    """The content of a segment; valid for a file of this size and time."""

    size_bytes: int
    modified_ms: int
    changes: tuple[SchemaChange, ...]
    sections: tuple[Section, ...] = ()


class SectionFilter(NamedTuple):
    """What to read: tables (none means all), and a range of write times."""

    tables: frozenset[str] = frozenset()
    from_us: int | None = None
    to_us: int | None = None

    def spares(self, section: Section) -> bool:
        """Return whether a section contains nothing of it."""
        if UNTOLD in section.tables:
            return False
        return (
            not section.tables
            or (bool(self.tables) and self.tables.isdisjoint(section.tables))
            or (self.from_us is not None and section.newest_us < self.from_us)
            or (self.to_us is not None and section.oldest_us >= self.to_us)
        )


class IndexFolder:
    """The indexes of kept segments in *folder*; with None they are not stored."""

    def __init__(self, folder: Path | None) -> None:
        """Start with nothing read."""
        self._folder = folder

    @property
    def keeps(self) -> bool:
        """Whether indexes are stored."""
        return self._folder is not None

    def load(self, node: str, log: LogDirectory, segment: SegmentInfo) -> SegmentIndex | None:
        """Return the index of a final segment, or None if it is not stored."""
        if self._folder is None or segment.limit != NO_LIMIT:
            return None
        path = self._path(node, segment)
        try:
            content = unseal(_INDEX, path.read_bytes(), str(path), _VERSION)
            found = msgspec.msgpack.decode(content, type=SegmentIndex)
        except (OSError, StateError, msgspec.MsgspecError):
            return None
        return found if (found.size_bytes, found.modified_ms) == _file(log, segment) else None

    def store(self, node: str, segment: SegmentInfo, found: SegmentIndex) -> None:
        """Store an index if possible; otherwise it will be made again."""
        if self._folder is None:
            return
        path = self._path(node, segment)
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            write(path.parent, path.name, seal(_INDEX, msgspec.msgpack.encode(found), _VERSION))

    def spared(
        self, node: str, log: LogDirectory, wanted: SectionFilter, segment: SegmentInfo
    ) -> Sequence[tuple[int, int]]:
        """Return the parts of a segment without *wanted* content and schema changes."""
        known = self.load(node, log, segment)
        found: list[tuple[int, int]] = []
        if known is None:
            return found
        for section in known.sections:
            changes = any(section.begin < c.position <= section.end for c in known.changes)
            if changes or not wanted.spares(section):
                continue
            joins = found and found[-1][1] == section.begin
            begin = found.pop()[0] if joins else section.begin
            found.append((begin, section.end))
        return found

    def _path(self, node: str, segment: SegmentInfo) -> Path:
        assert self._folder is not None  # noqa: S101 (the callers check)
        return self._folder / quote(node, safe="") / f"{segment.name}{SUFFIX}"


class Searcher:
    """Finds the content of segments, by framing alone. For one thread."""

    def __init__(self, folder: IndexFolder, keys: Keys, epoch: Epoch) -> None:
        """Skip the tables of *epoch* fastest; open encrypted segments with *keys*."""
        self._folder = folder
        self._keys = keys
        self._framer = Framer()
        self._intake = Intake(1, _KEY, 1)
        self._routes = Routes(epoch.catalogue, epoch.number)
        for index, table in enumerate(epoch.catalogue.tables):
            if table.keyspace == system_schema.KEYSPACE:
                self._routes.treat(index, constants.SCHEMA, 0)

    def with_schemas(
        self, state: CdcState, logs: Mapping[str, NodeLog], tables: Callable[[str], LogTables]
    ) -> CdcState:
        """Return *state* with schema versions at markers that have none.

        *tables* gives those at the start of a log. Logs on other machines are left as they are.
        """
        found = {
            node: self._versions(node, log, state.markers[node], tables(node))
            for node, log in logs.items()
            if not state.schemas.get(node)
            and state.markers.get(node, START) != START
            and isinstance(log, LogDirectory)
        }
        return replace(state, schemas={**state.schemas, **found}) if found else state

    def _versions(
        self, node: str, log: LogDirectory, marker: Marker, tables: LogTables
    ) -> tuple[StoredVersion, ...]:
        """Apply all schema changes in the log before *marker* to *tables*.

        If indexes are stored, the later segments are searched first: then processes that read other
        parts at the same time need not search them.
        """
        segments = [segment for segment in log.segments() if not segment.missing]
        if self._folder.keeps:
            for segment in segments:
                if segment.segment_id >= marker.segment_id and segment.limit == NO_LIMIT:
                    self.changes(node, log, segment)
        last = 0
        for segment in segments:
            if segment.segment_id > marker.segment_id:
                break
            if 0 < last < segment.segment_id - 1:
                tables.skipped_segments(Marker(segment.segment_id, 0))
            last = segment.segment_id
            until = marker.offset if last == marker.segment_id else END_OFFSET
            for change in self.changes(node, log, segment, until):
                tables.change(change.raw, change.messaging, Marker(last, change.position))
        return tables.versions(marker)

    def changes(
        self, node: str, log: LogDirectory, segment: SegmentInfo, until: int = END_OFFSET
    ) -> Sequence[SchemaChange]:
        """Return the schema changes in a segment that end at *until* or earlier.

        Raises:
            UnsupportedSegmentError: another version, compressor or cipher.
            SegmentKeyError: it is encrypted, and there is no key for it.

        """
        known = self._folder.load(node, log, segment)
        if known is not None:
            return [change for change in known.changes if change.position <= until]
        is_kept = self._folder.keeps and segment.limit == NO_LIMIT
        size_bytes, modified_ms = _file(log, segment)
        found = self._search(node, log, segment, END_OFFSET if is_kept else until)
        if is_kept:
            self._folder.store(node, segment, SegmentIndex(size_bytes, modified_ms, tuple(found)))
        return [change for change in found if change.position <= until]

    def index(self, logs: Mapping[str, NodeLog], tables: Callable[[str], LogTables]) -> int:
        """Store the sections of all final segments; return how many bytes are new.

        *tables* gives those at the start of a log. Logs on other machines are left out.

        Raises:
            UnsupportedSegmentError: another version, compressor or cipher.
            SegmentKeyError: it is encrypted, and there is no key for it.

        """
        return sum(
            self._index(node, log, segment, made)
            for node, log in logs.items()
            if isinstance(log, LogDirectory)
            for made in (tables(node),)
            for segment in log.segments()
            if segment.final and not segment.missing
        )

    def _index(self, node: str, log: LogDirectory, segment: SegmentInfo, tables: LogTables) -> int:
        """Store the sections of a segment; *tables* advance from its start to its end."""
        known = self._folder.load(node, log, segment)
        if known is not None and known.sections:
            for change in known.changes:
                at = Marker(segment.segment_id, change.position)
                tables.change(change.raw, change.messaging, at)
            return 0
        size_bytes, modified_ms = _file(log, segment)
        changes: list[SchemaChange] = []
        sections = self._sections(node, log, segment, tables, changes)
        if known is not None:
            changes = list(known.changes)
        elif not sections:  # After damage there may be more.
            changes = self._search(node, log, segment, END_OFFSET)
        found = SegmentIndex(size_bytes, modified_ms, tuple(changes), sections)
        self._folder.store(node, segment, found)
        return size_bytes

    def _sections(
        self,
        node: str,
        log: LogDirectory,
        segment: SegmentInfo,
        tables: LogTables,
        changes: list[SchemaChange],
    ) -> tuple[Section, ...]:
        """Return the sections of a segment; an empty tuple if it is damaged.

        Schema changes are added to *changes*.
        """
        found: list[Section] = []
        framer = self._framer
        with self._opened(node, log, segment, END_OFFSET) as is_open:
            if not is_open:
                return ()
            section = _Making(framer.at)
            while framer.next_entry() == constants.ENTRY:
                if framer.section_end != section.end:
                    if section.end:
                        found.append(section.made())
                    section = _Making(section.end or section.begin, framer.section_end)
                raw, messaging = framer.entry(), framer.messaging
                if first_table_id(raw, messaging) in system_schema.IDS:
                    tables.change(raw, messaging, Marker(segment.segment_id, framer.at))
                    if not is_of_cassandra(raw, messaging):
                        changes.append(SchemaChange(framer.at, messaging, raw))
                else:
                    section.add(raw, messaging, tables.epoch)
            return (*found, section.made()) if section.end else ()
        return ()

    def _search(
        self, node: str, log: LogDirectory, segment: SegmentInfo, until: int
    ) -> list[SchemaChange]:
        with self._opened(node, log, segment, until) as is_open:
            return self._found(is_final=segment.limit == NO_LIMIT) if is_open else []
        return []

    @contextlib.contextmanager
    def _opened(
        self, node: str, log: LogDirectory, segment: SegmentInfo, until: int
    ) -> Iterator[bool]:
        """Set the framer before a segment; yield False if it is gone, which its reader reports.

        Damage ends the block.
        """
        try:
            opened = log.open(segment)
        except FileNotFoundError:
            yield False
            return
        try:
            open_segment(
                self._framer,
                opened.read_into,
                keys=self._keys,
                place=f"node {node}: {segment.name}",
                segment_id=segment.segment_id,
            )
            self._framer.allow(segment.limit, until, segment.indexed)
            yield True
        except CorruptSegmentError:  # Its reader quarantines it.
            return
        finally:
            opened.close()

    def _found(self, *, is_final: bool) -> list[SchemaChange]:
        framer, intake, routes = self._framer, self._intake, self._routes
        changes: list[SchemaChange] = []
        while True:
            try:
                found = intake.run(framer, 0, routes, _NO_BOUND, _NO_BOUND, _NO_BOUND)
            except CorruptSegmentError as error:
                if error.end == END_OFFSET and not is_final:
                    return changes
                framer.go_on(error)
                continue
            if found == constants.UNKNOWN_TABLE:
                intake.remember(first_table_id(framer.entry(), framer.messaging), framer.place)
            elif found == constants.SCHEMA_CHANGE:
                if not is_of_cassandra(framer.entry(), framer.messaging):
                    changes.append(SchemaChange(framer.at, framer.messaging, framer.entry()))
            elif found != constants.ENTRY:
                return changes


class _Making:
    """Counts the entries of a section."""

    def __init__(self, begin: int, end: int = 0) -> None:
        self.begin = begin
        self.end = end
        self._tables: Counter[str] = Counter()
        self._oldest, self._newest = _LATEST, -_LATEST

    def add(self, raw: bytes, messaging: int, epoch: Epoch) -> None:
        """Count an entry."""
        if is_system_table(first_table_id(raw, messaging)):
            return
        cutter = epoch.derived.get(_CUTTER)
        if not isinstance(cutter, Cutter):
            cutter = epoch.derived[_CUTTER] = Cutter(epoch.catalogue)
        try:
            count = cutter.cut(raw, 0, len(raw), messaging)
            cutter.span()
        except BadMutationError:  # Its table is unknown, or another schema was in force.
            count = 0
        if not count or cutter.oldest > cutter.newest:
            self._tables[UNTOLD] += 1
            return
        self._oldest = min(self._oldest, cutter.oldest)
        self._newest = max(self._newest, cutter.newest)
        words = cutter.operations
        for at in range(0, count * constants.WIDTH, constants.WIDTH):
            if words[at] == constants.UPDATE:
                self._tables[epoch.catalogue.tables[words[at + constants.COLUMN]].qualified] += 1

    def made(self) -> Section:
        """Return the section."""
        return Section(self.begin, self.end, dict(self._tables), self._oldest, self._newest)


def _file(log: LogDirectory, segment: SegmentInfo) -> tuple[int, int]:
    """Return the size and the modification time of a segment's file."""
    return log.size_of(segment), int(log.modified_ms(segment))

"""What a segment holds, found once and kept: the entries in it that change the schema.

Who begins to read a log in its middle needs the statements before that place. Framing alone finds
them, and of a segment that nobody writes to any more what was found is kept in a folder, where all
processes of a job find it. It can be made again at any time, so a file that does not fit its
segment, or is damaged, is none. Blocking file I/O.
"""

import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from headrace.sources.cassandra import codes
from headrace.sources.cassandra.chunks import seal, unseal
from headrace.sources.cassandra.directory import NO_LIMIT, LogDirectory, NodeLog, SegmentInfo
from headrace.sources.cassandra.epochs import Epoch
from headrace.sources.cassandra.errors import END_OFFSET, CorruptSegmentError, StateError
from headrace.sources.cassandra.frame import Framer
from headrace.sources.cassandra.gaps import START
from headrace.sources.cassandra.groups import Groups
from headrace.sources.cassandra.intake import Intake, Routes
from headrace.sources.cassandra.keys import Keys
from headrace.sources.cassandra.log import first_table_id
from headrace.sources.cassandra.log_tables import LogTables, is_of_cassandra
from headrace.sources.cassandra.opening import open_segment
from headrace.sources.cassandra.schema_tables import KEYSPACE
from headrace.sources.cassandra.state import CdcState, Marker, StoredVersion

SUFFIX: Final = ".index"
_INDEX: Final = b"HRSI"
_VERSION: Final = 1
_NO_BOUND: Final = (1 << 31) - 1
_KEY: Final = bytes(16)  # Nothing is compared.


class SchemaChange(msgspec.Struct, frozen=True, array_like=True):
    """An entry that changes the schema, and ends at `position`: its raw mutation."""

    position: int
    messaging: int
    raw: bytes


class SegmentIndex(msgspec.Struct, frozen=True, array_like=True):
    """What a segment holds; it is of a file of that size and time."""

    size_bytes: int
    modified_ms: int
    changes: tuple[SchemaChange, ...]


class IndexFolder:
    """The indexes of kept segments in *folder*; None keeps none."""

    def __init__(self, folder: Path | None) -> None:
        """Look at nothing yet."""
        self._folder = folder

    @property
    def keeps(self) -> bool:
        """Whether what is found is kept."""
        return self._folder is not None

    def load(self, node: str, log: LogDirectory, segment: SegmentInfo) -> SegmentIndex | None:
        """Return what is known of a segment that nobody writes to; None if that is nothing."""
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
        """Keep what was found, if it can be: the next one who asks finds it himself otherwise."""
        if self._folder is None:
            return
        path = self._path(node, segment)
        half = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            half.write_bytes(seal(_INDEX, msgspec.msgpack.encode(found), _VERSION))
            half.replace(path)

    def _path(self, node: str, segment: SegmentInfo) -> Path:
        assert self._folder is not None  # noqa: S101 (the callers look)
        return self._folder / quote(node, safe="") / f"{segment.name}{SUFFIX}"


class Searcher:
    """Finds what segments hold, by framing alone. For one thread."""

    def __init__(self, folder: IndexFolder, keys: Keys, epoch: Epoch) -> None:
        """Tables of *epoch* are passed over fastest; *keys* open what is locked."""
        self._folder = folder
        self._keys = keys
        self._framer = Framer()
        self._intake = Intake(Groups(1), _KEY, 1)
        self._routes = Routes(epoch.catalogue, epoch.number)
        for index, table in enumerate(epoch.catalogue.tables):
            if table.keyspace == KEYSPACE:
                self._routes.treat(index, codes.SCHEMA, 0)

    def with_schemas(
        self, state: CdcState, logs: Mapping[str, NodeLog], tables: Callable[[str], LogTables]
    ) -> CdcState:
        """Return *state* with the versions of the schema at its markers, where it tells none.

        *tables* gives those that a log begins with. A log on another machine is left as it is.
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
        """Apply to *tables* all that the log says before *marker*.

        What lies behind it is searched first, if that is kept: then those who read other parts at
        the same time need not.
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
        """Return the changes of the schema in a segment that end at *until* or before.

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

    def _search(
        self, node: str, log: LogDirectory, segment: SegmentInfo, until: int
    ) -> list[SchemaChange]:
        try:
            opened = log.open(segment)
        except FileNotFoundError:  # Who reads that far meets the gap.
            return []
        try:
            open_segment(
                self._framer,
                opened.read_into,
                keys=self._keys,
                place=f"node {node}: {segment.name}",
                segment_id=segment.segment_id,
            )
            self._framer.allow(segment.limit, until)
            return self._found(is_final=segment.limit == NO_LIMIT)
        except CorruptSegmentError:  # From its header on; its reader sets it aside.
            return []
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
            if found == codes.UNKNOWN_TABLE:
                intake.remember(first_table_id(framer.entry(), framer.messaging), framer.place)
            elif found == codes.SCHEMA_CHANGE:
                if not is_of_cassandra(framer.entry(), framer.messaging):
                    changes.append(SchemaChange(framer.at, framer.messaging, framer.entry()))
            elif found != codes.ENTRY:
                return changes


def _file(log: LogDirectory, segment: SegmentInfo) -> tuple[int, int]:
    """Return the size of a segment's file, and when it was written to."""
    return log.size_of(segment), int(log.modified_ms(segment))

"""Reads the log of one node: the current segment, the position in it, and its damage.

Damage means a copy that is lost on this node, and is never a reason to stop: its bytes are reported
for quarantine, and reading continues after it (I8). Blocking file I/O; for one thread. Rules cite
docs/agreement.md by line.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from headrace.plugins import Demand, HeadraceError, Quarantined, RetriableError
from headrace.sources.cassandra.agreement.intake import Intake, Routes
from headrace.sources.cassandra.commitlog.framer import Framer, ReadInto
from headrace.sources.cassandra.commitlog.heads import first_table_id
from headrace.sources.cassandra.commitlog.manifest import file_of
from headrace.sources.cassandra.commitlog.opening import open_segment
from headrace.sources.cassandra.commitlog.unwrap import Workspace
from headrace.sources.cassandra.errors import END_OFFSET, CorruptSegmentError
from headrace.sources.cassandra.framed.log import FramedSegment
from headrace.sources.cassandra.keystore.keys import Keys
from headrace.sources.cassandra.logs.directory import (
    NO_LIMIT,
    Arcs,
    LogReader,
    SegmentBytes,
    SegmentInfo,
)
from headrace.sources.cassandra.logs.logged_times import LatestTimes
from headrace.sources.cassandra.mutation.errors import BadMutationError
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.reading.log_tables import CHANGES_MAX, LogTables
from headrace.sources.cassandra.state.cdc_state import DAMAGED, Marker, StoredGap
from headrace.sources.cassandra.state.gaps import (
    MARKER,
    START,
    VANISHED,
    LogGapError,
    error_of,
    gap_before,
)

CHUNK_BYTES: Final = 512 * 1024  # Read from one log before turning to the next.
PIECE_BYTES: Final = 1024 * 1024  # Read in one call from a damaged part.
_FRAME_BYTES: Final = 12  # Of an entry in addition to its mutation: size and checksums.
UNREAD_MAX: Final = 1_000  # Maximum number of unread segments whose names a state keeps.

DAMAGED_MAX: Final = 64  # Maximum number of damaged entries of a section to skip one by one.
# Parts of a segment to skip: the begin and end of each, ascending.
Spared = Callable[[SegmentInfo], Sequence[tuple[int, int]]]
# Reports damage as a gap; None if its bytes follow later. Raises a LogGapError to stop.
Lose = Callable[[StoredGap, HeadraceError, Quarantined | None], None]


class LogCursor:
    """Reads one node's log, as described for the module."""

    def __init__(  # noqa: PLR0913 (what is read, and how far)
        self,
        node: str,
        reader: LogReader,
        lose: Lose,
        keys: Keys,
        tables: LogTables,
        *,
        spared: Spared | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        """Start before the oldest segment; report damage to *lose*, decrypt with *keys*.

        *tables* are the tables of this log at the current position. *spared* parts are not read.
        *chunk_bytes* are read before the next log's turn.
        """
        self.node = node
        self._lose = lose
        self.tables = tables
        self.marker = START
        self._damaged_section = self._damaged = 0  # The end of a section, and damaged places in it.
        self.at_end = False
        self.fetched_ms = 0
        self.durable_ms = 0
        """Of the open segment: see `SegmentInfo`."""
        self.latest = LatestTimes()
        self.segments_begun = 0
        self.segments_read = 0
        """The number of segments started so far."""
        self.unread_by: set[int] = set()  # Splits that never read this log.
        self.read_bytes = 0
        """Bytes of this log read so far, unpacked; bytes that were read twice count twice."""
        self._reader = reader
        self._keys = keys
        self._chunk_bytes = chunk_bytes
        self._workspace = Workspace()
        self._framer = Framer()
        self._listed: Sequence[SegmentInfo] = ()
        self._unread: set[int] = set()  # Ids of segments that were listed but not started.
        self._spared_in = spared or _no_parts
        self._spared: deque[tuple[int, int]] = deque()  # Of the open segment, after the marker.
        self._arcs: Arcs = ()
        self._is_narrowed = False
        self._was_away = False  # The log was not listed after the marker was reached.
        self._current: SegmentInfo | None = None
        self._bytes: SegmentBytes | None = None
        self._logical: ReadInto = _nothing
        self._broken: HeadraceError | None = None

    def seek(self, marker: Marker) -> None:
        """Continue after *marker*, which may be an earlier position."""
        self.close()
        self.latest.forget()
        self.marker = marker
        self.at_end = False
        self.fetched_ms = 0  # The marker's segment may be gone: list again.
        self._was_away = marker != START
        self._broken = None

    def begin_pass(self) -> None:
        """Reset the counters of a pass."""
        self.segments_begun = self.tables.changes = 0

    def leave(self) -> None:
        """Stop reading until the log can be listed again."""
        self.at_end = True
        self.fetched_ms = 0

    @property
    def listed(self) -> Sequence[SegmentInfo]:
        """The segments of the most recent listing."""
        return self._listed

    @property
    def end(self) -> Marker:
        """The end of the durable and readable log in the most recent listing."""
        if not self._listed:
            return START
        last = self._listed[-1]
        return Marker(last.segment_id, min(last.end, last.until))

    def expect(self, segment_ids: Iterable[int]) -> None:
        """Mark segments as listed but not started, as when the marker was committed."""
        self._unread.update(segment_ids)

    def unread_after(self, marker: Marker) -> tuple[int, ...]:
        """Return the oldest segments after *marker* that were listed but not started."""
        if not self._unread:
            return ()
        behind = sorted(n for n in self._unread if n > marker.segment_id)
        return tuple(behind[:UNREAD_MAX])

    def refresh(self, now_ms: int) -> bool:
        """List the segments again; return False if everything listed was read before.

        Raises:
            LogGapError: the segment that is being read was deleted before its end (I10).

        """
        listed, before = self._reader.segments(), self._listed
        self._listed, self.fetched_ms = listed, now_ms
        if listed is before and self.at_end and self.marker >= self.end:
            return False
        found = [s.segment_id for s in self._listed if not s.missing]
        self._unread = {n for n in {*self._unread, *found} if n > self.marker.segment_id}
        if any(n <= self.marker.segment_id for n in found):
            self._was_away = False
        if self._current is not None:
            self._follow(self._current)
        self.at_end = False
        return True

    def _allow(self, segment: SegmentInfo) -> None:
        """Let the open segment be read up to its durable end, within the limit."""
        self._framer.allow(segment.limit, segment.until, segment.indexed)
        self.durable_ms = segment.durable_ms

    def _follow(self, current: SegmentInfo) -> None:
        """Update the readable limit of the open segment."""
        number = current.segment_id
        found = [s for s in self._listed if s.segment_id == number]
        if not found and not any(s.segment_id > number for s in self._listed):
            # The node may still write to it: no limit is known (I6).
            end = Marker(number, END_OFFSET)
            raise error_of(StoredGap(self.node, self.marker, end, MARKER))
        if not found and self.marker.offset != END_OFFSET:
            self._was_away = True  # Segments are deleted: some in between may have gone unseen.
        # A segment whose name is gone is final once a later one exists; its file is still open.
        self._current = found[0] if found else replace(current, limit=NO_LIMIT)
        self._allow(self._current)

    def pass_over(self, gap: StoredGap) -> None:
        """Continue after *gap*, as if it had been read (line 21)."""
        self.close()
        self.marker = max(self.marker, gap.end)
        self.tables.skipped_segments(self.marker)
        self._was_away = False
        self._broken = None

    def may_go_on(self, segments_max: int) -> bool:
        """Return whether more can be read in a pass of *segments_max* segments."""
        return (
            not self.at_end
            and self.segments_begun <= segments_max
            and self.tables.changes < CHANGES_MAX
        )

    def advance(self, intake: Intake, host: int, demand: Demand) -> None:
        """Read a chunk, up to the limit of *demand* or to the end of the durable log.

        Raises:
            LogGapError: the log has a gap here, or damage before which a split stops.
            HeadraceError: the log cannot be read further; each later call raises it again, because
                all splits need the log and none may continue after the place.

        """
        if self._broken is not None:
            raise self._broken
        try:
            self._advance(intake, host, demand)
        except (RetriableError, LogGapError):
            raise
        except HeadraceError as error:
            self._broken = error
            raise
        self.unread_by.clear()

    def _advance(self, intake: Intake, host: int, demand: Demand) -> None:
        if self._current is None and not self._enter_next():
            self.at_end = True
        if self._current is None:
            return
        if not self._is_narrowed:
            self._narrow()
        found = self._run(intake, host, demand)
        if found == constants.ENTRY:  # Otherwise the log has no more to read now.
            self.latest.note(intake.last_entry(), self._framer.messaging)
        if found == constants.FINISHED and self._current.final:
            self.marker = Marker(self._current.segment_id, END_OFFSET)
            self.close()
        elif found != constants.ENTRY:
            self.at_end = True
            if self._framer.at_until:
                self._reached(self._current.until)

    def _run(self, intake: Intake, host: int, demand: Demand) -> int:
        """Feed a chunk to *intake* and skip damage; return the framer's last result."""
        framer = self._framer
        begun_at = framer.at
        stop_at = (begun_at // self._chunk_bytes + 1) * self._chunk_bytes
        while framer.at < stop_at and not self.at_end:
            left = (self._to_spared(stop_at) if self._spared else stop_at) - framer.at
            routes = self.tables.routes
            try:
                found = intake.run(framer, host, routes, left, demand.bytes_max, demand.records_max)
                if found == constants.UNKNOWN_TABLE:
                    self._ask(intake, host)
                    self._follow_tables(routes)
                elif found != constants.SCHEMA_CHANGE:
                    return found
                else:
                    is_enough = self._change()
                    self._follow_tables(routes)
                    if is_enough:
                        return constants.ENTRY
            except CorruptSegmentError as error:
                self._widen(error)
                self._leave(error, messaging=framer.messaging)
                if not self.at_end:
                    framer.go_on(error)
                    if self.marker.offset == END_OFFSET:
                        return constants.FINISHED
            except BadMutationError as error:  # The checksums match, but no partition key.
                content = framer.entry()
                kept = self._kept(error, content, position=framer.at, messaging=framer.messaging)
                size = len(content) + _FRAME_BYTES
                self._hand_over(self._damage(framer.at - size, framer.at, size), error, kept)
            finally:
                self._reached(framer.at)
                self.read_bytes += max(0, framer.at - begun_at)
                begun_at = framer.at
        return constants.ENTRY

    def need(self, arcs: Arcs) -> None:
        """Set the tokens that are needed from now on; an empty sequence means all."""
        self._arcs, self._is_narrowed = arcs, False

    def _narrow(self) -> None:
        """Make the log leave out what no split needs, from the current position."""
        leaves_out = self._reader.narrow(*self.tables.left_out, self._arcs)
        self._is_narrowed = True
        if leaves_out and self._current is not None and self._bytes is not None:
            try:
                self._frame(self._current, self._bytes, self.marker.offset)
            except HeadraceError:
                self.close()
                raise
            self._allow(self._current)

    def _follow_tables(self, before: Routes) -> None:
        """Narrow again if the delivered tables may have changed."""
        if self.tables.routes is not before:
            self._reached(self._framer.at)
            self._narrow()

    def _frame(self, segment: SegmentInfo, opened: SegmentBytes, resume: int) -> None:
        if isinstance(opened, FramedSegment):
            opened.begin(self._framer, resume)
            return
        _, self._logical = open_segment(
            self._framer,
            opened.read_into,
            keys=self._keys,
            place=f"node {self.node}: {segment.name}",
            resume=resume,
            segment_id=segment.segment_id,
            workspace=self._workspace,
        )
        self._framer.supply_from(opened.supply)

    def _widen(self, error: CorruptSegmentError) -> None:
        """Skip the rest of a badly damaged section: going entry by entry would be slow."""
        end = self._framer.section_end
        if end != self._damaged_section:
            self._damaged_section, self._damaged = end, 0
        self._damaged += 1
        if self._damaged > DAMAGED_MAX and error.raw is None:
            error.end = max(error.end, end)

    def _to_spared(self, stop_at: int) -> int:
        """Skip a spared part that begins here; return the offset to read up to."""
        assert self._current is not None  # noqa: S101 (it is read)
        assert self._bytes is not None  # noqa: S101 (as above)
        while self._spared and self._spared[0][1] <= self._framer.at:
            self._spared.popleft()
        if self._spared and self._spared[0][0] <= self._framer.at:
            end = min(self._spared.popleft()[1], self._current.until)
            self.read_bytes -= max(0, end - self._framer.at)
            self._frame(self._current, self._bytes, end)
            self._allow(self._current)
            self._reached(end)
        return min(stop_at, self._spared[0][0] if self._spared else stop_at)

    def _change(self) -> bool:
        """Apply an entry that changes the schema; return whether the pass must end here."""
        framer = self._framer
        self.tables.change(framer.entry(), framer.messaging, Marker(framer.segment_id, framer.at))
        return self.tables.changes >= CHANGES_MAX

    def _ask(self, intake: Intake, host: int) -> None:
        """Look up the unknown table of an entry once; then accept or skip the entry."""
        framer = self._framer
        table_id = first_table_id(framer.entry(), framer.messaging)
        if not self.tables.ask(table_id, Marker(framer.segment_id, framer.at)):
            intake.remember(table_id, f"{framer.place}: entry that ends at {framer.at}")
        intake.again(framer, host, self.tables.routes)

    def _reached(self, offset: int) -> None:
        """Advance the marker, even before an error: entries read have taken effect (I1)."""
        if self._current is not None:
            offset = min(offset, self._current.until)  # Damage may extend beyond it.
            self.marker = max(self.marker, Marker(self._current.segment_id, offset))

    def _leave(self, error: CorruptSegmentError, *, messaging: int) -> None:
        """Report damage and move the marker past it; a *messaging* of 0 means unknown.

        If a live segment cannot be read up to its next section, wait until it is complete.
        """
        assert self._current is not None  # noqa: S101 (the error is of its bytes)
        assert self._bytes is not None  # noqa: S101 (as above)
        if error.end == END_OFFSET and self._current.limit != NO_LIMIT:
            self._reached(error.begin)
            self._lose(self._damage(error.begin, error.end, 0), error, None)
            self.at_end = True
            return
        origin, raw, content = {"position": error.end}, error.raw, b""
        if not raw:
            try:  # Bytes of entries; some may be intact.
                content = _bytes_of(self._logical, error.begin, error.end)
                origin |= {"messaging": messaging, "begin": error.begin}
            except CorruptSegmentError as worse:  # Their section cannot be decompressed either.
                raw = worse.raw
        if raw:
            content = _bytes_of(self._bytes.read_into, *raw)
        behind = self._current.indexed if error.end == END_OFFSET else error.end
        size = max(behind - error.begin, len(content))
        lost = self._damage(error.begin, error.end, size)
        self._hand_over(lost, error, self._kept(error, content, **origin))
        self._reached(error.end)

    def _damage(self, begin: int, end: int, size: int) -> StoredGap:
        """Return damage to the open segment as a gap of *size* bytes."""
        assert self._current is not None  # noqa: S101 (it is read)
        number = self._current.segment_id
        first = max(self.marker, Marker(number, begin))
        return StoredGap(self.node, first, Marker(number, end), DAMAGED, size_bytes=size)

    def _hand_over(self, gap: StoredGap, error: HeadraceError, item: Quarantined) -> None:
        """Report damage. If a split stops before it, it is read again from there."""
        try:
            self._lose(gap, error, item)
        except LogGapError:
            self._reached(gap.begin.offset)
            self.close()
            raise

    def _kept(self, error: HeadraceError, content: bytes, **origin: int) -> Quarantined:
        """Return damage with the origin needed to recover records from its bytes later."""
        assert self._current is not None  # noqa: S101 (the error is of its bytes)
        segment_id = file_of(self._current.segment_id)
        said = {"node": self.node, "segment": segment_id, "copies": 1, **origin}
        return Quarantined(error.place, error.code, error.message, content, origin=said)

    def close(self) -> None:
        """Close the open segment; `marker` stays."""
        if self._bytes is not None:
            self._bytes.close()
        self._bytes = self._current = None

    def _enter_next(self) -> bool:
        """Open the segment that the marker is in, or the next one; return whether there is one.

        A segment with a damaged header is skipped.
        """
        after = self.marker
        gap = gap_before(
            self.node,
            after,
            present=[s.segment_id for s in self._listed],
            expected=self._unread,
            was_away=self._was_away,
            unwatched=[s.segment_id for s in self._listed if s.unwatched],
        )
        if gap is not None:
            raise error_of(gap)
        waiting = [
            s
            for s in self._listed
            if (
                s.segment_id > after.segment_id
                or (s.segment_id == after.segment_id and after.offset != END_OFFSET)
            )
            and not (s.missing and after == START)  # Not what was gone before the start.
        ]
        if not waiting:
            return False
        segment = waiting[0]
        if 0 < after.segment_id < segment.segment_id - 1:
            self.tables.skipped_segments(Marker(segment.segment_id, 0))
        self._narrow()
        try:
            opened = self._reader.open(segment)
        except FileNotFoundError as error:
            self._reader.segments()  # Raises if the whole log is gone.
            end = Marker(segment.segment_id, END_OFFSET)
            raise error_of(StoredGap(self.node, after, end, VANISHED)) from error
        self._current, self._bytes = segment, opened
        self._logical = opened.read_into
        try:
            resume = after.offset if segment.segment_id == after.segment_id else 0
            self._frame(segment, opened, resume)
        except CorruptSegmentError as error:
            self._leave(error, messaging=0)
            self.close()
            return not self.at_end
        except HeadraceError:
            self.close()
            raise
        self._allow(segment)
        is_framed = isinstance(opened, FramedSegment)  # A framed segment contains no spared parts.
        self._spared = deque(() if is_framed else self._spared_in(segment))
        self._was_away = False
        self.segments_begun += 1
        self.segments_read += 1
        return True


def _no_parts(_segment: SegmentInfo) -> Sequence[tuple[int, int]]:
    return ()


def _nothing(_offset: int, _buffer: memoryview) -> int:
    return 0


def _bytes_of(read_into: ReadInto, first: int, last: int) -> bytes:
    """Return the bytes from *first* to *last*, without trailing zeros."""
    content, used = bytearray(), 0
    while first < last:
        piece = bytearray(min(PIECE_BYTES, last - first))
        came = read_into(first, memoryview(piece))
        if came == 0:
            break
        first += came
        content += piece[:came]
        used = len(content) if any(piece) else used
    return bytes(content[:used])

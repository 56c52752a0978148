"""Where reading of one node's log stands: which segment, how far, and what of it is damaged.

Damage is a copy that is lost on this node, never a reason to stop: its bytes are handed over, to be
kept, and reading goes on behind it (I8). Blocking file I/O; for one thread. Rules cite
docs/agreement.md by line.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from headrace.plugins import Demand, HeadraceError, Quarantined, RetriableError
from headrace.sources.cassandra import codes
from headrace.sources.cassandra.directory import (
    NO_LIMIT,
    Arcs,
    LogReader,
    SegmentBytes,
    SegmentInfo,
)
from headrace.sources.cassandra.errors import (
    END_OFFSET,
    BadMutationError,
    CorruptSegmentError,
)
from headrace.sources.cassandra.frame import Framer, ReadInto
from headrace.sources.cassandra.gaps import MARKER, START, VANISHED, error_of, gap_before
from headrace.sources.cassandra.intake import Intake, Routes
from headrace.sources.cassandra.keys import Keys
from headrace.sources.cassandra.log import first_table_id
from headrace.sources.cassandra.log_tables import CHANGES_MAX, LogTables
from headrace.sources.cassandra.manifest import file_of
from headrace.sources.cassandra.opening import open_segment
from headrace.sources.cassandra.state import Marker, StoredGap
from headrace.sources.cassandra.wrapped import Workspace

CHUNK_BYTES: Final = 512 * 1024  # Read of one log before the next one has its turn.
PIECE_BYTES: Final = 1024 * 1024  # Read at once of a damaged part.
UNREAD_MAX: Final = 1_000  # Segments behind a marker whose names a state remembers.

# Takes what is damaged before a marker; None when its bytes are to come yet.
DAMAGED_MAX: Final = 64  # Damaged entries of a section that are left one by one.
# Parts of a segment that nobody wants: where each begins and ends, ascending.
Spared = Callable[[SegmentInfo], Sequence[tuple[int, int]]]
Lose = Callable[[Marker, HeadraceError, Quarantined | None], None]


class LogCursor:
    """Where reading of one node's log stands."""

    def __init__(
        self, node: str, reader: LogReader, lose: Lose, keys: Keys, tables: LogTables
    ) -> None:
        """Begin before the oldest segment; *lose* is told of damage, *keys* open what is locked.

        *tables* are those of this log, as of where reading stands.
        """
        self.node = node
        self._lose = lose
        self.tables = tables
        self.marker = START
        self._damaged_section = self._damaged = 0  # The end of a section, and places in it.
        self.at_end = False
        self.fetched_ms = 0
        self.segments_begun = 0
        self.anew: set[int] = set()  # Splits that never read any of it.
        self.read_bytes = 0
        """Of this log so far, unpacked; also what was read twice."""
        self._reader = reader
        self._keys = keys
        self._workspace = Workspace()
        self._framer = Framer()
        self._listed: Sequence[SegmentInfo] = ()
        self._unread: set[int] = set()  # Ids that were listed and not begun.
        self.until: Marker | None = None  # Nothing behind it is read, if it is given.
        self.spared: Spared = _no_parts
        self._spared: deque[tuple[int, int]] = deque()  # Of the open segment, from here on.
        self._arcs: Arcs = ()
        self._is_narrowed = False
        self._was_away = False  # Since the marker was reached nobody has looked at the log.
        self._current: SegmentInfo | None = None
        self._bytes: SegmentBytes | None = None
        self._logical: ReadInto = _nothing
        self._broken: HeadraceError | None = None

    def seek(self, marker: Marker) -> None:
        """Go on after *marker*, also backwards."""
        self.close()
        self.marker = marker
        self.at_end = False
        self.fetched_ms = 0  # The segment of the marker may be gone: list anew.
        self._was_away = marker != START
        self._broken = None

    @property
    def end(self) -> Marker:
        """The end of what was durable, and may be read, when the log was listed last."""
        if not self._listed:
            return START
        last = self._listed[-1]
        return Marker(last.segment_id, min(last.end, self._end_in(last)))

    def expect(self, segment_ids: Iterable[int]) -> None:
        """Take segments as listed and not begun; they were so when the marker was committed."""
        self._unread.update(segment_ids)

    def unread_after(self, marker: Marker) -> tuple[int, ...]:
        """Return the oldest of the segments behind *marker* that were listed and not begun."""
        behind = (n for n in self._unread if n > marker.segment_id)
        return tuple(heapq.nsmallest(UNREAD_MAX, behind))

    def refresh(self, now_ms: int) -> None:
        """List the segments anew.

        Raises:
            LogGapError: the segment that is being read vanished before its end (I10).

        """
        self._listed = self._within(self._reader.segments())
        self.fetched_ms = now_ms
        found = [s.segment_id for s in self._listed if not s.missing]
        self._unread = {n for n in {*self._unread, *found} if n > self.marker.segment_id}
        if any(n <= self.marker.segment_id for n in found):
            self._was_away = False
        if self._current is not None:
            self._follow(self._current)
        self.at_end = False

    def _within(self, listed: Sequence[SegmentInfo]) -> Sequence[SegmentInfo]:
        """Return what may be read of the segments *listed*."""
        until = self.until
        if until is None:
            return listed
        return [s for s in listed if (s.segment_id, 0) < (until.segment_id, until.offset)]

    def _allow(self, segment: SegmentInfo) -> None:
        """Let the open segment be read as far as is durable, and wanted."""
        self._framer.allow(segment.limit, self._end_in(segment), segment.told)

    def _end_in(self, segment: SegmentInfo) -> int:
        """Return the offset behind which nothing of a segment is wanted."""
        until = self.until
        if until is None or until.segment_id > segment.segment_id:
            return segment.until
        return min(until.offset, segment.until)

    def _follow(self, current: SegmentInfo) -> None:
        """Learn how far the segment that is open may be read now."""
        number = current.segment_id
        found = [s for s in self._listed if s.segment_id == number]
        if not found and not any(s.segment_id > number for s in self._listed):
            # It may still be written to: no limit is known (I6).
            end = Marker(number, END_OFFSET)
            raise error_of(StoredGap(self.node, self.marker, end, MARKER))
        if not found and self.marker.offset != END_OFFSET:
            self._was_away = True  # Somebody makes room: what came between may be gone unseen.
        # One whose name is gone is final once a later one is there; we still hold the file.
        self._current = found[0] if found else replace(current, limit=NO_LIMIT)
        self._allow(self._current)

    def pass_over(self, gap: StoredGap) -> None:
        """Go on behind *gap*, as if it had been read (line 21)."""
        self.close()
        self.marker = max(self.marker, gap.end)
        self.tables.skipped_segments(self.marker)
        self._was_away = False
        self._broken = None

    def may_go_on(self, segments_max: int) -> bool:
        """Say whether there may be more to read now, in a pass that begins so many segments."""
        return (
            not self.at_end
            and self.segments_begun <= segments_max
            and self.tables.changes < CHANGES_MAX
        )

    def advance(self, intake: Intake, host: int, demand: Demand) -> None:
        """Read a chunk on, or to what *demand* allows, or to the end of what is durable.

        Raises:
            HeadraceError: the log cannot be read on; every later call says so again, because all
                splits need it and none may go on behind the place.

        """
        if self._broken is not None:
            raise self._broken
        try:
            self._advance(intake, host, demand)
        except RetriableError:
            raise
        except HeadraceError as error:
            self._broken = error
            raise
        self.anew.clear()

    def _advance(self, intake: Intake, host: int, demand: Demand) -> None:
        if self._current is None and not self._enter_next():
            self.at_end = True
        if self._current is None:
            if self.until is not None and self.at_end:
                self.marker = max(self.marker, self.until)
            return
        if not self._is_narrowed:
            self._narrow()
        found = self._run(intake, host, demand)
        if found == codes.FINISHED and self._current.final:
            self.marker = Marker(self._current.segment_id, END_OFFSET)
            self.close()
        elif found != codes.ENTRY:
            self.at_end = True
            if self._framer.at_until:
                self._reached(self._end_in(self._current))

    def _run(self, intake: Intake, host: int, demand: Demand) -> int:
        """Feed a chunk to *intake*, also across damage; return what the framer found last."""
        framer = self._framer
        begun_at = framer.at
        stop_at = begun_at + CHUNK_BYTES
        while framer.at < stop_at and not self.at_end:
            left = (self._to_spared(stop_at) if self._spared else stop_at) - framer.at
            routes = self.tables.routes
            try:
                found = intake.run(framer, host, routes, left, demand.bytes_max, demand.records_max)
                if found == codes.UNKNOWN_TABLE:
                    self._ask(intake, host)
                    self._follow_tables(routes)
                elif found != codes.SCHEMA_CHANGE:
                    return found
                else:
                    is_enough = self._change()
                    self._follow_tables(routes)
                    if is_enough:
                        return codes.ENTRY
            except CorruptSegmentError as error:
                self._widen(error)
                self._leave(error, messaging=framer.messaging)
                if not self.at_end:
                    framer.go_on(error)
                    if self.marker.offset == END_OFFSET:
                        return codes.FINISHED
            except BadMutationError as error:  # Good sums, but no key to say whose it is.
                self._reached(framer.at)
                kept = self._kept(
                    error, framer.entry(), position=framer.at, messaging=framer.messaging
                )
                self._lose(self.marker, error, kept)
            finally:
                self._reached(framer.at)
                self.read_bytes += max(0, framer.at - begun_at)
                begun_at = framer.at
        return codes.ENTRY

    def need(self, arcs: Arcs) -> None:
        """Need these tokens from now on; none stand for all."""
        self._arcs, self._is_narrowed = arcs, False

    def _narrow(self) -> None:
        """Let the log leave out what nobody needs, from where reading stands."""
        lacks_some = self._reader.narrow(*self.tables.left_out, self._arcs)
        self._is_narrowed = True
        if lacks_some and self._current is not None and self._bytes is not None:
            try:
                self._frame(self._current, self._bytes, self.marker.offset)
            except HeadraceError:
                self.close()
                raise
            self._allow(self._current)

    def _follow_tables(self, before: Routes) -> None:
        """Ask for what is delivered by now, if that may have changed."""
        if self.tables.routes is not before:
            self._reached(self._framer.at)
            self._narrow()

    def _frame(self, segment: SegmentInfo, opened: SegmentBytes, resume: int) -> None:
        _, self._logical = open_segment(
            self._framer,
            opened.read_into,
            keys=self._keys,
            place=f"node {self.node}: {segment.name}",
            resume=resume,
            segment_id=segment.segment_id,
            workspace=self._workspace,
        )

    def _widen(self, error: CorruptSegmentError) -> None:
        """Leave the rest of a section where much is wrong: one by one it would take too long."""
        end = self._framer.section_end
        if end != self._damaged_section:
            self._damaged_section, self._damaged = end, 0
        self._damaged += 1
        if self._damaged > DAMAGED_MAX and error.raw is None:
            error.end = max(error.end, end)

    def _to_spared(self, stop_at: int) -> int:
        """Pass over what nobody wants that begins here; return how far to read on."""
        assert self._current is not None  # noqa: S101 (it is read)
        assert self._bytes is not None  # noqa: S101 (likewise)
        while self._spared and self._spared[0][1] <= self._framer.at:
            self._spared.popleft()
        if self._spared and self._spared[0][0] <= self._framer.at:
            end = min(self._spared.popleft()[1], self._end_in(self._current))
            self.read_bytes -= max(0, end - self._framer.at)
            self._frame(self._current, self._bytes, end)
            self._allow(self._current)
            self._reached(end)
        return min(stop_at, self._spared[0][0] if self._spared else stop_at)

    def _change(self) -> bool:
        """Take the entry that changes the schema; say whether that is enough for one pass."""
        framer = self._framer
        self.tables.change(framer.entry(), framer.messaging, Marker(framer.segment_id, framer.at))
        return self.tables.changes >= CHANGES_MAX

    def _ask(self, intake: Intake, host: int) -> None:
        """Ask about the unknown table of an entry, once, and let the entry in or pass it over."""
        framer = self._framer
        table_id = first_table_id(framer.entry(), framer.messaging)
        if not self.tables.ask(table_id, Marker(framer.segment_id, framer.at)):
            intake.remember(table_id, f"{framer.place}: entry that ends at {framer.at}")
        intake.again(framer, host, self.tables.routes)

    def _reached(self, offset: int) -> None:
        """Move the marker on: also before an error, what was read has had its effect (I1)."""
        if self._current is not None:
            offset = min(offset, self._end_in(self._current))  # Damage may go on behind it.
            self.marker = max(self.marker, Marker(self._current.segment_id, offset))

    def _leave(self, error: CorruptSegmentError, *, messaging: int) -> None:
        """Hand over what is damaged and move the marker behind it; *messaging* 0 is not known.

        Where a live segment cannot be read to its next section that waits until all is written.
        """
        assert self._current is not None  # noqa: S101 (the error is of its bytes)
        assert self._bytes is not None  # noqa: S101 (likewise)
        marker = Marker(self._current.segment_id, error.end)
        if error.end == END_OFFSET and self._current.limit != NO_LIMIT:
            self._reached(error.begin)
            self._lose(marker, error, None)
            self.at_end = True
            return
        origin, raw, content = {"position": error.end}, error.raw, b""
        if not raw:
            try:  # Bytes of entries, some of which may be whole.
                content = _bytes_of(self._logical, error.begin, error.end)
                origin |= {"messaging": messaging, "begin": error.begin}
            except CorruptSegmentError as worse:  # Neither can what they are in be unpacked.
                raw = worse.raw
        if raw:
            content = _bytes_of(self._bytes.read_into, *raw)
        self._lose(marker, error, self._kept(error, content, **origin))
        self._reached(error.end)

    def _kept(self, error: HeadraceError, content: bytes, **origin: int) -> Quarantined:
        """Return damage with what it takes to make records of its bytes, where that can be."""
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
        """Open the segment that the marker is in, or the next one; say whether there is one.

        One that is damaged from its header on is left at once.
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
            and not (s.missing and after == START)  # What was gone before the job began.
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
            self._reader.segments()  # Of a log that is gone as a whole this says so.
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
        self._spared = deque(self.spared(segment))
        self._was_away = False
        self.segments_begun += 1
        return True


def _no_parts(_segment: SegmentInfo) -> Sequence[tuple[int, int]]:
    return ()


def _nothing(_offset: int, _buffer: memoryview) -> int:
    return 0


def _bytes_of(read_into: ReadInto, first: int, last: int) -> bytes:
    """Return the bytes from *first* to *last*, without what is zero to the end."""
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

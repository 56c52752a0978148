"""Reads every node's log once and feeds all the splits a process owns.

The log furthest behind is read next, so that copies of a mutation meet soon and the records that
wait for them stay few. For one thread; blocking file I/O. Rules cite docs/agreement.md by line.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.plugins import Demand, HeadraceError, RetriableError
from headrace.sources.cassandra import codes
from headrace.sources.cassandra.agreement import Agreement
from headrace.sources.cassandra.directory import NO_LIMIT, LogReader, SegmentBytes, SegmentInfo
from headrace.sources.cassandra.errors import CorruptSegmentError, LogGapError
from headrace.sources.cassandra.frame import Framer
from headrace.sources.cassandra.intake import Intake
from headrace.sources.cassandra.segment import (
    END_OFFSET,
    HEADER_BYTES_MAX,
    Descriptor,
    header_length,
    parse_descriptor,
)
from headrace.sources.cassandra.state import Marker

CHUNK_BYTES: Final = 256 * 1024  # Read of one log before the next one has its turn.
PASS_BYTES_MAX: Final = 32 * 1024 * 1024  # Read in one pass, whether or not anything agreed.
FETCHED_MS_MAX: Final = 10_000  # Line 8.
_HEADER_BYTES: Final = 64  # Of most headers; longer ones take a second read.
_START: Final = Marker(0, 0)


class LogCursor:
    """Where reading of one node's log stands."""

    def __init__(self, node: str, reader: LogReader) -> None:
        """Begin before the oldest segment."""
        self.node = node
        self.marker = _START
        self.at_end = False
        self.fetched_ms = 0
        self.segments_begun = 0
        self._reader = reader
        self._framer = Framer()
        self._listed: Sequence[SegmentInfo] = ()
        self._current: SegmentInfo | None = None
        self._bytes: SegmentBytes | None = None
        self._broken: HeadraceError | None = None

    def seek(self, marker: Marker) -> None:
        """Go on after *marker*, also backwards."""
        self.close()
        self.marker = marker
        self.at_end = False
        self.fetched_ms = 0  # The segment of the marker may be gone: list anew.
        self._broken = None

    def refresh(self, now_ms: int) -> None:
        """List the segments anew.

        Raises:
            LogGapError: a segment vanished before it was read to its end (I10).

        """
        seen = {s.segment_id for s in self._listed if s.segment_id > self.marker.segment_id}
        if self.marker.offset not in {0, END_OFFSET} and self._bytes is None:
            seen.add(self.marker.segment_id)
        self._listed = self._reader.segments()
        self.fetched_ms = now_ms
        gone = seen - {s.segment_id for s in self._listed}
        if gone:
            raise self._gap(min(gone))
        if self._current is not None:
            number = self._current.segment_id
            found = [s for s in self._listed if s.segment_id == number]
            if not found and not any(s.segment_id > number for s in self._listed):
                raise self._gap(number)  # It may still be written to: no limit is known (I6).
            # One whose name is gone is final once a later one is there; we still hold the file.
            limit = found[0].limit if found else NO_LIMIT
            self._current = SegmentInfo(number, self._current.name, limit)
            self._framer.allow(limit)
        self.at_end = False

    def _gap(self, segment_id: int) -> LogGapError:
        return LogGapError(
            f"segment {segment_id} vanished before it was read to its end",
            place=f"node {self.node}: segment {segment_id}",
            hint="another consumer, or cdc_block_writes: false, deleted it; "
            "a new job name starts without the missing part",
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

    def _advance(self, intake: Intake, host: int, demand: Demand) -> None:
        if self._current is None and not self._enter_next():
            self.at_end = True
            return
        assert self._current is not None  # noqa: S101 (entered above)
        found = intake.run(self._framer, host, CHUNK_BYTES, demand.bytes_max, demand.records_max)
        self.marker = Marker(self._current.segment_id, self._framer.at)
        if found == codes.ENTRY:
            return
        if found == codes.FINISHED and self._current.final:
            self.marker = Marker(self._current.segment_id, END_OFFSET)
            self.close()
        else:
            self.at_end = True

    def close(self) -> None:
        """Close the open segment; `marker` stays."""
        if self._bytes is not None:
            self._bytes.close()
        self._bytes = self._current = None

    def _enter_next(self) -> bool:
        """Open the segment that the marker is in, or the next one; say whether there is one."""
        after = self.marker
        waiting = [
            s
            for s in self._listed
            if s.segment_id > after.segment_id
            or (s.segment_id == after.segment_id and after.offset != END_OFFSET)
        ]
        if not waiting:
            return False
        segment = waiting[0]
        place = f"node {self.node}: {segment.name}"
        try:
            opened = self._reader.open(segment)
        except FileNotFoundError as error:
            raise self._gap(segment.segment_id) from error
        try:
            descriptor = _descriptor(opened, segment, place)
        except HeadraceError:
            opened.close()
            raise
        resume = after.offset if segment.segment_id == after.segment_id else 0
        self._framer.open(
            opened.read_into,
            segment_id=segment.segment_id,
            header_bytes=descriptor.header_bytes,
            messaging=descriptor.messaging,
            resume=resume,
            place=place,
        )
        self._framer.allow(segment.limit)
        self._current, self._bytes = segment, opened
        self.segments_begun += 1
        return True


def _descriptor(opened: SegmentBytes, segment: SegmentInfo, place: str) -> Descriptor:
    header = bytearray(HEADER_BYTES_MAX)
    length = opened.read_into(0, memoryview(header)[:_HEADER_BYTES])
    if length == _HEADER_BYTES:
        longer = min(header_length(bytes(header[:length])), HEADER_BYTES_MAX)
        length += opened.read_into(length, memoryview(header)[length : max(length, longer)])
    descriptor = parse_descriptor(bytes(header[:length]), place=place)
    if descriptor.segment_id != segment.segment_id:
        raise CorruptSegmentError(
            f"the header says segment {descriptor.segment_id}",
            place=place,
            hint="the file was renamed or overwritten",
        )
    return descriptor


@dataclass(slots=True)
class OwnedSplit:
    """A split that is being fed, and where it resumed."""

    number: int
    agreement: Agreement
    resumed: dict[str, Marker]


class Pump:
    """All logs, all owned splits. `passes` counts how often the logs were read on."""

    def __init__(
        self,
        intake: Intake,
        logs: Mapping[str, LogReader],
        now_ms: Callable[[], int],
        *,
        segments_per_batch_max: int,
    ) -> None:
        """Read nothing yet; the order of *logs* numbers the hosts."""
        self.intake = intake
        self.cursors = [LogCursor(node, reader) for node, reader in logs.items()]
        self.passes = 0
        self.more = False
        self._now_ms = now_ms
        self._segments_max = segments_per_batch_max
        self._owned: dict[int, OwnedSplit] = {}
        self._caught_up_ms: int | None = None

    def own(self, number: int, agreement: Agreement, markers: Mapping[str, Marker]) -> None:
        """Begin feeding split *number* after *markers*; logs not named there from their start."""
        current = {n: self.markers(n) for n in self._owned}
        self.intake.own(number, agreement)
        self._owned[number] = OwnedSplit(number, agreement, dict(markers))
        for host, cursor in enumerate(self.cursors):
            marker = markers.get(cursor.node, _START)
            self.intake.resume_at(number, host, marker.segment_id, marker.offset)
            if len(self._owned) > 1 and marker >= cursor.marker:
                continue
            # Going back: what the others have already seen is passed over for them (line 11).
            for other, at in current.items():
                self._owned[other].resumed[cursor.node] = at[cursor.node]
                self.intake.resume_at(other, host, *_pair(at[cursor.node]))
            cursor.seek(marker)

    def disown(self, number: int) -> None:
        """Stop feeding split *number*."""
        if self._owned.pop(number, None) is not None:
            self.intake.own(number, None)
        if not self._owned:
            self.close()

    def markers(self, number: int) -> dict[str, Marker]:
        """Return how far split *number* has seen each log (line 12)."""
        resumed = self._owned[number].resumed
        return {c.node: max(c.marker, resumed.get(c.node, _START)) for c in self.cursors}

    def run_pass(self, demand: Demand) -> None:
        """Read on until *demand* is met, a bound is reached, or all is read that is durable."""
        self.passes += 1
        started_ms = self._now_ms()
        for cursor in self.cursors:
            cursor.segments_begun = 0
            if cursor.at_end or not cursor.fetched_ms:
                cursor.refresh(started_ms)
        budget = PASS_BYTES_MAX
        intake = self.intake
        while budget > 0 and intake.held < demand.bytes_max and intake.fullest < demand.records_max:
            ready = [
                (self.intake.progress[host], host)
                for host, cursor in enumerate(self.cursors)
                if not cursor.at_end and cursor.segments_begun <= self._segments_max
            ]
            if not ready or self._now_ms() - started_ms > demand.linger_ms:
                break
            host = min(ready)[1]
            self.cursors[host].advance(self.intake, host, demand)
            budget -= CHUNK_BYTES
        self.more = not all(cursor.at_end for cursor in self.cursors)
        self._grow_time()

    def close(self) -> None:
        """Close all files."""
        for cursor in self.cursors:
            cursor.close()

    def _grow_time(self) -> None:
        """Let split time grow by the clock, but only while all logs are read to their end."""
        now_ms = self._now_ms()
        fresh = all(now_ms - cursor.fetched_ms <= FETCHED_MS_MAX for cursor in self.cursors)
        if self.more or not fresh:
            self._caught_up_ms = None
            return
        if self._caught_up_ms is not None:
            for split in self._owned.values():
                split.agreement.tau += now_ms - self._caught_up_ms
        self._caught_up_ms = now_ms


def _pair(marker: Marker) -> tuple[int, int]:
    return marker.segment_id, marker.offset

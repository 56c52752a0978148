"""Reads copies again from their places: pending or compared copies are not kept in memory.

Few segments stay open, since copies that are requested together were logged together. Blocking file
I/O; for one thread.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from headrace.plugins import HeadraceError, RetriableError
from headrace.sources.cassandra.commitlog.framer import Framer, ReadInto, digest
from headrace.sources.cassandra.commitlog.opening import open_segment
from headrace.sources.cassandra.commitlog.segment import MARKER_BYTES
from headrace.sources.cassandra.commitlog.unwrap import fill
from headrace.sources.cassandra.errors import (
    LogUnreadableError,
    NotCdcDirectoryError,
    SegmentError,
    SegmentKeyError,
)
from headrace.sources.cassandra.keystore.keys import Keys
from headrace.sources.cassandra.logs.directory import LogReader, SegmentBytes, SegmentInfo
from headrace.sources.cassandra.logs.rescued_copies import Rescued

# Each costs a file descriptor; a compressed or encrypted one also the memory of one section.
SEGMENTS_OPEN_MAX: Final = 8

_CRC_BYTES: Final = 4  # After the mutation, at the end of its entry.
_POINTER_BYTES: Final = 4  # At the start of a sync marker: the offset of the next one.
_WINDOW_BYTES: Final = 64  # Of the framer that opens a segment; it frames nothing.

Location = tuple[int, int, int, int]  # Host, segment, position of the entry's end, mutation bytes.


class Copy(NamedTuple):
    """The raw bytes of a copy, and their place."""

    raw: bytes
    host: int
    segment: int
    position: int
    messaging: int


class OpenedSegment:
    """An open segment, read at logical positions: in any order if plain, else best forwards."""

    def __init__(self, file: SegmentBytes, keys: Keys, info: SegmentInfo) -> None:
        """Read the header. Raises SegmentError, SegmentKeyError."""
        self._file = file
        self._keys = keys
        self._info = info
        self._read_into: ReadInto = file.read_into
        self._begin = self._stop = 0  # Bounds of the current section of a wrapped segment.
        self._start()

    def _start(self) -> None:
        framer = Framer(_WINDOW_BYTES)
        descriptor, self._read_into = open_segment(
            framer,
            self._file.read_into,
            keys=self._keys,
            place=self._info.name,
            segment_id=self._info.segment_id,
        )
        self.messaging = descriptor.messaging
        self._plain = descriptor.wrapping is None
        self._begin = self._stop = self._header_bytes = descriptor.header_bytes

    def mutation(self, position: int, length: int) -> bytes | None:
        """Return the bytes before the checksum that ends at *position*; None if incomplete."""
        start = position - _CRC_BYTES - length
        if start < self._header_bytes:
            return None
        if not self._plain and not self._enter(start):
            return None
        room = bytearray(length)
        return bytes(room) if fill(self._read_into, start, memoryview(room)) == length else None

    def _enter(self, start: int) -> bool:
        """Go to the section that contains *start*; skipped sections are not unpacked."""
        if start < self._begin:
            self._start()
        marker = memoryview(bytearray(MARKER_BYTES))
        while start >= self._stop:
            if fill(self._read_into, self._stop, marker) < MARKER_BYTES:
                return False
            # If the chain leads backwards, the unwrapping reports it.
            self._begin, self._stop = self._stop, int.from_bytes(marker[:_POINTER_BYTES], "big")
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Copies:
    """Reads mutations at known places in the logs of all nodes."""

    def __init__(
        self,
        logs: Mapping[str, LogReader],
        job_key: bytes,
        keys: Keys,
        *,
        segments_open_max: int = SEGMENTS_OPEN_MAX,
    ) -> None:
        """Open no segment yet; *logs* are by node, *job_key* is the key of the digests."""
        self._logs = logs
        self._job_key = job_key
        self._keys = keys
        self._open_max = segments_open_max
        self._opened: OrderedDict[tuple[str, int], OpenedSegment] = (
            OrderedDict()
        )  # Least recently used first.
        self._listed: dict[str, dict[int, SegmentInfo]] = {}
        self._gone: set[tuple[str, int]] = set()
        self._unreadable: dict[str, RetriableError] = {}  # The error of each node's log.

    def find(
        self,
        digests: Iterable[tuple[int, int]],
        locations: Iterable[Location],
        nodes: Sequence[str],
    ) -> Copy | None:
        """Return the first copy in *locations* that has one of the *digests*, two words each.

        *nodes* are the hosts' names. Returns None when no log has an intact copy any more. A
        removed segment, or a log that cannot be read now, is not tried again until `close`.

        Raises:
            RetriableError: no copy was found, but a log that cannot be read now may have one. Call
                `close` and try again later.

        """
        wanted = {d0.to_bytes(8, "little") + d1.to_bytes(8, "little") for d0, d1 in digests}
        trouble: RetriableError | None = None
        for host, segment, position, length in locations:
            node = nodes[host]
            if node in self._unreadable:
                trouble = self._unreadable[node]
                continue
            try:
                found = self.at(node, segment, position, length)
            except (SegmentError, SegmentKeyError):
                self._forget(node, segment)  # Its state is unknown.
                continue
            except RetriableError as error:
                self._forget(node, segment)
                self._unreadable[node] = trouble = error
                continue
            if found is not None and digest(found.raw, self._job_key) in wanted:
                return Copy(found.raw, host, segment, position, found.messaging)
        if trouble is not None:
            raise trouble
        return None

    def close(self) -> None:
        """Close all segments and forget the listings; `find` opens segments again.

        An open segment occupies the disk even after its removal: call this after each burst of
        reads. Safe to call at any time, and often.
        """
        for opened in self._opened.values():
            opened.close()
        self._opened.clear()
        self._listed.clear()
        self._gone.clear()
        self._unreadable.clear()

    def at(self, node: str, segment: int, position: int, length: int) -> Rescued | None:
        """Return the mutation at a place, of any kind; None if it does not exist."""
        if (node, segment) not in self._opened:  # An open segment has all copies rescued from it.
            found = self._logs[node].fetch(segment, position, length)
            if found is not None:
                return found
        opened = self._segment(node, segment)
        raw = None if opened is None else opened.mutation(position, length)
        return None if opened is None or raw is None else Rescued(raw, opened.messaging)

    def _segment(self, node: str, segment: int) -> OpenedSegment | None:
        """Return an open segment; None when it was removed."""
        name = (node, segment)
        opened = self._opened.get(name)
        if opened is not None:
            self._opened.move_to_end(name)
            return opened
        if name in self._gone:
            return None
        opened = self._open(node, segment)
        if opened is None:
            self._gone.add(name)
            return None
        self._opened[name] = opened
        if len(self._opened) > self._open_max:
            self._opened.popitem(last=False)[1].close()
        return opened

    def _open(self, node: str, segment: int) -> OpenedSegment | None:
        log = self._logs[node]
        if segment not in self._listed.get(node, {}):
            try:
                listed = log.segments()
            except NotCdcDirectoryError as error:
                raise LogUnreadableError(error.message, place=error.place) from error
            self._listed[node] = {info.segment_id: info for info in listed}
        info = self._listed[node].get(segment)
        if info is None:
            return None
        try:
            file = log.open(info)
        except FileNotFoundError:
            return None
        try:
            return OpenedSegment(file, self._keys, info)
        except HeadraceError:
            file.close()
            raise

    def _forget(self, node: str, segment: int) -> None:
        opened = self._opened.pop((node, segment), None)
        if opened is not None:
            opened.close()

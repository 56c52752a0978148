"""Compressed and encrypted segments as unwrapped streams: sections 2.5, 2.6 and 3.1.

`Unwrapped` is between the bytes of a file and the Framer. It serves logical positions: for each
section, the sync marker that an uncompressed segment would have there, then the content. Separate
so that no other module handles wrappings. Blocking reads; for one thread.
"""

import zlib
from collections.abc import Callable
from mmap import mmap
from typing import Final, TypeAlias

import msgspec

from headrace.sources.cassandra.commitlog.compression import BlockError
from headrace.sources.cassandra.commitlog.framer import ReadInto
from headrace.sources.cassandra.commitlog.segment import MARKER_BYTES, Descriptor
from headrace.sources.cassandra.errors import (
    END_OFFSET,
    BadLengthError,
    DamagedSectionError,
    SegmentKeyError,
)

# Unpacks the first into the second, or raises BlockError.
Unpack: TypeAlias = Callable[[memoryview, memoryview], None]

# The maximum memory for a section's content; the packed section may take 5/4 of it.
SECTION_BYTES_MAX: Final = 256 * 1024 * 1024

_HEAD_BYTES: Final = MARKER_BYTES + 4  # The marker, and the length of the content.
_PACKED_EXTRA: Final = 1024  # Bytes that a block may take beyond 5/4 of its content.
_LAZY_BYTES: Final = 1024 * 1024
_SMALL_PART: Final = 8  # A section is small if it needs less than this fraction of the memory.
_SMALL_MAX: Final = 16  # After this many small ones, the memory is freed.
_HINT: Final = "compare with the node's own copy; the other replicas' logs are not affected"


class _Section(msgspec.Struct, frozen=True):
    """The place of a section: `at` and `end` in the file, `begin` and `stop` logically.

    `length` is the length that it states for its content, true or not.
    """

    at: int
    end: int
    begin: int
    stop: int
    length: int


def fill(read_into: ReadInto, at: int, room: memoryview) -> int:
    """Read file bytes from *at* until *room* is full or the file ends. Return their number."""
    count = 0
    while count < len(room) and (came := read_into(at + count, room[count:])):
        count += came
    return count


class Workspace:
    """Memory for unpacking, reused for each section: new memory costs more than LZ4.

    For the segments of one log, in turn.
    """

    def __init__(self) -> None:
        """Start without memory."""
        self._packed = memoryview(b"")
        self._content = memoryview(b"")
        self._small = 0

    def packed(self, size: int) -> memoryview:
        """Return memory for a packed section; its earlier content may be lost.

        After many small sections, the memory of a large one is freed.
        """
        self._small = 0 if size > len(self._packed) // _SMALL_PART else self._small + 1
        if self._small > _SMALL_MAX:
            self._packed = self._content = memoryview(b"")
            self._small = 0
        if size > len(self._packed):
            self._packed = memoryview(b"")  # Free the old one before allocating.
            self._packed = _memory(size)
        return self._packed[:size]

    def content(self, size: int) -> memoryview:
        """Return memory for its content; call it after `packed`. Earlier content may be lost."""
        if size > len(self._content):
            self._content = memoryview(b"")
            self._content = _memory(size)
        return self._content[:size]


class Unwrapped:
    """The logical stream of one segment, read forwards, as by the Framer."""

    def __init__(  # noqa: PLR0913 (the parts of a wrapped segment)
        self,
        read_into: ReadInto,
        descriptor: Descriptor,
        unpack: Unpack,
        *,
        growth_max: int,
        resume: int,
        expects: Callable[[], int | None],
        workspace: Workspace,
        place: str,
    ) -> None:
        """Start at the first section; those that end at or before *resume* are not unpacked.

        A packed byte expands to at most *growth_max* bytes. *expects* returns the position up to
        which there are sections; None while the segment is live, and missing parts may still come.
        No other caller may use *workspace* meanwhile. Errors name the segment *place*.
        """
        self._read_into = read_into
        self._unpack = unpack
        self._growth_max = growth_max
        self._resume = resume
        self._expects = expects
        self._place = place
        number = descriptor.segment_id
        halves = (number & 0xFFFF_FFFF, number >> 32)
        self._id_crc = zlib.crc32(b"".join(half.to_bytes(4, "big") for half in halves))
        start = descriptor.header_bytes
        self._section = _Section(start, start, start, start, 0)
        self._workspace = workspace
        self._unpacked: memoryview | None = None

    def read_into(self, offset: int, room: memoryview) -> int:
        """Fill *room* from the logical *offset*. Return the number of bytes.

        It returns at most the rest of a marker or of a section's content; 0 if the segment ends
        there, or is not written yet.

        Raises:
            DamagedSectionError: a marker is wrong, or the section cannot be unpacked. Reading can
                continue at its `end`.

        """
        if offset > self._section.stop:  # After a broken chain.
            return 0
        if offset == self._section.stop:
            part = self._next_marker()
        elif offset < self._section.begin + MARKER_BYTES:
            part = self._marker(self._section)[offset - self._section.begin :]
        else:
            part = self._content(self._section)[offset - self._section.begin - MARKER_BYTES :]
        count = min(len(room), len(part))
        room[:count] = part[:count]
        return count

    def _next_marker(self) -> memoryview:
        """Enter the next section. Return its marker, or the existing part of it (2.3)."""
        at, begin = self._section.end, self._section.stop
        head = memoryview(bytearray(_HEAD_BYTES))
        head = head[: fill(self._read_into, at, head)]
        marker = head[:MARKER_BYTES]
        if len(marker) < MARKER_BYTES or not any(marker):
            if not self._is_live() and begin < self._resume:
                raise self._broken(at, begin, f"the sections end before {self._resume}")
            if begin < (expected := self._expects() or 0):
                more = f"the index file has {expected - begin} bytes more"
                raise self._broken(at, begin, f"the sync markers end; {more}")
            if not self._is_live() and any(head[MARKER_BYTES:]):  # They are written together.
                raise self._broken(at, begin, "a sync marker is zero, and a section follows it")
            return marker if len(marker) == MARKER_BYTES else head[:0]
        if self._is_live() and (len(head) < _HEAD_BYTES or not any(marker[4:])):
            return head[:0]
        self._section = self._parsed(head, at, begin)
        self._unpacked = None
        return self._marker(self._section)

    def _is_live(self) -> bool:
        return self._expects() is None

    def _parsed(self, head: memoryview, at: int, begin: int) -> _Section:
        """Return the section with this *head*."""
        pointer, stored = _number(head[:4]), int.from_bytes(head[4:MARKER_BYTES], "big")
        if stored != self._crc(at):
            raise self._broken(at, begin, "the checksum of a sync marker is wrong")
        if pointer < at + _HEAD_BYTES:
            raise self._broken(at, begin, f"a sync marker points back to {pointer}")
        if len(head) < _HEAD_BYTES:
            raise self._broken(at, begin, "a sync marker, then the file ends")
        length = _number(head[MARKER_BYTES:])
        stop = begin + MARKER_BYTES + (length if 0 <= length <= SECTION_BYTES_MAX else 0)
        if stop >= END_OFFSET:
            raise self._broken(at, begin, f"a section would end at position {stop}")
        return _Section(at, pointer, begin, stop, length)

    def _marker(self, section: _Section) -> memoryview:
        """Return the marker that an uncompressed segment would have at the section's start."""
        if section.stop > self._resume:
            self._check_length(section)
            if section.length == 0:
                self._content(section)
                if self._unpacked is None:
                    return memoryview(b"")
        marker = section.stop.to_bytes(4, "big") + self._crc(section.begin).to_bytes(4, "big")
        return memoryview(marker)

    def _check_length(self, section: _Section) -> None:
        """Check that the stated length of a section is possible, before allocating memory."""
        packed, length = section.end - section.at - _HEAD_BYTES, section.length
        if not 0 <= length <= min(SECTION_BYTES_MAX, packed * self._growth_max):
            found = f"a section says that {packed} bytes stand for {length}"
        elif packed > length + length // 4 + _PACKED_EXTRA:
            found = f"a section takes {packed} bytes for {length}"
        else:
            return
        raise self._damaged(section, section.at + MARKER_BYTES, found, BadLengthError)

    def _crc(self, position: int) -> int:
        """Return the checksum of a marker at *position*."""
        return zlib.crc32(position.to_bytes(4, "big"), self._id_crc)

    def _content(self, section: _Section) -> memoryview:
        """Return the content of *section*, unpacked on first use; empty if it is incomplete."""
        if self._unpacked is None:
            self._unpacked = self._unpack_section(section)
        return memoryview(b"") if self._unpacked is None else self._unpacked

    def _unpack_section(self, section: _Section) -> memoryview | None:
        """Return the content of *section*; None if it is incomplete."""
        start = section.at + _HEAD_BYTES
        packed = self._workspace.packed(section.end - start)
        count = fill(self._read_into, start, packed)
        if count < len(packed):
            if self._is_live():
                return None
            found = f"{count} of a section's {len(packed)} bytes, then the file ends"
            raise self._damaged(section, start + count, found)
        content = self._workspace.content(section.stop - section.begin - MARKER_BYTES)
        try:
            self._unpack(packed, content)
        except BlockError as error:
            raise self._damaged(section, start, error.message, error.kind) from None
        except SegmentKeyError as error:
            error.place = f"{self._place}: byte {start}"
            raise
        return content

    def _damaged(
        self,
        section: _Section,
        at: int,
        found: str,
        kind: type[DamagedSectionError] = DamagedSectionError,
    ) -> DamagedSectionError:
        return kind(
            found,
            place=f"{self._place}: byte {at}",
            hint=_HINT,
            begin=section.begin,
            end=section.stop,
            raw=(section.at, section.end),
        )

    def _broken(self, at: int, begin: int, found: str) -> DamagedSectionError:
        return DamagedSectionError(
            found,
            place=f"{self._place}: byte {at}",
            hint=_HINT,
            begin=begin,
            end=END_OFFSET,
            raw=(at, END_OFFSET),
        )


def _memory(size: int) -> memoryview:
    """Return at least *size* bytes; a large block takes memory only when it is written.

    So it may be larger, which saves allocations, and a false size costs little.
    """
    if size < _LAZY_BYTES:
        return memoryview(bytearray(size))
    return memoryview(mmap(-1, size + size // 4))


def _number(content: memoryview) -> int:
    return int.from_bytes(content, "big", signed=True)

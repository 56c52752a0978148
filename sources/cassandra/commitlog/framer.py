"""Finds the entries of a segment in a window of its bytes: sync markers, sizes, every checksum.

Separate so that it can be compiled, and because framing needs no schema. It keeps one window of
bytes and requests more through a call; it opens no files and no directory. Rules cite the sections
of docs/commit-log.md.
"""

from array import array
from collections.abc import Callable
from typing import TypeAlias

from headrace.sources.cassandra.errors import END_OFFSET, CorruptSegmentError
from headrace.sources.cassandra.native import constants, ops

# Reads file bytes from an offset into a buffer and returns their number; 0 at the file's end.
ReadInto: TypeAlias = Callable[[int, memoryview], int]
# Passes a block of entries to `Framer.gather` and returns ENTRY, or else LIMIT or FINISHED after
# the last.
NextBlock: TypeAlias = Callable[["Framer"], int]
# Passes the known entries from an offset on to `Framer.know`.
Supply: TypeAlias = Callable[["Framer", int], None]

WINDOW_BYTES = 128 * 1024

_LENGTH_EXTRA_MAX = 4  # A length in an entry has at most five bytes.
_MARKER = 8
_SIZE_MIN = 10
_NO_LIMIT = -1
_NO_ENDS = memoryview(array("q"))
_NO_SIZES = memoryview(array("i"))
_NO_ROOM = memoryview(bytearray())
_UNKNOWN, _KNOWN, _FORGOTTEN = 0, 1, 2
_PASSED = -2  # An entry that was read before.


class Framer:
    """Walks one segment. For one thread; `open` it again for the next segment."""

    def __init__(self, window_bytes: int = WINDOW_BYTES) -> None:
        """Allocate a window of *window_bytes*, enlarged only while an entry is larger."""
        self.window_bytes = window_bytes
        self.window = self.own = memoryview(bytearray(window_bytes))
        self.id_bytes = memoryview(bytearray(12))
        self.place = ""
        self.behind = 0
        self.by_section = False
        self.found = 0  # The sum of the positions of all entries found, modulo 2**64.
        # The number of skipped bytes outside these entries: markers, and bytes that were read
        # before.
        self.beside = 0
        self.defers = False  # Whether the caller checks the entries it needs, by `check`.
        self.read_into: ReadInto = _nothing
        # Entries that were framed before, block by block, instead of bytes.
        self.is_gathered = False
        self.next_block: NextBlock = _no_block
        self.ends, self.sizes = _NO_ENDS, _NO_SIZES
        self.number = self.count = 0
        # Known entries: their ends in the segment, the lengths of their mutations, and the starts
        # of these in the room; see `know`.
        self.supply: Supply | None = None
        self.known_ends = self.known_lengths = self.known_starts = _NO_ENDS
        self.known = self.known_count = self.known_begin = self.known_until = 0
        self.room, self.room_bytes = _NO_ROOM, 0
        self.written = memoryview(array("Q", [0]))
        self.is_apart = False  # Whether the last entry is known, so that `window` is the room.
        self.beneath = _NO_ROOM  # The window of file bytes meanwhile.
        self.given, self.given_begin = _NO_ROOM, 0  # See `give`.

    def open(  # noqa: PLR0913 (all of them define where framing starts)
        self,
        read_into: ReadInto,
        *,
        segment_id: int,
        header_bytes: int,
        messaging: int,
        resume: int,
        place: str,
        by_section: bool = False,
    ) -> None:
        """Start at the first sync marker; skip entries that end at or before *resume*.

        Errors name the segment *place*. With *by_section*, nothing is read beyond a section's end:
        for bytes that are produced per section, and may turn out to be damaged.
        """
        self.read_into = read_into
        self.is_gathered = False
        self._start(segment_id, header_bytes, messaging, resume, place)
        self.by_section = by_section

    def open_gathered(  # noqa: PLR0913 (all of them define where framing starts)
        self,
        next_block: NextBlock,
        *,
        segment_id: int,
        header_bytes: int,
        messaging: int,
        resume: int,
        place: str,
    ) -> None:
        """Start before the first of a selection of entries that were framed before.

        The bytes of a missing entry count as skipped. The others keep their positions in the
        segment; an entry may be cut after its first partition key.
        """
        self.is_gathered = True
        self.next_block = next_block
        self.number = self.count = 0
        self._start(segment_id, header_bytes, messaging, resume, place)

    def _start(
        self, segment_id: int, header_bytes: int, messaging: int, resume: int, place: str
    ) -> None:
        self.segment_id = segment_id
        self.messaging = messaging
        self.resume = resume
        self.place = place
        # The file has only the id of the segment's number; see `manifest`.
        halves = (segment_id & 0xFFFF_FFFF, segment_id >> 32 & 0xFFFF, 0)
        self.id_bytes = memoryview(bytearray(b"".join(h.to_bytes(4, "big") for h in halves)))
        self.give(0, _NO_ROOM)
        self.at = header_bytes
        self.section_end = header_bytes
        self.limit = self.until = _NO_LIMIT
        self.durable = 0
        self.at_until = False
        self.supply = None
        self.known = self.known_count = self.known_begin = self.known_until = 0

    def allow(self, limit: int, until: int = _NO_LIMIT, indexed: int = 0) -> None:
        """Allow reading sections that end at or before *limit*; -1 allows all (I6).

        In them, only entries that end at or before *until* are read; `at_until` reports that all
        were. A chain of sections that ends before *indexed* is damaged.
        """
        self.limit = limit
        self.until = until
        self.durable = max(self.durable, limit, indexed)

    def give(self, begin: int, content: memoryview) -> None:
        """Frame the file bytes from *begin* on in *content*, without reading or copying them.

        The caller must keep *content* unchanged until the next call. Bytes of known entries may
        have any values.
        """
        self.given, self.given_begin = content, begin
        self._leave_room()
        self.window = self.own
        self.base = self.filled = 0

    def supply_from(self, supply: Supply | None) -> None:
        """Get entries that need no framing from *supply*, until the next `open`."""
        self.supply = supply

    def know(  # noqa: PLR0913, PLR0917 (the columns, and where the mutations are)
        self,
        begin: int,
        until: int,
        ends: memoryview,
        lengths: memoryview,
        starts: memoryview,
        room: memoryview,
        room_bytes: int,
        written: memoryview,
    ) -> None:
        """Use mutations in *room*, unchecked: all known ones between two file offsets.

        Other entries, and the bytes between, are framed as bytes. *ends* ascend. A start counts the
        bytes ever *written* into the first *room_bytes* of the room, a ring buffer: an overwritten
        mutation is requested again. A start of -1 means none; lower values are places after these
        bytes, -2 being the first.
        """
        self.known_begin, self.known_until = begin, until
        self.known_ends, self.known_lengths, self.known_starts = ends, lengths, starts
        self.known, self.known_count = 0, len(ends)
        self.written, self.room_bytes = written, room_bytes
        self._leave_room()
        self.room = room

    def pass_sections(self, begin: int) -> int:
        """Move to the first section that begins at *begin* or later, by sync markers alone.

        Returns ENTRY, or LIMIT or FINISHED if there is none. Raises as `next_entry`.
        """
        self.resume = max(self.resume, begin)
        while self.section_end < begin:
            self.at = self.section_end
            found = self._next_section()
            if found != constants.ENTRY:
                return found
        self.at = self.section_end
        return constants.ENTRY

    def go_on(self, error: CorruptSegmentError) -> None:
        """Skip the damage in *error*; the next entry is the first one after it."""
        self.at = error.end
        self.section_end = max(self.section_end, self.at)

    def entry(self) -> bytes:
        """Return the raw mutation of the last entry found."""
        return ops.take(self.window, self.start, self.end)

    def next_entry(self) -> int:
        """Move to the next entry and return constants.ENTRY, LIMIT or FINISHED.

        After ENTRY, until the next call, `entry()` is the raw mutation and `at` its position, the
        logical end of the entry.

        Raises:
            CorruptSegmentError: a checksum or length is wrong. Until `go_on`, each call finds the
                same error; after any other read error, the next call returns the same entry.

        """
        return self._next_gathered() if self.is_gathered else self._next_framed()

    def _next_framed(self) -> int:
        while True:
            while self.at >= self.section_end:
                found = self._next_section()
                if found != constants.ENTRY:
                    return found
            found = self._frame()
            if found != _PASSED:
                return found

    def _frame(self) -> int:
        """Move past the entry at `at`. Return its result, or _PASSED."""
        if self.supply is not None and self._is_known():
            return self._take_known()
        self._leave_room()
        size = self._entry_size()
        if size == 0:
            return constants.LIMIT
        begin = self.at
        length = size + constants.ENTRY_OVERHEAD
        if begin + length <= self.resume:
            return self._pass_over(length)
        if self._is_behind(begin + length):
            return constants.LIMIT
        if not self._have(begin, length):
            if self.limit >= 0:  # The index was read before the bytes.
                return constants.LIMIT
            short = f"an entry of {length} bytes, then the file ends"
            self._corrupt(begin, short, self.section_end)
        offset = begin - self.base
        self.start = offset + 8
        self.end = self.start + size
        self.at = begin + length
        if not self.defers:
            self._check()
        self.found += self.at
        return constants.ENTRY

    def _pass_over(self, length: int) -> int:
        self.at += length
        self.beside += length
        return _PASSED

    def _is_known(self) -> bool:
        """Return whether the mutation of the entry at `at` is in the room, requesting it if needed.

        A mutation that is overwritten at once is read as bytes.
        """
        if not self._covers(self.at):
            self._ask(self.at)
        found = self._find_known()
        if found == _FORGOTTEN:
            self._ask(self.at)
            found = self._find_known()
        return found == _KNOWN

    def _ask(self, at: int) -> None:
        """Ask for known entries from *at* on; forget earlier ones, also after an error."""
        assert self.supply is not None  # noqa: S101 (the caller knows)
        self.known = self.known_count = self.known_begin = self.known_until = 0
        self.supply(self, at)

    def _covers(self, at: int) -> bool:
        return self.known_begin <= at < self.known_until

    def _find_known(self) -> int:
        """Go to the known entry that starts at `at`. Return whether it is known and still kept."""
        while self.known < self.known_count and self.known_ends[self.known] <= self.at:
            self.known += 1
        if self.known == self.known_count:
            return _UNKNOWN
        end = self.known_ends[self.known]
        begin = end - self.known_lengths[self.known] - constants.ENTRY_OVERHEAD
        start = self.known_starts[self.known]
        if begin != self.at or end > self.section_end or start == -1:
            return _UNKNOWN
        if start >= 0 and self.written[0] - start > self.room_bytes:
            return _FORGOTTEN
        return _KNOWN

    def _take_known(self) -> int:
        """Move past the known entry at `at`."""
        length = self.known_lengths[self.known] + constants.ENTRY_OVERHEAD
        if self.at + length <= self.resume:
            return self._pass_over(length)
        if self._is_behind(self.at + length):
            return constants.LIMIT
        if not self.is_apart:
            self.beneath = self.window
            self.window = self.room
            self.is_apart = True
        start = self.known_starts[self.known]
        self.start = self.room_bytes - 2 - start
        if start >= 0:
            self.start = start % self.room_bytes
        self.end = self.start + self.known_lengths[self.known]
        self.at = self.known_ends[self.known]
        self.found += self.at
        return constants.ENTRY

    def _leave_room(self) -> None:
        """Return to the window of file bytes."""
        if self.is_apart:
            self.window = self.beneath
            self.is_apart = False

    def _bytes_until(self, at: int) -> int:
        """Return the start of the next known entry, or the end of the known part; at least *at*."""
        number = self.known
        while number < self.known_count and (
            self.known_ends[number] <= at or self.known_starts[number] == -1
        ):
            number += 1
        if number == self.known_count:
            return self.known_until
        size = self.known_lengths[number] + constants.ENTRY_OVERHEAD
        return max(at, self.known_ends[number] - size)

    def gather(self, ends: memoryview, sizes: memoryview, content: memoryview) -> None:
        """Continue with a block: the ends of entries in the segment, their sizes, and mutations."""
        self.ends, self.sizes, self.window = ends, sizes, content
        self.number, self.count, self.end = 0, len(ends), 0

    def pass_to(self, at: int, at_until: bool) -> None:
        """Skip to *at*; *at_until*: all requested entries of the segment were found."""
        if at > self.at:
            self.beside += at - self.at
            self.at = at
        self.at_until = at_until

    def passes(self, stop_at: int) -> bool:
        """Return whether no gathered entry starts before *stop_at*; if so, go there."""
        if self.number == self.count and self.next_block(self) != constants.ENTRY:
            return False  # The next call returns the result.
        size = self.sizes[self.number] + constants.ENTRY_OVERHEAD
        if self.ends[self.number] - size < stop_at:
            return False
        if stop_at > self.at:
            self.beside += stop_at - self.at
            self.at = stop_at
        return True

    def _next_gathered(self) -> int:
        while True:
            if self.number == self.count:
                found = self.next_block(self)
                if found != constants.ENTRY:
                    return found
                continue
            position = self.ends[self.number]
            if self._is_behind(position) or 0 <= self.limit < position:
                return constants.LIMIT
            self.start = self.end
            self.end = self.start + self.sizes[self.number]
            self.number += 1
            if position <= self.resume:
                self.beside += position - self.at
                self.at = position
                continue
            self.beside += position - self.at - (self.end - self.start) - constants.ENTRY_OVERHEAD
            self.at = position
            self.found += position
            return constants.ENTRY

    def check(self) -> None:
        """Check the last entry found, if that was deferred.

        Raises:
            CorruptSegmentError: its checksum is wrong; see `next_entry`.

        """
        if self.defers and not (self.is_gathered or self.is_apart):
            self._check()

    def _check(self) -> None:
        crc = ops.u32(self.window, self.start - 4)  # Of the size, with which it starts.
        if ops.crc32(self.window, self.start, self.end, crc) != ops.u32(self.window, self.end):
            begin = self.at - (self.end - self.start) - constants.ENTRY_OVERHEAD
            end, self.at = self.at, begin
            if self.defers:
                self.found -= end
            self._corrupt(begin, "the checksum of the entry is wrong", end)

    def vint(self, at: int) -> int:
        """Return the unsigned vint at window[at] of the entry; -1 if it does not fit in it.

        Sets `behind` to its end.
        """
        if at >= self.end:
            return -1
        first = self.window[at]
        extra = ops.vint_extra(first)
        if extra > _LENGTH_EXTRA_MAX or at + extra >= self.end:
            return -1
        value = first & (0xFF >> extra)
        for i in range(extra):
            value = value << 8 | self.window[at + 1 + i]
        self.behind = at + 1 + extra
        return value

    def after_vint(self, at: int) -> int:
        """Return the end of the vint at window[at]; beyond the entry if it does not fit in it."""
        if at >= self.end:
            return at + 1
        return at + 1 + ops.vint_extra(self.window[at])

    def has_next(self) -> bool:
        """Return whether the next entry is already in the window, so that this one stays there."""
        if self.is_gathered:
            return self.number < self.count
        if self.supply is not None:
            if self.is_apart:
                return self.at < self.section_end and self._find_known() == _KNOWN
            if not self._covers(self.at) or self._find_known() != _UNKNOWN:
                return False
        offset = self.at - self.base
        left = self.filled - offset
        if self.at >= self.section_end or left < constants.ENTRY_OVERHEAD:
            return False
        size = ops.i32(self.window, offset)
        return 0 < size <= left - constants.ENTRY_OVERHEAD

    def _is_behind(self, end: int) -> bool:
        """Return whether an entry with this end is after `until`."""
        self.at_until = 0 <= self.until < end
        return self.at_until

    def _next_section(self) -> int:
        """Read the sync marker at the section's end and enter the next section (2.3)."""
        at = self.section_end
        self._leave_room()
        if self._is_behind(at + 1) or 0 <= self.limit < at + _MARKER:
            return constants.LIMIT
        if not self._have(at, _MARKER):
            return constants.LIMIT if self.limit >= 0 else self._finished(at)
        offset = at - self.base
        pointer = ops.i32(self.window, offset)
        stored = ops.u32(self.window, offset + 4)
        for i in range(4):
            self.id_bytes[8 + i] = at >> (24 - 8 * i) & 0xFF
        if ops.crc32(self.id_bytes, 0, 12, 0) != stored:
            if stored == 0 and self.limit >= 0:
                self.give(0, _NO_ROOM)  # Not written yet, or half: read it again when asked again.
                return constants.LIMIT
            if stored == 0 and pointer == 0:
                return self._finished(at)
            self._corrupt(at, "the checksum of a sync marker is wrong", END_OFFSET)
        if pointer < at + _MARKER:
            self._corrupt(at, f"a sync marker points back to {pointer}", END_OFFSET)
        if 0 <= self.limit < pointer:
            return constants.LIMIT
        self.section_end = pointer
        # A section that was read before costs only its marker.
        self.at = pointer if pointer <= self.resume else at + _MARKER
        self.beside += self.at - at
        return constants.ENTRY

    def _finished(self, at: int) -> int:
        """Return FINISHED at the end of the chain of sections, unless more is durable."""
        if self.durable > at:
            more = f"the sync markers end; the index file has {self.durable - at} bytes more"
            self._corrupt(at, more, END_OFFSET)
        return constants.FINISHED

    def _entry_size(self) -> int:
        """Return the size of the mutation at `at`; 0 if a live segment does not have it yet."""
        left = self.section_end - self.at
        if left < 8:
            found = f"{left} bytes are left of a section, too few for an entry"
            self._corrupt(self.at, found, self.section_end)
        if not self._have(self.at, 8):
            if self.limit >= 0:
                return 0
            self._corrupt(self.at, "the file ends amid a section", self.section_end)
        offset = self.at - self.base
        size = ops.i32(self.window, offset)
        if ops.crc32(self.window, offset, offset + 4, 0) != ops.u32(self.window, offset + 4):
            found = "the checksum of an entry's size is wrong"
            self._corrupt(self.at, found, self.section_end)
        if size < _SIZE_MIN or size > left - constants.ENTRY_OVERHEAD:
            found = f"an entry of {size} bytes in a section with {left} left"
            self._corrupt(self.at, found, self.section_end)
        return size

    def _have(self, at: int, count: int) -> bool:
        """Return whether the window has *count* file bytes from *at*, reading them if needed."""
        if at >= self.base and at + count <= self.base + self.filled:
            return True
        return self._fill(at, count)

    def _fill(self, at: int, count: int) -> bool:
        if self.supply is not None and not self._covers(at):
            self._ask(at)
        if self._turn_to_given(at, count):
            return True
        keep = max(0, self.base + self.filled - at) if at >= self.base else 0
        kept = self.window
        room = len(self.own)
        if count > room or (room > self.window_bytes and count <= self.window_bytes):
            self.own = memoryview(bytearray(max(count, self.window_bytes)))
        self.window = self.own
        ops.copy(self.window, 0, kept, at - self.base, at - self.base + keep)
        self.base = at
        self.filled = keep
        # While skipping old sections, read only their markers; below a limit, only up to it, so
        # that following a growing segment reads each byte once; of a part, only up to its end.
        wanted = count if self.section_end <= self.resume else len(self.window)
        if self.until >= 0:
            wanted = min(wanted, max(count, self.until - at))
        if self.limit >= 0:
            wanted = min(wanted, max(count, self.limit - at))
        if self.by_section:
            wanted = min(wanted, max(count, self.section_end - at))
        if self.supply is not None and self._covers(at):  # Known entries need not be read.
            wanted = max(count, min(wanted, self._bytes_until(at) - at))
        while self.filled < wanted:
            came = self.read_into(at + self.filled, self.window[self.filled : wanted])
            if came == 0:
                break
            self.filled += came
        return self.filled >= count

    def _turn_to_given(self, at: int, count: int) -> bool:
        """Use the given bytes as the window if they contain *count* bytes from *at*."""
        end = self.given_begin + len(self.given)
        if self.supply is not None:
            end = min(end, self._bytes_until(at))
        if at < self.given_begin or at + count > end:
            return False
        self.window = self.given[at - self.given_begin :]
        self.base, self.filled = at, end - at
        return True

    def _corrupt(self, at: int, found: str, end: int) -> None:
        raise CorruptSegmentError(
            found,
            place=f"{self.place}: byte {at}",
            hint="compare with the node's own copy; the other replicas' logs are not affected",
            begin=at,
            end=end,
        )


def _nothing(_offset: int, _buffer: memoryview) -> int:
    return 0


def _no_block(_framer: Framer) -> int:
    return constants.FINISHED


def digest(content: bytes, key: bytes) -> bytes:
    """Return the 16-byte agreement digest of a raw mutation with the 16-byte *key*."""
    out = memoryview(array("Q", [0, 0]))
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    ops.siphash128(content, 0, len(content), k0, k1, out)
    return out[0].to_bytes(8, "little") + out[1].to_bytes(8, "little")

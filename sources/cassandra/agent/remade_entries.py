"""Restores the mutations of a segment at their places from an agent's response about entries.

Mutations that arrived before, or now, are in the room of the exchange, where a framer reads them. A
mutation of which only the digest arrived is looked up there, or requested by its place; entries
that were not requested become entries of a system table that does not exist, of the same length.
The bytes between entries are stored here; entries are converted to bytes when they are read that
way. Separate so that it can be compiled.
"""

from array import array

from headrace.sources.cassandra.agent.digest_exchange import FILLER_BYTES as _FILLER_MAX
from headrace.sources.cassandra.agent.digest_exchange import Exchange
from headrace.sources.cassandra.agent.entry_columns import ReceivedEntries
from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.native.growable import Block

_ANSWER_BYTES_MAX = 4 * 1024 * 1024  # Of the mutations in one request,
_PLACES_MAX = 64 * 1024  # and of their places.
_GROUP = 64  # Digests that are made side by side.
_FAR, _NEAR = 16, 8  # So many digests before one is looked up, what is read for it is fetched.
_FIRST_BYTES = 64 * 1024
_HEAD_BYTES = 8  # Of an entry, before its mutation.
# The place of an entry's mutation outside the room; see `Framer.know`.
_IN_BYTES, _FILLER, _OLD_FILLER = -1, -2, -3
_NO_BYTES = memoryview(bytearray())
_NO_WORDS = memoryview(array("q"))
_FIRST_WORDS = 4096
_NO_NUMBERS = memoryview(array("Q"))


class RemadeEntries:
    """The entries of one stretch at a time."""

    def __init__(self, exchange: Exchange) -> None:
        """Start without entries."""
        self.exchange = exchange
        self.block = Block("B", _FIRST_BYTES)
        self.made = self.block.view()
        self.begin = self.size = 0
        self.columns = memoryview(array("q", bytes(8 * _FIRST_WORDS)))  # What has columns below.
        # Of each entry where it ends in the segment, how long its mutation is, and where that is.
        self.count = 0
        self.ends = self.lengths = self.starts = _NO_WORDS
        # For each mutation: the end of its entry, and its number in the exchange.
        self.entries = 0
        self.placed_ends, self.numbers = _NO_WORDS, _NO_NUMBERS
        # For each missing mutation: its number among both, and its digest.
        self.missing = 0
        self.missing_entries, self.missing_placed = _NO_WORDS, _NO_WORDS
        self.missing_digests = _NO_NUMBERS
        self.came = self.asked = 0  # Of those that are missing.
        # What comes of them now, and where: among all bytes of the exchange, or not in its room.
        self.coming = _NO_BYTES
        self.coming_begin = -1
        self.ranges = memoryview(array("q", bytes(16 * _GROUP)))
        self.found = memoryview(array("Q", bytes(16 * _GROUP)))

    def start(self, received: ReceivedEntries, messaging: int) -> None:
        """Find the mutations of *received*; the previous entries are dropped."""
        if received.made_bytes > len(self.made):
            self._grow(received.made_bytes)
        self.begin, self.size = received.begin, received.made_bytes
        self.count = self.entries = self.missing = self.came = self.asked = 0
        fillers = 2 * received.passed + received.passed_bytes // _FILLER_MAX
        self._make_columns(received.entries + fillers, received.entries, received.digest_count)
        filler = _FILLER if messaging >= constants.MESSAGING_60 else _OLD_FILLER
        at = content = digest = 0
        while received.next():
            kind, length = received.kind, received.length
            if kind == constants.PART_BYTES:
                ops.copy(self.made, at, received.content, content, content + length)
                at += length
                content += length
            elif kind == constants.PART_PASSED:
                self._pass(at, length, filler)
                at += length
            elif kind == constants.PART_FULL:
                number = self.exchange.add(received.content, content, content + length, 0, 0)
                if number == 0:
                    self._put_entry(at, received.content, content, length)
                at += length + constants.ENTRY_OVERHEAD
                content += length
                self._place(at, length, number)
            else:
                d0, d1 = received.digests[2 * digest], received.digests[2 * digest + 1]
                self._fetch(received, digest)
                digest += 1
                number = self.exchange.find(d0, d1, length)
                if number == 0:
                    self._miss(d0, d1)
                at += length + constants.ENTRY_OVERHEAD
                self._place(at, length, number)

    def _fetch(self, received: ReceivedEntries, digest: int) -> None:
        """Prefetch the memory for the next digests."""
        if digest + _FAR < received.digest_count:
            self.exchange.fetch_newest(received.digests[2 * (digest + _FAR)])
            self.exchange.fetch_record(received.digests[2 * (digest + _NEAR)])

    def _make_columns(self, count: int, entries: int, digests: int) -> None:
        """Allocate the columns; only those that the exchange keeps are new memory."""
        behind = 3 * count
        if behind + 4 * digests > len(self.columns):
            self.columns = memoryview(Block("q", 2 * (behind + 4 * digests)).view())
        self.ends = self.columns[:count]
        self.lengths = self.columns[count : 2 * count]
        self.starts = self.columns[2 * count : behind]
        self.missing_entries = self.columns[behind : behind + digests]
        self.missing_placed = self.columns[behind + digests : behind + 2 * digests]
        names = memoryview(self.columns)[behind + 2 * digests : behind + 4 * digests]
        self.missing_digests = names.cast("B").cast("Q")
        self.placed_ends = memoryview(bytearray(8 * entries)).cast("q")
        self.numbers = memoryview(bytearray(8 * entries)).cast("Q")

    def _place(self, at: int, length: int, number: int) -> None:
        self.placed_ends[self.entries] = self.begin + at
        self.numbers[self.entries] = number
        self.entries += 1
        self._note(at, length, self.exchange.begin_of(number) if number else _IN_BYTES)

    def _note(self, at: int, length: int, start: int) -> None:
        self.ends[self.count] = self.begin + at
        self.lengths[self.count] = length
        self.starts[self.count] = start
        self.count += 1

    def _miss(self, d0: int, d1: int) -> None:
        self.missing_entries[self.missing] = self.count
        self.missing_placed[self.missing] = self.entries
        self.missing_digests[2 * self.missing] = d0
        self.missing_digests[2 * self.missing + 1] = d1
        self.missing += 1

    def _pass(self, at: int, count: int, filler: int) -> None:
        """Fill *count* bytes of skipped entries with entries of a table that does not exist."""
        while count:
            size = count
            if count >= _FILLER_MAX + constants.PASSED_BYTES_MIN:
                size = _FILLER_MAX
            elif count > _FILLER_MAX:  # The rest is always long enough for an entry.
                size = count - constants.PASSED_BYTES_MIN
            at += size
            count -= size
            self._note(at, size - constants.ENTRY_OVERHEAD, filler)

    def supply(self, framer: Framer) -> None:
        """Pass all entries to *framer*, so that it need not frame them."""
        exchange = self.exchange
        framer.give(self.begin, self.content())
        framer.know(
            self.begin,
            self.begin + self.size,
            self.ends[: self.count],
            self.lengths[: self.count],
            self.starts[: self.count],
            exchange.room,
            exchange.bytes_max,
            exchange.written,
        )

    def fill(self, begin: int, end: int) -> int:
        """Convert the entries between two file offsets to bytes.

        Returns the end of the converted bytes: the next mutation was overwritten in the room.
        """
        end = min(end, self.begin + self.size)
        low, high = 0, self.count
        while low < high:
            middle = (low + high) >> 1
            if self.ends[middle] <= begin:
                low = middle + 1
            else:
                high = middle
        while low < self.count:
            length, start = self.lengths[low], self.starts[low]
            at = self.ends[low] - length - constants.ENTRY_OVERHEAD
            if at >= end:
                break
            if start != _IN_BYTES:
                place = self._in_room(start)
                if place < 0:
                    return max(at, begin)
                self._put_entry(at - self.begin, self.exchange.room, place, length)
                self.starts[low] = _IN_BYTES
            low += 1
        return end

    def _in_room(self, start: int) -> int:
        """Return the place of a mutation in the room; -1 if it was overwritten."""
        exchange = self.exchange
        if start < 0:
            return exchange.bytes_max + _FILLER - start
        if exchange.written[0] - start > exchange.bytes_max:
            return -1
        return start & exchange.bytes_mask

    def has(self, at: int) -> bool:
        """Return whether the stretch has the byte *at*, with none of its mutations overwritten."""
        end = self.begin + self.size
        if not self.begin <= at < end:
            return False
        for number in range(self.count):
            if self.starts[number] >= 0 and self.ends[number] > at:
                return self._in_room(self.starts[number]) >= 0
        return True

    def _put_entry(self, at: int, view: ops.View, start: int, length: int) -> None:
        """Write the entry of a mutation in a segment's format (3.2 of docs/commit-log.md)."""
        ops.copy(self.made, at + _HEAD_BYTES, view, start, start + length)
        self._put_number(at, length)
        crc = ops.crc32(self.made, at, at + 4, 0)
        self._put_number(at + 4, crc)
        start = at + _HEAD_BYTES
        crc = ops.crc32(self.made, start, start + length, crc)
        self._put_number(start + length, crc)

    def _put_number(self, at: int, number: int) -> None:
        self.made[at] = number >> 24 & 0xFF
        self.made[at + 1] = number >> 16 & 0xFF
        self.made[at + 2] = number >> 8 & 0xFF
        self.made[at + 3] = number & 0xFF

    def places(self) -> bytes:
        """Return places of missing mutations for the next request; empty when all arrived.

        A place is the end of an entry, and its length: two little-endian numbers of 32 bits. The
        caller reads the mutations into `coming_in`, then calls `take`.
        """
        first, size, most = self.came, 0, _ANSWER_BYTES_MAX
        if first < self.missing:
            left = self.exchange.left()
            if left < self.lengths[self.missing_entries[first]]:
                left = self.exchange.bytes_max  # From the beginning of the room.
            most = min(most, left)
        self.asked = first
        while self.asked < self.missing and self.asked - first < _PLACES_MAX:
            length = self.lengths[self.missing_entries[self.asked]]
            if size and size + length > most:
                break
            size += length
            self.asked += 1
        made = memoryview(array("I", bytes(8 * (self.asked - first))))
        for i in range(first, self.asked):
            entry = self.missing_entries[i]
            made[2 * (i - first)] = self.ends[entry]
            made[2 * (i - first) + 1] = self.lengths[entry]
        return bytes(memoryview(made))

    def _coming_bytes(self) -> int:
        size = 0
        for i in range(self.came, self.asked):
            size += self.lengths[self.missing_entries[i]]
        return size

    def coming_in(self, count: int) -> memoryview:
        """Return memory for the *count* bytes of the mutations at the requested places."""
        if count != self._coming_bytes() or count > self.exchange.bytes_max:
            self.coming_begin, self.coming = -1, memoryview(bytearray(count))
        else:
            self.coming_begin = self.exchange.reserve(count)
            at = self.coming_begin & self.exchange.bytes_mask
            self.coming = self.exchange.room[at : at + count]
        return memoryview(self.coming)

    def take(self) -> None:
        """Check and store the received mutations.

        Raises:
            ValueError: they are not the requested mutations.

        """
        came, size = len(self.coming), self._coming_bytes()
        if size != came:
            raise ValueError(f"{came} bytes of mutations came, expected {size}")
        at = 0
        while self.came < self.asked:
            count = min(_GROUP, self.asked - self.came)
            for i in range(count):
                self.ranges[2 * i] = at
                at += self.lengths[self.missing_entries[self.came + i]]
                self.ranges[2 * i + 1] = at
            self._take_group(count)
            self.came += count
        self.coming = _NO_BYTES

    def _take_group(self, count: int) -> None:
        exchange, first = self.exchange, self.came
        k0, k1 = exchange.k0, exchange.k1
        ops.siphash_all(self.coming, self.ranges, 0, 2, count, k0, k1, self.found)
        for i in range(count):
            d0, d1 = self.found[2 * i], self.found[2 * i + 1]
            entry = self.missing_entries[first + i]
            if (
                d0 != self.missing_digests[2 * (first + i)]
                or d1 != self.missing_digests[2 * (first + i) + 1]
            ):
                raise ValueError(f"another mutation came for the place {self.ends[entry]}")
            start, length = self.ranges[2 * i], self.ranges[2 * i + 1] - self.ranges[2 * i]
            if self.coming_begin >= 0:
                begin = self.coming_begin + start
                self.starts[entry] = begin
                number = exchange.note(begin, length, d0, d1)
                self.numbers[self.missing_placed[first + i]] = number
            else:
                at = self.ends[entry] - self.begin - length - constants.ENTRY_OVERHEAD
                self._put_entry(at, self.coming, start, length)

    def placed(self) -> tuple[memoryview, memoryview]:
        """Return the ends of mutations' entries, ascending, and their numbers in the exchange."""
        return memoryview(self.placed_ends), memoryview(self.numbers)

    def content(self) -> memoryview:
        """Return the bytes, until the next `start`; those of entries only if converted."""
        return memoryview(self.made)[: self.size]

    def _grow(self, size: int) -> None:
        self.made = _NO_BYTES
        self.block = Block("B", max(size, 2 * self.size))
        self.made = self.block.view()

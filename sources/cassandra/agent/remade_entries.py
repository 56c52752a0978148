"""Makes the bytes of a segment again, at their places, of what an agent sent of its entries.

So framing is the same as of a file. A mutation of which only the digest came is taken from the
exchange, or its place is asked for; entries that were not asked for become entries of a system
table that there is not, of the same length. Separate so that it can be compiled.
"""

import zlib
from array import array

from headrace.sources.cassandra.agent.digest_exchange import Exchange
from headrace.sources.cassandra.agent.entry_columns import ReceivedEntries
from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.native.growable import Block

_FILLER_BYTES = 32 * 1024  # Of one entry, so that it fits into a window.
_ANSWER_BYTES_MAX = 4 * 1024 * 1024  # Of the mutations that are asked for at once,
_PLACES_MAX = 64 * 1024  # and of their places.
_GROUP = 64  # Digests that are made side by side.
_FIRST_BYTES = 64 * 1024
_HEAD_BYTES = 8  # Of an entry, before its mutation.
_NAME_BASED_ID = bytes(6) + b"\x30" + bytes(9)  # Of a system table that there is not.
_NO_BYTES = memoryview(bytearray())
_NO_WORDS = memoryview(array("q"))
_NO_NUMBERS = memoryview(array("Q"))


class RemadeEntries:
    """The bytes of one stretch after another, in the same memory."""

    def __init__(self, exchange: Exchange) -> None:
        """Make none yet."""
        self.exchange = exchange
        self.block = Block("B", _FIRST_BYTES)
        self.made = self.block.view()
        self.begin = self.size = 0
        self.filler = memoryview(bytearray(_FILLER_BYTES))  # An entry, of this messaging version.
        self.filler_of = -1
        self.entries = 0
        self.ends, self.numbers = _NO_WORDS, _NO_NUMBERS
        # Of each mutation that did not come yet: the number of its entry, and its digest.
        self.missing = 0
        self.missing_entries, self.missing_digests = _NO_WORDS, _NO_NUMBERS
        self.lengths = _NO_WORDS  # Of all mutations.
        self.came = self.asked = 0  # Of those that are missing.
        self.ranges = memoryview(array("q", bytes(16 * _GROUP)))
        self.found = memoryview(array("Q", bytes(16 * _GROUP)))

    def start(self, received: ReceivedEntries, messaging: int) -> None:
        """Make what can be made of *received*; the bytes made before are gone."""
        if received.made_bytes > len(self.made):
            self._grow(received.made_bytes)
        self.begin, self.size = received.begin, received.made_bytes
        self.entries = self.missing = self.came = self.asked = 0
        self.ends = memoryview(array("q", bytes(8 * received.entries)))
        self.lengths = memoryview(array("q", bytes(8 * received.entries)))
        self.numbers = memoryview(array("Q", bytes(8 * received.entries)))
        self.missing_entries = memoryview(array("q", bytes(8 * received.digest_count)))
        self.missing_digests = memoryview(array("Q", bytes(16 * received.digest_count)))
        at = content = digest = 0
        while received.next():
            kind, length = received.kind, received.length
            if kind == constants.PART_BYTES:
                ops.copy(self.made, at, received.content, content, content + length)
                at += length
                content += length
            elif kind == constants.PART_PASSED:
                self._fill(at, length, messaging)
                at += length
            elif kind == constants.PART_FULL:
                number = self.exchange.add(received.content, content, content + length, 0, 0)
                self._put_entry(at, received.content, content, length)
                at += length + constants.ENTRY_OVERHEAD
                content += length
                self._note(at, length, number)
            else:
                d0, d1 = received.digests[2 * digest], received.digests[2 * digest + 1]
                digest += 1
                number = self.exchange.find(d0, d1, length)
                if number:
                    known = self.exchange.begin_of(number)
                    self._put_entry(at, self.exchange.room, known, length)
                else:
                    self._miss(d0, d1)
                at += length + constants.ENTRY_OVERHEAD
                self._note(at, length, number)

    def _note(self, at: int, length: int, number: int) -> None:
        self.ends[self.entries] = self.begin + at
        self.lengths[self.entries] = length
        self.numbers[self.entries] = number
        self.entries += 1

    def _miss(self, d0: int, d1: int) -> None:
        self.missing_entries[self.missing] = self.entries
        self.missing_digests[2 * self.missing] = d0
        self.missing_digests[2 * self.missing + 1] = d1
        self.missing += 1

    def _put_entry(self, at: int, view: ops.View, start: int, length: int) -> None:
        """Write the entry of a mutation as it is in a segment (3.2 of docs/commit-log.md)."""
        ops.copy(self.made, at + _HEAD_BYTES, view, start, start + length)
        self._seal(at, length)

    def _seal(self, at: int, length: int) -> None:
        """Write the size and the checksums of the entry at made[at]."""
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

    def _fill(self, at: int, count: int, messaging: int) -> None:
        """Write entries of *count* bytes together for what was passed over."""
        if self.filler_of != messaging:
            whole = filler(_FILLER_BYTES, messaging)
            ops.copy(self.filler, 0, whole, 0, _FILLER_BYTES)
            self.filler_of = messaging
        while count:
            size = count
            if count >= _FILLER_BYTES + constants.PASSED_BYTES_MIN:
                size = _FILLER_BYTES
            elif count > _FILLER_BYTES:  # What is left is never too little for an entry.
                size = count - constants.PASSED_BYTES_MIN
            ops.copy(self.made, at, self.filler, 0, size)
            if size < _FILLER_BYTES:
                self._seal(at, size - constants.ENTRY_OVERHEAD)
            at += size
            count -= size

    def places(self) -> bytes:
        """Return places of mutations that are missing, to ask for now; none when all came.

        Of each the end of its entry, and its length: two little-endian numbers of 32 bits.
        """
        first, size = self.came, 0
        self.asked = first
        while self.asked < self.missing and self.asked - first < _PLACES_MAX:
            length = self.lengths[self.missing_entries[self.asked]]
            if size and size + length > _ANSWER_BYTES_MAX:
                break
            size += length
            self.asked += 1
        made = memoryview(array("I", bytes(8 * (self.asked - first))))
        for i in range(first, self.asked):
            entry = self.missing_entries[i]
            made[2 * (i - first)] = self.ends[entry]
            made[2 * (i - first) + 1] = self.lengths[entry]
        return bytes(memoryview(made))

    def take(self, content: bytes) -> None:
        """Take the mutations of the places that were asked for last.

        Raises:
            ValueError: others came.

        """
        size = 0
        for i in range(self.came, self.asked):
            size += self.lengths[self.missing_entries[i]]
        if size != len(content):
            raise ValueError(f"{len(content)} bytes of mutations came, expected {size}")
        at = 0
        while self.came < self.asked:
            count = min(_GROUP, self.asked - self.came)
            for i in range(count):
                self.ranges[2 * i] = at
                at += self.lengths[self.missing_entries[self.came + i]]
                self.ranges[2 * i + 1] = at
            self._take_group(content, count)
            self.came += count

    def _take_group(self, view: ops.View, count: int) -> None:
        exchange, first = self.exchange, self.came
        ops.siphash_all(view, self.ranges, 0, 2, count, exchange.k0, exchange.k1, self.found)
        for i in range(count):
            d0, d1 = self.found[2 * i], self.found[2 * i + 1]
            entry = self.missing_entries[first + i]
            if (
                d0 != self.missing_digests[2 * (first + i)]
                or d1 != self.missing_digests[2 * (first + i) + 1]
            ):
                raise ValueError(f"another mutation came for the place {self.ends[entry]}")
            start, end = self.ranges[2 * i], self.ranges[2 * i + 1]
            at = self.ends[entry] - self.begin - (end - start) - constants.ENTRY_OVERHEAD
            self._put_entry(at, view, start, end - start)
            self.numbers[entry] = exchange.add(view, start, end, d0, d1)

    def placed(self) -> tuple[memoryview, memoryview]:
        """Return where entries of mutations end, ascending, and their numbers in the exchange."""
        return memoryview(self.ends), memoryview(self.numbers)

    def content(self) -> memoryview:
        """Return the bytes, until the next `start`."""
        return memoryview(self.made)[: self.size]

    def _grow(self, size: int) -> None:
        self.made = _NO_BYTES
        self.block = Block("B", max(size, 2 * self.size))
        self.made = self.block.view()


def filler(count: int, messaging: int) -> bytes:
    """Return an entry of *count* bytes, of a system table that there is not."""
    flags = b"\0" if messaging >= constants.MESSAGING_60 else b""
    raw = (flags + b"\1" + _NAME_BASED_ID).ljust(count - constants.ENTRY_OVERHEAD, b"\0")
    size = len(raw).to_bytes(4, "big")
    crc = zlib.crc32(size)
    return b"".join((size, crc.to_bytes(4, "big"), raw, zlib.crc32(raw, crc).to_bytes(4, "big")))

"""Mutations from the logs of other machines, cached so that only one replica sends each.

The first replica with a mutation sends its bytes, the others a digest. Limited in bytes and in
number: a mutation that was dropped too early is fetched again. For one thread. Separate so that it
can be compiled.
"""

import os
from array import array
from bisect import bisect_left
from collections import deque

from headrace.sources.cassandra.logs.rescued_copies import Rescued
from headrace.sources.cassandra.native import ops
from headrace.sources.cassandra.native.growable import Block

BYTES_MAX = 32 * 1024 * 1024
_ANSWER_KEPT = 8 * 1024 * 1024
FILLER_BYTES = 32 * 1024  # Of one entry, so that it fits into a window.
_FILLER = b"\0\1" + bytes(6) + b"\x30" + bytes(9)  # Flags, updates, a name-based id.
KNOWN_MAX = 128 * 1024  # Mutations kept: a power of two.
PLACES_MAX = 1024 * 1024  # Mutations in stretches: 16 bytes each.
# A record: the halves of a digest, the number of the previous one with a similar digest, the start
# of its mutation among all bytes ever kept, and its length.
_WORDS = 5
_D0, _D1, _BEFORE, _BEGIN, _LENGTH = 0, 1, 2, 3, 4


class Exchange:
    """Mutations by their digests under `key`, which only this process and the agents know.

    A mutation has a number, from 1 on. The oldest bytes and records are overwritten, so the
    mutation of a number may be gone.
    """

    def __init__(self, bytes_max: int = BYTES_MAX, known_max: int = KNOWN_MAX) -> None:
        """Start empty. Both limits are powers of two."""
        self.key = os.urandom(16)
        self.k0 = int.from_bytes(self.key[:8], "little")
        self.k1 = int.from_bytes(self.key[8:], "little")
        self.readers = 0  # Logs that share it.
        self.bytes_max = bytes_max
        self.known_max = known_max
        self.bytes_mask, self.known_mask = bytes_max - 1, known_max - 1
        # After the mutations comes one of a system table that does not exist, for messaging version
        # 14; one byte later, it is valid for earlier versions. It stays valid if cut.
        self.room = Block("B", bytes_max + FILLER_BYTES).view()
        ops.copy(self.room, bytes_max, _FILLER, 0, len(_FILLER))
        self.records = Block("Q", _WORDS * known_max).view()
        self.newest = Block("Q", known_max).view()  # By the lowest bits of the digest.
        self.added = 0
        # The bytes of mutations ever written to the room, including overwritten ones.
        self.written = memoryview(array("Q", [0]))
        self.answers = Block("B", _ANSWER_KEPT).view()
        # Whose log, which segment, its messaging version; ends of entries, and their mutations.
        self.stretches: deque[tuple[str, int, int, memoryview, memoryview]] = deque()
        self.placed = 0

    def answer(self, count: int) -> memoryview:
        """Return memory for an answer of *count* bytes; the previous answer is overwritten."""
        return self.answers[:count] if count <= _ANSWER_KEPT else memoryview(bytearray(count))

    def add(self, view: ops.View, start: int, end: int, d0: int, d1: int) -> int:
        """Store a mutation with its digest. Return its number, or 0 if it is too long."""
        length = end - start
        if length > self.bytes_max:
            return 0
        begin = self.reserve(length)
        ops.copy(self.room, begin & self.bytes_mask, view, start, end)
        return self.note(begin, length, d0, d1)

    def left(self) -> int:
        """Return the number of bytes up to the end of the room."""
        return self.bytes_max - (self.written[0] & self.bytes_mask)

    def reserve(self, count: int) -> int:
        """Reserve *count* contiguous bytes of the room; return their begin.

        It counts the bytes that were ever written. *count* is at most `bytes_max`.
        """
        if count > self.left():
            self.written[0] += self.left()
        begin = self.written[0]
        self.written[0] += count
        return begin

    def note(self, begin: int, length: int, d0: int, d1: int) -> int:
        """Store the digest of a mutation that is in the room; return its number."""
        self.added += 1
        record = _WORDS * (self.added & self.known_mask)
        chain = d0 & self.known_mask
        self.records[record + _D0] = d0
        self.records[record + _D1] = d1
        self.records[record + _BEFORE] = self.newest[chain]
        self.records[record + _BEGIN] = begin
        self.records[record + _LENGTH] = length
        self.newest[chain] = self.added
        return self.added

    def fetch_newest(self, d0: int) -> None:
        """Prefetch the memory that `fetch_record` reads."""
        ops.prefetch_record(self.newest, d0 & self.known_mask)

    def fetch_record(self, d0: int) -> None:
        """Prefetch the memory that `find` reads."""
        number = self.newest[d0 & self.known_mask]
        ops.prefetch_record(self.records, _WORDS * (number & self.known_mask))

    def find(self, d0: int, d1: int, length: int) -> int:
        """Return the number of the mutation with this digest and length; 0 if it is not kept."""
        number = self.newest[d0 & self.known_mask]
        while self.has(number):
            record = _WORDS * (number & self.known_mask)
            if self.records[record + _D0] == d0 and self.records[record + _D1] == d1:
                return number if self.records[record + _LENGTH] == length else 0
            number = self.records[record + _BEFORE]
        return 0

    def has(self, number: int) -> bool:
        """Return whether the mutation with this number is kept."""
        if number == 0 or self.added - number >= self.known_max:
            return False
        begin = self.records[_WORDS * (number & self.known_mask) + _BEGIN]
        return begin + self.bytes_max >= self.written[0]

    def begin_of(self, number: int) -> int:
        """Return the start of a kept mutation, among all bytes ever `written`."""
        return self.records[_WORDS * (number & self.known_mask) + _BEGIN]

    def keep(
        self, log: str, segment_id: int, messaging: int, ends: memoryview, numbers: memoryview
    ) -> None:
        """Store the mutations of entries by the ends of these, ascending, for `at`."""
        self.stretches.appendleft((log, segment_id, messaging, ends, numbers))
        self.placed += len(ends)
        while self.placed > PLACES_MAX and len(self.stretches) > 1:
            self.placed -= len(self.stretches.pop()[3])

    def at(self, log: str, segment_id: int, position: int) -> Rescued | None:
        """Return the mutation at a place, if it is known."""
        for of, number, messaging, ends, numbers in self.stretches:
            if number != segment_id or of != log:
                continue
            found = bisect_left(ends, position)
            if found < len(ends) and ends[found] == position and self.has(numbers[found]):
                begin = self.begin_of(numbers[found]) & self.bytes_mask
                record = _WORDS * (numbers[found] & self.known_mask)
                end = begin + self.records[record + _LENGTH]
                return Rescued(ops.take(self.room, begin, end), messaging)
        return None

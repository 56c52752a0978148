"""Inserts mutations whose bytes one log sent where other logs sent their digests.

Separate so that it can be compiled.
"""

from array import array
from collections.abc import Sequence

from headrace.sources.cassandra.native import constants, ops

_D0, _D1, _AT, _LENGTH, _WORDS = 0, 1, 2, 3, 4
_SLOTS_MIN = 16


class SentBytes:
    """The places of mutations in a file, by their digests."""

    def __init__(self, count: int) -> None:
        """Start empty, with memory for *count* mutations."""
        slots = _SLOTS_MIN
        while slots < 2 * count:
            slots *= 2
        self.mask = slots - 1
        self.slots = memoryview(array("i", bytes(4 * slots)))  # The number of a record, from 1 on.
        self.records = memoryview(array("Q", bytes(8 * _WORDS * max(1, count))))
        self.count = 0

    def add(self, at: int, kinds: memoryview, sizes: memoryview, digests: memoryview) -> None:
        """Add the mutations of a block; its contents start *at* in the file.

        *digests* are two words for each entry with a digest.
        """
        digest = 0
        for number in range(len(kinds)):
            if kinds[number] == constants.SENT_BOTH:
                self._add(digests[digest], digests[digest + 1], at, sizes[number])
            if kinds[number] != constants.SENT_BYTES:
                digest += 2
            if kinds[number] != constants.SENT_DIGEST:
                at += sizes[number]

    def _add(self, d0: int, d1: int, at: int, length: int) -> int:
        slot = d0 & self.mask
        while self.slots[slot]:
            slot = (slot + 1) & self.mask
        record = _WORDS * self.count
        self.count += 1
        self.slots[slot] = self.count
        self.records[record + _D0] = d0
        self.records[record + _D1] = d1
        self.records[record + _AT] = at
        self.records[record + _LENGTH] = length
        return 0

    def find(self, d0: int, d1: int, length: int) -> int:
        """Return the place of the mutation with this digest and length in the file; -1: none."""
        slot = d0 & self.mask
        while self.slots[slot]:
            record = _WORDS * (self.slots[slot] - 1)
            if (
                self.records[record + _D0] == d0
                and self.records[record + _D1] == d1
                and self.records[record + _LENGTH] == length
            ):
                return self.records[record + _AT]
            slot = (slot + 1) & self.mask
        return -1

    def rejoin(  # noqa: PLR0913, PLR0917 (the columns of a block, and the result)
        self,
        file: ops.View,
        kinds: memoryview,
        sizes: memoryview,
        digests: memoryview,
        content: memoryview,
        made: memoryview,
    ) -> Sequence[tuple[int, int, int]]:
        """Write all entries of a block to *made*; *content* has those that it sent.

        Returns those that are not in *file*: the number of each, its place in *made*, and the place
        of its digest in *digests*.
        """
        missing = []
        at = sent = digest = 0
        for number in range(len(kinds)):
            size = sizes[number]
            if kinds[number] != constants.SENT_DIGEST:
                ops.copy(made, at, content, sent, sent + size)
                sent += size
            else:
                begin = self.find(digests[digest], digests[digest + 1], size)
                if begin < 0:
                    missing.append((number, at, digest))
                else:
                    ops.copy(made, at, file, begin, begin + size)
            if kinds[number] != constants.SENT_BYTES:
                digest += 2
            at += size
        return missing

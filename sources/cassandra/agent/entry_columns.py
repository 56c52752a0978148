"""An agent's response about a stretch of a segment: its parts, as columns.

Four 32-bit numbers come first: the format, and the numbers of digests, words of parts and bytes of
content. Then come the digests, 16 bytes each; the parts, each a 16-bit word with a length above a
kind (`constants.PART_*`); and the content of the parts that have any. If a length does not fit, it
is 0 there, and two words follow with its lower and its upper half. Numbers are little-endian. The
length of a FULL or DIGEST part is that of its mutation, which has `ENTRY_OVERHEAD` bytes fewer than
its entry. Separate so that it can be compiled, and because both sides need it.
"""

from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.native.growable import Block

FORMAT = 2
PART_BYTES_MAX = 64 * 1024 * 1024  # More than the longest mutation.
_HEAD_NUMBERS, _HEAD_BYTES = 4, 16
_NUMBER_BYTES, _DIGEST_BYTES, _WORD_BYTES = 4, 16, 2
_WORD_BITS, _WORD, _LONG_WORDS = 16, 0xFFFF, 2  # The last is the number of words that follow.
_KIND = (1 << constants.PART_KIND_BITS) - 1
_FIRST_PARTS, _FIRST_BYTES = 256, 4096
_CONTENT_KEPT = 8 * 1024 * 1024
# The views of columns while they grow.
_NO_PARTS = memoryview(bytearray()).cast("H")
_NO_DIGESTS = memoryview(bytearray()).cast("Q")
_NO_CONTENT = memoryview(bytearray())


class EntryColumns:
    """Collects the parts of one response."""

    def __init__(self) -> None:
        """Start without parts."""
        self.parts_block = Block("H", _FIRST_PARTS)
        self.parts = self.parts_block.view()
        self.digests_block = Block("Q", 2 * _FIRST_PARTS)
        self.digests = self.digests_block.view()
        self.content_block = Block("B", _FIRST_BYTES)
        self.content = self.content_block.view()
        self.clear()

    def clear(self) -> None:
        """Forget all parts and keep the memory."""
        self.count = self.digest_count = self.size = 0

    @property
    def content_bytes(self) -> int:
        """The memory for content, in bytes."""
        return len(self.content)

    def part(self, kind: int, length: int) -> None:
        """Add a part, without its digest or content."""
        if self.count + _LONG_WORDS >= len(self.parts):
            self._grow_parts()
        if length << constants.PART_KIND_BITS <= _WORD:
            self.parts[self.count] = length << constants.PART_KIND_BITS | kind
        else:
            self.parts[self.count] = kind
            self.parts[self.count + 1] = length & _WORD
            self.parts[self.count + 2] = length >> _WORD_BITS
            self.count += _LONG_WORDS
        self.count += 1

    def put(self, view: ops.View, start: int, end: int) -> None:
        """Add content."""
        if self.size + end - start > len(self.content):
            self._grow_content(self.size + end - start)
        ops.copy(self.content, self.size, view, start, end)
        self.size += end - start

    def put_digests(self, words: ops.Words, count: int) -> None:
        """Add *count* digests, of two words each."""
        while 2 * (self.digest_count + count) > len(self.digests):
            self._grow_digests()
        for i in range(2 * count):
            self.digests[2 * self.digest_count + i] = words[i]
        self.digest_count += count

    def taken(self) -> bytes:
        """Return the response, and start another one."""
        head = (FORMAT, self.digest_count, self.count, self.size)
        made = b"".join(
            (
                b"".join(number.to_bytes(_NUMBER_BYTES, "little") for number in head),
                memoryview(self.digests).cast("B")[: _DIGEST_BYTES * self.digest_count],
                memoryview(self.parts).cast("B")[: _WORD_BYTES * self.count],
                memoryview(self.content)[: self.size],
            )
        )
        self.clear()
        if len(self.content) > _CONTENT_KEPT:
            self.content_block = Block("B", _FIRST_BYTES)
            self.content = self.content_block.view()
        return made

    def _grow_parts(self) -> None:
        count = 2 * len(self.parts)
        self.parts = _NO_PARTS
        self.parts_block.grow(count)
        self.parts = self.parts_block.view()

    def _grow_digests(self) -> None:
        count = 2 * len(self.digests)
        self.digests = _NO_DIGESTS
        self.digests_block.grow(count)
        self.digests = self.digests_block.view()

    def _grow_content(self, size: int) -> None:
        count = max(2 * len(self.content), size)
        self.content = _NO_CONTENT
        self.content_block.grow(count)
        self.content = self.content_block.view()


class ReceivedEntries:
    """The parts of one response, checked: none is longer than the data sent, or than allowed."""

    def __init__(self, answer: bytes | memoryview, begin: int, bytes_max: int) -> None:
        """Check *answer*, which begins at *begin* in the file, and spans about *bytes_max* there.

        The caller must not change *answer* while the entries are used.

        Raises:
            ValueError: it does not have this format.

        """
        head = memoryview(bytes(answer[:_HEAD_BYTES]).ljust(_HEAD_BYTES, b"\0")).cast("I")
        if head[0] != FORMAT:
            raise ValueError(f"expected format {FORMAT}, found {head[0]}")
        self.digest_count, self.count, self.size = head[1], head[2], head[3]
        digests_end = _HEAD_BYTES + _DIGEST_BYTES * self.digest_count
        parts_end = digests_end + _WORD_BYTES * self.count
        if len(answer) != parts_end + self.size:
            said = f"{self.digest_count} digests, {self.count} words, {self.size} bytes"
            raise ValueError(f"{said} in an answer of {len(answer)} bytes")
        view = memoryview(answer)
        self.digests = view[_HEAD_BYTES:digests_end].cast("Q")
        self.parts = view[digests_end:parts_end].cast("H")
        self.content = view[parts_end:]
        self.begin = begin
        self.made_bytes = self.entries = 0
        self.passed = self.passed_bytes = 0  # Parts, and their total size.
        self.at = self.kind = self.length = 0
        self._check(bytes_max)

    def _check(self, bytes_max: int) -> None:
        digests = size = 0
        while self.next():
            kind, length = self.kind, self.length
            least = constants.PASSED_BYTES_MIN if kind == constants.PART_PASSED else 1
            if not least <= length <= PART_BYTES_MAX or self.made_bytes >= bytes_max:
                raise ValueError(f"a part of kind {kind} has {length} bytes")
            self.made_bytes += length
            if kind in (constants.PART_FULL, constants.PART_DIGEST):
                self.made_bytes += constants.ENTRY_OVERHEAD
                self.entries += 1
            elif kind == constants.PART_PASSED:
                self.passed += 1
                self.passed_bytes += length
            digests += kind == constants.PART_DIGEST
            if kind in (constants.PART_BYTES, constants.PART_FULL):
                size += length
        if digests != self.digest_count or size != self.size:
            raise ValueError(
                f"the parts have {digests} digests and {size} bytes, "
                f"and {self.digest_count} and {self.size} came"
            )

    def next(self) -> bool:
        """Go to the next part. Return False after the last one; then the first follows."""
        if self.at >= self.count:
            self.at = 0
            return False
        self.kind = self.parts[self.at] & _KIND
        self.length = self.parts[self.at] >> constants.PART_KIND_BITS
        if self.length == 0 and self.at + _LONG_WORDS < self.count:
            self.length = self.parts[self.at + 1] | self.parts[self.at + 2] << _WORD_BITS
            self.at += _LONG_WORDS
        self.at += 1
        return True

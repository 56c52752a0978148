"""Reads Avro and writes converted bytes to one buffer, without Python objects. Hot.

A `Piece` is a type that `conversion` prepared. For one thread.
"""

from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate

from headrace.connector.serde.transcode import octets
from headrace.plugins import BadRecordError

_FIRST = 64 * 1024
_SHIFT_MAX = 63
_HALF = 1 << 31
_SCALE_MAX = 18
_WORD_BYTES = 8
_LONG_BYTES = 10  # The maximum bytes of a long.
_DECIMAL_BYTES = 48  # The maximum bytes of a short decimal.


class BadAvroError(BadRecordError):
    """Bytes do not fit their schema. This is a bug, or the store changed them."""

    code = "bad_avro"


class Piece:
    """A type of the source's Avro: how to skip it, and how to convert it."""

    def __init__(
        self,
        kind: int,
        *parts: "Piece",
        labels: Sequence[bytes] = (),
        size_bytes: int = 0,
        becomes: int = octets.SAME,
        call: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """*parts* are its inner types; *size_bytes* is for a type with a fixed size.

        In JSON, *labels* precede a record's parts, or are an enum's symbols by number.
        """
        self.kind = kind
        self.parts = list(parts)
        self.inner = parts[0] if parts else None
        self.labels = list(labels)
        self.size_bytes = size_bytes
        # All labels of a record, and their ends, for JSON.
        self.text = b"".join(labels) + bytes(octets.SPILL_BYTES)
        self.label_ends = memoryview(array("i", accumulate(map(len, labels), initial=0)))
        self.becomes = becomes
        self.call = call
        # The same as numbers: see `octets.skip`.
        size = len(parts) if kind == octets.RECORD else size_bytes
        words = [number for part in parts for number in part.plan]
        self.plan: memoryview = memoryview(
            array("i", [kind, len(words) + octets.NODE_WORDS, size, *words])
        )
        self.same: int = int(becomes == octets.SAME and all(part.same for part in parts))


class Walk:
    """A cursor in the input bytes, and an output buffer."""

    def __init__(self) -> None:
        """Start with nothing read."""
        self.owner = self.out = bytearray(_FIRST)  # Compiled, the first owns what `out` points to.
        self.size = 0
        self.space = _FIRST
        self.buf = b""
        self.at = self.end = 0
        self.room = 0  # Reserved for what surrounds values of variable length.

    # ---- types ----

    def _put(self, piece: Piece) -> None:
        """Write the converted value at the cursor."""
        begin = self.at
        if piece.same:
            self._skip(piece)
            self._copy(begin, self.at)
        elif piece.becomes == octets.CALLED:
            self._skip(piece)
            self._called(piece, begin)
        elif piece.becomes == octets.DECIMAL:
            self._decimal(piece)
        elif piece.becomes in (octets.WRAPPED, octets.WHOLE, octets.DIGITS):
            self._cast(piece)
        elif piece.becomes != octets.SAME:
            self._written(piece)
        elif piece.kind == octets.OPTION:
            if self._long():
                self._byte(2)
                self._put(piece.inner)  # type: ignore[arg-type]
            else:
                self._byte(0)
        elif piece.kind == octets.RECORD:
            for part in piece.parts:
                self._put(part)
        else:
            self._items(piece)

    def _called(self, piece: Piece, begin: int) -> None:
        made = piece.call(octets.take(self.buf, begin, self.at))  # type: ignore[misc]
        self._reserve(len(made) + self.room)
        self._constant(made)

    def _cast(self, piece: Piece) -> None:
        """Write a number as a narrower number or an integer, or as digits."""
        if piece.becomes == octets.DIGITS:
            self._reserve(self.room + _DECIMAL_BYTES)
            self._put_number(self._long())
        elif piece.becomes == octets.WRAPPED:
            self._put_long((self._long() + _HALF & 0xFFFF_FFFF) - _HALF)
        else:
            begin = self.at
            self._pass(piece.size_bytes)
            self._reserve(self.room + _LONG_BYTES)
            self._put_long(octets.whole(self.buf, begin, piece.size_bytes))

    def _decimal(self, piece: Piece) -> None:
        """Write a decimal's digits as a string."""
        begin = self.at
        scale = self._long()
        length = self._long()
        start = self.at
        self._pass(length)
        if not (0 <= scale <= _SCALE_MAX and 0 < length <= _WORD_BYTES):
            self._called(piece, begin)
        else:
            negative = self.buf[start] >> 7
            magnitude = 0
            for i in range(length):
                byte = self.buf[start + i]
                magnitude = magnitude << 8 | (byte ^ 0xFF if negative else byte)
            magnitude += negative
            self._reserve(self.room + _DECIMAL_BYTES)
            at = self.size + 1  # The length is one byte: there are few digits.
            self.out[at] = 0x2D  # -
            at = octets.put_scaled(self.out, at + negative, magnitude, scale)
            self.out[self.size] = (at - self.size - 1) << 1
            self.size = at

    def _items(self, piece: Piece) -> None:
        left = self._block()
        while left:
            self._put_long(left)
            for _ in range(left):
                self._put(piece.inner)  # type: ignore[arg-type]
            left = self._block()
        self._byte(0)

    def _written(self, piece: Piece) -> None:
        """Write the written cells of a collection or UDT, without mode and deletion."""
        self._skip(piece.parts[0])
        self._skip(piece.parts[1])
        if piece.becomes == octets.WRITTEN_FIELDS:
            self._fields(piece.parts[2])
        else:
            self._cells(piece)

    def _fields(self, fields: Piece) -> None:
        """Write the values of a UDT's fields, or null for fields without a cell."""
        for field in fields.parts:
            if self._long():
                cell = field.inner
                self._put(cell.parts[0])  # type: ignore[union-attr]  # An option has it.
                for i in range(1, len(cell.parts)):  # type: ignore[union-attr]  # As above.
                    self._skip(cell.parts[i])  # type: ignore[union-attr]  # As above.
            else:
                self._byte(0)

    def _cells(self, piece: Piece) -> None:
        """Write the written cells of a collection."""
        begin, start = self.at, self.size
        count = -1
        found = self._block()  # Usually one block without deletions.
        while count != found:
            count = found
            self.at = begin
            self.size = start
            if count:
                self._put_long(count)
            found = self._each_cell(piece.parts[2].inner, piece.becomes)  # type: ignore[arg-type]
        self._byte(0)

    def _each_cell(self, cell: Piece, becomes: int) -> int:
        """Write the cells of an array except deleted ones; return their number."""
        valued = len(cell.parts) > 5  # noqa: PLR2004 (a set's cells have no value)
        count = 0
        left = self._block()
        while left:
            key = self.at
            self._skip(cell.parts[0])
            value = self.at
            if valued:
                self._skip(cell.parts[1])
            removed = self.at
            end = octets.skip_last(self.buf, removed, self.end, cell.plan, len(cell.parts) - 4)
            if end < 0:
                self._bad()
            self.at = end
            if not self.buf[removed]:
                count += 1
                self._written_cell(cell, becomes, key, value, removed)
                self.at = end
            left -= 1
            if not left:
                left = self._block()
        return count

    def _written_cell(self, cell: Piece, becomes: int, key: int, value: int, end: int) -> None:
        if becomes == octets.WRITTEN_SET:
            self._byte(2)
        if becomes != octets.WRITTEN_LIST:
            self._put_found(cell.parts[0], key, value)
        if becomes != octets.WRITTEN_SET:
            self._put_found(cell.parts[1], value, end)

    def _put_found(self, piece: Piece, begin: int, end: int) -> None:
        """Write the converted value between these bounds."""
        if piece.same:
            self._copy(begin, end)
        else:
            self.at = begin
            self._put(piece)

    # ---- reading ----

    def _skip(self, piece: Piece) -> None:
        """Skip a value."""
        end = octets.skip(self.buf, self.at, self.end, piece.plan, 0)
        if end < 0:
            self._bad()
        self.at = end

    def _note_starts(self, record: Piece, starts: memoryview) -> None:
        """Skip a record; note where each part starts, and where the last ends."""
        end = octets.note_starts(
            self.buf,
            self.at,
            self.end,
            record.plan,
            octets.NODE_WORDS,
            starts,
            0,
            len(record.parts),
        )
        if end < 0:
            self._bad()
        self.at = end

    def _block(self) -> int:
        """Return the number of items in the next block, 0 at the end of an array."""
        count = self._long()
        if count < 0:
            count = -count
            self._long()
        if count < 0 or count > self.end - self.at:
            self._bad()
        return count

    def _long(self) -> int:
        coded = 0
        shift = 0
        byte = 0x80
        while byte & 0x80:
            if self.at >= self.end or shift > _SHIFT_MAX:
                self._bad()
            byte = self.buf[self.at]
            self.at += 1
            coded |= (byte & 0x7F) << shift
            shift += 7
        return octets.unzigzag(coded)

    def _pass(self, count: int) -> None:
        if count < 0 or count > self.end - self.at:
            self._bad()
        self.at += count

    # ---- writing ----

    def _put_long(self, number: int) -> None:
        self.size = octets.put_long(self.out, self.size, number)

    def _byte(self, value: int) -> None:
        self.out[self.size] = value
        self.size += 1

    def _put_number(self, number: int) -> None:
        """Write a number's digits as a string with a length of one byte."""
        at = octets.put_decimal(self.out, self.size + 1, number)
        self.out[self.size] = (at - self.size - 1) << 1
        self.size = at

    def _constant(self, content: bytes) -> None:
        octets.copy_bytes(self.out, self.size, content)
        self.size += len(content)

    def _copy(self, start: int, end: int) -> None:
        """Write bytes of the change unchanged."""
        octets.copy(self.out, self.size, self.buf, start, end)
        self.size += end - start

    def _reserve(self, count: int) -> None:
        """Make room for *count* more bytes."""
        if self.size + count > self.space:
            written = octets.take(self.out, 0, self.size)
            self.space = 2 * (self.size + count)
            self.owner = bytearray(self.space)
            self.out = self.owner
            octets.copy_bytes(self.out, 0, written)

    def _bad(self) -> None:
        raise BadAvroError("a change does not fit its schema", place=f"byte {self.at}")

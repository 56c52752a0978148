"""Avro to JSON, bytes to bytes: without objects, except for floats.

The JSON is the same as that of `json` for the same data. For one thread.
"""

import math

import msgspec

from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transcode.walk import Piece, Walk

_ROOM = 128  # For a number, the characters around a value, and bytes written past its end.
_BLANK = 0x20  # Smaller ones are control characters.
_QUOTE = 0x22
_SLASH = 0x5C
_GROWTH = 6  # Of a control character: \u001f.
_SEVEN_BITS = 0x7F

_ESCAPES = {0x08: b"\\b", 0x09: b"\\t", 0x0A: b"\\n", 0x0C: b"\\f", 0x0D: b"\\r"}
_NO_NUMBERS = {math.inf: "Infinity", -math.inf: "-Infinity"}
_ENCODE = msgspec.json.Encoder().encode


class JsonWriter(Walk):
    """Writes JSON. It has its own fast paths, because calling a method of `Walk` takes longer."""

    def texts(self, piece: Piece, contents: list[bytes]) -> list[bytes]:
        """Return the JSON of each of *contents*. Raises as `text`."""
        return [self.text(piece, content) for content in contents]

    def text(self, piece: Piece, content: bytes) -> bytes:
        """Return the JSON of *content*.

        Raises:
            BadAvroError: the bytes do not fit the schema of the plan.

        """
        self.buf = content
        self.at = self.size = 0
        self.end = len(content)
        self._json(piece)
        if self.at != self.end:
            self._bad()
        return octets.take(self.out, 0, self.size)

    def _json(self, piece: Piece) -> None:
        """Write the value at the cursor."""
        kind = piece.kind
        self._make_room(_ROOM)
        if kind == octets.OPTION:
            if self._int():
                self._json(piece.inner)  # type: ignore[arg-type]
            else:
                self._word(b"null")
        elif kind == octets.RECORD:
            self._record(piece)
        elif kind == octets.STRING:
            begin = self._past(self._int())
            self._quoted(begin, self.at)
        elif kind == octets.LONG:
            self.size = octets.put_decimal(self.out, self.size, self._wide())
        elif kind == octets.ENUM:
            number = self._int()
            if not 0 <= number < len(piece.labels):
                self._bad()
            self._word(piece.labels[number])
        elif kind in (octets.ARRAY, octets.MAP):
            self._several(piece)
        elif kind == octets.BOOLEAN:
            self._word(b"true" if self.buf[self._past(1)] else b"false")
        else:
            self._octets(piece)

    def _make_room(self, count: int) -> None:
        if self.size + count > self.space:
            self._reserve(count)

    def _int(self) -> int:
        """Return the int or long at the cursor, usually of one byte."""
        begin = self.at
        if begin < self.end and self.buf[begin] <= _SEVEN_BITS:
            self.at += 1
            return octets.unzigzag(self.buf[begin])
        return self._wide()

    def _wide(self) -> int:
        """Return the int or long at the cursor, usually of several bytes."""
        begin = self.at
        end = octets.long_end(self.buf, begin, self.end)
        if end < 0:
            self._bad()
        self.at = end
        return octets.number_at(self.buf, begin, end)

    def _past(self, count: int) -> int:
        """Skip *count* bytes and return where they begin."""
        begin = self.at
        if count < 0 or count > self.end - begin:
            self._bad()
        self.at += count
        return begin

    def _put_one(self, value: int) -> None:
        self.out[self.size] = value
        self.size += 1

    def _word(self, content: bytes) -> None:
        """Write *content*, and reserve room for the characters around a value."""
        self._make_room(len(content) + _ROOM)
        octets.copy_bytes(self.out, self.size, content)
        self.size += len(content)

    def _record(self, piece: Piece) -> None:
        count = len(piece.parts)
        for i in range(count):
            start, end = piece.label_ends[i], piece.label_ends[i + 1]
            self._make_room(end - start + _ROOM)
            self.size = octets.put_label(self.out, self.size, piece.text, start, end)
            self._json(piece.parts[i])
        self._make_room(_ROOM)
        if not count:
            self._put_one(0x7B)  # {
        self._put_one(0x7D)  # }

    def _several(self, piece: Piece) -> None:
        """Write an array, or a map."""
        is_map = piece.kind == octets.MAP
        self._put_one(0x7B if is_map else 0x5B)
        first = 1
        left = self._block()
        while left:
            self._make_room(_ROOM)
            if not first:
                self._put_one(0x2C)  # ,
            first = 0
            if is_map:
                begin = self._past(self._int())
                self._quoted(begin, self.at)
                self._put_one(0x3A)  # :
                self._json(piece.inner.parts[1])  # type: ignore[union-attr]
            else:
                self._json(piece.inner)  # type: ignore[arg-type]
            left -= 1
            if not left:
                left = self._block()
        self._make_room(_ROOM)
        self._put_one(0x7D if is_map else 0x5D)

    def _octets(self, piece: Piece) -> None:
        """Write bytes, or a number with a fraction."""
        length = piece.size_bytes
        if piece.kind == octets.BYTES:
            length = self._int()
        begin = self._past(length)
        if piece.kind == octets.REAL:
            self._word(_real(octets.real(self.buf, begin, length)))
        else:
            self._make_room(2 * length + _ROOM)
            self._put_one(_QUOTE)
            self.size = octets.put_base64(self.out, self.size, self.buf, begin, self.at)
            self._put_one(_QUOTE)

    def _quoted(self, begin: int, end: int) -> None:
        """Write a string, given in UTF-8."""
        self._make_room(end - begin + _ROOM)
        self._put_one(_QUOTE)
        i = octets.put_plain(self.out, self.size, self.buf, begin, end, self.end)
        self.size += i - begin
        if i < end:
            self._make_room(_GROWTH * (end - i) + _ROOM)
        while i < end:
            byte = self.buf[i]
            if byte in (_QUOTE, _SLASH):
                self._put_one(_SLASH)
                self._put_one(byte)
            elif byte < _BLANK:
                self._word(_ESCAPES.get(byte) or b"\\u%04x" % byte)
            else:
                self._put_one(byte)
            i += 1
        self._put_one(_QUOTE)


def _real(number: float) -> bytes:
    if math.isfinite(number):
        return _ENCODE(number)
    return _ENCODE(_NO_NUMBERS.get(number, "NaN"))

"""Avro to JSON, bytes to bytes: no value becomes an object, except numbers with a fraction.

The JSON is the same as that of `json` for the same data. For one thread.
"""

import math
import struct

import msgspec

from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transcode.walk import Piece, Walk

_ROOM = 32  # For a number, or the characters around a value.
_BLANK = 0x20  # Below it are control characters.
_QUOTE = 0x22
_SLASH = 0x5C
_GROWTH = 6  # Of a control character: \u001f.
_FLOAT_BYTES = 4
_SEVEN_BITS = 0x7F

_ESCAPES = {0x08: b"\\b", 0x09: b"\\t", 0x0A: b"\\n", 0x0C: b"\\f", 0x0D: b"\\r"}
_NO_NUMBERS = {math.inf: "Infinity", -math.inf: "-Infinity"}
_JSON = msgspec.json.Encoder()


class JsonWriter(Walk):
    """Writes JSON. What most values need is here: a call of a method of `Walk` takes longer."""

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
            length = self._int()
            begin = self.at
            self._pass(length)
            self._quoted(begin, self.at)
        elif kind == octets.LONG:
            self.size = octets.put_decimal(self.out, self.size, self._int())
        elif kind == octets.ENUM:
            number = self._int()
            if not 0 <= number < len(piece.labels):
                self._bad()
            self._word(piece.labels[number])
        elif kind in (octets.ARRAY, octets.MAP):
            self._several(piece)
        elif kind == octets.BOOLEAN:
            begin = self.at
            self._pass(1)
            self._word(b"true" if self.buf[begin] else b"false")
        else:
            self._octets(piece)

    def _make_room(self, count: int) -> None:
        if self.size + count > self.space:
            self._reserve(count)

    def _int(self) -> int:
        """Return the int or long at the cursor, mostly of one byte."""
        if self.at < self.end and self.buf[self.at] <= _SEVEN_BITS:
            coded = self.buf[self.at]
            self.at += 1
            return octets.unzigzag(coded)
        return self._long()

    def _put_one(self, value: int) -> None:
        self.out[self.size] = value
        self.size += 1

    def _word(self, content: bytes) -> None:
        """Write *content*, and leave room for what is around a value."""
        self._make_room(len(content) + _ROOM)
        octets.copy_bytes(self.out, self.size, content)
        self.size += len(content)

    def _record(self, piece: Piece) -> None:
        count = len(piece.parts)
        for i in range(count):
            self._word(piece.labels[i])
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
                length = self._int()
                begin = self.at
                self._pass(length)
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
        begin = self.at
        self._pass(length)
        if piece.kind == octets.REAL:
            self._word(_real(octets.take(self.buf, begin, self.at)))
        else:
            self._make_room(2 * length + _ROOM)
            self._put_one(_QUOTE)
            self.size = octets.put_base64(self.out, self.size, self.buf, begin, self.at)
            self._put_one(_QUOTE)

    def _quoted(self, begin: int, end: int) -> None:
        """Write a string, which is in UTF-8."""
        self._make_room(end - begin + _ROOM)
        self._put_one(_QUOTE)
        i = octets.plain_end(self.buf, begin, end)
        octets.copy(self.out, self.size, self.buf, begin, i)
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


def _real(raw: bytes) -> bytes:
    number: float = struct.unpack("<f" if len(raw) == _FLOAT_BYTES else "<d", raw)[0]
    if math.isfinite(number):
        return _JSON.encode(number)
    return _JSON.encode(_NO_NUMBERS.get(number, "NaN"))

"""Avro to JSON, bytes to bytes: no value becomes an object, except numbers with a fraction.

The JSON is the same as that of `json` for the same data. For one thread.
"""

import math
import struct
from binascii import b2a_base64

import msgspec

from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transcode.walk import Piece, Walk

_ROOM = 32  # For a number, or the characters around a value.
_BLANK = 0x20  # Below it are control characters.
_QUOTE = 0x22
_SLASH = 0x5C
_GROWTH = 6  # Of a control character: \u001f.
_FLOAT_BYTES = 4
_SHORT = 96  # Up to this many bytes, a loop is faster than a call.

_ESCAPES = {0x08: b"\\b", 0x09: b"\\t", 0x0A: b"\\n", 0x0C: b"\\f", 0x0D: b"\\r"}
_NO_NUMBERS = {math.inf: "Infinity", -math.inf: "-Infinity"}
_JSON = msgspec.json.Encoder()


class JsonWriter(Walk):
    """Writes JSON."""

    def __init__(self) -> None:
        """Write nothing yet."""
        super().__init__()
        self.alphabet = memoryview(
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        )

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
        self._reserve(_ROOM)
        if kind == octets.OPTION:
            if self._long():
                self._json(piece.inner)  # type: ignore[arg-type]
            else:
                self._constant(b"null")
        elif kind == octets.RECORD:
            self._record(piece)
        elif kind == octets.STRING:
            length = self._long()
            begin = self.at
            self._pass(length)
            self._quoted(begin, self.at)
        elif kind == octets.LONG:
            self._number(self._long())
        elif kind == octets.ENUM:
            number = self._long()
            if not 0 <= number < len(piece.labels):
                self._bad()
            self._word(piece.labels[number])
        elif kind in (octets.ARRAY, octets.MAP):
            self._several(piece)
        elif kind == octets.BOOLEAN:
            begin = self.at
            self._pass(1)
            self._constant(b"true" if self.buf[begin] else b"false")
        else:
            self._octets(piece)

    def _word(self, content: bytes) -> None:
        self._reserve(len(content) + _ROOM)
        self._constant(content)

    def _record(self, piece: Piece) -> None:
        count = len(piece.parts)
        for i in range(count):
            self._word(piece.labels[i])
            self._json(piece.parts[i])
        self._reserve(_ROOM)
        if not count:
            self._byte(0x7B)  # {
        self._byte(0x7D)  # }

    def _several(self, piece: Piece) -> None:
        """Write an array, or a map."""
        is_map = piece.kind == octets.MAP
        self._byte(0x7B if is_map else 0x5B)
        first = 1
        left = self._block()
        while left:
            self._reserve(_ROOM)
            if not first:
                self._byte(0x2C)  # ,
            first = 0
            if is_map:
                length = self._long()
                begin = self.at
                self._pass(length)
                self._quoted(begin, self.at)
                self._byte(0x3A)  # :
                self._json(piece.inner.parts[1])  # type: ignore[union-attr]
            else:
                self._json(piece.inner)  # type: ignore[arg-type]
            left -= 1
            if not left:
                left = self._block()
        self._reserve(_ROOM)
        self._byte(0x7D if is_map else 0x5D)

    def _octets(self, piece: Piece) -> None:
        """Write bytes, or a number with a fraction."""
        length = piece.size_bytes
        if piece.kind == octets.BYTES:
            length = self._long()
        begin = self.at
        self._pass(length)
        if piece.kind == octets.REAL:
            self._word(_real(octets.take(self.buf, begin, self.at)))
        elif length > _SHORT:
            self._reserve(2 * length + _ROOM)
            self._byte(_QUOTE)
            self._constant(b2a_base64(octets.take(self.buf, begin, self.at), newline=False))
            self._byte(_QUOTE)
        else:
            self._reserve(2 * length + _ROOM)
            self._base64(begin, length)

    def _base64(self, begin: int, length: int) -> None:
        self._byte(_QUOTE)
        i = 0
        while i < length:
            bits = self.buf[begin + i] << 16
            if i + 1 < length:
                bits |= self.buf[begin + i + 1] << 8
            if i + 2 < length:
                bits |= self.buf[begin + i + 2]
            self._byte(self.alphabet[bits >> 18])
            self._byte(self.alphabet[bits >> 12 & 63])
            self._byte(self.alphabet[bits >> 6 & 63] if i + 1 < length else 0x3D)
            self._byte(self.alphabet[bits & 63] if i + 2 < length else 0x3D)
            i += 3
        self._byte(_QUOTE)

    def _number(self, number: int) -> None:
        if number < 0:
            self._byte(0x2D)  # -
            magnitude = -(number + 1)
            magnitude += 1
        else:
            magnitude = number
        self._put_digits(magnitude, self._digits(magnitude), 0)

    def _quoted(self, begin: int, end: int) -> None:
        """Write a string, which is in UTF-8."""
        self._reserve(end - begin + _ROOM)
        self._byte(_QUOTE)
        i = begin
        while i < end:
            byte = self.buf[i]
            if byte < _BLANK or byte in (_QUOTE, _SLASH):
                break
            i += 1
        self._copy(begin, i)
        if i < end:
            self._reserve(_GROWTH * (end - i) + _ROOM)
        while i < end:
            byte = self.buf[i]
            if byte in (_QUOTE, _SLASH):
                self._byte(_SLASH)
                self._byte(byte)
            elif byte < _BLANK:
                self._constant(_ESCAPES.get(byte) or b"\\u%04x" % byte)
            else:
                self._byte(byte)
            i += 1
        self._byte(_QUOTE)


def _real(raw: bytes) -> bytes:
    number: float = struct.unpack("<f" if len(raw) == _FLOAT_BYTES else "<d", raw)[0]
    if math.isfinite(number):
        return _JSON.encode(number)
    return _JSON.encode(_NO_NUMBERS.get(number, "NaN"))

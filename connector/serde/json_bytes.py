"""Avro to JSON, bytes to bytes: no value becomes an object, but for numbers with a fraction.

The JSON is that which `json` makes of the same data. A schema's plan is made once, by `json_piece`.
For one thread.
"""

import math
import struct
from binascii import b2a_base64
from collections.abc import Sequence

import msgspec

from headrace.connector.serde import octets
from headrace.connector.serde.avro_types import AvroType
from headrace.connector.serde.walk import Walk

_NUMBER = 1
_REAL = 2
_BYTES = 3
_FIXED = 4
_TEXT = 5
_BOOLEAN = 6
_ENUM = 7
_OPTION = 8
_ARRAY = 9
_MAP = 10
_RECORD = 11

_ROOM = 32  # For a number, or what stands around a value.
_BLANK = 0x20  # Below it are control characters.
_QUOTE = 0x22
_SLASH = 0x5C
_GROWTH = 6  # Of a control character: \u001f.
_FLOAT_BYTES = 4
_SHORT = 96  # Bytes that are not worth a call.

_KINDS = {
    "int": _NUMBER,
    "long": _NUMBER,
    "float": _REAL,
    "double": _REAL,
    "bytes": _BYTES,
    "fixed": _FIXED,
    "string": _TEXT,
    "boolean": _BOOLEAN,
    "enum": _ENUM,
    "array": _ARRAY,
    "map": _MAP,
    "record": _RECORD,
}
_SIZES = {"float": 4, "double": 8}
_ESCAPES = {0x08: b"\\b", 0x09: b"\\t", 0x0A: b"\\n", 0x0C: b"\\f", 0x0D: b"\\r"}
_NO_NUMBERS = {math.inf: "Infinity", -math.inf: "-Infinity"}
_JSON = msgspec.json.Encoder()


class JsonPiece:
    """A type of Avro as JSON has it."""

    def __init__(
        self,
        kind: int,
        parts: "Sequence[JsonPiece]" = (),
        labels: Sequence[bytes] = (),
        size_bytes: int = 0,
    ) -> None:
        """*labels* stand before a record's *parts*, or are what an enum has for its numbers."""
        self.kind = kind
        self.parts = list(parts)
        self.inner = self.parts[0] if self.parts else None
        self.labels = list(labels)
        self.size_bytes = size_bytes


def json_piece(schema: AvroType, known: dict[str, JsonPiece] | None = None) -> JsonPiece:
    """Return the plan of *schema*; *known* are the named types that were planned before."""
    known = {} if known is None else known
    if isinstance(schema, list):
        _, inner = schema  # Null, and what it is otherwise.
        return JsonPiece(_OPTION, [json_piece(inner, known)])
    if isinstance(schema, str):
        return known.get(schema) or JsonPiece(_KINDS[schema], size_bytes=_SIZES.get(schema, 0))
    name = schema["type"]
    if not isinstance(name, str) or name in known:
        return json_piece(name, known)
    made = JsonPiece(_KINDS[name], size_bytes=schema.get("size", _SIZES.get(name, 0)))
    if "name" in schema:
        known[schema["name"]] = made
    if name == "record":
        fields = schema["fields"]
        made.parts = [json_piece(field["type"], known) for field in fields]
        marks = [b"{", *[b","] * len(fields)]
        made.labels = [
            m + _JSON.encode(f["name"]) + b":" for m, f in zip(marks, fields, strict=False)
        ]
    elif name == "enum":
        made.labels = [_JSON.encode(symbol) for symbol in schema["symbols"]]
    elif name in {"array", "map"}:
        made.inner = json_piece(schema["items" if name == "array" else "values"], known)
    return made


class JsonWriter(Walk):
    """Writes JSON."""

    def __init__(self) -> None:
        """Write nothing yet."""
        super().__init__()
        self.alphabet = memoryview(
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        )

    def text(self, piece: JsonPiece, content: bytes) -> bytes:
        """Return the JSON of *content*.

        Raises:
            BadAvroError: bytes that are not what the plan's schema says.

        """
        self.buf = content
        self.at = self.size = 0
        self.end = len(content)
        self._json(piece)
        if self.at != self.end:
            self._bad()
        return octets.take(self.out, 0, self.size)

    def _json(self, piece: JsonPiece) -> None:
        """Write the value at the cursor."""
        kind = piece.kind
        self._reserve(_ROOM)
        if kind == _OPTION:
            if self._long():
                self._json(piece.inner)  # type: ignore[arg-type]
            else:
                self._constant(b"null")
        elif kind == _RECORD:
            self._record(piece)
        elif kind == _TEXT:
            length = self._long()
            begin = self.at
            self._pass(length)
            self._quoted(begin, self.at)
        elif kind == _NUMBER:
            self._number(self._long())
        elif kind == _ENUM:
            number = self._long()
            if not 0 <= number < len(piece.labels):
                self._bad()
            self._word(piece.labels[number])
        elif kind in (_ARRAY, _MAP):
            self._several(piece)
        elif kind == _BOOLEAN:
            begin = self.at
            self._pass(1)
            self._constant(b"true" if self.buf[begin] else b"false")
        else:
            self._octets(piece)

    def _word(self, content: bytes) -> None:
        self._reserve(len(content) + _ROOM)
        self._constant(content)

    def _record(self, piece: JsonPiece) -> None:
        count = len(piece.parts)
        for i in range(count):
            self._word(piece.labels[i])
            self._json(piece.parts[i])
        self._reserve(_ROOM)
        if not count:
            self._byte(0x7B)  # {
        self._byte(0x7D)  # }

    def _several(self, piece: JsonPiece) -> None:
        """Write an array, or a map."""
        is_map = piece.kind == _MAP
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
            self._json(piece.inner)  # type: ignore[arg-type]
            left -= 1
            if not left:
                left = self._block()
        self._reserve(_ROOM)
        self._byte(0x7D if is_map else 0x5D)

    def _octets(self, piece: JsonPiece) -> None:
        """Write bytes, or a number with a fraction."""
        length = piece.size_bytes
        if piece.kind == _BYTES:
            length = self._long()
        begin = self.at
        self._pass(length)
        if piece.kind == _REAL:
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
        """Write a text, which is in UTF-8."""
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

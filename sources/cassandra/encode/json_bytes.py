"""Writes value bytes directly as change JSON in one buffer, without objects for the usual types.

`json_values` states the JSON form of each type, and writes the types that are rare or nested; the
bytes equal those that msgspec writes of its values. For one thread.
"""

import struct
from math import inf, isfinite
from typing import Final

import msgspec

from headrace.sources.cassandra.mutation.json_values import json_key, to_json
from headrace.sources.cassandra.mutation.values import BadValueError, is_empty_value
from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.native.ops import View
from headrace.sources.cassandra.schema.types import CqlType

_FIRST = 64 * 1024
_ROOM = 64  # For a number or a time, with the characters around it.
_GROWTH = 6  # Of a control character: \u001f.
_BLANK, _QUOTE, _SLASH, _DEL = 0x20, 0x22, 0x5C, 0x7F
_DAYS_0 = 719_468  # From 0000-03-01 to 1970-01-01.
_DAY_FIRST, _DAY_LAST = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31.
_MS_PER_DAY = 86_400_000
_NS_PER_DAY = 86_400_000_000_000
_DATE_ZERO = 1 << 31  # The stored number of 1970-01-01.
_DIGITS_MAX = 40  # Before or after a decimal's point.
_TINY = -6  # Digits before the point, minus zeros after it, from which Python uses an exponent.
_INT64_MIN = -(1 << 63)
_WORD_BYTES, _SIGN, _TEN, _MONTHS = 8, 0x80, 10, 12
_LONG_DIGITS = 20  # Of a number of 64 bits, with its sign.

_ESCAPES: Final = {0x08: b"\\b", 0x09: b"\\t", 0x0A: b"\\n", 0x0C: b"\\f", 0x0D: b"\\r"}
_JSON: Final = msgspec.json.Encoder()
_unpack: Final = struct.Struct(">d").unpack
_NO_NUMBERS: Final = {inf: "Infinity", -inf: "-Infinity"}
_CODES: Final = {
    "text": constants.JSON_TEXT,
    "ascii": constants.JSON_ASCII,
    "blob": constants.JSON_BLOB,
    "boolean": constants.JSON_BOOLEAN,
    "tinyint": constants.JSON_INT8,
    "smallint": constants.JSON_INT16,
    "int": constants.JSON_INT32,
    "bigint": constants.JSON_INT64,
    "uuid": constants.JSON_UUID,
    "timeuuid": constants.JSON_UUID,
    "timestamp": constants.JSON_TIMESTAMP,
    "date": constants.JSON_DATE,
    "time": constants.JSON_TIME,
    "decimal": constants.JSON_DECIMAL,
    "double": constants.JSON_DOUBLE,
}


class JsonType:
    """One type, and how to write its values."""

    def __init__(self, cql_type: CqlType) -> None:
        """Prepare *cql_type*."""
        self.cql_type = cql_type
        is_native = not cql_type.is_udt and not cql_type.is_custom
        self.code = _CODES.get(cql_type.name, 0) if is_native else constants.JSON_OTHER
        self.allows_empty = not is_empty_value(cql_type, b"")


class JsonBytes:
    """A growing buffer and its writers; values are read from `buf`."""

    def __init__(self) -> None:
        """Start with an empty buffer."""
        self.out = memoryview(bytearray(_FIRST))
        self.size = 0
        self.hex = memoryview(b"0123456789abcdef")
        # The last write time written, and its digits.
        self.written = 0
        self.digits = memoryview(bytearray(b"0" + bytes(_LONG_DIGITS)))
        self.digit_count = 1

    def attach(self, buf: View) -> None:
        """Read values from *buf* until the next attach."""
        self.buf = buf

    # ---- values ----

    def value(self, kind: JsonType, start: int, length: int) -> None:
        """Write buf[start:start+length] as *kind*; null for *length* -1, and for "no value".

        Raises:
            BadValueError: the bytes are not a value of that type.

        """
        self.reserve(2 * length + _ROOM)
        code = kind.code
        if length < 0 or (length == 0 and not kind.allows_empty):
            self.constant(b"null")
        elif code == constants.JSON_TEXT or code == constants.JSON_ASCII:  # noqa: PLR1714 (no tuple in C)
            self._text(kind, start, length)
        elif code == constants.JSON_BLOB:
            self._char(_QUOTE)
            self._char(0x30)  # 0
            self._char(0x78)  # x
            self.put_hex(self.buf, start, start + length)
            self._char(_QUOTE)
        elif code >= constants.JSON_INT8 and code <= constants.JSON_INT64:
            self.number(self._integer(kind, start, length))
        elif code == constants.JSON_UUID:
            self._uuid(kind, start, length)
        else:
            self._less_usual(kind, code, start, length)

    def _less_usual(self, kind: JsonType, code: int, start: int, length: int) -> None:
        if code == constants.JSON_BOOLEAN:
            self._check(kind, length, 1)
            self.constant(b"true" if self.buf[start] else b"false")
        elif code == constants.JSON_TIMESTAMP:
            self._timestamp(kind, start, length)
        elif code == constants.JSON_DECIMAL:
            self._decimal(kind, start, length)
        elif code == constants.JSON_DATE:
            self._date(kind, start, length)
        elif code == constants.JSON_TIME:
            self._time(kind, start, length)
        elif code == constants.JSON_DOUBLE and length == _WORD_BYTES:
            self.constant(_double(ops.take(self.buf, start, start + length)))
        else:
            self._other(kind, start, length)

    def member(self, kind: JsonType, start: int, length: int) -> None:
        """Write a value as the name of a member: non-text values as the text of their JSON."""
        begin = self.size
        self.value(kind, start, length)
        if self.out[begin] != _QUOTE:
            self.size = begin
            key = json_key(to_json(kind.cql_type, ops.take(self.buf, start, start + length)))
            self.constant(_JSON.encode(key))

    def _other(self, kind: JsonType, start: int, length: int) -> None:
        """Write a value by its object."""
        made = to_json(kind.cql_type, ops.take(self.buf, start, start + length))
        self.constant(_JSON.encode(made))

    def _check(self, kind: JsonType, length: int, wanted: int) -> None:
        if length != wanted:
            self._bad(kind, length)

    def _bad(self, kind: JsonType, length: int) -> None:
        raise BadValueError(
            f"{length} bytes are not a valid {kind.cql_type}",
            hint="give the schema that the writer had",
        )

    def _integer(self, kind: JsonType, start: int, length: int) -> int:
        """Return an integer; its size follows from its code."""
        self._check(kind, length, 1 << (kind.code - constants.JSON_INT8))
        return self._signed(start, length)

    def _signed(self, start: int, length: int) -> int:
        """Return a number of one to eight bytes."""
        number = self.buf[start]
        if number >= _SIGN:
            number -= 2 * _SIGN
        for i in range(1, length):
            number = number * 256 + self.buf[start + i]
        return number

    def _text(self, kind: JsonType, start: int, length: int) -> None:
        """Write text, which must be ASCII or UTF-8."""
        end = start + length
        at = start
        while at < end:
            byte = self.buf[at]
            if byte < _BLANK or byte > _DEL or self._is_escaped(byte):
                break
            at += 1
        self._char(_QUOTE)
        ops.copy(self.out, self.size, self.buf, start, at)
        self.size += at - start
        if at < end:
            self._escaped(kind, start, at, end)
        self._char(_QUOTE)

    def _escaped(self, kind: JsonType, start: int, at: int, end: int) -> None:
        """Write the rest of a text from *at* on."""
        try:
            ops.take(self.buf, start, end).decode(
                "ascii" if kind.code == constants.JSON_ASCII else "utf-8"
            )
        except UnicodeDecodeError:
            self._bad(kind, end - start)
        self.reserve(_GROWTH * (end - at) + _ROOM)
        while at < end:
            byte = self.buf[at]
            if self._is_escaped(byte):
                self._char(_SLASH)
                self._char(byte)
            elif byte < _BLANK:
                self.constant(_ESCAPES.get(byte) or b"\\u%04x" % byte)
            else:
                self._char(byte)
            at += 1

    def _is_escaped(self, byte: int) -> int:
        return 1 if byte == _QUOTE or byte == _SLASH else 0  # noqa: PLR1714, SIM109 (no tuple in C)

    def _uuid(self, kind: JsonType, start: int, length: int) -> None:
        self._check(kind, length, 16)
        self._char(_QUOTE)
        self.put_hex(self.buf, start, start + 4)
        at = start + 4
        for _ in range(3):
            self._char(0x2D)  # -
            self.put_hex(self.buf, at, at + 2)
            at += 2
        self._char(0x2D)
        self.put_hex(self.buf, at, start + 16)
        self._char(_QUOTE)

    def _timestamp(self, kind: JsonType, start: int, length: int) -> None:
        """Write milliseconds since 1970, outside the years 1 to 9999 as a number."""
        self._check(kind, length, 8)
        moment = self._signed(start, length)
        days = moment // _MS_PER_DAY
        if days < _DAY_FIRST or days > _DAY_LAST:
            self.number(moment)
        else:
            rest = moment - days * _MS_PER_DAY
            self._char(_QUOTE)
            self._day(days)
            self._char(_BLANK)
            self._clock(rest // 1_000)
            self._char(0x2E)  # .
            self._padded(rest % 1_000, 3)
            self._char(0x5A)  # Z
            self._char(_QUOTE)

    def _date(self, kind: JsonType, start: int, length: int) -> None:
        self._check(kind, length, 4)
        stored = ops.u32(self.buf, start)
        days = stored - _DATE_ZERO
        if days < _DAY_FIRST or days > _DAY_LAST:
            self.number(stored)
        else:
            self._char(_QUOTE)
            self._day(days)
            self._char(_QUOTE)

    def _time(self, kind: JsonType, start: int, length: int) -> None:
        self._check(kind, length, 8)
        since = self._signed(start, length)
        if since < 0 or since >= _NS_PER_DAY:
            self.number(since)
        else:
            self._char(_QUOTE)
            self._clock(since // 1_000_000_000)
            self._char(0x2E)  # .
            self._padded(since % 1_000_000_000, 9)
            self._char(_QUOTE)

    def _day(self, days: int) -> None:
        """Write a day since 1970-01-01, computed in a calendar whose years start in March."""
        since = days + _DAYS_0
        era = since // 146_097
        of_era = since - era * 146_097
        year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
        of_year = of_era - (365 * year + year // 4 - year // 100)
        month = (5 * of_year + 2) // 153
        day = of_year - (153 * month + 2) // 5 + 1
        year += era * 400
        month += 3
        if month > _MONTHS:
            month -= _MONTHS
            year += 1
        self._padded(year, 4)
        self._char(0x2D)  # -
        self._padded(month, 2)
        self._char(0x2D)
        self._padded(day, 2)

    def _clock(self, seconds: int) -> None:
        self._padded(seconds // 3_600, 2)
        self._char(0x3A)  # :
        self._padded(seconds // 60 % 60, 2)
        self._char(0x3A)
        self._padded(seconds % 60, 2)

    def _decimal(self, kind: JsonType, start: int, length: int) -> None:
        """Write a decimal as Python does: up to six zeros after the point without an exponent."""
        size = length - 4
        scale = digits = 0
        magnitude = _INT64_MIN
        if size > 0 and size <= _WORD_BYTES:
            scale = ops.i32(self.buf, start)
            magnitude = self._signed(start + 4, size)
        is_negative = magnitude < 0
        if magnitude != _INT64_MIN:
            magnitude = -magnitude if is_negative else magnitude
            digits = self._width(magnitude)
        before = digits - scale
        if not digits or scale < 0 or scale > _DIGITS_MAX or before <= _TINY:
            self._other(kind, start, length)
        else:
            self._char(_QUOTE)
            if is_negative:
                self._char(0x2D)  # -
            if before <= 0:
                self._char(0x30)  # 0
                self._char(0x2E)  # .
                self._padded(magnitude, scale)
            else:
                self._padded(magnitude, digits)
                if scale:
                    self._move(scale)
            self._char(_QUOTE)

    def _move(self, scale: int) -> None:
        """Put a point before the last *scale* digits."""
        for i in range(scale):
            self.out[self.size - i] = self.out[self.size - i - 1]
        self.out[self.size - scale] = 0x2E  # .
        self.size += 1

    # ---- primitives ----

    def number(self, number: int) -> None:
        """Write a 64-bit integer."""
        self.reserve(_ROOM)
        if number == _INT64_MIN:
            self.constant(b"-9223372036854775808")
        elif number < 0:
            self._char(0x2D)  # -
            self._padded(-number, self._width(-number))
        else:
            self._padded(number, self._width(number))

    def time(self, number: int) -> None:
        """Write a write time, usually that of the previous cell."""
        self.reserve(_ROOM)
        if number != self.written:
            begin = self.size
            self.number(number)
            self.digit_count = self.size - begin
            ops.copy(self.digits, 0, self.out, begin, self.size)
            self.written = number
        else:
            ops.copy(self.out, self.size, self.digits, 0, self.digit_count)
            self.size += self.digit_count

    def _width(self, number: int) -> int:
        """Return the number of digits of a non-negative number."""
        digits = 1
        while number >= _TEN:
            number //= 10
            digits += 1
        return digits

    def _padded(self, number: int, digits: int) -> None:
        """Write a non-negative number with *digits* digits; there is room."""
        at = self.size + digits
        while at > self.size:
            at -= 1
            self.out[at] = 0x30 + number % 10
            number //= 10
        self.size += digits

    def put_hex(self, view: View, start: int, end: int) -> None:
        """Write view[start:end] as hex digits; there is room."""
        at = self.size
        for i in range(start, end):
            self.out[at] = self.hex[view[i] >> 4]
            self.out[at + 1] = self.hex[view[i] & 15]
            at += 2
        self.size = at

    def _char(self, char: int) -> None:
        """Write one byte; there is room."""
        self.out[self.size] = char
        self.size += 1

    def constant(self, content: bytes) -> None:
        """Write *content* unchanged."""
        self.reserve(len(content) + _ROOM)
        self.size = ops.put_bytes(self.out, self.size, content)

    def again(self, start: int, end: int) -> None:
        """Write the bytes of out[start:end] again."""
        self.reserve(end - start + _ROOM)
        ops.copy(self.out, self.size, self.out, start, end)
        self.size += end - start

    def bytes_from(self, start: int) -> bytes:
        """Return the bytes written from *start* on."""
        return ops.take(self.out, start, self.size)

    def reserve(self, count: int) -> None:
        """Reserve room for *count* more bytes."""
        if self.size + count > len(self.out):
            self._grow(count)

    def _grow(self, count: int) -> None:
        grown = memoryview(bytearray(max(2 * len(self.out), self.size + count)))
        ops.copy(grown, 0, self.out, 0, self.size)
        self.out = grown


def _double(raw: bytes) -> bytes:
    number = _unpack(raw)[0]
    return _JSON.encode(number if isfinite(number) else str(_NO_NUMBERS.get(number, "NaN")))

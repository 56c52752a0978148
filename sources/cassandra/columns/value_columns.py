"""A typed column in Arrow's layout, written directly from the bytes of CQL values.

Separate from `writer`, which handles rows. One growing buffer per column, no Python object per
value except for decimals, varints, durations and addresses. For one thread.
"""

from array import array

from headrace.plugins.records.columns import ColumnKind, ColumnType
from headrace.sources.cassandra.columns.arrow_columns import ArrowColumn
from headrace.sources.cassandra.columns.column_types import column_type, power_of_ten, scaled_number
from headrace.sources.cassandra.mutation.values import (
    BadValueError,
    duration,
    inet_text,
    is_empty_value,
)
from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.native.ops import View
from headrace.sources.cassandra.schema.types import CqlType

_MS_MAX = 9_223_372_036_854_775  # More days exceed 64 bits in µs.
_MASK = 0xFFFF_FFFF_FFFF_FFFF
_DATE_SIGN = 0x80
_UUID_CHARS = 36
_NUMBER_BYTES = 16
_LENGTH_EXTRA_MAX = 3
_PREFIX_BYTES = 4
_ASCII_MAX = 0x7F
_HALF = 0xFFFF_FFFF
_WORD_BYTES = 8
_SCALE_BYTES = 4  # Before the bytes of a decimal.
_POWERS_MAX = 18  # The scale of decimal columns.

# The way to write a value.
_NOWHERE, _UNFIT, _ONE, _TWO, _FOUR, _EIGHT, _DAYS, _MOMENT, _BIT, _RAW = range(10)
_ASCII, _UTF8, _UUID, _INET, _NUMBER, _DURATION, _ITEMS, _VECTOR, _PARTS = range(10, 19)
_CODES = {
    "tinyint": _ONE,
    "smallint": _TWO,
    "int": _FOUR,
    "float": _FOUR,
    "bigint": _EIGHT,
    "time": _EIGHT,
    "double": _EIGHT,
    "date": _DAYS,
    "timestamp": _MOMENT,
    "boolean": _BIT,
    "ascii": _ASCII,
    "text": _UTF8,
    "uuid": _UUID,
    "timeuuid": _UUID,
    "inet": _INET,
    "decimal": _NUMBER,
    "varint": _NUMBER,
    "duration": _DURATION,
    "list": _ITEMS,
    "set": _ITEMS,
    "map": _ITEMS,
    "vector": _VECTOR,
    "tuple": _PARTS,
}


class ValueColumn(ArrowColumn):
    """Consecutive values of one type; `value` returns 1 for a value that does not fit."""

    def __init__(self, kind: ColumnType | None) -> None:
        """Start empty; without *kind* all values are discarded."""
        super().__init__(kind)
        if kind is not None:
            self.children = [ValueColumn(inner) for _name, inner in kind.fields]
        self.code = _NOWHERE
        self.allows_empty = False
        self.has_scale = False
        self.scale = 0 if kind is None else kind.scale
        self.powers = memoryview(array("Q", [power_of_ten(n) for n in range(_POWERS_MAX + 1)]))
        self.element_bytes = -1
        self.items = 0
        self.cql_type: CqlType | None = None
        self.order: list[ValueColumn] = []  # The child column of each part, by position.
        self.absent: list[ValueColumn] = []
        self.scratch = memoryview(bytearray(constants.COLUMN_BYTES))

    def attach(self, buf: View) -> None:
        """Read values from *buf* until the next attach."""
        self.buf = buf
        for child in self.children:
            child.attach(buf)

    def bind(self, cql_type: CqlType) -> None:
        """Accept values of *cql_type* from now on; a value that does not fit the column is null."""
        kind = self.type
        self.cql_type = cql_type
        self.allows_empty = not is_empty_value(cql_type, b"")
        if kind is None:
            return
        assert isinstance(kind, ColumnType)  # noqa: S101 (for the type checker)
        own = column_type(cql_type)
        self.code = _PARTS if cql_type.is_udt else _CODES.get(cql_type.name, _RAW)
        if own.kind is not kind.kind or own.scale != kind.scale:
            self.code = _UNFIT
        elif self.code == _NUMBER:
            self.has_scale = cql_type.name == "decimal"
        elif self.code == _DURATION:
            for child, name in zip(self.children, ("int", "int", "bigint"), strict=True):
                child.bind(CqlType(name))
        elif own.kind is ColumnKind.STRUCT:
            self._bind_fields(cql_type, own, kind)
        elif self.has_items:
            for child, inner in zip(self.children, cql_type.arguments, strict=True):
                child.bind(inner)
            fixed = cql_type.arguments[0].fixed_length
            self.element_bytes = -1 if fixed is None else fixed
            self.items = cql_type.dimension

    def _bind_fields(self, cql_type: CqlType, own: ColumnType, kind: ColumnType) -> None:
        names = [name for name, _inner in kind.fields]
        inner = [each for _name, each in cql_type.fields] or list(cql_type.arguments)
        nowhere = ValueColumn(None)
        self.order = []
        for (name, _), each in zip(own.fields, inner, strict=True):
            child = self.children[names.index(name)] if name in names else nowhere
            child.bind(each)
            self.order.append(child)
        known = {name for name, _ in own.fields}
        self.absent = [c for n, c in zip(names, self.children, strict=True) if n not in known]

    # ---- one value ----

    def takes_parts(self) -> bool:
        """Return whether the elements or fields of its values can be written one by one."""
        return self.code == _ITEMS or self.code == _PARTS  # noqa: PLR1714 (no tuple in C)

    def refuse(self) -> int:
        """Append null for a value that does not fit the column's type; returns 1."""
        self.null()
        return 1

    def value(self, start: int, length: int) -> int:
        """Append the value in buf[start:start+length], null for *length* -1 and for "no value".

        Returns 1, with null appended, for a value that does not fit the column's type.

        Raises:
            BadValueError: the bytes are not a value of the CQL type.

        """
        if length < 0 or (length == 0 and not self.allows_empty):
            return self.null()
        code = self.code
        if code == _EIGHT:
            self._sized(length, 8)
            ops.put_value(self.values, 8 * self.count, constants.AVRO_DOUBLE, self.buf, start, 8)
        elif code == _FOUR:
            self._sized(length, 4)
            ops.put_value(self.values, 4 * self.count, constants.AVRO_FLOAT, self.buf, start, 4)
        elif self.has_pieces:
            return self._piece(code, start, length)
        elif code == _MOMENT:
            self._sized(length, 8)
            moment = _signed64(ops.u64(self.buf, start))
            if not -_MS_MAX <= moment <= _MS_MAX:
                return self.refuse()
            self.words[self.count] = (moment * 1000) & _MASK
        elif code == _NUMBER and self._is_short(start, length):
            return self._scale(start, length)
        else:
            return self._rare(code, start, length)
        return self.finish()

    def _piece(self, code: int, start: int, length: int) -> int:
        """Append text or bytes."""
        if code == _UUID:
            self._sized(length, 16)
            self._reserve(_UUID_CHARS)
            # In Avro's form: preceded by a length byte.
            ops.put_value(self.scratch, 0, constants.AVRO_UUID, self.buf, start, 16)
            ops.copy(self.values, self.size, self.scratch, 1, 1 + _UUID_CHARS)
            self.size += _UUID_CHARS
            return self.finish()
        if code == _INET or code == _UNFIT:  # noqa: PLR1714, SIM109 (no tuple in C)
            return self._made(code, ops.take(self.buf, start, start + length))
        if code != _RAW:
            self._check_text(code, start, length)
        self._reserve(length)
        ops.copy(self.values, self.size, self.buf, start, start + length)
        self.size += length
        return self.finish()

    def _rare(self, code: int, start: int, length: int) -> int:
        if code == _NOWHERE:
            return 0
        if code == _ITEMS:
            return self._items(start, length)
        if code == _PARTS:
            return self._parts(start, length)
        if code == _VECTOR:
            return self._vector(start, length)
        if code == _DAYS:
            self._sized(length, 4)
            ops.put_value(self.values, 4 * self.count, constants.AVRO_FLOAT, self.buf, start, 4)
            self.values[4 * self.count + 3] ^= _DATE_SIGN
        elif code == _BIT:
            self._sized(length, 1)
            bit = 1 << (self.count & 7)
            self.values[self.count >> 3] &= 0xFF ^ bit
            if self.buf[start]:
                self.values[self.count >> 3] |= bit
        elif code == _ONE:
            self._sized(length, 1)
            self.values[self.count] = self.buf[start]
        elif code == _TWO:
            self._sized(length, 2)
            self.values[2 * self.count] = self.buf[start + 1]
            self.values[2 * self.count + 1] = self.buf[start]
        else:
            return self._made(code, ops.take(self.buf, start, start + length))
        return self.finish()

    def _made(self, code: int, raw: bytes) -> int:
        """Append a value of a rare type, made in Python."""
        try:
            if code == _INET:
                return self.constant(inet_text(raw).encode())
            if code == _DURATION:
                for child, part in zip(self.children, duration(raw), strict=True):
                    child.number(part)
                return self.finish()
            if code == _NUMBER:
                scaled = scaled_number(raw, self.scale, has_scale=self.has_scale)
                if scaled is not None:
                    self._reserve(0)
                    ops.put_bytes(self.values, _NUMBER_BYTES * self.count, scaled)
                    return self.finish()
        except ValueError:
            self._bad(len(raw))
        return self.refuse()

    def _is_short(self, start: int, length: int) -> bool:
        """Return whether a number has 64 bits and keeps all its digits after the point."""
        if not self.has_scale:
            return 0 < length <= _WORD_BYTES
        if not _SCALE_BYTES < length <= _SCALE_BYTES + _WORD_BYTES:
            return False
        return 0 <= ops.i32(self.buf, start) <= _POWERS_MAX

    def _scale(self, start: int, length: int) -> int:
        """Append such a number: 64 bits times a power of ten below 2^60, so it fits 38 digits."""
        end = start + length
        power = 1
        if self.has_scale:
            power = self.powers[self.scale - ops.i32(self.buf, start)]
            start += _SCALE_BYTES
        negative = self.buf[start] >> 7
        number = _MASK if negative else 0
        for i in range(start, end):
            number = (number << 8 | self.buf[i]) & _MASK
        if negative:
            number = (0 - number) & _MASK
        # The product of two numbers of 64 bits, by halves.
        first = (number & _HALF) * (power & _HALF)
        middle = (number >> 32) * (power & _HALF) + (first >> 32)
        cross = (number & _HALF) * (power >> 32) + (middle & _HALF)
        low = (cross << 32 | first & _HALF) & _MASK
        high = (number >> 32) * (power >> 32) + (middle >> 32) + (cross >> 32)
        if negative:
            low = (0 - low) & _MASK
            high = ((high ^ _MASK) + (1 if low == 0 else 0)) & _MASK
        self._reserve(0)
        self.words[2 * self.count] = low
        self.words[2 * self.count + 1] = high
        return self.finish()

    def _items(self, start: int, length: int) -> int:
        """Append a frozen list, set or map."""
        end = start + length
        width = len(self.children)
        if length < _PREFIX_BYTES:
            self._bad(length)
        count = ops.i32(self.buf, start)
        if count < 0 or count > (length - 4) // (4 * width):
            self._bad(length)
        at = start + 4
        unfit = 0
        for _ in range(count):
            for i in range(width):
                child = self.children[i]
                size = self._prefix(at, end, length)
                unfit |= child.value(at + 4, size)
                at += 4 + max(size, 0)
        if at != end:
            self._bad(length)
        if self.is_map:
            return self.close_map(unfit)
        self.finish()
        return unfit

    def close_map(self, unfit: int) -> int:
        """Append a map whose entries are written, or null if a key is null. Returns as `value`."""
        self._reserve(0)
        keys = self.children[0]
        begin = self.offsets[self.count]
        for i in range(begin, keys.count):
            if not keys.valid[i >> 3] >> (i & 7) & 1:
                for child in self.children:
                    child.truncate(begin)
                return self.refuse()
        self.finish()
        return unfit

    def _parts(self, start: int, length: int) -> int:
        """Append a tuple or UDT; missing parts are null."""
        end = start + length
        at = start
        unfit = 0
        for i in range(len(self.order)):
            child = self.order[i]
            if at == end:
                child.null()
                continue
            size = self._prefix(at, end, length)
            unfit |= child.value(at + 4, size)
            at += 4 + max(size, 0)
        if at != end:
            self._bad(length)
        self.close_fields()
        return unfit

    def close_fields(self) -> int:
        """Append a struct whose known parts are written; returns 0."""
        for child in self.absent:
            child.null()
        return self.finish()

    def _vector(self, start: int, length: int) -> int:
        end = start + length
        at = start
        unfit = 0
        child = self.children[0]
        for _ in range(self.items):
            size = self.element_bytes
            if size < 0:
                if at >= end:
                    self._bad(length)
                first = self.buf[at]
                extra = ops.vint_extra(first)
                size = first & (0xFF >> extra)
                if extra > _LENGTH_EXTRA_MAX or at + extra >= end:  # Larger than any value.
                    self._bad(length)
                for i in range(extra):
                    size = size << 8 | self.buf[at + 1 + i]
                at += 1 + extra
            if size > end - at:
                self._bad(length)
            unfit |= child.value(at, size)
            at += size
        if at != end:
            self._bad(length)
        self.finish()
        return unfit

    # ---- checks ----

    def _sized(self, length: int, size: int) -> int:
        if length != size:
            self._bad(length)
        if self.count == self.room:
            self._reserve(0)
        return 0

    def _prefix(self, at: int, end: int, length: int) -> int:
        """Return the 32-bit length at *at*, -1 for null; its bytes are before *end*."""
        if end - at < _PREFIX_BYTES:
            self._bad(length)
        size = ops.i32(self.buf, at)
        if size > end - at - 4:
            self._bad(length)
        return max(size, -1)

    def _check_text(self, code: int, start: int, length: int) -> int:
        seen = 0
        for i in range(start, start + length):
            seen |= self.buf[i]
        if seen > _ASCII_MAX:
            try:
                ops.take(self.buf, start, start + length).decode(
                    "ascii" if code == _ASCII else "utf-8"
                )
            except UnicodeDecodeError:
                self._bad(length)
        return 0

    def _bad(self, length: int) -> int:
        raise BadValueError(
            f"{length} bytes are not a valid {self.cql_type}",
            hint="give the schema that the writer had",
        )


def _signed64(word: int) -> int:
    # The same in C and in Python: a 64-bit pattern interpreted as signed.
    return -1 - (_MASK - word) if word >> 63 else word

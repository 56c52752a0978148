"""Encodes value bytes directly to Avro bytes in one buffer, without Python objects.

`ValuePlan` is a CQL type prepared for it. `avro_objects` states the Avro form of each type; the
bytes equal those that fastavro makes of its values. For one thread.
"""

from headrace.sources.cassandra.mutation.values import BadValueError, inet_text, is_empty_value
from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.native.ops import View
from headrace.sources.cassandra.schema.types import CqlType

_FIRST = 64 * 1024
_MASK = 0xFFFF_FFFF_FFFF_FFFF
_INET6_BYTES = 16
_INT_MAX = 0x7FFF_FFFF

_CODES = {
    "ascii": constants.AVRO_ASCII,
    "text": constants.AVRO_TEXT,
    "blob": constants.AVRO_BYTES,
    "varint": constants.AVRO_BYTES,
    "empty": constants.AVRO_BYTES,
    "boolean": constants.AVRO_BOOLEAN,
    "tinyint": constants.AVRO_INT8,
    "smallint": constants.AVRO_INT16,
    "int": constants.AVRO_INT32,
    "bigint": constants.AVRO_INT64,
    "time": constants.AVRO_INT64,
    "timestamp": constants.AVRO_INT64,
    "counter": constants.AVRO_COUNTER,
    "float": constants.AVRO_FLOAT,
    "double": constants.AVRO_DOUBLE,
    "date": constants.AVRO_DATE,
    "uuid": constants.AVRO_UUID,
    "timeuuid": constants.AVRO_UUID,
    "inet": constants.AVRO_INET,
    "decimal": constants.AVRO_DECIMAL,
    "duration": constants.AVRO_DURATION,
    "list": constants.AVRO_ARRAY,
    "set": constants.AVRO_ARRAY,
    "map": constants.AVRO_MAP,
    "tuple": constants.AVRO_RECORD,
    "vector": constants.AVRO_VECTOR,
}


class ValuePlan:
    """One type: how to write its values, and the plans of the types inside it."""

    def __init__(self, cql_type: CqlType) -> None:
        """Prepare *cql_type* and the types inside it."""
        self.cql_type = cql_type
        self.code = constants.AVRO_RECORD if cql_type.is_udt else constants.AVRO_BYTES
        if not cql_type.is_udt:
            self.code = _CODES.get(cql_type.name, constants.AVRO_BYTES)
        self.allows_empty = not is_empty_value(cql_type, b"")
        inner = [field for _, field in cql_type.fields] or list(cql_type.arguments)
        self.inner = [ValuePlan(one) for one in inner]
        self.count = cql_type.dimension if cql_type.name == "vector" else len(inner)
        fixed = inner[0].fixed_length if cql_type.name == "vector" else None
        self.element_bytes = -1 if fixed is None else fixed


class AvroBytes:
    """A growing buffer and the encoders that write to it; values are read from `buf`."""

    def __init__(self, room: int = _FIRST) -> None:
        """Start with an empty buffer for *room* bytes."""
        self.out = memoryview(bytearray(room))
        self.size = 0

    def attach(self, buf: View) -> None:
        """Read values from *buf* until the next attach."""
        self.buf = buf

    def bytes_from(self, start: int) -> bytes:
        """Return the bytes written from *start* on."""
        return ops.take(self.out, start, self.size)

    # ---- values ----

    def optional(self, plan: ValuePlan, start: int, length: int) -> None:
        """Write a union of null and a value; null for *length* -1, and for "no value"."""
        if length < 0 or (length == 0 and not plan.allows_empty):
            self.byte(0)
        else:
            self.byte(2)
            self.value(plan, start, length)

    def required(self, plan: ValuePlan, start: int, length: int) -> None:
        """Write a value that cannot be null."""
        if length < 0 or (length == 0 and not plan.allows_empty):
            self._bad(plan, length)
        self.value(plan, start, length)

    def value(self, plan: ValuePlan, start: int, length: int) -> None:
        """Write buf[start:start+length] as the type of *plan*.

        Raises:
            BadValueError: the bytes are not a value of that type.

        """
        self.reserve(length + constants.COLUMN_BYTES)
        at = ops.put_value(self.out, self.size, plan.code, self.buf, start, length)
        if at >= 0:
            self.size = at
        else:
            self._composed(plan, plan.code, start, length)

    def _composed(self, plan: ValuePlan, code: int, start: int, length: int) -> None:
        if code == constants.AVRO_TEXT:
            self._check_text(plan, ops.take(self.buf, start, start + length))
            self.long(length)
            self.raw(self.buf, start, start + length)
        elif code == constants.AVRO_INET:
            self._inet(plan, start, length)
        elif code == constants.AVRO_DURATION:
            self._duration(plan, start, length)
        elif code == constants.AVRO_COUNTER:
            self._counter(plan, start, length)
        elif code == constants.AVRO_VECTOR:
            self._vector(plan, start, length)
        elif code == constants.AVRO_RECORD:
            self._record(plan, start, length)
        elif code == constants.AVRO_ARRAY or code == constants.AVRO_MAP:  # noqa: PLR1714 (no tuple in C)
            self._collection(plan, start, length, 2 if code == constants.AVRO_MAP else 1)
        else:
            self._bad(plan, length)

    def _check_text(self, plan: ValuePlan, raw: bytes) -> None:
        try:
            raw.decode()
        except UnicodeDecodeError:
            self._bad(plan, len(raw))

    def _inet(self, plan: ValuePlan, start: int, length: int) -> None:
        if length not in {4, _INET6_BYTES}:
            self._bad(plan, length)
        self.text_constant(inet_text(ops.take(self.buf, start, start + length)).encode())

    def _duration(self, plan: ValuePlan, start: int, length: int) -> None:
        end = start + length
        at = start
        for part in range(3):  # Months, days, nanoseconds; Avro's zigzag is the same as theirs.
            if at >= end:
                self._bad(plan, length)
            coded = self._vint(at, end)
            at = self._after_vint(at)
            if at > end:
                self._bad(plan, length)
            value = _unzigzag(coded)
            if part < 2 and not -_INT_MAX <= value <= _INT_MAX:
                self._bad(plan, length)
            self.long(value)
        if at != end:
            self._bad(plan, length)

    def _counter(self, plan: ValuePlan, start: int, length: int) -> None:
        if length < 2:
            self._bad(plan, length)
        headers = self.buf[start] << 8 | self.buf[start + 1]
        if headers >= 0x8000:
            headers = 0
        at = start + 2 + 2 * headers
        if at > start + length or (start + length - at) & 31:
            self._bad(plan, length)
        total = 0
        while at < start + length:
            total = (total + ops.u64(self.buf, at + 24)) & _MASK
            at += 32
        self.long(_signed64(total))

    def _vector(self, plan: ValuePlan, start: int, length: int) -> None:
        end = start + length
        at = start
        inner = plan.inner[0]
        if plan.count:
            self.long(plan.count)
        for _ in range(plan.count):
            size = plan.element_bytes
            if size < 0:
                if at >= end:
                    self._bad(plan, length)
                size = self._vint(at, end)
                at = self._after_vint(at)
            if size < 0 or at > end or size > end - at:
                self._bad(plan, length)
            self.optional(inner, at, size)
            at += size
        if at != end:
            self._bad(plan, length)
        self.byte(0)

    def _record(self, plan: ValuePlan, start: int, length: int) -> None:
        end = start + length
        at = start
        for inner in plan.inner:
            if at == end:
                self.byte(0)  # A short value: missing fields are null.
                continue
            size = self._prefix(plan, at, end, length)
            at += 4
            self.optional(inner, at, size)
            if size > 0:
                at += size
        if at != end:
            self._bad(plan, length)

    def _collection(self, plan: ValuePlan, start: int, length: int, width: int) -> None:
        end = start + length
        if length < 4:
            self._bad(plan, length)
        count = ops.i32(self.buf, start)
        if count < 0 or count > (length - 4) // (4 * width):
            self._bad(plan, length)
        at = start + 4
        if count:
            self.long(count)
        for i in range(count * width):
            inner = plan.inner[i & (width - 1)]
            size = self._prefix(plan, at, end, length)
            at += 4
            if width == 2 and not i & 1:
                self.required(inner, at, size)
            else:
                self.optional(inner, at, size)
            if size > 0:
                at += size
        if at != end:
            self._bad(plan, length)
        self.byte(0)

    def _prefix(self, plan: ValuePlan, at: int, end: int, length: int) -> int:
        """Return the 32-bit length at *at*, -1 for null; its bytes are before *end*."""
        if end - at < 4:
            self._bad(plan, length)
        size = ops.i32(self.buf, at)
        if size > end - at - 4:
            self._bad(plan, length)
        return max(size, -1)

    def _vint(self, at: int, end: int) -> int:
        first = self.buf[at]
        extra = ops.vint_extra(first)
        value = first & (0xFF >> extra)
        for i in range(extra):
            if at + 1 + i < end:
                value = (value << 8 | self.buf[at + 1 + i]) & _MASK
        return value

    def _after_vint(self, at: int) -> int:
        return at + 1 + ops.vint_extra(self.buf[at])

    # ---- primitives ----

    def long(self, number: int) -> None:
        """Write an int or long: zigzag, then seven bits per byte, the lowest first."""
        self.reserve(10)
        self.size = ops.put_long(self.out, self.size, number)

    def byte(self, value: int) -> None:
        """Write one byte: a boolean, a small union index, the end of an array."""
        self.reserve(1)
        self.out[self.size] = value
        self.size += 1

    def raw(self, view: View, start: int, end: int) -> None:
        """Write view[start:end] unchanged."""
        self.reserve(end - start)
        ops.copy(self.out, self.size, view, start, end)
        self.size += end - start

    def constant(self, raw: bytes) -> None:
        """Write *raw* unchanged."""
        self.reserve(len(raw))
        self.size = ops.put_bytes(self.out, self.size, raw)

    def text_constant(self, raw: bytes) -> None:
        """Write *raw* as a string."""
        self.long(len(raw))
        self.constant(raw)

    def reserve(self, count: int) -> None:
        """Reserve room for *count* more bytes; callers may then write to `out` themselves."""
        if self.size + count > len(self.out):
            self._grow(count)

    def _grow(self, count: int) -> None:
        grown = memoryview(bytearray(max(2 * len(self.out), self.size + count)))
        ops.copy(grown, 0, self.out, 0, self.size)
        self.out = grown

    def _bad(self, plan: ValuePlan, length: int) -> None:
        raise BadValueError(
            f"{length} bytes are not a valid {plan.cql_type}",
            hint="give the schema that the writer had",
        )


def _unzigzag(coded: int) -> int:
    return (coded >> 1) ^ -(coded & 1)


def _signed64(word: int) -> int:
    # The same in C and in Python: a 64-bit pattern interpreted as signed.
    return -1 - (_MASK - word) if word >> 63 else word

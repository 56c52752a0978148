"""Decodes the bytes of a CQL value to Python or another form; types nest to any depth.

`decode` walks a value by its type and lets a `Form` make the results, so that every form (Python
here, JSON in `json_values`, Avro in `encode`) reads the same bytes in the same way. Bytes that do
not fit their type raise BadValueError; no message contains a value.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from headrace.plugins.errors import BadRecordError
from headrace.sources.cassandra.schema.types import CqlType

_LENGTH: Final = struct.Struct(">i")
DATE_ZERO: Final = 1 << 31  # The stored number of 1970-01-01.
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_COUNTER_SHARD_BYTES: Final = 32
_INT_MAX: Final = 0x7FFF_FFFF
_OPAQUE_NAMES: Final = frozenset({"ascii", "blob", "text", "tuple"})
# Any result of a form: Python values, JSON values, or values for Avro.
Value = object


class BadValueError(BadRecordError):
    """Bytes of a value that do not fit its type: the schema differs from the writer's."""

    code = "bad_value"


class Duration(NamedTuple):
    """A CQL duration; the three parts have the same sign."""

    months: int
    days: int
    nanoseconds: int

    def __str__(self) -> str:
        """Return the duration in CQL form: `1y2mo3d4h5m6s7ms8us9ns`, zero as `0ns`."""
        sign = "-" if min(self) < 0 else ""
        years, months = divmod(abs(self.months), 12)
        parts = [(years, "y"), (months, "mo"), (abs(self.days), "d")]
        rest = abs(self.nanoseconds)
        for unit, unit_ns in _DURATION_UNITS:
            count, rest = divmod(rest, unit_ns)
            parts.append((count, unit))
        return sign + ("".join(f"{count}{unit}" for count, unit in parts if count) or "0ns")


_DURATION_UNITS: Final = (
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
)


class Form(msgspec.Struct, frozen=True):
    """The functions with which one form makes its results.

    `natives` has every native type's name; `opaque` gets a custom type's bytes. `sequence` gets the
    elements of a list, set or vector, `mapping` the pairs of a map, `product` the fields of a tuple
    or UDT, None for those that are null or missing.
    """

    natives: Mapping[str, Callable[[bytes], Value]]
    opaque: Callable[[bytes], Value]
    sequence: Callable[[CqlType, list[Value]], Value]
    mapping: Callable[[CqlType, list[tuple[Value, Value]]], Value]
    product: Callable[[CqlType, list[Value]], Value]


def is_empty_value(cql_type: CqlType, raw: bytes) -> bool:
    """Return whether *raw* is the empty value that means "no value" for its type.

    Always false for text, ascii, blob, custom types, tuples and UDTs: no bytes are a value of
    these.
    """
    opaque = cql_type.name in _OPAQUE_NAMES or cql_type.is_udt or cql_type.is_custom
    return not raw and not opaque


def decode(cql_type: CqlType, raw: bytes, form: Form) -> Value:
    """Return the value in *raw*; None for an empty value that means "no value".

    Raises:
        BadValueError: *raw* is not a value of *cql_type*.

    """
    if is_empty_value(cql_type, raw):
        return None
    name = cql_type.name
    if cql_type.is_udt or name == "tuple":
        return form.product(cql_type, list(_fields(cql_type, raw, form)))
    if name in ("list", "set"):
        (element,) = cql_type.arguments
        elements = _collection(cql_type, raw, 1)
        return form.sequence(cql_type, [_element(element, item, form) for item in elements])
    if name == "map":
        key, value = cql_type.arguments
        parts = _collection(cql_type, raw, 2)
        pairs = [(_element(key, k, form), _element(value, next(parts), form)) for k in parts]
        return form.mapping(cql_type, pairs)
    if name == "vector":
        return form.sequence(cql_type, list(_vector(cql_type, raw, form)))
    make = form.natives.get(name, form.opaque)
    try:
        return make(raw)
    except (ValueError, struct.error) as error:
        raise _bad(cql_type, raw) from error


def to_python(cql_type: CqlType, raw: bytes) -> Value:
    """Return the value as plain Python.

    Lists and vectors are lists, sets frozensets, maps and UDTs dicts, tuples tuples; values that
    must be hashable, in a set or as a key, are made of tuples. Dates and timestamps beyond Python's
    years are ints (days, ms since 1970), times ints (ns), a duration a Duration, a counter its
    total.
    """
    return decode(cql_type, raw, PYTHON)


def partition_key_parts(types: Sequence[CqlType], raw: bytes) -> list[bytes]:
    """Divide partition key bytes into one value per key column.

    Raises:
        BadValueError: the parts of a composite key do not fit.

    """
    if len(types) == 1:
        return [raw]
    parts = []
    at = 0
    for _type in types:  # Per component: u16 length, bytes, 0 (docs/commit-log.md 4.1).
        end = at + 2 + int.from_bytes(raw[at : at + 2], "big")
        if end >= len(raw):
            break
        parts.append(raw[at + 2 : end])
        at = end + 1
    if len(parts) != len(types) or at != len(raw):
        raise BadValueError(f"a partition key of {len(raw)} bytes has not {len(types)} parts")
    return parts


# --- walking


def _bad(cql_type: CqlType, raw: bytes) -> BadValueError:
    hint = "give the schema that the writer had"
    return BadValueError(f"{len(raw)} bytes are not a valid {cql_type}", hint=hint)


def _element(cql_type: CqlType, raw: bytes | None, form: Form) -> Value:
    return None if raw is None else decode(cql_type, raw, form)


def _fields(cql_type: CqlType, raw: bytes, form: Form) -> Iterator[Value]:
    """Yield every field; missing ones at the end of a value are null (docs/commit-log.md 9.2)."""
    types = [inner for _name, inner in cql_type.fields] or cql_type.arguments
    at = 0
    for inner in types:
        if at == len(raw):
            yield None
            continue
        item, at = _prefixed(cql_type, raw, at)
        yield _element(inner, item, form)
    if at != len(raw):
        raise _bad(cql_type, raw)


def _collection(cql_type: CqlType, raw: bytes, width: int) -> Iterator[bytes | None]:
    if len(raw) < _LENGTH.size:
        raise _bad(cql_type, raw)
    (count,) = _LENGTH.unpack_from(raw)
    at = _LENGTH.size
    if not 0 <= count * width <= (len(raw) - at) // _LENGTH.size:
        raise _bad(cql_type, raw)
    for _index in range(count * width):
        item, at = _prefixed(cql_type, raw, at)
        yield item
    if at != len(raw):
        raise _bad(cql_type, raw)


def _prefixed(cql_type: CqlType, raw: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the bytes after the length at *at*, None for a negative length, and their end."""
    start = at + _LENGTH.size
    if start > len(raw):
        raise _bad(cql_type, raw)
    (length,) = _LENGTH.unpack_from(raw, at)
    if length < 0:
        return None, start
    if start + length > len(raw):
        raise _bad(cql_type, raw)
    return raw[start : start + length], start + length


def _vector(cql_type: CqlType, raw: bytes, form: Form) -> Iterator[Value]:
    (element,) = cql_type.arguments
    width = element.fixed_length
    at = 0
    for _index in range(cql_type.dimension):
        length = width
        if length is None:
            length, at = _uvint(cql_type, raw, at)
        if at + length > len(raw):
            raise _bad(cql_type, raw)
        yield decode(element, raw[at : at + length], form)
        at += length
    if at != len(raw):
        raise _bad(cql_type, raw)


def _uvint(cql_type: CqlType, raw: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned vint at *at* and its end (docs/commit-log.md 6)."""
    if at >= len(raw):
        raise _bad(cql_type, raw)
    first = raw[at]
    extra = 8 - (first ^ 0xFF).bit_length()
    end = at + 1 + extra
    if end > len(raw):
        raise _bad(cql_type, raw)
    high = (first & (0xFF >> extra)) << (8 * extra)
    return high | int.from_bytes(raw[at + 1 : end], "big"), end


# --- native types: each takes a value's bytes and raises ValueError or struct.error if invalid


_DURATION_TYPE: Final = CqlType("duration")


def fixed(code: str) -> Callable[[bytes], int]:
    """Return the reader of an integer of struct's format *code*."""
    unpack = struct.Struct(code).unpack
    return lambda raw: int(unpack(raw)[0])


def real(code: str) -> Callable[[bytes], float]:
    """Return the reader of a real number of struct's format *code*."""
    unpack = struct.Struct(code).unpack
    return lambda raw: float(unpack(raw)[0])


long: Final = fixed(">q")


def boolean(raw: bytes) -> bool:
    """Any byte but 0 is true."""
    if len(raw) != 1:
        raise ValueError
    return raw != b"\0"


def varint(raw: bytes) -> int:
    """Two's complement, of any length."""
    return int.from_bytes(raw, "big", signed=True)


def decimal_parts(raw: bytes) -> tuple[int, bytes]:
    """Return the scale, and the bytes of the unscaled varint (at least one)."""
    if len(raw) <= _LENGTH.size:
        raise ValueError
    (scale,) = _LENGTH.unpack_from(raw)
    return int(scale), raw[_LENGTH.size :]


def decimal(raw: bytes) -> Decimal:
    """Exact in any decimal context."""
    scale, unscaled = decimal_parts(raw)
    # Exact from an int; arithmetic, even scaleb, would round.
    sign, parts, _exponent = Decimal(varint(unscaled)).as_tuple()
    return Decimal((sign, parts, -scale))


def duration(raw: bytes) -> Duration:
    """Three zigzag vints."""
    parts = []
    at = 0
    for _part in Duration._fields:
        coded, at = _uvint(_DURATION_TYPE, raw, at)
        parts.append((coded >> 1) ^ -(coded & 1))
    if at != len(raw) or max(map(abs, parts[:2])) > _INT_MAX:
        raise ValueError
    return Duration(*parts)


def counter_total(raw: bytes) -> int:
    """Return the sum of a counter context's shards (docs/commit-log.md 9.3), as 64 bits."""
    (header_count,) = struct.unpack_from(">h", raw)
    shards = raw[2 + 2 * max(header_count, 0) :]
    if len(raw) < 2 + 2 * header_count or len(shards) % _COUNTER_SHARD_BYTES:
        raise ValueError
    total: int = sum(count for _shard, _clock, count in struct.iter_unpack(">16sqq", shards))
    return (total + (1 << 63)) % (1 << 64) - (1 << 63)


def inet_text(raw: bytes) -> str:
    """Return an address as text; IPv6 as in RFC 5952, IPv4 mapped to IPv6 with dots."""
    address = ip_address(raw)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return f"::ffff:{mapped}" if mapped else str(address)


def _inet(raw: bytes) -> IPv4Address | IPv6Address:
    return ip_address(raw)


def uuid(raw: bytes) -> UUID:
    """Sixteen bytes, most significant first."""
    return UUID(bytes=raw)


def date_days(raw: bytes) -> int:
    """Return days since 1970-01-01."""
    return int.from_bytes(_sized(raw, 4), "big") - DATE_ZERO


def _sized(raw: bytes, size: int) -> bytes:
    if len(raw) != size:
        raise ValueError
    return raw


def day(raw: bytes) -> date | int:
    """Return a date, or days since 1970-01-01 beyond Python's years."""
    days = date_days(raw)
    ordinal = days + _EPOCH_ORDINAL
    return date.fromordinal(ordinal) if 0 < ordinal <= date.max.toordinal() else days


def moment(raw: bytes) -> datetime | int:
    """Return a timestamp in UTC, or ms since 1970 beyond Python's years."""
    milliseconds = long(raw)
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return milliseconds


INTEGERS: Final[Mapping[str, Callable[[bytes], int]]] = {
    "bigint": long,
    "counter": counter_total,
    "int": fixed(">i"),
    "smallint": fixed(">h"),
    "time": long,
    "tinyint": fixed(">b"),
}


def ascii_text(raw: bytes) -> str:
    """Seven-bit characters only."""
    return raw.decode("ascii")


def text(raw: bytes) -> str:
    """UTF-8, without encoded surrogates."""
    return raw.decode()


def empty(raw: bytes) -> None:
    """No bytes, the only value of the type `empty`."""
    _sized(raw, 0)


# --- Python values


def _hashable(value: Value) -> Value:
    """Return *value* made of tuples, as required in sets and keys."""
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return tuple((key, _hashable(inner)) for key, inner in value.items())
    if isinstance(value, tuple) and not isinstance(value, Duration):
        return tuple(map(_hashable, value))
    return value


def _python_sequence(cql_type: CqlType, items: list[Value]) -> Value:
    return frozenset(map(_hashable, items)) if cql_type.name == "set" else items


def _python_mapping(_type: CqlType, pairs: list[tuple[Value, Value]]) -> Value:
    return {_hashable(key): value for key, value in pairs}


def _python_product(cql_type: CqlType, items: list[Value]) -> Value:
    if cql_type.is_udt:
        return {name: item for (name, _type), item in zip(cql_type.fields, items, strict=True)}
    return tuple(items)


PYTHON: Final = Form(
    natives={
        **INTEGERS,
        "ascii": ascii_text,
        "blob": bytes,
        "boolean": boolean,
        "date": day,
        "decimal": decimal,
        "double": real(">d"),
        "duration": duration,
        "empty": empty,
        "float": real(">f"),
        "inet": _inet,
        "text": text,
        "timestamp": moment,
        "timeuuid": uuid,
        "uuid": uuid,
        "varint": varint,
    },
    opaque=bytes,
    sequence=_python_sequence,
    mapping=_python_mapping,
    product=_python_product,
)

"""CQL values as JSON: the form in change JSON and in the console.

It is that of CQL's SELECT JSON, with these differences, which keep every value: NaN and the
infinities are strings, a decimal is text; a date or timestamp outside the years 1 to 9999, or a
time outside a day, is the stored number; a zero duration is "0ns"; IPv6 is compressed (RFC 5952); a
varint or decimal beyond DIGIT_BYTES_MAX is the hex of its bytes, like a blob; names of UDT fields
are never quoted.
"""

import json
import math
import struct
from typing import Final

from headrace.sources.cassandra.mutation.values import (
    DATE_ZERO,
    INTEGERS,
    Form,
    Value,
    ascii_text,
    boolean,
    day,
    decimal,
    decode,
    duration,
    empty,
    inet_text,
    long,
    moment,
    real,
    text,
    uuid,
    varint,
)
from headrace.sources.cassandra.schema.types import CqlType

DIGIT_BYTES_MAX: Final = 1_700  # Python converts at most 4,300 digits to text.
NS_PER_DAY: Final = 86_400_000_000_000
_SHORTEST_FLOAT_DIGITS: Final = range(1, 10)


def to_json(cql_type: CqlType, raw: bytes) -> Value:
    """Return the value in its JSON form; None for an empty value that means "no value".

    Raises:
        BadValueError: *raw* is not a value of *cql_type*.

    """
    return decode(cql_type, raw, JSON)


def _hex(raw: bytes) -> str:
    return f"0x{raw.hex()}"


def _varint(raw: bytes) -> Value:
    return varint(raw) if len(raw) <= DIGIT_BYTES_MAX else _hex(raw)


def _decimal(raw: bytes) -> Value:
    return str(decimal(raw)) if len(raw) <= DIGIT_BYTES_MAX else _hex(raw)


def _real(value: float) -> Value:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _double(raw: bytes) -> Value:
    return _real(_stored_double(raw))


def _float(raw: bytes) -> Value:
    """Return the number with the fewest digits that is this float, as CQL prints it."""
    value = _stored_float(raw)
    if math.isfinite(value):
        for digits in _SHORTEST_FLOAT_DIGITS:
            shorter = float(f"{value:.{digits}g}")
            if _single(shorter) == value:
                return shorter
    return _real(value)


_stored_double: Final = real(">d")
_stored_float: Final = real(">f")


def _single(value: float) -> float:
    try:
        return _stored_float(struct.pack(">f", value))
    except OverflowError:
        return math.inf


def _date(raw: bytes) -> Value:
    value = day(raw)
    return value + DATE_ZERO if isinstance(value, int) else value.isoformat()


def _time(raw: bytes) -> Value:
    nanoseconds = long(raw)
    if not 0 <= nanoseconds < NS_PER_DAY:
        return nanoseconds
    seconds, nanoseconds = divmod(nanoseconds, 1_000_000_000)
    minutes, seconds = divmod(seconds, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}.{nanoseconds:09}"


def _timestamp(raw: bytes) -> Value:
    value = moment(raw)
    if isinstance(value, int):
        return value
    return value.replace(tzinfo=None).isoformat(" ", "milliseconds") + "Z"


def _duration(raw: bytes) -> Value:
    return str(duration(raw))


def _uuid_text(raw: bytes) -> Value:
    return str(uuid(raw))


def _sequence(_type: CqlType, items: list[Value]) -> Value:
    return items


def _mapping(_type: CqlType, pairs: list[tuple[Value, Value]]) -> Value:
    return {json_key(key): value for key, value in pairs}


def json_key(key: Value) -> str:
    """Return a map's key as a JSON member name: text unchanged, other types as JSON text."""
    return key if isinstance(key, str) else json.dumps(key, ensure_ascii=False)


def _product(cql_type: CqlType, items: list[Value]) -> Value:
    if cql_type.is_udt:
        return {name: item for (name, _type), item in zip(cql_type.fields, items, strict=True)}
    return items


JSON: Final = Form(
    natives={
        **INTEGERS,
        "ascii": ascii_text,
        "blob": _hex,
        "boolean": boolean,
        "date": _date,
        "decimal": _decimal,
        "double": _double,
        "duration": _duration,
        "empty": empty,
        "float": _float,
        "inet": inet_text,
        "text": text,
        "time": _time,
        "timestamp": _timestamp,
        "timeuuid": _uuid_text,
        "uuid": _uuid_text,
        "varint": _varint,
    },
    opaque=_hex,
    sequence=_sequence,
    mapping=_mapping,
    product=_product,
)

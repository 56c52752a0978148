"""Converts values of the envelope `cep44` to JSON, as CQL's SELECT JSON and change JSON do.

A blob is `0x…`, a decimal is text, a map and a UDT are objects, NaN and the infinities are strings.
Values without such a form are written as stored: a time outside a day, a date or a timestamp
outside the years 1 to 9999, and the bytes of a number too long to print.
"""

import datetime as dt
import json
import math
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from headrace.connector.serde.avro_types import AvroType, without_null

Value = Any  # Any: the value of an Avro type.

DIGIT_BYTES_MAX: Final = 1_700  # Python converts at most 4,300 digits to text.
NS_PER_DAY: Final = 86_400_000_000_000
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 (UTC, without saying so)
_MS_PER_DAY: Final = 86_400_000
_FIRST_MS: Final = -62_135_596_800_000  # The limits of Python's dates.
_LAST_MS: Final = 253_402_300_799_999
_DATE_ZERO: Final = 1 << 31  # The day 1970-01-01 in Cassandra's numbers.
_SAME: Final = frozenset(("boolean", "int", "long", "string"))
_SHORTEST_DIGITS: Final = range(1, 10)


def json_value(avro_type: AvroType, value: Value) -> Value:
    """Return a value of an opened type (`avro_types.opened`) as JSON."""
    if value is None:
        return None
    kind = without_null(avro_type)
    if isinstance(kind, str):
        return _plain(kind, value)
    form = _FORMS.get(kind.get("cqlType") or kind["type"])
    return _plain(kind["type"], value) if form is None else form(kind, value)


def is_same(avro_type: AvroType) -> bool:
    """Return whether `json_value` returns every value of an opened type unchanged."""
    kind = without_null(avro_type)
    if isinstance(kind, str):
        return kind in _SAME
    return kind["type"] in _SAME and kind.get("cqlType") not in _FORMS


def json_key(avro_type: AvroType, value: Value) -> str:
    """Return the key of a map as the name of an object member."""
    made = json_value(avro_type, value)
    return made if isinstance(made, str) else json.dumps(made, ensure_ascii=False)


def _plain(kind: str, value: Value) -> Value:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, float):
        if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        return _shortest(value) if kind == "float" else value
    return value


def _shortest(value: float) -> float:
    """Return the shortest decimal number that is equal to this 32-bit float."""
    stored = struct.pack(">f", value)
    shorter = (float(f"{value:.{digits}g}") for digits in _SHORTEST_DIGITS)
    return next((each for each in shorter if _packed(each) == stored), value)


def _packed(value: float) -> bytes:
    try:
        return struct.pack(">f", value)
    except OverflowError:
        return b""


def _array(kind: AvroType, value: list[Value]) -> Value:
    """Return a frozen collection: the items of a map are records, others are unions."""
    items = kind["items"]
    if isinstance(items, Mapping) and items["type"] == "record":
        key, content = (field["type"] for field in items["fields"])
        return {json_key(key, each["key"]): json_value(content, each["value"]) for each in value}
    return [json_value(items, each) for each in value]


def _record(kind: Mapping[str, Any], value: Mapping[str, Value]) -> Value:
    names = [field["name"] for field in kind["fields"]]
    if names == ["scale", "unscaled"]:
        return _decimal(**value)
    if names == ["months", "days", "nanoseconds"]:
        return _duration(**value)
    types = {field.get("cqlName", field["name"]): field for field in kind["fields"]}
    made = {cql: json_value(field["type"], value[field["name"]]) for cql, field in types.items()}
    is_tuple = names == [f"field_{number}" for number in range(len(names))]
    return list(made.values()) if is_tuple else made


def _varint(_kind: AvroType, value: bytes) -> int | str:
    if len(value) > DIGIT_BYTES_MAX:
        return f"0x{value.hex()}"
    return int.from_bytes(value, "big", signed=True)


def _decimal(scale: int, unscaled: bytes) -> str:
    if len(unscaled) + 4 > DIGIT_BYTES_MAX:
        return f"0x{scale.to_bytes(4, 'big', signed=True).hex()}{unscaled.hex()}"
    number = int.from_bytes(unscaled, "big", signed=True)
    digits = str(abs(number))
    if 0 < scale < len(digits):  # The usual case.
        return f"{'-' if number < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"
    return str(Decimal((int(number < 0), tuple(map(int, digits)), -scale)))


def _timestamp(_kind: AvroType, ms: int) -> str | int:
    if not _FIRST_MS <= ms <= _LAST_MS:
        return ms
    return (_EPOCH + dt.timedelta(milliseconds=ms)).isoformat(" ", "milliseconds") + "Z"


def _date(_kind: AvroType, days: int) -> str | int:
    if not _FIRST_MS <= days * _MS_PER_DAY <= _LAST_MS:
        return days + _DATE_ZERO
    return (_EPOCH + dt.timedelta(days=days)).date().isoformat()


def _time(_kind: AvroType, nanoseconds: int) -> str | int:
    if not 0 <= nanoseconds < NS_PER_DAY:
        return nanoseconds
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:09}"


def _duration(months: int, days: int, nanoseconds: int) -> str:
    parts = []
    for number, units in ((months, _MONTHS), (days, _DAYS), (nanoseconds, _NANOSECONDS)):
        left = abs(number)
        for unit, size in units:
            count, left = divmod(left, size)
            parts += [f"{count}{unit}"] if count else []
    sign = "-" if min(months, days, nanoseconds) < 0 else ""
    return sign + "".join(parts) if parts else "0ns"


_MONTHS: Final = (("y", 12), ("mo", 1))
_DAYS: Final = (("d", 1),)
_NANOSECONDS: Final = (
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
)
_FORMS: Final[Mapping[str, Callable[[AvroType, Value], Value]]] = {
    "array": _array,
    "date": _date,
    "record": _record,
    "time": _time,
    "timestamp": _timestamp,
    "varint": _varint,
}

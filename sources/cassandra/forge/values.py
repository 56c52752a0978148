"""CQL values as bytes (section 9 of docs/commit-log.md), from JSON or YAML values.

The forms are those of docs/change-json.md, and YAML's plain dates and numbers.
"""

import ipaddress
import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from headrace.sources.cassandra.errors import ScriptError
from headrace.sources.cassandra.mutation.vints import signed_vint, sized
from headrace.sources.cassandra.schema.types import CqlType

FIXED: Final = {
    "empty": 0,
    "boolean": 1,
    "int": 4,
    "float": 4,
    "bigint": 8,
    "double": 8,
    "timestamp": 8,
    "uuid": 16,
    "timeuuid": 16,
}
_TEXTS: Final = frozenset({"text", "ascii"})
_DATE_ZERO: Final = 1 << 31
_EPOCH: Final = date(1970, 1, 1)
_NS: Final = {"h": 3_600_000_000_000, "m": 60_000_000_000, "s": 1_000_000_000}
_UNITS: Final = {**_NS, "ms": 1_000_000, "us": 1_000, "µs": 1_000, "ns": 1}
_DURATION: Final = re.compile(r"(\d+)(y|mo|w|d|h|ms|us|µs|ns|m|s)")
_TIME: Final = re.compile(r"(\d\d?):(\d\d):(\d\d)(?:\.(\d{1,9}))?")

# Any: a JSON or YAML value.
Given = Any


def fixed_length(cql_type: CqlType) -> int | None:
    """Return the length of a type whose values have no length prefix; None for others (5.5)."""
    if cql_type.is_udt:
        return None
    if cql_type.name == "vector":
        element = fixed_length(cql_type.arguments[0])
        return None if element is None else element * cql_type.dimension
    return FIXED.get(cql_type.name)


def encode(cql_type: CqlType, given: Given) -> bytes:
    """Return the bytes of a value.

    Raises:
        ScriptError: *given* is not a value of the type.

    """
    try:
        return _encode(cql_type, given)
    except (ValueError, TypeError, KeyError, OverflowError, ArithmeticError, struct.error) as error:
        raise ScriptError(f"expected a value of {cql_type}, found {given!r}") from error


def _encode(cql_type: CqlType, given: Given) -> bytes:
    if cql_type.is_udt:
        fields = [given.get(name) for name, _ in cql_type.fields]
        if given.keys() - {name for name, _ in cql_type.fields}:
            raise ValueError(given)
        return _product([inner for _, inner in cql_type.fields], fields)
    if cql_type.is_custom:
        return bytes.fromhex(given.removeprefix("0x"))
    if cql_type.arguments or cql_type.name == "tuple":
        return _composed(cql_type, given)
    return _NATIVES[cql_type.name](given)


def _composed(cql_type: CqlType, given: Given) -> bytes:
    if cql_type.name == "tuple":
        if len(given) > len(cql_type.arguments):
            raise ValueError(given)
        return _product(cql_type.arguments, given)
    if cql_type.name == "vector":
        items = elements(cql_type, given)
        if len(items) != cql_type.dimension:
            raise ValueError(given)
        plain = fixed_length(cql_type.arguments[0]) is not None
        return b"".join(items if plain else map(sized, items))
    if cql_type.name == "map":
        parts = [part for pair in pairs(cql_type, given) for part in pair]
        return struct.pack(">i", len(parts) // 2) + b"".join(map(_counted, parts))
    items = elements(cql_type, given)
    return struct.pack(">i", len(items)) + b"".join(map(_counted, items))


def elements(cql_type: CqlType, given: Given) -> list[bytes]:
    """Return the elements of a list, set or vector; those of a set in Cassandra's order."""
    (inner,) = cql_type.arguments
    if isinstance(given, str | Mapping):
        raise TypeError(given)
    items = [encode(inner, item) for item in given]
    return sorted(items, key=order(inner)) if cql_type.name == "set" else items


def pairs(cql_type: CqlType, given: Given) -> list[tuple[bytes, bytes]]:
    """Return the keys and values of a map in Cassandra's order; *given* may be a list of pairs."""
    key_type, value_type = cql_type.arguments
    items = given.items() if isinstance(given, Mapping) else given
    made = [(encode(key_type, _key(key_type, k)), encode(value_type, v)) for k, v in items]
    by_key = order(key_type)
    return sorted(made, key=lambda pair: by_key(pair[0]))


def order(cql_type: CqlType) -> Callable[[bytes], Any]:  # Any: something that can be compared.
    """Return the sort key of Cassandra for values of the type, as far as a script needs it."""
    if cql_type.name in {"tinyint", "smallint", "int", "bigint", "varint", "timestamp", "time"}:
        return lambda raw: int.from_bytes(raw, "big", signed=True)
    if cql_type.name in {"float", "double"}:
        form = ">f" if cql_type.name == "float" else ">d"
        return lambda raw: struct.unpack(form, raw)[0]
    if cql_type.name == "decimal":
        return _exact
    if cql_type.name == "timeuuid":
        return lambda raw: (UUID(bytes=raw).time, [(byte + 128) % 256 for byte in raw[8:]])
    return bytes


def _exact(raw: bytes) -> Decimal:
    """Return a decimal exactly: arithmetic would round it, or reject its exponent."""
    digits = Decimal(int.from_bytes(raw[4:], "big", signed=True)).as_tuple()
    return Decimal((digits.sign, digits.digits, -int.from_bytes(raw[:4], "big", signed=True)))


def _key(cql_type: CqlType, key: Given) -> Given:
    """Return a map's key: JSON has only string keys, so other types are JSON in the string."""
    if not isinstance(key, str) or cql_type.name in {*_TEXTS, "decimal"}:
        return key
    try:
        return json.loads(key)
    except ValueError:
        return key


def _product(types: Sequence[CqlType], given: Sequence[Given]) -> bytes:
    parts = zip(types, given, strict=False)
    return b"".join(b"\xff" * 4 if v is None else _counted(encode(t, v)) for t, v in parts)


def _counted(raw: bytes) -> bytes:
    return struct.pack(">i", len(raw)) + raw


def _number(form: str) -> Callable[[Given], bytes]:
    return lambda given: struct.pack(form, _whole(given))


def _whole(given: Given) -> int:
    if isinstance(given, bool | float):
        raise TypeError(given)
    return int(given)


def _real(form: str) -> Callable[[Given], bytes]:
    return lambda given: struct.pack(form, float(given))


def _text(encoding: str) -> Callable[[Given], bytes]:
    def made(given: Given) -> bytes:
        if not isinstance(given, str):
            raise TypeError(given)
        return given.encode(encoding)

    return made


def _blob(given: Given) -> bytes:
    if not given.startswith("0x"):
        raise ValueError(given)
    return bytes.fromhex(given[2:])


def _boolean(given: Given) -> bytes:
    if not isinstance(given, bool):
        raise TypeError(given)
    return b"\1" if given else b"\0"


def _varint(given: Given) -> bytes:
    if isinstance(given, str) and given.startswith("0x"):
        return bytes.fromhex(given[2:])
    number = _whole(given)
    # As BigInteger.toByteArray: a negative power of two needs no extra byte for its sign.
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _decimal(given: Given) -> bytes:
    if isinstance(given, str) and given.startswith("0x"):
        return bytes.fromhex(given[2:])
    sign, digits, exponent = Decimal(str(given)).as_tuple()
    if not isinstance(exponent, int):
        raise TypeError(given)
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    return struct.pack(">i", -exponent) + _varint(unscaled)


def _uuid(given: Given) -> bytes:
    return UUID(str(given)).bytes


def _inet(given: Given) -> bytes:
    return ipaddress.ip_address(given).packed


def _date(given: Given) -> bytes:
    if isinstance(given, int):
        return struct.pack(">I", given)
    day = given if isinstance(given, date) else date.fromisoformat(given)
    return struct.pack(">I", (day - _EPOCH).days + _DATE_ZERO)


def _time(given: Given) -> bytes:
    if isinstance(given, int):
        return struct.pack(">q", given)
    match = _TIME.fullmatch(given)
    if match is None:
        raise ValueError(given)
    hours, minutes, seconds = (int(match[n]) for n in (1, 2, 3))
    whole = hours * _NS["h"] + minutes * _NS["m"] + seconds * _NS["s"]
    return struct.pack(">q", whole + int((match[4] or "0").ljust(9, "0")))


def _timestamp(given: Given) -> bytes:
    if isinstance(given, int):
        return struct.pack(">q", given)
    moment = given if isinstance(given, datetime) else datetime.fromisoformat(given)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return struct.pack(">q", math.floor(since.total_seconds() * 1000 + 0.5))


def _duration(given: Given) -> bytes:
    text = given.removeprefix("-")
    found = _DURATION.findall(text)
    if not found or "".join(count + unit for count, unit in found) != text:
        raise ValueError(given)
    months = days = nanoseconds = 0
    for digits, unit in found:
        count = int(digits)
        match unit:
            case "y":
                months += 12 * count
            case "mo":
                months += count
            case "w":
                days += 7 * count
            case "d":
                days += count
            case _:
                nanoseconds += _UNITS[unit] * count
    sign = -1 if given.startswith("-") else 1
    return b"".join(signed_vint(sign * part) for part in (months, days, nanoseconds))


def _counter(given: Given) -> bytes:
    """Return a counter context of one global shard (9.3)."""
    return b"\0\1\x80\0" + bytes(16) + struct.pack(">qq", 1, _whole(given))


def _empty(_given: Given) -> bytes:
    return b""


_NATIVES: Final[Mapping[str, Callable[[Given], bytes]]] = {
    "ascii": _text("ascii"),
    "bigint": _number(">q"),
    "blob": _blob,
    "boolean": _boolean,
    "counter": _counter,
    "date": _date,
    "decimal": _decimal,
    "double": _real(">d"),
    "duration": _duration,
    "empty": _empty,
    "float": _real(">f"),
    "inet": _inet,
    "int": _number(">i"),
    "smallint": _number(">h"),
    "text": _text("utf-8"),
    "time": _time,
    "timestamp": _timestamp,
    "timeuuid": _uuid,
    "tinyint": _number(">b"),
    "uuid": _uuid,
    "varint": _varint,
}

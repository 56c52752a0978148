"""Compares values of Arrow with those that queries return as JSON, by the types of Arrow."""

import datetime as dt
import json
import re
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa

_US = dt.timedelta(microseconds=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UNITS = {
    "y": ("months", 12),
    "mo": ("months", 1),
    "d": ("days", 1),
    "h": ("nanoseconds", 3_600_000_000_000),
    "m": ("nanoseconds", 60_000_000_000),
    "s": ("nanoseconds", 1_000_000_000),
    "ms": ("nanoseconds", 1_000_000),
    "us": ("nanoseconds", 1_000),
    "ns": ("nanoseconds", 1),
}


def is_same(given: Any, scalar: Any) -> bool:  # noqa: ANN401 (JSON, and a value of Arrow)
    """Say whether a value of Arrow is the one that JSON has."""
    if not scalar.is_valid or given is None:
        return given is None and not scalar.is_valid
    kind = scalar.type
    if pa.types.is_struct(kind):
        return _is_same_struct(given, scalar)
    if pa.types.is_map(kind):
        return len(given) == len(scalar.values) and all(
            _is_same_key(name, entry["key"]) and is_same(value, entry["value"])
            for (name, value), entry in zip(given.items(), scalar.values, strict=True)
        )
    if pa.types.is_list(kind):
        return len(given) == len(scalar.values) and all(map(is_same, given, scalar.values))
    return bool(_plain(given, scalar))


def _plain(given: Any, scalar: Any) -> Any:  # noqa: ANN401 (likewise)
    kind, found = scalar.type, scalar.as_py
    if pa.types.is_timestamp(kind):
        return scalar.value == (given * 1_000 if isinstance(given, int) else _us(given))
    if pa.types.is_date(kind):
        return scalar.value == (given - (1 << 31) if isinstance(given, int) else _days(given))
    if pa.types.is_decimal(kind):
        return Decimal(str(given)) == found()
    if pa.types.is_int64(kind) and isinstance(given, str):
        hours, minutes, seconds = map(Decimal, given.split(":"))
        return found() == ((hours * 60 + minutes) * 60 + seconds) * 10**9
    if pa.types.is_floating(kind):
        code = ">f" if pa.types.is_float32(kind) else ">d"
        return str(found()) == str(float(given)) or found() == _stored(code, float(given))
    return given == (f"0x{found().hex()}" if pa.types.is_binary(kind) else found())


def _stored(code: str, value: float) -> object:
    return struct.unpack(code, struct.pack(code, value))[0]


def _is_same_struct(given: Any, scalar: Any) -> bool:  # noqa: ANN401 (likewise)
    names = [field.name for field in scalar.type]
    if isinstance(given, str):
        return bool(_duration(given) == scalar.as_py())
    if isinstance(given, list):
        values = [scalar[name] for name in names]
        return len(given) == len(values) and all(map(is_same, given, values))
    known = all(is_same(given.get(name), scalar[name]) for name in names)
    return known and set(given) <= set(names)


def _is_same_key(name: str, scalar: Any) -> bool:  # noqa: ANN401 (likewise)
    if pa.types.is_string(scalar.type):
        return is_same(name, scalar)
    try:
        return is_same(json.loads(name), scalar)
    except ValueError:
        return is_same(name, scalar)


def _us(text: str) -> int:
    return (dt.datetime.fromisoformat(text) - _EPOCH) // _US


def _days(text: str) -> int:
    return (dt.date.fromisoformat(text) - _EPOCH.date()).days


def _duration(text: str) -> dict[str, int]:
    made = {"months": 0, "days": 0, "nanoseconds": 0}
    for number, unit in re.findall(r"([0-9]+)([a-z]+)", text):
        part, size = _UNITS[unit]
        made[part] += int(number) * size * (-1 if text.startswith("-") else 1)
    return made

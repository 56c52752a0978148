"""What statements do, as effects: the form in which written and read values are compared.

An effect's values are the JSON strings that CQL has for them. Those of statements are derived from
the values that a recording has, with nothing of the reader of logs but the types of columns.
"""

import json
import struct
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from headrace.sources.cassandra.schema.types import CqlType

EMPTY: Final = {"empty": True}
STATIC: Final = "static"
LARGE: Final = 1_900  # Of blobs with longer strings a recording has only hashes.
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 (printed without a zone)
_UNITS: Final = (
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
)


class Effect(NamedTuple):
    """One effect of a statement; *at* is the column and element, or the range's bounds."""

    kind: str
    table: str
    key: str
    clustering: str
    at: tuple[str, ...]
    timestamp_us: int | None
    ttl_s: int | None = None
    value: str = ""


# --- values as statements have them -> SELECT JSON


def select_json(cql_type: CqlType, value: Any) -> Any:  # noqa: ANN401 (JSON)
    """Return what CQL's SELECT JSON has for a written *value*."""
    if value is None:
        return None
    if value == EMPTY:
        return {"text": "", "ascii": "", "blob": "0x"}.get(cql_type.name)
    if cql_type.is_udt or cql_type.arguments:
        return _nested(cql_type, value)
    return native_json(cql_type, value)


def native_json(cql_type: CqlType, value: Any) -> Any:  # noqa: ANN401 (JSON)
    """Return what SELECT JSON has for a value of a native type."""
    convert = _NATIVE.get(cql_type.name)
    return value if convert is None else convert(value)


def _nested(cql_type: CqlType, value: Any) -> Any:  # noqa: ANN401 (JSON)
    if cql_type.is_udt:
        return {name: select_json(inner, value.get(name)) for name, inner in cql_type.fields}
    if cql_type.name == "map":
        key, inner = cql_type.arguments
        return {member(select_json(key, k)): select_json(inner, v) for k, v in value}
    types = cql_type.arguments if cql_type.name == "tuple" else cql_type.arguments * len(value)
    return [select_json(inner, item) for inner, item in zip(types, value, strict=True)]


def member(key: object) -> str:
    """Return a map's key as the name of a JSON member."""
    return key if isinstance(key, str) else json.dumps(key, ensure_ascii=False)


def _date(days: int) -> object:
    first, last = (date(1, 1, 1) - date(1970, 1, 1)).days, (date.max - date(1970, 1, 1)).days
    if first <= days <= last:
        return (date(1970, 1, 1) + timedelta(days)).isoformat()
    return days + (1 << 31)


def _time(nanoseconds: int) -> str:
    text = str(_EPOCH + timedelta(seconds=nanoseconds // 10**9))[11:]
    return f"{text}.{nanoseconds % 10**9:09}"


def _timestamp(milliseconds: int) -> object:
    try:
        text = str(_EPOCH + timedelta(seconds=milliseconds // 1000))
    except OverflowError:
        return milliseconds
    return f"{text}.{milliseconds % 1000:03}Z"


def _duration(parts: Mapping[str, int]) -> str:
    months, days, rest = (abs(parts[name]) for name in ("months", "days", "nanos"))
    counts = [(months // 12, "y"), (months % 12, "mo"), (days, "d")]
    for unit, size in _UNITS:
        counts.append((rest // size, unit))
        rest %= size
    text = "".join(f"{count}{unit}" for count, unit in counts if count)
    return ("-" if min(parts.values()) < 0 else "") + (text or "0ns")


def float_text(value: float | str) -> float | str:
    """Return the shortest number that is this float; NaN and infinities are their names."""
    if isinstance(value, str):
        return value
    single = struct.pack(">f", value)
    texts = (f"{value:.{digits}g}" for digits in range(1, 18))
    return next(float(t) for t in texts if abs(float(t)) < 3.5e38 and _packed(t) == single)


def _packed(text: str) -> bytes:
    try:
        return struct.pack(">f", float(text))
    except OverflowError:
        return b""


_NATIVE: Final[Mapping[str, Any]] = {
    "date": _date,
    "decimal": lambda text: str(Decimal(text)),
    "double": lambda v: v if isinstance(v, str) else float(v),
    "duration": _duration,
    "float": float_text,
    "inet": lambda text: str(ip_address(text)),
    "time": _time,
    "timestamp": _timestamp,
}


def text(value: object) -> str:
    """Return *value* as JSON that compares equal exactly when it is equal."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)

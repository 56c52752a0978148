"""The order of a type's values in Cassandra, in clustering, sets, map keys and lists.

Keys compare as Cassandra compares the values, and are equal where it treats them as one value: for
example, two decimals that differ only in scale. Separate because only folding needs it.
"""

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from headrace.sources.cassandra.mutation.values import INTEGERS, Form, decimal, decode, real, varint
from headrace.sources.cassandra.schema.types import CqlType

# Tuples of numbers and bytes; any two keys of one type can be compared.
SortKey: TypeAlias = Any

_NULL: Final = (0,)
_EMPTY: Final = (1,)
_SIGN_BITS: Final = 0x8080_8080_8080_8080
_TIME_BASED: Final = 1


def sort_key(cql_type: CqlType, raw: bytes | None) -> SortKey:
    """Return the sort key of a value: null comes first, then the empty value.

    Raises:
        BadValueError: *raw* is not a value of *cql_type*.

    """
    if raw is None:
        return _NULL
    if not raw:
        return _EMPTY
    return (2, decode(cql_type, raw, _SORTED))


def _number(value: float) -> SortKey:
    """NaN comes last, with any bits; -0.0 comes before 0.0."""
    return (1, 0.0, 0.0) if math.isnan(value) else (0, value, math.copysign(1.0, value))


def _halves(raw: bytes) -> tuple[int, int]:
    high, low = struct.unpack(">QQ", raw)
    return high, low


def _time(high: int) -> int:
    """Return the 60 bits of time in a version 1 UUID's upper half, most significant first."""
    return (high & 0x0FFF) << 48 | (high >> 16 & 0xFFFF) << 32 | high >> 32


def _uuid(raw: bytes) -> SortKey:
    high, low = _halves(raw)
    version = high >> 12 & 0xF
    return version, _time(high) if version == _TIME_BASED else high, low


def _timeuuid(raw: bytes) -> SortKey:
    """By time, then by the bytes of the other half, each signed."""
    high, low = _halves(raw)
    return _time(high), low ^ _SIGN_BITS


def _nested(item: SortKey) -> SortKey:
    return _NULL if item is None else (2, item)


def _sequence(_type: CqlType, items: list[SortKey]) -> SortKey:
    return tuple(map(_nested, items))


def _mapping(_type: CqlType, pairs: list[tuple[SortKey, SortKey]]) -> SortKey:
    return tuple((_nested(key), _nested(value)) for key, value in pairs)


_NATIVES: Final[Mapping[str, Callable[[bytes], SortKey]]] = {
    **INTEGERS,
    "ascii": bytes,
    "blob": bytes,
    "boolean": bytes,
    "date": bytes,
    "decimal": decimal,
    "double": lambda raw: _number(real(">d")(raw)),
    "duration": bytes,
    "empty": bytes,
    "float": lambda raw: _number(real(">f")(raw)),
    "inet": bytes,
    "text": bytes,
    "timestamp": INTEGERS["bigint"],
    "timeuuid": _timeuuid,
    "uuid": _uuid,
    "varint": varint,
}
_SORTED: Final = Form(
    natives=_NATIVES, opaque=bytes, sequence=_sequence, mapping=_mapping, product=_sequence
)

"""CQL's values as strings, in the forms of cqlsh. Pure."""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any, Final

from cassandra.util import SortedSet

from headrace.plugins.cql_text import quoted_string

FLOAT_DIGITS: Final = 5

_TIME_TYPES: Final = frozenset({"Date", "Time", "Duration"})  # The driver's own.

Value = Any  # The type of a cell in cassandra-driver.


def cql_text(value: Value) -> str:
    """Return the text of a cell: a string that is not inside another value has no quotes."""
    return value if isinstance(value, str) else _nested(value)


def cql_style(value: Value) -> str:
    """Return the name of a cell's colour, a field of `rendering.Palette`."""
    if isinstance(value, bytes):
        return "partition_key"
    if isinstance(value, bool | int | float | Decimal | dt.date):  # A datetime is a date.
        return "number"
    if type(value).__name__ in _TIME_TYPES:
        return "number"
    return "text" if isinstance(value, str) or not isinstance(value, Iterable) else "collection"


def _nested(value: Value) -> str:
    for kinds, text in _FORMS:
        if isinstance(value, kinds):
            return text(value)
    return str(value)


def _tuple(value: Value) -> str:
    if not hasattr(value, "_fields"):
        return f"({', '.join(map(_nested, value))})"
    pairs = zip(value._fields, value, strict=True)  # A user-defined type.
    return _braced(f"{name}: {_nested(part)}" for name, part in pairs)


def _mapping(value: Value) -> str:
    return _braced(f"{_nested(key)}: {_nested(part)}" for key, part in value.items())


def _braced(parts: Iterable[str]) -> str:
    return f"{{{', '.join(parts)}}}"


def _float(value: float) -> str:
    named = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return named.get(str(value), f"{value:.{FLOAT_DIGITS}g}")


def _timestamp(value: dt.datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond:06d}+0000"


_FORMS: Final[Sequence[tuple[Any, Callable[[Value], str]]]] = (  # Any: a type or several.
    (type(None), lambda _: "null"),
    (str, quoted_string),
    (bool, str),
    (float, _float),
    (bytes, lambda value: f"0x{value.hex()}"),
    (dt.datetime, _timestamp),
    (Mapping, _mapping),
    ((AbstractSet, SortedSet), lambda value: _braced(map(_nested, value))),
    (tuple, _tuple),
    (list, lambda value: f"[{', '.join(map(_nested, value))}]"),
)

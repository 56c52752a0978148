"""Rows as a server's SELECT JSON shows them, and as we fold them, in one comparable form."""

import json
import struct
from collections.abc import Mapping
from decimal import Decimal
from ipaddress import ip_address
from typing import Any, Final

from headrace.sources.cassandra.schema.types import CqlType

_NO_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")
_TEXTS: Final = ("ascii", "text", "blob")


def loaded(row: str) -> dict[str, Any]:
    """Read what SELECT JSON printed, without rounding."""
    found: dict[str, Any] = json.loads(row, parse_float=Decimal)
    return found


def comparable(cql_type: CqlType, value: Any) -> Any:  # noqa: ANN401, PLR0911 (JSON; a case each)
    """Return *value*, the server's or ours, so that both compare equal exactly when they are.

    Cassandra prints null for what is not a number.
    """
    if value is None or (value in _NO_NUMBERS and cql_type.name in {"float", "double"}):
        return None
    if cql_type.is_udt:
        fields = cql_type.fields
        return {name: comparable(inner, value[name]) for name, inner in fields}
    if cql_type.name == "map":
        key, inner = cql_type.arguments
        return [(_key(key, k), comparable(inner, v)) for k, v in value.items()]
    if cql_type.name == "tuple":
        return [comparable(t, v) for t, v in zip(cql_type.arguments, value, strict=True)]
    if cql_type.arguments:
        return [comparable(cql_type.arguments[0], item) for item in value]
    if cql_type.name == "float":
        return struct.pack(">f", float(value))
    if cql_type.name == "double":
        return struct.pack(">d", float(value))
    if cql_type.name == "decimal":
        return Decimal(value)
    return str(ip_address(value)) if cql_type.name == "inet" else value


def _key(cql_type: CqlType, name: str) -> str:
    """Return a map's key, which is a JSON member's name, from the value that it is the text of."""
    if cql_type.name in _TEXTS:
        return name
    try:
        value = json.loads(name, parse_float=Decimal, parse_constant=str)
    except ValueError:
        value = name
    return repr(comparable(cql_type, value))


def comparable_row(types: Mapping[str, CqlType], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's columns in their comparable form."""
    return {name: comparable(cql_type, row[name]) for name, cql_type in types.items()}

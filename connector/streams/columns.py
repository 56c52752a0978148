"""Classes for the columns of tables, made from the Avro schemas of messages.

A column is an attribute with its Avro name, followed by `_` if it is a keyword in Python. The types
are as described in the page about Avro, in Python: a UUID is a `UUID`, a varint an `int`, a decimal
a `Decimal`, an inet an address. Timestamps, dates and times stay numbers, because CQL's have a
larger range than Python's. An Avro record is an object of its own class.
"""

import keyword
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final
from uuid import UUID

import msgspec

from headrace.connector.serde.avro_types import AvroType, definitions, opened
from headrace.plugins import Document

Convert = Callable[[Any], Any]  # Any: the Avro value and the Python value.

_PLAIN: Final[Mapping[str, type]] = {
    "boolean": bool,
    "bytes": bytes,
    "double": float,
    "fixed": bytes,
    "float": float,
    "int": int,
    "long": int,
    "string": str,
    "enum": str,
}
_DECIMAL: Final = {"scale", "unscaled"}


class Columns:
    """The class of a record, and a function that makes its objects from documents."""

    def __init__(self, record: Document, known: Mapping[str, Document] | None = None) -> None:
        """Make the class of *record*, which may refer to types *known* by name."""
        whole = opened(record, definitions(record) if known is None else known)
        self.type, self._make = _of(whole)
        names = [field["name"] for field in whole["fields"]]
        self.attributes = dict(zip(names, _attributes(whole["fields"]), strict=True))
        """The attribute of each column, by the column's name in Avro."""

    def make(self, document: Mapping[str, Any]) -> Any:  # noqa: ANN401 (an object of `type`)
        """Return the columns of a document; missing ones are None."""
        return self._make(document)


def _of(kind: AvroType) -> tuple[Any, Convert]:  # Any: a type, or a union of types.
    """Return the Python type of an opened Avro type, and a converter of its values."""
    if isinstance(kind, list):
        return _union(kind)
    if isinstance(kind, str):
        return _PLAIN.get(kind, type(None)), _same
    special = _SPECIAL.get(kind.get("logicalType") or kind.get("cqlType"))
    if special is not None:
        return special
    match kind["type"]:
        case "array":
            item, convert = _of(kind["items"])
            made: Any = list[item]  # type: ignore[valid-type]  # Known only here.
            return made, lambda values: [convert(value) for value in values]
        case "record":
            return _record(kind)
        case name:
            return _of(name)


def _union(kinds: list[AvroType]) -> tuple[Any, Convert]:  # Any: as above.
    branches = [_of(kind) for kind in kinds if kind != "null"]
    if len(branches) != 1:  # A foreign schema: values stay unchanged.
        return Any, _same
    ((only, convert),) = branches
    return only | None, lambda value: None if value is None else convert(value)


def _record(kind: Document) -> tuple[Any, Convert]:  # Any: as above.
    fields = kind["fields"]
    if {field["name"] for field in fields} == _DECIMAL:
        return Decimal, _decimal
    parts = [(field["name"], *_of(field["type"])) for field in fields]
    made = msgspec.defstruct(
        kind["name"],
        [
            (name, of | None, msgspec.field(default=None, name=cql_name(field)))
            for field, name, (_, of, _) in zip(fields, _attributes(fields), parts, strict=True)
        ],
        frozen=True,
    )

    def convert(value: Mapping[str, Any]) -> Any:  # noqa: ANN401 (an object of that class)
        given = (value.get(name) for name, _, _ in parts)
        return made(
            *(
                None if each is None else inner(each)
                for each, (_, _, inner) in zip(given, parts, strict=True)
            )
        )

    return made, convert


def cql_name(field: Document) -> str:
    """Return the CQL name of a field, which messages in JSON also have."""
    return str(field.get("cqlName", field["name"]))


def _attributes(fields: Sequence[Document]) -> list[str]:
    """Return the attribute of each field: its name, or a similar one that is free."""
    taken = {field["name"] for field in fields}
    made = []
    for field in fields:
        name = field["name"]
        while keyword.iskeyword(name) or (name != field["name"] and name in taken):
            name += "_"
        taken.add(name)
        made.append(name)
    return made


def _same(value: Any) -> Any:  # noqa: ANN401 (any type)
    return value


def _varint(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _decimal(value: Document) -> Decimal:
    unscaled = _varint(value["unscaled"])
    digits = tuple(map(int, str(abs(unscaled))))  # Without a context, which would round.
    return Decimal((int(unscaled < 0), digits, -value["scale"]))


_SPECIAL: Final[Mapping[str | None, tuple[Any, Convert]]] = {
    "inet": (IPv4Address | IPv6Address, ip_address),
    "uuid": (UUID, UUID),
    "varint": (int, _varint),
}

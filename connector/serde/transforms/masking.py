"""The mask of a value: the empty value of its type, which its schema allows."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from headrace.connector.serde.avro_types import without_null
from headrace.connector.serde.transforms.fields import field_at, record_in
from headrace.connector.serde.transforms.parts import TransformError
from headrace.plugins import Document

Mask = Callable[[Any], Any]  # Any: a field's value, and one of the same type.

_NIL: Final = str(uuid.UUID(int=0))
_EMPTY: Final[Mapping[str, object]] = {
    "null": None,
    "boolean": False,
    "int": 0,
    "long": 0,
    "float": 0.0,
    "double": 0.0,
    "bytes": b"",
}
ZERO: Final = b"\x00"  # For a number in bytes: empty bytes are not a number.
NUMBER_IN_BYTES: Final = ("Decimal", "unscaled")  # CQL's decimal: the record, and its field.


def mask_at(
    schema: Document, path: Sequence[str], known: Mapping[str, Document], text: str | None
) -> Mask | None:
    """Return the mask of the field at *path* of a record's *schema*, or None without it.

    The other parameters are as for `masked`.
    """
    field = field_at(schema, path, known)
    if field is None:
        return None
    outer = field_at(schema, path[:-1], known) if len(path) > 1 else None
    record = None if outer is None else record_in(outer["type"], known)[0]
    if record is not None and (record["name"], path[-1]) == NUMBER_IN_BYTES:
        return lambda value: None if value is None else ZERO
    return lambda value: masked(value, field["type"], known, text)


def masked(
    value: Any,  # noqa: ANN401 (a field's)
    avro_type: Any,  # noqa: ANN401 (Avro's)
    known: Mapping[str, Document],
    text: str | None,
) -> Any:  # noqa: ANN401 (of the same type)
    """Return the empty value of *avro_type*, or *text* for strings; null stays null.

    *known* are the named types of the whole schema.

    Raises:
        TransformError: *text* does not fit.

    """
    if value is None:
        return None
    if isinstance(avro_type, list):  # The union allows what its first branch allows.
        return masked(value, without_null(avro_type), known, text)
    if isinstance(avro_type, str):
        avro_type = known.get(avro_type, {"type": avro_type})
    kind = avro_type["type"]
    if isinstance(kind, Mapping | list):
        return masked(value, kind, known, text)
    if kind == "record":
        made = {
            field["name"]: masked(value.get(field["name"]), field["type"], known, text)
            for field in avro_type["fields"]
        }
        name, number = NUMBER_IN_BYTES
        return {**made, number: ZERO} if avro_type["name"] == name and number in made else made
    return text_of(avro_type, text) if kind == "string" else empty_of(avro_type)


def text_of(avro_type: Document, text: str | None) -> str:
    """Return the mask of a string: *text*, or an empty one, which for UUIDs is the nil UUID.

    Raises:
        TransformError: *text* is not a UUID.

    """
    if avro_type.get("logicalType") != "uuid":
        return text or ""
    try:
        return str(uuid.UUID(text)) if text else _NIL
    except ValueError:
        raise TransformError(
            "the replacement does not fit a field of UUIDs",
            hint=f"give a UUID, or no replacement: then it is {_NIL}",
        ) from None


def empty_of(avro_type: Document) -> object:
    """Return the empty value of a type that is neither a string nor a record."""
    kind = avro_type["type"]
    if kind == "enum":
        return avro_type.get("default", avro_type["symbols"][0])
    if kind == "fixed":
        return bytes(avro_type["size"])
    if kind in ("array", "map"):
        return [] if kind == "array" else {}
    is_number = avro_type.get("logicalType") == "decimal" or avro_type.get("cqlType") == "varint"
    return ZERO if kind == "bytes" and is_number else _EMPTY[kind]

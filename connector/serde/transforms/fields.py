"""Fields of a record's key or value, in schema and data; a name with dots goes inwards."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.plugins import Document

Change = Callable[[Document], Document | None]


def edited_schema(schema: Document, path: Sequence[str], change: Change) -> Document:
    """Return a record's schema with the field at *path* changed; None leaves it out."""
    fields: list[Document] = []
    for field in schema["fields"]:
        if field["name"] != path[0]:
            fields.append(field)
        elif len(path) == 1:
            made = change(field)
            fields += [] if made is None else [made]
        else:
            fields.append({**field, "type": _edited_type(field["type"], path[1:], change)})
    return {**schema, "fields": fields}


def _edited_type(avro_type: Any, path: Sequence[str], change: Change) -> Any:  # noqa: ANN401 (Avro's)
    if isinstance(avro_type, list):
        return [_edited_type(branch, path, change) for branch in avro_type]
    if isinstance(avro_type, Mapping) and "fields" in avro_type:
        return edited_schema(avro_type, path, change)
    return avro_type


def edited(datum: Document, path: Sequence[str], change: Callable[[Any], Any]) -> Document:
    """Return data with what stands at *path* changed; where nothing stands, the same data."""
    inner = datum.get(path[0])
    if path[0] not in datum or (len(path) > 1 and not isinstance(inner, Mapping)):
        return datum
    made = change(inner) if len(path) == 1 else edited(inner or {}, path[1:], change)
    return {**datum, path[0]: made}


def without(datum: Document, path: Sequence[str]) -> Document:
    """Return data without what stands at *path*."""
    if len(path) == 1:
        return {name: value for name, value in datum.items() if name != path[0]}
    inner = datum.get(path[0])
    return {**datum, path[0]: without(inner, path[1:])} if isinstance(inner, Mapping) else datum


def optional(name: str, avro_type: object) -> Document:
    """Return the schema of a field that may be null."""
    return {"name": name, "type": ["null", avro_type], "default": None}

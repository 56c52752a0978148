"""Fields of a record's key or value, in schema and data; dotted paths address nested fields."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.connector.serde.avro_types import field_of, optional
from headrace.plugins import Document

Change = Callable[[Document], Document | None]


def edited_schema(schema: Document, path: Sequence[str], change: Change) -> Document:
    """Return a record's opened schema with the field at *path* changed; None drops it."""
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
    """Return data with the value at *path* changed, or the same data without such a value."""
    inner = datum.get(path[0])
    if path[0] not in datum or (len(path) > 1 and not isinstance(inner, Mapping)):
        return datum
    made = change(inner) if len(path) == 1 else edited(inner or {}, path[1:], change)
    return {**datum, path[0]: made}


def without(datum: Document, path: Sequence[str]) -> Document:
    """Return data without the field at *path*."""
    if len(path) == 1:
        return {name: value for name, value in datum.items() if name != path[0]}
    inner = datum.get(path[0])
    return {**datum, path[0]: without(inner, path[1:])} if isinstance(inner, Mapping) else datum


def record_in(
    avro_type: Any,  # noqa: ANN401 (Avro's)
    known: Mapping[str, Document],
) -> tuple[Document | None, bool]:
    """Return the record in a type, or None, and whether it may be null."""
    optional_too = isinstance(avro_type, list)
    inner = avro_type[1] if optional_too and len(avro_type) > 1 else avro_type
    if isinstance(inner, str):
        inner = known.get(inner, inner)
    is_record = isinstance(inner, Mapping) and inner.get("type") == "record"
    return (inner if is_record else None), optional_too


def field_at(
    schema: Document, path: Sequence[str], known: Mapping[str, Document]
) -> Document | None:
    """Return the field at *path*, nullable if a record on the path is, or None.

    *known* are the named types of the whole schema.
    """
    field = field_of(schema, path[0])
    if field is None or len(path) == 1:
        return field
    inner, optional_too = record_in(field["type"], known)
    found = None if inner is None else field_at(inner, path[1:], known)
    if found is None or not optional_too or isinstance(found["type"], list):
        return found
    return {**found, **optional(found["name"], found["type"])}


def value_at(datum: Document, path: Sequence[str]) -> Any:  # noqa: ANN401 (any value)
    """Return the value at *path*, or None."""
    inner = datum.get(path[0])
    if len(path) == 1:
        return inner
    return value_at(inner, path[1:]) if isinstance(inner, Mapping) else None


def only(datum: Document, paths: Sequence[Sequence[str]]) -> Document:
    """Return data with only the fields at *paths*."""
    made = {}
    for name, value in datum.items():
        inner = [path[1:] for path in paths if path[0] == name]
        if [] in inner:
            made[name] = value
        elif inner and (value is None or isinstance(value, Mapping)):
            made[name] = None if value is None else only(value, inner)
    return made


def only_schema(schema: Document, paths: Sequence[Sequence[str]]) -> Document:
    """Return a record's opened schema with only the fields at *paths*."""
    fields = []
    for field in schema["fields"]:
        inner = [path[1:] for path in paths if path[0] == field["name"]]
        record, _ = record_in(field["type"], {})
        if [] in inner:
            fields.append(field)
        elif inner and record is not None:
            made = only_schema(record, inner)
            fields.append({**field, "type": _with_record(field["type"], made)})
    return {**schema, "fields": fields}


def renamed(datum: Document, names: Mapping[tuple[str, ...], str]) -> Document:
    """Return data with the field at each path of *names* renamed, in its place."""
    made = {}
    for name, value in datum.items():
        inner = _inwards(names, name)
        new = inner.pop((), name)
        made[new] = renamed(value, inner) if inner and isinstance(value, Mapping) else value
    return made


def renamed_schema(schema: Document, names: Mapping[tuple[str, ...], str]) -> Document:
    """Return a record's opened schema with the field at each path of *names* renamed."""
    fields = []
    for field in schema["fields"]:
        inner = _inwards(names, field["name"])
        made = {**field, "name": inner.pop((), field["name"])}
        record, _ = record_in(field["type"], {})
        if inner and record is not None:
            made["type"] = _with_record(field["type"], renamed_schema(record, inner))
        fields.append(made)
    return {**schema, "fields": fields}


def _inwards(names: Mapping[tuple[str, ...], str], name: str) -> dict[tuple[str, ...], str]:
    return {path[1:]: new for path, new in names.items() if path[0] == name}


def _with_record(avro_type: Any, record: Document) -> Any:  # noqa: ANN401 (Avro's)
    """Return the type of a field with its record replaced by *record*."""
    return [avro_type[0], record, *avro_type[2:]] if isinstance(avro_type, list) else record

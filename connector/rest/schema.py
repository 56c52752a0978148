"""JSON Schemas of our own paths, for OpenAPI and to check requests. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headrace.connector.rest.exchange import RefusedError, kind

Schema = Mapping[str, Any]  # Any: JSON.

TEXT_CHARS_MAX: Final = 8_192
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
    "null": type(None),
}


def check(document: object, schema: Schema, place: str = "the body") -> None:
    """Raise unless *document* matches *schema*, which the functions here made.

    Raises:
        RefusedError: it has the first mistake, and its place.

    """
    wanted = schema.get("type")
    kinds = [wanted] if isinstance(wanted, str) else list(wanted or ())
    if kinds and not any(_is(document, kind_) for kind_ in kinds):
        raise RefusedError(400, f"{place}: expected {' or '.join(kinds)}, found {kind(document)}")
    if "enum" in schema and document not in schema["enum"]:
        raise RefusedError(400, f"{place}: expected one of {', '.join(schema['enum'])}")
    if isinstance(document, str):
        _check_text(document, schema, place)
    elif isinstance(document, dict):
        _check_object(document, schema, place)
    elif isinstance(document, list):
        if len(document) < schema.get("minItems", 0):
            raise RefusedError(400, f"{place}: expected at least one item")
        if len(document) > schema.get("maxItems", len(document)):
            raise RefusedError(400, f"{place}: more than {schema['maxItems']} items")
        for number, item in enumerate(document):
            check(item, schema.get("items", {}), f"{place}[{number}]")


def text(doc: str = "", **more: Any) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    """Return the schema of a string."""
    return {"type": "string", "maxLength": TEXT_CHARS_MAX, "description": doc, **more}


def an(doc: str, required: tuple[str, ...] = (), **properties: Schema) -> dict[str, Any]:
    """Return the schema of an object with these properties and no others."""
    return {
        "type": "object",
        "description": doc,
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def mapping(doc: str, values: Schema) -> dict[str, Any]:
    """Return the schema of an object with any keys."""
    return {"type": "object", "description": doc, "additionalProperties": dict(values)}


def array(doc: str, items: Schema, **more: Any) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    """Return the schema of an array."""
    return {"type": "array", "description": doc, "items": dict(items), **more}


def shown(kind: type, doc: str) -> dict[str, Any]:
    """Return the schema of a struct or dataclass as JSON, with all its fields."""
    (schema,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    whole: dict[str, Any] = _whole(schema, parts)
    return {**whole, "description": doc, "additionalProperties": False}


def _whole(schema: Any, parts: Schema) -> Any:  # noqa: ANN401 (JSON)
    """Return a schema with the *parts* to which it refers in their places."""
    if isinstance(schema, list):
        return [_whole(each, parts) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _whole(parts[schema["$ref"]], parts)
    return {key: _whole(each, parts) for key, each in schema.items()}


def _is(document: object, wanted: str) -> bool:
    if wanted == "integer" and isinstance(document, bool):
        return False
    return isinstance(document, _TYPES[wanted])


def _check_text(document: str, schema: Schema, place: str) -> None:
    if len(document) > schema.get("maxLength", len(document)):
        raise RefusedError(400, f"{place}: more than {schema['maxLength']} characters")
    if len(document) < schema.get("minLength", 0):
        raise RefusedError(400, f"{place}: is empty")
    if "pattern" in schema and not re.search(schema["pattern"], document):
        raise RefusedError(400, f"{place}: does not match {schema['pattern']}")


def _check_object(document: Mapping[str, Any], schema: Schema, place: str) -> None:
    for name in schema.get("required", ()):
        if name not in document:
            raise RefusedError(400, f"{place}: {name} is required")
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, value in document.items():
        if name in properties:
            check(value, properties[name], f"{place}.{name}")
        elif rest is False:
            known = ", ".join(properties) or "none"
            raise RefusedError(400, f'{place}: Unrecognized field "{name[:80]}" (known: {known})')
        elif isinstance(rest, Mapping):
            check(value, rest, f"{place}.{name[:80]}")

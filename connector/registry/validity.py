"""Finds faults of a schema that Avro forbids and fastavro accepts. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from headrace.connector.serde.avro_types import AVRO_NAME

AvroSchema = Any  # Any: a name, a union or a definition, as JSON has them.

_NAMED: Final = ("record", "error", "enum", "fixed")
_FULL: Final = re.compile(rf"{AVRO_NAME.pattern}(\.{AVRO_NAME.pattern})*")


def faults(schema: AvroSchema) -> Iterator[str]:
    """Yield the faults of *schema*, which fastavro parsed."""
    left = [schema]
    while left:  # Not by recursion: a schema may be as deep as the parser accepts.
        each = left.pop()
        if isinstance(each, list):
            left += each
        elif isinstance(each, Mapping):
            if each["type"] in _NAMED:
                yield from _faults_of_named(each)
            left += [field["type"] for field in each.get("fields", ())]
            left += [each[part] for part in ("type", "items", "values") if part in each]


def _faults_of_named(schema: AvroSchema) -> Iterator[str]:
    name = schema["name"]
    if not _FULL.fullmatch(name):
        yield f"illegal name {name!r}"
    if schema["type"] == "fixed" and not _is_size(schema["size"]):
        yield f"{name}: expected a size, found {schema['size']!r}"
    seen: set[str] = set()
    for field in schema.get("fields", ()):
        if not isinstance(field["name"], str) or not AVRO_NAME.fullmatch(field["name"]):
            yield f"{name}: illegal field name {field['name']!r}"
        elif field["name"] in seen:
            yield f"{name}: duplicate field {field['name']}"
        else:
            seen.add(field["name"])


def _is_size(found: object) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and found >= 0

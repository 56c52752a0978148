"""Handles Avro schemas as parsed JSON: takes them apart, and combines their parts."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from headrace.plugins import Document

AvroType = Any  # Any: a name, a union or a definition, as in JSON.

NAMED: Final = ("record", "enum", "fixed")
AVRO_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def is_complex(avro_type: AvroType) -> bool:
    """Return whether a column's type is a collection or UDT that is written cell by cell."""
    if isinstance(avro_type, str | list) or avro_type["type"] != "record":
        return False
    return "cqlType" in avro_type  # A frozen UDT may also have a field `mode`, but not this.


def definitions(schema: AvroType) -> dict[str, Document]:
    """Return every named type defined in *schema*, by name."""
    return {found["name"]: found for found in _named(schema)}


def standalone(piece: AvroType, known: Mapping[str, Document], defined: set[str]) -> AvroType:
    """Return *piece* with each named type of *known* defined at its first use.

    *defined* are the names defined before *piece*; names that it defines are added.
    """
    if isinstance(piece, str):
        if piece not in known:
            return piece
        piece = known[piece]
    if isinstance(piece, list):
        return [standalone(branch, known, defined) for branch in piece]
    made = dict(piece)
    if made["type"] in NAMED:
        if made["name"] in defined:
            return made["name"]
        defined.add(made["name"])
    if "fields" in made:
        made["fields"] = [
            {**field, "type": standalone(field["type"], known, defined)} for field in made["fields"]
        ]
    for part in ("items", "values"):
        if part in made:
            made[part] = standalone(made[part], known, defined)
    return made


def opened(piece: AvroType, known: Mapping[str, Document], within: Sequence[str] = ()) -> AvroType:
    """Return *piece* with each use of a type of *known* replaced by its definition.

    *within* are the names of the types around it, which stay references.
    """
    if isinstance(piece, str):
        is_free = piece in known and piece not in within
        return opened(known[piece], known, within) if is_free else piece
    if isinstance(piece, list):
        return [opened(branch, known, within) for branch in piece]
    if piece["type"] in NAMED:
        within = (*within, piece["name"])
    return _rebuilt(piece, lambda _, inner: opened(inner, known, within))


def closed(piece: AvroType, before: Mapping[str, Document]) -> AvroType:
    """Return an opened *piece*, whose parts may have changed, with each type defined once.

    *before* are the original opened definitions. If several types now have the same name, the
    changed ones get their place added to the name.
    """
    variants: dict[str, list[Document]] = {}
    for each in _named(piece):
        variants.setdefault(each["name"], []).append(each)
    split = {name for name, each in variants.items() if any(one != each[0] for one in each)}
    taken, defined = set(variants), set[str]()

    def close(inner: AvroType, path: tuple[str, ...]) -> AvroType:
        if isinstance(inner, str):
            return inner
        if isinstance(inner, list):
            return [close(branch, path) for branch in inner]
        if inner["type"] in NAMED:
            name = inner["name"]
            if name in split and inner != before.get(name):
                name = "_".join((name, *path))
                while name in taken:
                    name += "_"
                taken.add(name)
            if name in defined:
                return name
            defined.add(name)
            inner = {**inner, "name": name}
        return _rebuilt(inner, lambda field, part: close(part, (*path, field) if field else path))

    return close(piece, ())


def _rebuilt(piece: Document, change: Callable[[str, AvroType], AvroType]) -> Document:
    """Return a type with its inner types changed; *change* gets the field's name, if any."""
    made = dict(piece)
    if "fields" in made:
        made["fields"] = [
            {**field, "type": change(field["name"], field["type"])} for field in made["fields"]
        ]
    for part in ("items", "values"):
        if part in made:
            made[part] = change("", made[part])
    if isinstance(made["type"], Mapping | list):
        made["type"] = change("", made["type"])
    return made


def without_null(avro_type: AvroType) -> AvroType:
    """Return a type, or the first type of a union that is not null."""
    if not isinstance(avro_type, list):
        return avro_type
    return next(each for each in avro_type if each != "null")


def field_of(record: AvroType, name: str) -> Document | None:
    """Return the field *name* of a record's schema, or None."""
    if not isinstance(record, Mapping) or record.get("type") != "record":
        return None
    return next((field for field in record["fields"] if field["name"] == name), None)


def optional(name: str, avro_type: AvroType) -> Document:
    """Return the schema of a field that may be null."""
    return {"name": name, "type": ["null", avro_type], "default": None}


def _named(schema: AvroType) -> Sequence[Document]:
    found: list[Document] = []
    _take_named(schema, found)
    return found


def _take_named(schema: AvroType, found: list[Document]) -> None:
    # Most types are names: returning early for them avoids the slower checks.
    if isinstance(schema, str):
        return
    if isinstance(schema, list):
        for branch in schema:
            _take_named(branch, found)
        return
    if schema["type"] in NAMED:
        found.append(schema)
    for field in schema.get("fields", ()):
        _take_named(field["type"], found)
    for part in ("items", "values"):
        if part in schema:
            _take_named(schema[part], found)
    _take_named(schema["type"], found)


def without_logic(schema: AvroType) -> AvroType:
    """Return *schema* without logical types, which readers would decode to objects."""
    if isinstance(schema, list):
        return [without_logic(branch) for branch in schema]
    if isinstance(schema, str):
        return schema
    made = {name: part for name, part in schema.items() if name != "logicalType"}
    for part in ("type", "items", "values"):
        if part in made:
            made[part] = without_logic(made[part])
    if "fields" in made:
        made["fields"] = [without_logic(field) for field in made["fields"]]
    return made

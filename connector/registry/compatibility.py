"""Checks whether data written with one Avro schema can be read with another. Pure.

The rules are those of Avro's schema resolution; schemas are parsed JSON with full names, as
`fastavro.parse_schema` makes them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

AvroSchema = Any  # Any: a name, a union or a definition, as JSON has them.

LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
_NAMED: Final = ("record", "error", "enum", "fixed")
# Pairs of a written type and a type that a reader may promote it to.
_PROMOTIONS: Final = frozenset(
    {
        ("int", "long"),
        ("int", "float"),
        ("int", "double"),
        ("long", "float"),
        ("long", "double"),
        ("float", "double"),
        ("string", "bytes"),
        ("bytes", "string"),
    }
)


def incompatibilities(level: str, new: AvroSchema, earlier: Sequence[AvroSchema]) -> Sequence[str]:
    """Return why *new* must not follow the schemas *earlier*, oldest first; empty if it may."""
    if level == "NONE" or not earlier:
        return ()
    others = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
    found: list[str] = []
    for other in reversed(others):
        if not level.startswith("FORWARD"):
            found += _Resolution(reader=new, writer=other).problems()
        if not level.startswith("BACKWARD"):
            found += _Resolution(reader=other, writer=new).problems()
    return found


class _Resolution:
    """One pair of schemas."""

    def __init__(self, *, reader: AvroSchema, writer: AvroSchema) -> None:
        self._reader = reader
        self._writer = writer
        self._names = {"reader": _names(reader), "writer": _names(writer)}
        self._seen: set[tuple[str, str]] = set()

    def problems(self) -> list[str]:
        """Return all incompatibilities of the pair."""
        return list(self._compare(self._reader, self._writer, ""))

    def _compare(self, reader: AvroSchema, writer: AvroSchema, path: str) -> Iterator[str]:
        reader, writer = self._definition("reader", reader), self._definition("writer", writer)
        if isinstance(writer, list):
            for branch in writer:
                yield from self._compare(reader, branch, path)
        elif isinstance(reader, list):
            tries = [list(self._compare(branch, writer, path)) for branch in reader]
            if all(tries):
                yield f"{path or '/'}: the reader's union has no {_kind(writer)}"
        else:
            yield from self._compare_types(reader, writer, path)

    def _compare_types(self, reader: AvroSchema, writer: AvroSchema, path: str) -> Iterator[str]:
        read, written = _kind(reader), _kind(writer)
        if read != written:
            if (written, read) not in _PROMOTIONS:
                yield f"{path or '/'}: reader type {read} cannot read writer type {written}"
        elif read in _NAMED:
            yield from self._compare_named(reader, writer, path)
        elif read == "array":
            yield from self._compare(reader["items"], writer["items"], f"{path}/items")
        elif read == "map":
            yield from self._compare(reader["values"], writer["values"], f"{path}/values")

    def _compare_named(self, reader: AvroSchema, writer: AvroSchema, path: str) -> Iterator[str]:
        names = (reader["name"], writer["name"])
        if not _same_name(reader, writer["name"]):
            yield f"{path or '/'}: expected the name {names[1]}, found {names[0]}"
            return
        if names in self._seen:  # A type that contains itself.
            return
        self._seen.add(names)
        kind = _kind(reader)
        if kind == "fixed" and reader["size"] != writer["size"]:
            yield f"{path or '/'}: expected the size {writer['size']}, found {reader['size']}"
        elif kind == "enum":
            missing = [s for s in writer["symbols"] if s not in reader["symbols"]]
            if missing and "default" not in reader:
                yield f"{path or '/'}: the reader's enum does not have {', '.join(missing)}"
        elif kind in ("record", "error"):
            yield from self._compare_fields(reader, writer, path)

    def _compare_fields(self, reader: AvroSchema, writer: AvroSchema, path: str) -> Iterator[str]:
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            place = f"{path}/{field['name']}"
            names = (field["name"], *field.get("aliases", ()))
            match = next((written[name] for name in names if name in written), None)
            if match is not None:
                yield from self._compare(field["type"], match["type"], place)
            elif "default" not in field:
                yield f"{place}: the writer does not have this field, and it has no default"

    def _definition(self, side: str, schema: AvroSchema) -> AvroSchema:
        if isinstance(schema, str):
            return self._names[side].get(schema, schema)
        if isinstance(schema, Mapping) and isinstance(schema["type"], Mapping | list):
            return self._definition(side, schema["type"])
        return schema


def _kind(schema: AvroSchema) -> str:
    if isinstance(schema, list):
        return "union"
    return schema if isinstance(schema, str) else str(schema["type"])


def _same_name(reader: Mapping[str, Any], written: str) -> bool:
    """Compare names without namespaces, as Avro's own implementation does, or by alias."""
    plain = written.rpartition(".")[2]
    return reader["name"].rpartition(".")[2] == plain or written in reader.get("aliases", ())


def _names(schema: AvroSchema) -> dict[str, AvroSchema]:
    found: dict[str, AvroSchema] = {}
    left = [schema]
    while left:
        each = left.pop()
        if isinstance(each, list):
            left += each
        elif isinstance(each, Mapping):
            if each["type"] in _NAMED:
                found[each["name"]] = each
            left += [field["type"] for field in each.get("fields", ())]
            left += [each[part] for part in ("items", "values") if part in each]
            if isinstance(each["type"], Mapping | list):
                left.append(each["type"])
    return found

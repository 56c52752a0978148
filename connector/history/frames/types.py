"""Types of Arrow for the columns of tables, from the schemas of changes. Imports pyarrow.

They are the same as for `headrace.segments`, as far as Avro distinguishes them: uuid and inet are
text, a time is nanoseconds of the day, a tuple is a struct of `_1`, `_2` and so on. A collection or
UDT that is not frozen has the type of a frozen one in images; in changes it is a struct, as in
JSON.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Final

import pyarrow as pa

from headrace.connector.history.rendering import cell_field, value_type
from headrace.connector.rows.folding import TableView
from headrace.connector.serde.avro_types import AvroType, field_of, is_complex, without_null
from headrace.plugins import Document

DIGITS_MAX: Final = 38
DECIMAL_SCALE: Final = 18
_SHARED: Final = ("Decimal", "Duration")  # The names of these records, in all schemas.
_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "bytes": pa.binary(),
    "double": pa.float64(),
    "float": pa.float32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
}
_SPECIAL: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "varint": pa.decimal128(DIGITS_MAX, 0),
    "Decimal": pa.decimal128(DIGITS_MAX, DECIMAL_SCALE),
    "Duration": pa.struct(
        [("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())]
    ),
}


def form_of(kind: AvroType) -> str:
    """Return the kind of a type: a name, or `list`, `map`, `tuple` or `udt`."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return "map" if isinstance(kind["items"], Mapping) else "list"
    if kind["type"] != "record":
        return str(kind.get("cqlType") or kind["type"])
    if kind["name"] in _SHARED:
        return str(kind["name"])
    names = [field["name"] for field in kind["fields"]]
    return "tuple" if names == [f"field_{number}" for number in range(len(names))] else "udt"


def named_fields(kind: Document) -> dict[str, Document]:
    """Return the fields of a tuple or a UDT by their names in Arrow."""
    if form_of(kind) == "tuple":
        return {f"_{number}": field for number, field in enumerate(kind["fields"], start=1)}
    return {field.get("cqlName", field["name"]): field for field in kind["fields"]}


def arrow_type(kind: AvroType) -> pa.DataType:
    """Return the Arrow type for values of an opened type."""
    kind = without_null(kind)
    match form_of(kind):
        case "list":
            return _list(arrow_type(kind["items"]))
        case "map":
            return _map(*(field["type"] for field in kind["items"]["fields"]))
        case "tuple" | "udt":
            return pa.struct(
                [(name, arrow_type(each["type"])) for name, each in named_fields(kind).items()]
            )
        case form:
            return _SPECIAL.get(form) or _PLAIN[kind if isinstance(kind, str) else kind["type"]]


def column_type(kind: AvroType) -> pa.DataType:
    """Return the type of a column in an image."""
    if not is_complex(kind):
        return arrow_type(kind)
    if (fields := field_of(kind, "fields")) is not None:
        return pa.struct(
            [
                (name, arrow_type(value_type(each)))
                for name, each in named_fields(fields["type"]).items()
            ]
        )
    if kind["cqlType"].startswith("set<"):
        return _list(arrow_type(cell_field(kind, "key")))
    if kind["cqlType"].startswith("list<"):
        return _list(arrow_type(cell_field(kind, "value")))
    return _map(cell_field(kind, "key"), cell_field(kind, "value"))


def written_type(kind: AvroType) -> pa.DataType:
    """Return the type of a column in a change."""
    if not is_complex(kind):
        return arrow_type(kind)
    is_udt = field_of(kind, "fields") is not None
    removed = pa.string() if is_udt else arrow_type(cell_field(kind, "key"))
    return pa.struct(
        [("mode", pa.string()), ("value", column_type(kind)), ("removed", _list(removed))]
    )


def struct_of(views: Iterable[TableView], *, written: bool) -> pa.DataType:
    """Return the type of images, or of *written* values, over all these schemas.

    It has every column of all schemas. A column with several types has the newest.
    """
    made = written_type if written else column_type
    each = (
        pa.struct([(view.names[name], made(kind)) for name, kind in view.types.items()])
        for view in views
    )
    return reduce(merged, each, pa.struct([]))


def bounds_type(views: Iterable[TableView]) -> pa.DataType:
    """Return the type of the bounds of deleted ranges of rows."""
    prefixes = (
        pa.struct([(view.names[n], column_type(view.types[n])) for n in view.clustering])
        for view in views
    )
    side = pa.struct(
        [
            ("values", reduce(merged, prefixes, pa.struct([]))),
            ("count", pa.int32()),
            ("inclusive", pa.bool_()),
        ]
    )
    return pa.struct([("start", side), ("end", side)])


def merged(older: pa.DataType, newer: pa.DataType) -> pa.DataType:
    """Return a type for the values of both, or *newer* if they have nothing in common."""
    if pa.types.is_struct(older) and pa.types.is_struct(newer):
        types = {field.name: field.type for field in older}
        for field in newer:
            known = types.get(field.name)
            types[field.name] = field.type if known is None else merged(known, field.type)
        return pa.struct(list(types.items()))
    if pa.types.is_list(older) and pa.types.is_list(newer):
        return _list(merged(older.value_type, newer.value_type))
    if pa.types.is_map(older) and pa.types.is_map(newer):
        return pa.map_(
            merged(older.key_type, newer.key_type), merged(older.item_type, newer.item_type)
        )
    return newer


def holds(target: pa.DataType, own: pa.DataType) -> bool:
    """Return whether the type *target* can represent all values of the type *own*."""
    if pa.types.is_struct(target) and pa.types.is_struct(own):
        types = {field.name: field.type for field in target}
        return all(each.name in types and holds(types[each.name], each.type) for each in own)
    if pa.types.is_list(target) and pa.types.is_list(own):
        return holds(target.value_type, own.value_type)
    if pa.types.is_map(target) and pa.types.is_map(own):
        return holds(target.key_type, own.key_type) and holds(target.item_type, own.item_type)
    return bool(target == own)


def _list(item: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", item))  # Spark's name for it.


def _map(key: AvroType, content: AvroType) -> pa.DataType:
    return pa.map_(arrow_type(key), arrow_type(content))

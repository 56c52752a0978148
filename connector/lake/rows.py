"""Makes Arrow rows from changes: a row for each change, or the columns of a table's row."""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa

from headrace.connector.history.config import CHANGE, LATEST
from headrace.connector.history.frames.layout import ArrowShape, Layout, fitting
from headrace.connector.history.frames.types import bounds_type, holds, merged, struct_of
from headrace.connector.lake.errors import LakeSchemaError
from headrace.connector.replay.columns import own_columns
from headrace.connector.rows.folding import TableView
from headrace.connector.serde.codecs.records import reader_of
from headrace.plugins import Document, Operation, Origin, RecordSchema

GONE: Final = "headrace_gone"  # Whether a staged row is to be removed.
_TEXTS: Final = pa.list_(pa.field("element", pa.string()))
_FACTS: Final = (
    ("operation", pa.string()),
    ("write_time", pa.timestamp("us", "UTC")),
    ("written", _TEXTS),
    ("unfit", _TEXTS),
    ("mutation", pa.binary()),
    ("index", pa.int32()),
)
Row = dict[str, Any]  # Any: values for Arrow.


class TableShape:
    """The shape of rows of changes with one schema of a table. For one thread."""

    def __init__(self, schema: RecordSchema, origin: Origin) -> None:
        """Prepare the columns of *schema*; *origin* is the source's."""
        view = TableView(schema)
        image, change = (struct_of([view], written=written) for written in (False, True))
        layout = Layout(pa.schema([(CHANGE, change), (LATEST, image)]), (), (CHANGE, LATEST))
        self.shape = ArrowShape(schema, layout)
        self.view = view
        self.read: Callable[[bytes], Any] = reader_of(schema.value)
        self._origin = tuple(origin.fields)
        facts = [*_FACTS, (CHANGE, change)]
        facts += [("bounds", bounds_type([view]))] if view.clustering else []
        own = [pa.field(*each) for each in facts] + list(own_columns(origin))
        taken = {each.name for each in own}
        keys = [view.names[name] for name in (*view.key, *view.clustering)]
        self._named = {name: _free(name, taken) for name in keys}
        typed = [pa.field(self._named[name], image.field(name).type) for name in keys]
        self.of_changes = pa.schema([*typed, *own])
        self.keys = keys
        self._unfit = _free("unfit", {each.name for each in image})
        self.of_rows = pa.schema([*image, (self._unfit, _TEXTS)])

    def change(self, document: Document) -> Row:
        """Return the row of a change."""
        payload, view, shape = document["payload"], self.view, self.shape
        unfit: dict[str, None] = {}
        parts = ([payload[name] for name in names] for names in (view.key, view.clustering))
        key = fitting(shape.key(*parts), unfit)
        row: Row = {
            **{self._named[name]: value for name, value in key.items()},
            "operation": document["operationType"],
            "write_time": document["timestampMicros"],
            "mutation": document["mutation"],
            "index": document["index"],
            **{name: document.get(name) for name in self._origin},
        }
        made = shape.change(document)
        if document["operationType"] == Operation.DELETE_RANGE.value and made is not None:
            row["bounds"] = {
                side: bound and {**bound, "values": fitting(bound["values"], unfit)}
                for side, bound in made["range"].items()
            }
        elif made is not None:
            row[CHANGE] = {**key, **fitting(made, unfit)}
            row["written"] = list(made)
        return row | {"unfit": list(unfit)}

    def row(self, columns: Document | None, key: Document) -> Row:
        """Return the row of a table with these *columns*; None: that of *key* is to be removed."""
        unfit: dict[str, None] = {}
        found = fitting(key if columns is None else columns, unfit)
        return {**found, self._unfit: list(unfit), GONE: columns is None}


def table_of(rows: Sequence[Row], schemas: Iterable[pa.Schema], place: str) -> pa.Table:
    """Return rows of one table whose changes had these *schemas*. Raises LakeSchemaError."""
    schema = reduce(lambda one, other: joined(one, other, place), schemas)
    if rows and GONE in rows[0]:
        schema = schema.append(pa.field(GONE, pa.bool_()))
    return pa.table(
        [pa.array([row.get(each.name) for row in rows], each.type) for each in schema],
        schema=schema,
    )


def joined(older: pa.Schema, newer: pa.Schema, place: str) -> pa.Schema:
    """Return the columns of both.

    Raises:
        LakeSchemaError: a column has values of incompatible types.

    """
    both = merged(pa.struct(list(older)), pa.struct(list(newer)))
    for each in older:
        found = both.field(each.name).type
        if not holds(found, each.type):
            raise LakeSchemaError(
                f"the column {each.name} has the type {each.type}; changes have {found}",
                place=place,
                hint="move the table away: the sink makes a new one; or drop the column there",
            )
    return pa.schema(list(both))


def _free(name: str, taken: Iterable[str]) -> str:
    lower = {each.lower() for each in taken}
    while name.lower() in lower:  # Engines take `OP` for `op`.
        name += "_"
    return name

"""The Arrow columns of a history's changes, and rows made of events. Imports pyarrow."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa

from headrace.connector.history.config import CHANGE, SCOPES
from headrace.connector.history.frames.types import (
    bounds_type,
    column_type,
    holds,
    struct_of,
    written_type,
)
from headrace.connector.history.frames.values import UnfitError, arrow_value, is_as_it_is, pairs
from headrace.connector.history.query import Event
from headrace.connector.history.rendering import Shape, Values
from headrace.connector.rows.folding import State, TableView
from headrace.connector.serde.avro_types import AvroType, is_complex
from headrace.plugins import Document, Operation, RecordSchema

_TEXTS: Final = pa.list_(pa.field("element", pa.string()))
_TIME: Final = pa.timestamp("us", "UTC")
_FIRST: Final = (("cdc_time", _TIME), ("seq", pa.int32()), ("partition_id", pa.int32()))
_SECOND: Final = (("op", pa.string()), ("write_time", _TIME))
_FLAGS: Final = ("partial", "derived", "static", "effective", "expired")
_US_PER_MS: Final = 1_000


class _Unfit:
    """A placeholder for a value that its column cannot represent."""


UNFIT: Final = _Unfit()


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table made of events; it can be pickled.

    `keys` are the columns of the primary key, in order.
    """

    schema: pa.Schema
    keys: Sequence[str]
    scopes: Sequence[str]

    @classmethod
    def of(cls, schemas: Sequence[RecordSchema], scopes: Iterable[str]) -> Self:
        """Return the layout for a table with these successive schemas and images *scopes*."""
        views = [TableView(schema) for schema in schemas]
        wanted = [scope for scope in SCOPES if scope in scopes]
        image = struct_of(views, written=False)
        columns: dict[str, pa.DataType] = {}
        if CHANGE in wanted:
            columns |= {"change": struct_of(views, written=True), "written": _TEXTS}
            columns |= {"bounds": bounds_type(views)} if views and views[-1].clustering else {}
        columns |= {name: image for name in wanted if name != CHANGE}
        columns |= {"known": pa.map_(pa.string(), _TEXTS)} if wanted != [CHANGE] else {}
        columns |= dict.fromkeys(_FLAGS, pa.bool_()) | {"unfit": _TEXTS}
        taken = {name for name, _ in (*_FIRST, *_SECOND)} | columns.keys()
        keys = []
        for column in _key_names(views[-1]) if views else ():
            name = column
            while name.lower() in taken:  # Spark confuses `OP` with `op`.
                name += "_"
            taken.add(name.lower())
            keys.append((name, image.field(column).type))
        schema = pa.schema([*_FIRST, *keys, *_SECOND, *columns.items()])
        return cls(schema, [name for name, _ in keys], wanted)

    def shape(self, schema: RecordSchema) -> "ArrowShape":
        """Return a renderer for changes of *schema*, for `batch`."""
        return ArrowShape(schema, self)

    def batch(self, events: Sequence[Event]) -> pa.RecordBatch:
        """Return events that `shape` rendered, as rows."""
        rows = [self._row(event) for event in events]
        arrays = [pa.array([row.get(f.name) for row in rows], f.type) for f in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def holds(self, column: str, name: str, own: pa.DataType) -> bool:
        """Return whether a column's field can hold a type; a missing column holds everything."""
        at = self.schema.get_field_index(column)
        if at < 0:
            return True
        fields = self.schema.field(at).type
        place = fields.get_field_index(name)
        return place < 0 or holds(fields.field(place).type, own)

    def _row(self, event: Event) -> Document:
        unfit: dict[str, None] = {}
        key = fitting(event.key, unfit)
        row: dict[str, Any] = {
            "cdc_time": event.time_ms * _US_PER_MS,
            "seq": event.sequence,
            "partition_id": event.partition_id,
            **dict(zip(self.keys, key.values(), strict=False)),
            "op": event.operation.lower(),
            "write_time": event.written_us,
            **{flag: getattr(event, flag) for flag in _FLAGS},
        }
        if event.change is not None and event.operation is Operation.DELETE_RANGE:
            row["bounds"] = {
                side: bound and {**bound, "values": fitting(bound["values"], unfit)}
                for side, bound in event.change["range"].items()
            }
        elif event.change is not None:
            row["change"] = {**key, **fitting(event.change, unfit)}
            row["written"] = list(event.change)
        known = []
        for scope in self.scopes:
            image = getattr(event, scope)
            if scope != CHANGE and image is not None:
                row[scope] = fitting(image, unfit) or None
                known.append((scope, [name for name in image if name not in key]))
        return row | {"known": known if event.partial else None, "unfit": list(unfit)}


class ArrowShape(Shape):
    """Renders changes of one schema as Arrow values for the columns of a layout.

    An image includes the columns of the key, so that an otherwise empty one is not null.
    """

    def __init__(self, schema: RecordSchema, layout: Layout) -> None:
        """Find the columns whose type was replaced by another one."""
        super().__init__(schema)
        view = self.view
        images = [scope for scope in layout.scopes if scope != CHANGE]
        self._lost = {
            name
            for name, kind in view.types.items()
            if not all(layout.holds(each, view.names[name], column_type(kind)) for each in images)
            or not layout.holds(CHANGE, view.names[name], written_type(kind))
        }
        simple = {n for n, kind in view.types.items() if not is_complex(kind) and is_as_it_is(kind)}
        self.same = frozenset(simple - self._lost)

    def key(self, partition: Values, clustering: Values) -> Document:
        """Return the key, as described for `Shape.key`."""
        view, values = self.view, (*partition, *clustering)
        return {
            view.names[name]: self.column(name, value)
            for name, value in zip((*view.key, *view.clustering), values, strict=False)
        }

    def row(
        self, name: tuple[Values, Values], state: State | None, partition: State | None, now_s: int
    ) -> Document | None:
        """Return a row, as described for `Shape.row`."""
        found = super().row(name, state, partition, now_s)
        return None if found is None else {**self.key(*name), **found}

    def static(self, partition: Values, state: State | None, now_s: int) -> Document | None:
        """Return static columns, as described for `Shape.static`."""
        found = super().static(partition, state, now_s)
        return None if found is None else {**self.key(partition, []), **found}

    def known(self, state: State | None) -> frozenset[str]:
        """Return the known columns, as described for `Shape.known`."""
        return super().known(state).union(_key_names(self.view))

    def value(self, kind: AvroType, value: Any) -> Any:  # noqa: ANN401 (by type)
        """Return a value, as described for `Shape.value`. Raises UnfitError."""
        return arrow_value(kind, value)

    def entries(self, key: AvroType, content: AvroType, cells: Iterable[Values]) -> Any:  # noqa: ANN401
        """Return a map, as described for `Shape.entries`. Raises UnfitError."""
        return pairs(key, content, [(each, value) for each, value in cells])

    def column(self, name: str, value: Any) -> Any:  # noqa: ANN401 (by type)
        """Return a column, as described for `Shape.column`."""
        return self._fit(super().column, name, value)

    def written(self, name: str, value: Any) -> Any:  # noqa: ANN401 (by type)
        """Return a written column, as described for `Shape.written`."""
        return self._fit(super().written, name, value)

    def bound(self, bound: Document | None) -> Document | None:
        """Return a bound, as described for `Shape.bound`."""
        made = super().bound(bound)
        return made and {**made, "count": len(made["values"])}

    def _fit(self, render: Callable[[str, Any], Any], name: str, value: Any) -> Any:  # noqa: ANN401 (by type)
        """Return the result of *render*, or UNFIT if its column cannot represent it."""
        if value is not None and name in self._lost:
            return UNFIT
        try:
            return render(name, value)
        except UnfitError:
            return UNFIT


def _key_names(view: TableView) -> list[str]:
    return [view.names[name] for name in (*view.key, *view.clustering)]


def fitting(values: Document, unfit: dict[str, None]) -> Document:
    """Return values with None for those that are UNFIT; their names are added to *unfit*."""
    unfit.update(dict.fromkeys(name for name, value in values.items() if value is UNFIT))
    return {name: None if value is UNFIT else value for name, value in values.items()}

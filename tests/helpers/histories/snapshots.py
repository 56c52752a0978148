"""Rows as a SELECT with write times returns them, of a table that the source's own fold has."""

from collections.abc import Iterator, Sequence
from typing import Final

from headrace.connector.serde import Encoder
from headrace.plugins import Delivery, Encoding
from headrace.plugins.positions import NumberPosition
from headrace.sources.cassandra.mutation.changes import Cell
from headrace.sources.cassandra.mutation.folding import Fold
from headrace.sources.cassandra.mutation.snapshot import Selected, Snapshot
from headrace.sources.cassandra.reading.deliveries import Deliveries
from headrace.sources.cassandra.schema.tables import ColumnSchema, TableSchema
from headrace.sources.cassandra.table_source import ChangeBatch, records_of

Raw = tuple[bytes | None, ...]
_TOKEN: Final = bytes(8)


def selected(fold: Fold, at_s: int, *, timed: bool = True) -> Iterator[Raw]:
    """Yield the rows of the fold's table at *at_s*, as a node returns them.

    Before 5.0 it does not return the times of elements: they are not *timed*.
    """
    columns = Selected(fold.table, times_of_elements=timed).values
    for partition in fold._partitions.values():  # noqa: SLF001 (what a node has)
        statics = {
            name: column.live(partition.deleted_us, at_s)
            for name, column in partition.static.columns.items()
        }
        shown = False
        for position, row in partition.rows.items():
            after = max(partition.deleted_us, row.deleted_us)
            for deleted in partition.ranges:
                if fold._covers(deleted, position):  # noqa: SLF001 (what a node has)
                    after = max(after, deleted.deletion.timestamp_us)
            cells = {name: column.live(after, at_s) for name, column in row.columns.items()}
            if not any(cells.values()) and not row.is_live(after, at_s):
                continue
            shown = True
            values = [
                _value(c, (cells | statics).get(c.name, []), at_s, timed=timed) for c in columns
            ]
            yield _TOKEN, *partition.key, *row.values, *(part for each in values for part in each)
        if any(statics.values()) and not shown:
            nothing = [None] * len(fold.table.clustering)
            values = [_value(c, statics.get(c.name, []), at_s, timed=timed) for c in columns]
            yield _TOKEN, *partition.key, *nothing, *(part for each in values for part in each)


def delivery(table: TableSchema, rows: Sequence[Raw], at_s: int, *, timed: bool = True) -> Delivery:
    """Return what a sink gets of these rows in a backfill."""
    shape = Deliveries((table.qualified,), lambda _: 0).shape(table)
    snapshot = Snapshot(Selected(table, times_of_elements=timed))
    changes = [change for row in rows for change in snapshot.changes(row, now_s=at_s)]
    records = records_of(changes, shape)
    batch = ChangeBatch("rows", NumberPosition(0), 0, records, [shape.schema])
    encoded = Encoder(Encoding(codec="avro", envelope="cep44")).encode(batch, token=1)
    return Delivery(batch, encoded, {shape.schema.schema_id: shape.schema})


def _value(column: ColumnSchema, cells: Sequence[Cell], at_s: int, *, timed: bool) -> Raw:
    """Return a column's value and, if they are returned, its write times and times to live."""
    if not cells:
        return (None, None, None) if timed or not column.is_complex else (None,)
    times = [cell.timestamp_us.to_bytes(8, "big", signed=True) for cell in cells]
    lefts = [None if c.expires_s is None else _number(c.expires_s - at_s) for c in cells]
    if not column.is_complex:
        return cells[0].raw, times[0], lefts[0]
    kind = column.type
    raws = [cell.raw or b"" for cell in cells]
    paths = [cell.path or b"" for cell in cells]
    if kind.is_udt:
        fields: list[bytes | None] = [None] * len(kind.fields)
        for path, raw in zip(paths, raws, strict=True):
            fields[int.from_bytes(path, "big")] = raw
        whole = b"".join(map(_part, fields))
    else:
        per = {"map": zip(paths, raws, strict=True), "set": zip(paths, strict=True)}
        parts = per.get(kind.name, zip(raws, strict=True))
        whole = _number(len(cells)) + b"".join(_part(each) for part in parts for each in part)
    if not timed:
        return (whole,)
    count = _number(len(cells))
    return whole, count + b"".join(map(_part, times)), count + b"".join(map(_part, lefts))


def _number(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def _part(value: bytes | None) -> bytes:
    return _number(-1) if value is None else _number(len(value)) + value

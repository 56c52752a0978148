"""Changes that are objects already as typed columns: what `columnar` does from mutations' bytes.

Separate because it makes objects: it is for rows that were read from a table.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.plugins import Facts
from headrace.plugins.columns import TableType, TypedChanges
from headrace.sources.cassandra.changes import Bound, Cell, Change, Column
from headrace.sources.cassandra.columnar import TypedColumns
from headrace.sources.cassandra.value_columns import ValueColumn

if TYPE_CHECKING:
    from headrace.sources.cassandra.schema import TableSchema

_Life = tuple[int | None, int | None]  # A time to live, and when it ends.


class ChangeColumns:
    """Typed columns of the changes that were added."""

    def __init__(self, target: TableType) -> None:
        """Begin with none."""
        self._typed = TypedColumns(target)
        self._table: TableSchema | None = None

    def add(self, change: Change) -> None:
        """Write one change.

        Raises:
            BadValueError: it does not fit its table.

        """
        if change.table is not self._table:
            self._table = change.table
            self._typed.bind(change.table)
        life = change.ttl_s, change.expires_s
        if change.ttl_s is not None:
            self._note(None, None, change.timestamp_us, life)
        written = {column.name.encode(): column for column in change.columns}
        keys = (*change.key, *(change.clustering or ()))
        for number, (name, field) in enumerate(
            zip(self._typed.names, self._typed.fields, strict=True)
        ):
            if number < len(keys):
                unfit = field.put(keys[number])
            elif name in written:
                unfit = _put(field, written[name])
            else:
                unfit = field.null()
            if unfit:
                self._typed.note_unfit(number)
        for column in change.columns:
            self._notes(column, change.timestamp_us, life)
        self._typed.close_row()
        if self._typed.has_bounds:
            self._bounds(change)

    def typed(self, facts: Facts) -> TypedChanges:
        """Return what was added, with the facts of as many changes."""
        return self._typed.changes(facts, None)

    def _notes(self, column: Column, timestamp_us: int, life: _Life) -> None:
        name = column.name.encode()
        if column.deletion is not None:
            none = None, None
            self._note(name, None, column.deletion.timestamp_us, none, deleted=True)
        for cell in column.cells:
            own = cell.ttl_s, cell.expires_s
            if cell.raw is None or cell.timestamp_us != timestamp_us or own != life:
                deleted = cell.raw is None
                self._note(name, cell.path, cell.timestamp_us, own, deleted=deleted)

    def _note(
        self,
        name: bytes | None,
        element: bytes | None,
        timestamp_us: int,
        life: _Life,
        *,
        deleted: bool = False,
    ) -> None:
        cell = self._typed.cell
        column, path, written, lives, ends, gone = cell.children
        if name is None:
            column.null()
        else:
            column.constant(name)
        path.put(element)
        written.number(timestamp_us)
        for field, seconds in zip((lives, ends), life, strict=True):
            if seconds is None:
                field.null()
            else:
                field.number(seconds)
        gone.flag(int(deleted))
        cell.finish()

    def _bounds(self, change: Change) -> None:
        bounds = self._typed.bounds
        if change.range is None:
            bounds.null()
            return
        for side, bound in zip(
            bounds.children, (change.range.start, change.range.end), strict=True
        ):
            _put_bound(side, bound)
        bounds.finish()


def _put(field: ValueColumn, column: Column) -> int:
    """Write a column's value: of one that is written cell by cell, what lives."""
    live = [cell for cell in column.cells if cell.raw is not None]
    if not column.schema.is_complex:
        return field.put(column.cells[0].raw)
    if not field.takes_parts():
        return field.refuse()
    if not live:
        return field.null()
    if column.schema.type.is_udt:
        return _put_fields(field, live)
    unfit = 0
    for cell in live:
        if column.schema.type.name != "list":
            unfit |= field.children[0].put(cell.path)
        if column.schema.type.name != "set":
            unfit |= field.children[-1].put(cell.raw)
    if field.is_map:
        return field.close_map(unfit)
    field.finish()
    return unfit


def _put_fields(field: ValueColumn, live: Iterable[Cell]) -> int:
    by_position = {int.from_bytes(cell.path or b"", "big"): cell.raw for cell in live}
    unfit = 0
    for position, child in enumerate(field.order):
        unfit |= child.put(by_position.get(position))
    field.close_fields()
    return unfit


def _put_bound(side: ValueColumn, bound: Bound | None) -> None:
    if bound is None:
        side.null()
        return
    values, count, inclusive = side.children
    for number, value in enumerate(values.children):
        value.put(bound.values[number] if number < len(bound.values) else None)
    values.finish()
    count.number(len(bound.values))
    inclusive.flag(int(bound.inclusive))
    side.finish()

"""Mutations are frozen values, and the row-level changes in them come in log order."""

from collections import Counter
from contextlib import suppress
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.plugins import Operation
from headrace.sources.cassandra.mutation.changes import (
    Bound,
    Cell,
    Column,
    Deletion,
    MutationDecoder,
    PartitionUpdate,
    RangeDeletion,
    RangeMarker,
    Row,
)
from headrace.sources.cassandra.mutation.errors import BadMutationError, UnknownTableError
from headrace.sources.cassandra.mutation.values import BadValueError
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.layout import Catalogue
from helpers.logs.sample_log import (
    MUTATIONS,
    NOW_S,
    NOW_US,
    SEGMENT_ID,
    recorded_mutations,
    sample_mutation,
    sample_schema,
)
from helpers.recordings.corpora import recording

pytestmark = pytest.mark.hot

TABLE = next(iter(sample_schema().tables.values()))
ONE, FIVE = (b"\0\0\0\1",), (b"\0\0\0\5",)


def marker(kind: int, values: tuple[bytes, ...], close: int = 0, opened: int = 0) -> RangeMarker:
    """Make a marker whose deletions are at *close* and *opened* µs, 0 for none."""
    return RangeMarker(
        kind,
        values,
        Deletion(close, NOW_S) if close else None,
        Deletion(opened, NOW_S) if opened else None,
    )


def update(*items: Row | RangeMarker) -> PartitionUpdate:
    """Make an update of partition 7."""
    return PartitionUpdate(TABLE, b"\0\0\0\7", None, None, items)


def row(number: bytes) -> Row:
    """Make an empty row."""
    return Row((number,), None, None, ())


def test_an_insert_is_a_change() -> None:
    """An INSERT gives one change with its key, its clustering and its cells."""
    mutation = sample_mutation("insert")
    (change,) = mutation.changes()
    assert (Operation.INSERT, NOW_US) == (change.operation, change.timestamp_us)
    assert {"id": 7, "seq": 1} == change.key_values()
    assert {"age": 30, "name": "Ann"} == {c.name: c.cells[0].value for c in change.columns}
    assert sha256(MUTATIONS["insert"]).digest()[:16] == mutation.mutation_id
    assert ("shop", True, 61, SEGMENT_ID) == (
        mutation.keyspace,
        mutation.cdc,
        mutation.size_bytes,
        mutation.segment_id,
    )


def test_values_cannot_be_changed() -> None:
    """Every public value is frozen."""
    mutation = sample_mutation("insert")
    (written,) = mutation.updates
    (inserted,) = written.items
    assert isinstance(inserted, Row)
    values: list[Any] = [
        mutation,
        written,
        inserted,
        inserted.columns[0],
        inserted.columns[0].cells[0],
    ]
    for value in [*values, mutation.changes()[0]]:
        with pytest.raises(AttributeError):
            setattr(value, value.__struct_fields__[0], None)


def test_replaced_set_has_its_deletion() -> None:
    """An overwritten set carries the deletion of what was there, and its elements as keys."""
    (change,) = sample_mutation("replace").changes()
    name, tags = change.columns
    assert (Operation.UPDATE, NOW_US) == (change.operation, change.timestamp_us)
    assert (None, None, NOW_S) == (
        name.cells[0].value,
        name.cells[0].expires_s,
        name.cells[0].local_s,
    )
    assert Deletion(NOW_US - 1, NOW_S) == tags.deletion
    assert [("a", 86400, NOW_S + 86400)] == [
        (cell.key, cell.ttl_s, cell.expires_s) for cell in tags.cells if cell.path == b"a"
    ]


def test_fields_have_positions_and_types() -> None:
    """Cells of an unfrozen UDT have the field's position as key, and the field's type."""
    (change,) = sample_mutation("fields").changes()
    (address,) = change.columns
    assert [(0, "Main"), (1, 9)] == [(cell.key, cell.value) for cell in address.cells]
    assert None is Cell(address.schema, 1, b"").key


def test_static_row_and_row_deletion_are_two_changes() -> None:
    """A static row comes first; a deleted row is a DELETE without cells."""
    static, deleted = sample_mutation("static").changes()
    assert (Operation.UPDATE, True, None) == (
        static.operation,
        static.is_static,
        static.clustering,
    )
    assert {"id": 7} == static.key_values()
    assert (Operation.DELETE, ONE, ()) == (deleted.operation, deleted.clustering, deleted.columns)


def test_partition_deletion_is_a_change() -> None:
    """A partition deletion is one change at its own time."""
    (change,) = sample_mutation("partition").changes()
    assert (Operation.DELETE_PARTITION, NOW_US) == (change.operation, change.timestamp_us)


def test_row_with_deletion_and_data_is_two_changes() -> None:
    """A row that was deleted and written again gives a DELETE, then an INSERT."""
    (inserted,) = sample_mutation("insert").updates
    (item,) = inserted.items
    assert isinstance(item, Row)
    both = replace(inserted, items=(replace(item, deletion=Deletion(NOW_US - 5, NOW_S)),))
    changes = replace(sample_mutation("insert"), updates=(both,)).changes()
    assert [(Operation.DELETE, NOW_US - 5), (Operation.INSERT, NOW_US)] == [
        (change.operation, change.timestamp_us) for change in changes
    ]


def test_markers_pair_into_ranges() -> None:
    """A range has typed bounds; a boundary ends one range and starts the next."""
    (single,) = sample_mutation("range").changes()
    first, second = sample_mutation("two ranges").changes()
    now, later = Deletion(NOW_US, NOW_S), Deletion(NOW_US + 10, NOW_S + 3)
    until_five = RangeDeletion(Bound(ONE, inclusive=True), Bound(FIVE, inclusive=False), now)
    assert until_five == single.range
    assert until_five == first.range
    assert RangeDeletion(Bound(FIVE, inclusive=True), None, later) == second.range
    assert (NOW_US, NOW_US + 10) == (first.timestamp_us, second.timestamp_us)


BOUNDS = {
    "both in": (constants.INCL_START, constants.INCL_END, True, True),
    "both out": (constants.EXCL_START, constants.EXCL_END, False, False),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_say_whether_they_are_in(name: str) -> None:
    """The kinds of the markers say whether the bounds are in the range."""
    start, end, starts_in, ends_in = BOUNDS[name]
    (found,) = update(marker(start, ONE, opened=3), marker(end, FIVE, close=3)).rows_and_ranges()
    assert RangeDeletion(Bound(ONE, starts_in), Bound(FIVE, ends_in), Deletion(3, NOW_S)) == found


def test_a_boundary_can_end_inclusively() -> None:
    """The other boundary ends its range with its values and starts the next after them."""
    first, second = update(
        marker(constants.INCL_START, (), opened=3),
        marker(constants.INCL_END_EXCL_START, FIVE, close=3, opened=4),
        marker(constants.INCL_END, (), close=4),
    ).rows_and_ranges()
    assert isinstance(first, RangeDeletion)
    assert isinstance(second, RangeDeletion)
    assert (None, Bound(FIVE, inclusive=True)) == (first.start, first.end)
    assert (Bound(FIVE, inclusive=False), None) == (second.start, second.end)


def test_a_range_comes_where_it_starts() -> None:
    """Rows within a range come after it: they are newer than its deletion."""
    inside = row(b"\0\0\0\3")
    found = update(
        row(b"\0\0\0\0"),
        marker(constants.INCL_START, ONE, opened=3),
        inside,
        marker(constants.INCL_END, FIVE, close=3),
    ).rows_and_ranges()
    assert ["Row", "RangeDeletion", "Row"] == [type(item).__name__ for item in found]
    assert inside is found[2]


UNPAIRED = {
    "no end": [marker(constants.INCL_START, ONE, opened=3)],
    "no start": [marker(constants.INCL_END, ONE, close=3)],
    "two starts": [
        marker(constants.INCL_START, ONE, opened=3),
        marker(constants.INCL_START, FIVE, opened=3),
    ],
}


@pytest.mark.parametrize("name", UNPAIRED)
def test_markers_that_do_not_pair_are_refused(name: str) -> None:
    """A range without end or start is a named error."""
    with pytest.raises(BadMutationError, match="a range"):
        update(*UNPAIRED[name]).rows_and_ranges()


DROPPED = (
    "CREATE TABLE s.t (k int PRIMARY KEY, a int, b set<int>, c int) WITH ID = "
    "00000000-0000-1000-8000-000000000001; ALTER TABLE s.t DROP c;"
    "ALTER TABLE s.t DROP a USING TIMESTAMP 50; ALTER TABLE s.t ADD a int;"
    "ALTER TABLE s.t DROP b USING TIMESTAMP 50; ALTER TABLE s.t ADD b set<int>;"
)


def dropped_column(name: str, *times_us: int, deleted_us: int | None = None) -> Column:
    """Make a column of the table DROPPED with a cell per time."""
    (table,) = parse_schema(DROPPED).tables.values()
    (schema,) = [column for column in table.columns if column.name == name]
    path = b"\0\0\0\1" if schema.is_complex else None
    deletion = None if deleted_us is None else Deletion(deleted_us, NOW_S)
    return Column(schema, tuple(Cell(schema, t, b"\0\0\0\1", path) for t in times_us), deletion)


KEPT: dict[str, tuple[list[Column], list[str]]] = {
    "newer than the drop": ([dropped_column("a", 51)], ["a"]),
    "as old as the drop": ([dropped_column("a", 50)], []),
    "never added again": ([dropped_column("c", 10**15)], []),
    "others stay": ([dropped_column("a", 50), dropped_column("b", 51)], ["b"]),
    "cells apart": ([dropped_column("b", 50, 51)], ["b"]),
    "deletion from before": ([dropped_column("b", deleted_us=50)], []),
    "deletion since": ([dropped_column("b", deleted_us=51)], ["b"]),
    "nothing said": ([dropped_column("b")], []),
}


@pytest.mark.parametrize("name", KEPT)
def test_cells_from_before_a_drop_do_not_count(name: str) -> None:
    """Cells that Cassandra would not read are in no change; a row without others gives none."""
    columns, expected = KEPT[name]
    (table,) = parse_schema(DROPPED).tables.values()
    written = PartitionUpdate(
        table, b"\0\0\0\1", None, None, (Row((), None, None, tuple(columns)),)
    )
    changes = replace(sample_mutation("insert"), updates=(written,)).changes()
    assert expected == [column.name for change in changes for column in change.columns]
    assert (1 if expected else 0) == len(changes)


def test_update_is_as_new_as_its_newest_cell() -> None:
    """The time of an UPDATE is its newest cell's, or that of what it deletes when it has none."""
    (table,) = parse_schema(DROPPED).tables.values()
    cells = (dropped_column("a", 60), dropped_column("b", 61, deleted_us=70))
    nothing_left = (dropped_column("b", deleted_us=70),)

    def newest(columns: tuple[Column, ...]) -> int:
        written = PartitionUpdate(table, b"\0\0\0\1", None, None, (Row((), None, None, columns),))
        (change,) = replace(sample_mutation("insert"), updates=(written,)).changes()
        return change.timestamp_us

    assert (61, 70) == (newest(cells), newest(nothing_left))


def test_recorded_operations_are_all_there() -> None:
    """Every kind of change is in the recording of every kind of write."""
    counted: Counter[Operation] = Counter()
    for mutation in recorded_mutations(recording("4.0-ops")):
        counted.update(change.operation for change in mutation.changes())
    assert {
        "INSERT": 258,
        "UPDATE": 306,
        "DELETE": 30,
        "DELETE_RANGE": 300,
        "DELETE_PARTITION": 51,
    } == {operation.value: count for operation, count in counted.items()}


def test_unknown_table_is_named() -> None:
    """A table that is not in the schema has its own error, with the table's id."""
    decoder = MutationDecoder(Catalogue(parse_schema(DROPPED)))
    with pytest.raises(UnknownTableError) as caught:
        decoder.decode(MUTATIONS["insert"], messaging=12, segment_id=1, position=1)
    assert TABLE.table_id.bytes == caught.value.table_id


@given(st.sampled_from(sorted(MUTATIONS)), st.data())
def test_damaged_mutations_are_named_errors(name: str, data: st.DataObject) -> None:
    """A mutation with a wrong byte is another mutation or a named error, never a crash."""
    raw = bytearray(MUTATIONS[name])
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    decoder = MutationDecoder(Catalogue(sample_schema(static=name == "static")))
    with suppress(BadMutationError, BadValueError):
        mutation = decoder.decode(bytes(raw), messaging=12, segment_id=1, position=1)
        assert len(mutation.updates) <= len(mutation.changes()) + 1

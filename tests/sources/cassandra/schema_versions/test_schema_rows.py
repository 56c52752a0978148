"""Rows of `system_schema` fold as Cassandra folds them, and come to tables."""

from collections.abc import Mapping
from uuid import UUID

import pytest

from headrace.sources.cassandra.mutation.changes import (
    Cell,
    Column,
    Deletion,
    Liveness,
    Mutation,
    PartitionUpdate,
    RangeMarker,
    Row,
)
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.system_schema import SCHEMA_TABLES
from headrace.sources.cassandra.schema.system_schema_rows import TableRows
from headrace.sources.cassandra.schema.tables import TableSchema
from headrace.sources.cassandra.schema_versions.schema_rows import GONE_MAX, SchemaRows

ID, OTHER = UUID(int=1), UUID(int=2)
KEY = {"kind": "partition_key", "position": 0, "type": "int", "clustering_order": "none"}
REGULAR = {"kind": "regular", "position": -1, "type": "text", "clustering_order": "none"}
Rows = Mapping[tuple[str, ...], Mapping[str, object] | None]  # None deletes a row.


def encoded(value: object) -> bytes:
    """Return a value as it stands in a cell."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, bool):
        return bytes([value])
    if isinstance(value, int):
        return value.to_bytes(4, "big", signed=True)
    assert isinstance(value, list)
    texts = [text.encode() for text in value]
    return len(texts).to_bytes(4, "big") + b"".join(
        len(text).to_bytes(4, "big") + text for text in texts
    )


def update(kind: str, us: int, rows: Rows) -> PartitionUpdate:
    """Return what writes *rows* of the keyspace `ks` at *us*."""
    (table,) = [table for table in SCHEMA_TABLES.values() if table.name == kind]
    by_name = {column.name: column for column in table.columns}
    items = tuple(
        Row(tuple(n.encode() for n in names), None, Deletion(us, 0), ())
        if values is None
        else Row(
            tuple(n.encode() for n in names),
            Liveness(us),
            None,
            tuple(
                Column(by_name[n], (Cell(by_name[n], us, encoded(value)),))
                for n, value in values.items()
            ),
        )
        for names, values in rows.items()
    )
    return PartitionUpdate(table, b"ks", None, None, items)


def mutation(*updates: PartitionUpdate) -> Mutation:
    """Return a mutation of these updates."""
    return Mutation(1, 100, 12, 10, bytes(16), updates)


def created(us: int, table_id: UUID = ID, **columns: Mapping[str, object]) -> Mutation:
    """Return what CREATE TABLE ks.t leaves."""
    own = {"id": table_id, "cdc": True, "flags": ["compound"]}
    return mutation(
        update("columns", us, {("t", name): row for name, row in columns.items()}),
        update("tables", us, {("t",): own}),
    )


def folded(*mutations: Mutation, rows: SchemaRows | None = None) -> SchemaRows:
    """Return what these mutations come to."""
    found = rows or SchemaRows()
    for each in mutations:
        found = found.apply(each)
    return found


def names(table: TableSchema | None) -> list[str]:
    """Return the names of a table's columns that were not dropped."""
    assert table is not None
    return [column.name for column in table.columns if not column.is_dropped]


CREATE = created(10, k=KEY, a=REGULAR, b=REGULAR)
ADD = mutation(update("columns", 20, {("t", "c"): REGULAR}))
DROP = mutation(update("columns", 30, {("t", "c"): None}))


@pytest.mark.parametrize("order", [(CREATE, ADD, DROP), (CREATE, DROP, ADD), (DROP, ADD, CREATE)])
def test_the_newest_wins_in_any_order(order: tuple[Mutation, ...]) -> None:
    """Mutations that come late, as nodes exchange their schemas, undo nothing newer."""
    assert ["k", "a", "b"] == names(folded(*order).schema.table("ks.t"))


def test_what_comes_twice_changes_nothing() -> None:
    """The rows are the very same, so nothing is made again."""
    rows = folded(CREATE, ADD)

    assert rows is folded(ADD, CREATE, rows=rows)


def test_tables_that_are_not_touched_are_the_same_objects() -> None:
    """A change of one table leaves the others as they are."""
    other = parse_schema(f"CREATE TABLE ks.o (k int PRIMARY KEY) WITH ID = {OTHER};")
    rows = SchemaRows.of(other)

    assert rows.schema.tables[OTHER] is folded(CREATE, rows=rows).schema.tables[OTHER]


def test_a_table_is_known_when_all_of_it_is() -> None:
    """What only altered a table of which nothing was given does not make one."""
    assert not folded(mutation(*ADD.updates, CREATE.updates[1])).schema.tables


def test_given_tables_stand_below_the_log() -> None:
    """A given table is altered by the log, and one that the log creates owes it nothing."""
    ddl = "CREATE TABLE ks.t (k int PRIMARY KEY, later int) WITH ID = {};"
    given = SchemaRows.of(parse_schema(ddl.format(ID)))

    assert ["k", "c", "later"] == names(folded(ADD, rows=given).schema.table("ks.t"))
    assert ["k", "a", "b"] == names(folded(CREATE, rows=given).schema.table("ks.t"))


def test_a_given_table_is_made_again_only_if_more_is_known_of_it() -> None:
    """Alone it is what its rows come to; a column that the log has is added to it."""
    given = parse_schema(
        f"CREATE TABLE ks.t (k int PRIMARY KEY, a int) WITH ID = {ID};"
        f"CREATE TABLE ks.o (k list<int> PRIMARY KEY) WITH transactional_migration_from = 'x' "
        f"AND ID = {OTHER}; ALTER TABLE ks.t ADD b int; ALTER TABLE ks.t DROP a;"
    )
    alone = SchemaRows.of(given)
    beside = SchemaRows().apply(ADD).with_given(given, b"")

    assert given.tables[ID] is alone.schema.tables[ID]
    assert given.tables == SchemaRows.decode(alone.encode()).schema.tables
    assert ["k", "b", "c"] == names(beside.schema.tables[ID])
    assert given.tables[OTHER] is beside.schema.tables[OTHER]


def test_another_table_of_the_name_is_another_table() -> None:
    """After DROP and CREATE, seen or not, columns of the first life are gone, its id is known."""
    second = created(40, OTHER, k=KEY, z=REGULAR)
    seen = mutation(
        update("columns", 35, {("t", name): None for name in "kab"}),
        update("tables", 35, {("t",): None}),
    )
    for drops in ((seen,), ()):
        schema = folded(CREATE, *drops, second).schema
        assert ["k", "z"] == names(schema.table("ks.t"))
        assert schema.tables[ID].is_dropped
        assert ["k", "a", "b"] == names(schema.tables[ID])


def test_a_keyspace_goes_with_all_that_is_in_it() -> None:
    """A deletion of the partition covers what comes late, too."""
    partition = [
        PartitionUpdate(u.table, u.key, Deletion(50, 0), None, ())
        for u in (*CREATE.updates, update("keyspaces", 0, {}), update("types", 0, {}))
    ]
    rows = folded(CREATE, mutation(*partition), ADD, CREATE)

    assert rows.schema.table("ks.t") is None
    assert rows.schema.tables[ID].is_dropped


def test_a_range_of_rows_is_deleted() -> None:
    """All columns of one table, as a prefix of the clustering."""
    dropped = RangeMarker(constants.INCL_START, (b"t",), None, Deletion(60, 0))
    ended = RangeMarker(constants.INCL_END, (b"t",), Deletion(60, 0), None)
    covered = PartitionUpdate(CREATE.updates[0].table, b"ks", None, None, (dropped, ended))
    rows = folded(CREATE, mutation(covered))

    columns = [kept for group, kept in rows.groups.items() if group.kind == "columns"]
    assert [[None, None, None]] == [[row.values() for row in kept.values()] for kept in columns]


def test_types_reach_the_tables_that_use_them() -> None:
    """A field added to a type is in the tables' columns, and in their schema ids."""
    one = mutation(update("types", 5, {("u",): {"field_names": ["p"], "field_types": ["int"]}}))
    two = mutation(
        update("types", 15, {("u",): {"field_names": ["p", "q"], "field_types": ["int", "text"]}})
    )
    before = folded(one, created(10, k=KEY, v=REGULAR | {"type": "frozen<u>"}))
    tables = [rows.schema.tables[ID] for rows in (before, folded(two, rows=before))]

    assert [["p"], ["p", "q"]] == [[n for n, _ in t.columns[1].type.fields] for t in tables]
    assert tables[0].schema_id != tables[1].schema_id


def test_a_given_table_has_its_types_as_the_log_has_them() -> None:
    """The log knows of a field that what was given does not have."""
    kind = {"field_names": ["p", "q"], "field_types": ["int", "text"]}
    known = folded(mutation(update("types", 15, {("u",): kind})))
    given = parse_schema(
        f"CREATE TYPE ks.u (p int); CREATE TABLE ks.t (k frozen<u> PRIMARY KEY) WITH ID = {ID};"
    )

    table = known.with_given(given, b"").schema.tables[ID]

    assert ["p", "q"] == [name for name, _ in table.columns[0].type.fields]


def test_a_type_that_is_not_known_makes_no_table() -> None:
    """Nor does one that holds itself, which Cassandra does not allow."""
    unknown = created(10, k=KEY, v=REGULAR | {"type": "frozen<u>"})
    looped = mutation(
        update("types", 5, {("u",): {"field_names": ["p"], "field_types": ["frozen<u>"]}})
    )

    assert not folded(unknown).schema.tables
    assert not folded(looped, unknown).schema.tables


def test_tables_of_cassandra_itself_are_passed_over() -> None:
    """Their rows are not kept: no one reads them as changes."""
    own = [PartitionUpdate(u.table, b"system_auth", None, None, u.items) for u in CREATE.updates]

    assert SchemaRows() == folded(mutation(*own))


def test_dropped_tables_are_bounded() -> None:
    """The oldest is forgotten first."""
    rows = SchemaRows()
    for number in range(1, GONE_MAX + 3):
        rows = rows.apply(created(10 * number, UUID(int=number), k=KEY))

    assert GONE_MAX + 1 == len(rows.schema.tables)
    assert ID not in rows.schema.tables


def test_a_table_becomes_rows_and_is_the_same_again() -> None:
    """Orders, statics, dropped columns, types within types and odd names come back."""
    text = (
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy',"
        " 'replication_factor': 1};\n"
        "CREATE TYPE ks.inner (a int);\n"
        'CREATE TYPE ks."Outer" (i frozen<inner>, "Odd" list<int>);\n'
        'CREATE TABLE ks.t (k int, "C" text, d int, s int static, o "Outer", gone int, back text, '
        'PRIMARY KEY (k, "C", d)) WITH CLUSTERING ORDER BY ("C" DESC, d ASC) AND cdc = true '
        f"AND ID = {ID};\n"
        "ALTER TABLE ks.t DROP gone USING TIMESTAMP 5;\nALTER TABLE ks.t DROP back;\n"
        "ALTER TABLE ks.t ADD back text;"
    )
    (table,) = parse_schema(text).tables.values()

    assert table == TableRows.of(table).table()
    assert table == SchemaRows.of(parse_schema(text)).schema.tables[ID]


def test_rows_of_many_splits_are_decoded_once() -> None:
    """Splits at the same place have the same bytes: what they come to is one object."""
    given = parse_schema(f"CREATE TABLE ks.t (k int PRIMARY KEY) WITH ID = {ID};")
    raw = SchemaRows.of(given).encode()

    assert SchemaRows.decode(raw) is SchemaRows.decode(bytes(bytearray(raw)))

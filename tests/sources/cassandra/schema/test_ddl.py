"""A schema is a history of DDL; Cassandra's own system tables say what it led to."""

import json
from contextlib import suppress
from hashlib import md5
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.cassandra.schema.cursor import SchemaTextError
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.tables import ColumnKind, ColumnSchema, TableSchema
from helpers.recordings.corpora import recording
from helpers.settings.filled import filled

ID = "00000000-0000-1000-8000-00000000000"
RECORDINGS = [
    "4.0-types",
    "4.0-ops",
    "4.0-schema",
    "5.0-compact",
    "5.0-ring",
    "5.0-sizes",
    "5.0-types",
    "5.0-v8-random",
    "5.0-v8-schema",
    "6.0-v9-random",
]
USERS = (
    f"CREATE TABLE shop.users (id int, seq int, name text, PRIMARY KEY (id, seq)) WITH ID = {ID}1;"
)


def one(text: str) -> TableSchema:
    """Return the only live table that *text* leads to."""
    (table,) = [t for t in parse_schema(text).tables.values() if not t.is_dropped]
    return table


def names(table: TableSchema) -> list[str]:
    """Return column names in order; a dropped one begins with a minus."""
    return [f"-{c.name}" if c.is_dropped else c.name for c in table.columns]


def order(column: ColumnSchema) -> str:
    """Return the clustering order as system tables have it."""
    if column.kind is not ColumnKind.CLUSTERING:
        return "none"
    return "desc" if column.descending else "asc"


@pytest.mark.parametrize("name", RECORDINGS)
def test_history_leads_to_what_the_node_had(name: str) -> None:
    """The tables at the end of a recorded history are those of the node's system tables."""
    folder = recording(name)
    schema = parse_schema((folder / "schema.cql").read_text(), place="schema.cql")
    expected = json.loads((folder / "tables.json").read_text())["tables"]
    for wanted in filled(expected):
        found = schema.tables[UUID(wanted["id"])]
        assert (f"{wanted['keyspace']}.{wanted['table']}", bool(wanted["cdc"])) == (
            found.qualified,
            found.cdc,
        )
        columns = {
            (c["name"], c["kind"], c["position"], c["type"], c["order"]) for c in wanted["columns"]
        }
        live = [c for c in found.columns if not c.is_dropped]
        assert columns == {(c.name, c.kind, c.position, str(c.type), order(c)) for c in live}


@pytest.mark.parametrize("name", ["4.0-types", "5.0-ops", "6.0-v9-random"])
def test_canonical_text_reads_back(name: str) -> None:
    """The canonical text of a table is DDL that gives the same text again."""
    schema = parse_schema((recording(name) / "schema.cql").read_text())
    for table in filled(schema.tables.values()):
        joint = " AND" if " WITH " in table.text else " WITH"
        again = one(f"{table.text.rstrip().removesuffix(';')}{joint} ID = {ID}1;")
        assert table.text == again.text


def test_schema_id_is_of_the_canonical_text() -> None:
    """Spelling, table id and options do not change the schema id; a column does."""
    base = one(USERS)
    spelt = one(USERS.replace("(id, seq)", "((ID), seq)").replace("1;", "2 AND cdc = true;"))
    more = one(USERS.replace("name text", "name text, note text"))
    assert (
        "CREATE TABLE shop.users (id int, seq int, name text, PRIMARY KEY ((id), seq));\n"
        == base.text
    )
    assert md5(base.text.encode(), usedforsecurity=False).digest() == base.schema_id
    assert base.schema_id == spelt.schema_id
    assert base.schema_id != more.schema_id


def test_types_stand_before_their_table() -> None:
    """The canonical text holds the UDTs a table needs, each once, inner ones first."""
    text = one(
        "CREATE TYPE s.a (x int); CREATE TYPE s.unused (x int);"
        "CREATE TYPE s.b (y frozen<a>, z list<frozen<a>>);"
        f"CREATE TABLE s.t (k int PRIMARY KEY, v b, w frozen<a>) WITH ID = {ID}1"
    ).text
    assert [
        "CREATE TYPE s.a (x int);",
        "CREATE TYPE s.b (y frozen<a>, z frozen<list<frozen<a>>>);",
        "CREATE TABLE s.t (k int, v b, w frozen<a>, PRIMARY KEY ((k)));",
    ] == text.splitlines()


HISTORIES = {
    "columns are in order": ("", ["id", "seq", "name"]),
    "added": ("ALTER TABLE shop.users ADD b int, a int STATIC;", ["id", "seq", "a", "b", "name"]),
    "added in brackets": (
        "ALTER TABLE shop.users ADD (b int, a int);",
        ["id", "seq", "a", "b", "name"],
    ),
    "dropped": ("ALTER TABLE shop.users DROP name;", ["id", "seq", "-name"]),
    "dropped and back": (
        "ALTER TABLE shop.users DROP name; ALTER TABLE shop.users ADD name text;",
        ["id", "seq", "name"],
    ),
    "renamed": ("ALTER TABLE shop.users RENAME id TO kk AND seq TO cc;", ["kk", "cc", "name"]),
    "unless there": ("ALTER TABLE shop.users ADD IF NOT EXISTS name int;", ["id", "seq", "name"]),
    "if there": ("ALTER TABLE IF EXISTS shop.gone ADD x int;", ["id", "seq", "name"]),
    "masked": (
        (
            "ALTER TABLE shop.users ALTER name MASKED WITH mask_hash('x');"
            "ALTER TABLE shop.users ADD x int MASKED WITH mask_inner(1, null), y int;"
        ),
        ["id", "seq", "name", "x", "y"],
    ),
    "used keyspace": ("USE shop; ALTER TABLE users ADD x int", ["id", "seq", "name", "x"]),
    "other statements": (
        (
            "CREATE CUSTOM INDEX i ON shop.users (name) USING 'x'; CREATE ROLE r;"
            "CREATE FUNCTION shop.f(a int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE java"
            " AS $$ return a; $$; GRANT ALL ON shop.users TO r; DROP INDEX shop.i;"
        ),
        ["id", "seq", "name"],
    ),
    "comments": (
        "-- a\n// b\n/* c; */ ALTER /* d */ TABLE shop.users DROP name;",
        ["id", "seq", "-name"],
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_statements_change_a_table(name: str) -> None:
    """Each statement does to the columns what it does on a node."""
    text, expected = HISTORIES[name]
    assert expected == names(one(USERS + text))


def test_a_renamed_clustering_column_keeps_its_order() -> None:
    """After RENAME the table is the one that CREATE TABLE with the new names makes."""
    created = (
        "CREATE TABLE s.t (k int, {0} int, {1} int, PRIMARY KEY (k, {0}, {1}))"
        f" WITH CLUSTERING ORDER BY ({{0}} DESC, {{1}} ASC) AND ID = {ID}1;"
    )
    table = one(f"{created.format('a', 'b')} ALTER TABLE s.t RENAME a TO x AND b TO y;")

    assert one(created.format("x", "y")) == table
    assert [True, False] == [column.descending for column in table.clustering]


DESCRIBED = """
CREATE TABLE ks.events (
    id uuid,
    at timestamp,
    "Kind" text,
    gone frozen<tuple<int, text>>,
    v vector<float, 3>,
    PRIMARY KEY (id, at)
) WITH ID = 6f0c2f80-3b1e-11ef-9d2b-0f1e2d3c4b5a
    AND CLUSTERING ORDER BY (at DESC)
    AND additional_write_policy = '99p'
    AND allow_auto_snapshot = true
    AND bloom_filter_fp_chance = 0.01
    AND caching = {'keys': 'ALL', 'rows_per_partition': 'NONE'}
    AND cdc = true
    AND comment = 'it''s; "quoted"'
    AND compaction = {'class': 'org.apache.SizeTiered', 'max_threshold': '32'}
    AND extensions = {'key': 0xcafe}
    AND gc_grace_seconds = 864000
    AND speculative_retry = '99p';
ALTER TABLE ks.events DROP gone USING TIMESTAMP 1700000000000000;

CREATE CUSTOM INDEX i ON ks.events (v) USING 'StorageAttachedIndex' WITH OPTIONS = {'a': 'b'};
"""


def test_described_tables_are_read() -> None:
    """What DESCRIBE … WITH INTERNALS prints is read, all its options included."""
    table = one(DESCRIBED)
    assert ["id", "at", "Kind", "v", "-gone"] == names(table)
    assert (True, True) == (table.cdc, table.clustering[0].descending)
    assert 1700000000000000 == table.columns[-1].dropped_us


def test_drop_keeps_its_time() -> None:
    """The time of a drop stays with the column, also when the column comes back."""
    dropped = f"{USERS} ALTER TABLE shop.users DROP name USING TIMESTAMP 17;"
    gone = one(dropped).columns[-1]
    back = one(f"{dropped} ALTER TABLE shop.users ADD name text;").columns[-1]
    assert (17, True) == (gone.dropped_us, gone.is_dropped)
    assert (17, False) == (back.dropped_us, back.is_dropped)


@pytest.mark.parametrize(
    ("created", "altered", "expected"),
    [
        ("transactional_mode = 'full'", "comment = 'c'", ("full", "")),
        ("transactional_mode = 'full'", "transactional_mode = 'mixed_reads'", ("mixed_reads", "")),
        ("transactional_mode = 'full'", "transactional_mode = 'off'", ("off", "full")),
        ("comment = 'c'", "transactional_mode = 'full'", ("full", "off")),
        ("transactional_mode = 'off'", "transactional_mode = 'full'", ("full", "off")),
        ("comment = 'c'", "transactional_mode = 'off'", ("off", "")),
    ],
)
def test_a_migration_begins_where_accord_is_turned_on_or_off(
    created: str, altered: str, expected: tuple[str, str]
) -> None:
    """A table that was created with its mode does not migrate, nor one whose mode stays on."""
    made = f"CREATE TABLE s.t (k int PRIMARY KEY) WITH ID = {ID}1 AND {created};"
    table = one(f"{made} ALTER TABLE s.t WITH {altered};")

    assert expected == (table.transactional_mode, table.transactional_migration_from)


def test_dropped_table_stays_known_by_its_id() -> None:
    """A table that was dropped and created again is two tables, one of them dropped."""
    schema = parse_schema(f"{USERS} DROP TABLE shop.users; {USERS.replace(ID + '1', ID + '2')}")
    assert {UUID(f"{ID}1"): True, UUID(f"{ID}2"): False} == {
        i: t.is_dropped for i, t in schema.tables.items()
    }
    assert schema.table("shop.users") == schema.tables[UUID(f"{ID}2")]
    assert schema.table("shop.other") is None


def test_dropped_keyspace_takes_its_tables_along() -> None:
    """DROP KEYSPACE drops the tables and types in it."""
    schema = parse_schema(
        f"CREATE KEYSPACE shop; {USERS} DROP KEYSPACE shop; DROP KEYSPACE IF EXISTS x"
    )
    assert {} == schema.keyspaces
    assert [True] == [t.is_dropped for t in schema.tables.values()]


def test_type_changes_reach_the_tables() -> None:
    """Fields added to and renamed in a UDT are those of the columns that use it."""
    table = one(
        "CREATE KEYSPACE s; USE s; CREATE TYPE u (p int);"
        f"CREATE TABLE t (k int PRIMARY KEY, v frozen<u>) WITH ID = {ID}1;"
        "ALTER TYPE u ADD q text; ALTER TYPE s.u RENAME p TO pp AND q TO qq;"
    )
    assert [("pp", "int"), ("qq", "text")] == [(n, str(t)) for n, t in table.columns[1].type.fields]


def test_replication_is_kept() -> None:
    """A keyspace has its replication as text, the class without its package."""
    schema = parse_schema(
        "CREATE KEYSPACE a WITH replication ="
        " {'class': 'org.apache.cassandra.locator.SimpleStrategy', 'replication_factor': 3}"
        " AND durable_writes = true;"
        "CREATE KEYSPACE b WITH replication = {'class': 'SimpleStrategy'};"
        "ALTER KEYSPACE b WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': '2'};"
        "ALTER KEYSPACE b WITH durable_writes = false;"
    )
    assert {
        "a": {"class": "SimpleStrategy", "replication_factor": "3"},
        "b": {"class": "NetworkTopologyStrategy", "dc1": "2"},
    } == {name: keyspace.replication for name, keyspace in schema.keyspaces.items()}


def test_views_are_tables_of_their_own() -> None:
    """A view has the columns it selects under its own key, and gains what its base gains."""
    schema = parse_schema(
        f"{USERS} CREATE MATERIALIZED VIEW shop.by_name AS SELECT * FROM shop.users"  # noqa: S608 (DDL)
        " WHERE name IS NOT NULL AND seq > -1 PRIMARY KEY (name, id, seq)"
        f" WITH CLUSTERING ORDER BY (id DESC, seq ASC) AND ID = {ID}2;"
        "CREATE MATERIALIZED VIEW shop.few AS SELECT id, seq FROM shop.users WHERE id IS NOT NULL"
        f" PRIMARY KEY (seq, id) WITH ID = {ID}3;"
        "ALTER TABLE shop.users ADD note text; ALTER MATERIALIZED VIEW shop.few WITH cdc = true;"
        f"CREATE MATERIALIZED VIEW shop.gone AS SELECT id, seq FROM shop.users WHERE id IS NOT NULL"
        f" PRIMARY KEY (seq, id) WITH ID = {ID}4; DROP MATERIALIZED VIEW shop.gone;"
    )
    by_name, few = schema.tables[UUID(f"{ID}2")], schema.tables[UUID(f"{ID}3")]
    assert ["name", "id", "seq", "note"] == names(by_name)
    assert [True, False] == [column.descending for column in by_name.clustering]
    assert (["seq", "id"], True, True) == (names(few), few.cdc, few.is_view)
    assert schema.tables[UUID(f"{ID}4")].is_dropped


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("ADD shared int STATIC, own int", ["name", "id", "seq", "own"]),
        ("RENAME id TO kk AND seq TO cc", ["name", "kk", "cc"]),
    ],
)
def test_a_view_changes_as_cassandra_changes_it(change: str, expected: list[str]) -> None:
    """It gains no static columns, and its columns are renamed with those of its base."""
    schema = parse_schema(
        f"{USERS} CREATE MATERIALIZED VIEW shop.by_name AS SELECT * FROM shop.users"  # noqa: S608 (DDL)
        f" WHERE name IS NOT NULL PRIMARY KEY (name, id, seq) WITH ID = {ID}2;"
        f"ALTER TABLE shop.users {change};"
    )
    assert expected == names(schema.tables[UUID(f"{ID}2")])


COMMENTED = """\
/*
Warning: Table s.%s omitted because it has constructs not compatible with CQL (was created via \
legacy API).
Approximate structure, for reference:
(this should not be used to reproduce this schema)

%s
*/
"""


@pytest.mark.parametrize("name", ["5.0-compact"])
def test_tables_that_describe_puts_into_comments_are_read(name: str) -> None:
    """Each with COMPACT STORAGE is in one, as DESCRIBE prints it from 4.0 on."""
    text = (recording(name) / "schema.cql").read_text()
    plain, *tables = text.split("CREATE TABLE ")
    described = [COMMENTED % (table.split()[0], f"CREATE TABLE {table}") for table in tables]

    assert 1 < len(tables)
    assert parse_schema(text) == parse_schema(plain + "".join(described))


def test_a_table_in_a_comment_that_cannot_be_read_is_left_out() -> None:
    """What follows it is read, and mistakes of that are reported with their place."""
    strange = "CREATE TABLE s.old (k 'a.b.C(x=>y)', PRIMARY KEY (k)) WITH COMPACT STORAGE AND x = ;"
    good = f"CREATE TABLE s.t (k int PRIMARY KEY) WITH ID = {ID}1;"
    text = COMMENTED % ("old", strange) + good

    assert ["s.t"] == [table.qualified for table in parse_schema(text).tables.values()]
    with pytest.raises(SchemaTextError, match="line 8, column 1"):
        parse_schema(f"{COMMENTED % ('old', strange)}nonsense;")


def test_other_comments_are_passed_over() -> None:
    """Also those with statements in them, as of virtual tables."""
    good = f"CREATE TABLE s.t (k int PRIMARY KEY) WITH ID = {ID}1;"
    virtual = "/*\nWarning: Table s.v is a virtual table and cannot be recreated with CQL.\n"
    text = f"/* {good} */{virtual}{good}*/ {good.replace('s.t', 's.u')}"

    assert ["s.u"] == [table.qualified for table in parse_schema(text).tables.values()]


def test_compact_storage_can_be_dropped() -> None:
    """The columns that compact storage hides are there before and after it is dropped."""
    compact = f"CREATE TABLE s.t (k int PRIMARY KEY, x int) WITH COMPACT STORAGE AND ID = {ID}1;"
    before, after = one(compact), one(f"{compact} ALTER TABLE s.t DROP COMPACT STORAGE;")
    assert ["k", "column1", "x", "value"] == names(before)
    assert before.columns == after.columns
    assert (True, False) == (before.is_compact, after.is_compact)


def test_hidden_columns_avoid_names_in_use() -> None:
    """A column that compact storage adds gets another name where its own is taken."""
    table = one(
        "CREATE TABLE s.t (value int PRIMARY KEY, column1 int, value1 int)"
        f" WITH COMPACT STORAGE AND ID = {ID}1;"
    )
    assert ["value", "column2", "column1", "value1", "value2"] == names(table)


def test_counters_are_noted() -> None:
    """A table with a counter is a counter table."""
    table = one(
        f"CREATE TABLE s.t (k int PRIMARY KEY, n counter) WITH cdc = 'TRUE' AND ID = '{ID}1'"
    )
    assert (True, True) == (table.is_counter, table.cdc)


BAD = {
    "no id": (USERS.partition(" WITH")[0], "line 1, column 14: the table has no ID, found 'shop'"),
    "hint": (USERS.partition(" WITH")[0], "hint: write the schema with DESCRIBE"),
    "bad id": (USERS.replace(ID, "7"), "'71' is not a table ID"),
    "same id": (f"{USERS} {USERS.replace('users', 'other')}", "another table has this ID"),
    "same table": (f"{USERS} {USERS.replace(ID + '1', ID + '2')}", "this table exists already"),
    "no key": (f"CREATE TABLE s.t (k int) WITH ID = {ID}1", "the table has no PRIMARY KEY"),
    "two keys": (
        "CREATE TABLE s.t (k int, PRIMARY KEY (k), PRIMARY KEY (k))",
        "a second PRIMARY KEY",
    ),
    "unknown key": ("CREATE TABLE s.t (k int, PRIMARY KEY (j))", "PRIMARY KEY names j"),
    "repeated key": ("CREATE TABLE s.t (k int, PRIMARY KEY (k, k))", "names a column twice"),
    "repeated column": ("CREATE TABLE s.t (k int, k int)", "the column is there twice"),
    "unknown order": (
        f"CREATE TABLE s.t (k int PRIMARY KEY) WITH CLUSTERING ORDER BY (k DESC) AND ID = {ID}1",
        "CLUSTERING ORDER BY names no clustering column",
    ),
    "unknown table": ("ALTER TABLE s.t ADD x int", "unknown table"),
    "drop unknown table": ("DROP TABLE s.t", "unknown table"),
    "drop key": (f"{USERS} ALTER TABLE shop.users DROP id", "cannot drop id"),
    "drop at no time": (
        f"{USERS} ALTER TABLE shop.users DROP name USING TIMESTAMP x",
        "timestamp in µs",
    ),
    "drop at fraction": (
        f"{USERS} ALTER TABLE shop.users DROP name USING TIMESTAMP 1.5",
        "an integer",
    ),
    "add twice": (f"{USERS} ALTER TABLE shop.users ADD name int", "the column exists already"),
    "rename value": (f"{USERS} ALTER TABLE shop.users RENAME name TO x", "cannot rename name to x"),
    "rename onto": (f"{USERS} ALTER TABLE shop.users RENAME id TO seq", "cannot rename id to seq"),
    "alter nothing": (f"{USERS} ALTER TABLE shop.users", "expected 'WITH'"),
    "unknown type": (f"CREATE TABLE s.t (k u PRIMARY KEY) WITH ID = {ID}1", "unknown type s.u"),
    "same type": ("CREATE TYPE s.u (x int); CREATE TYPE s.u (x int);", "this type exists already"),
    "alter unknown type": ("ALTER TYPE s.u ADD x int", "unknown type"),
    "drop unknown type": ("DROP TYPE s.u", "unknown type"),
    "field twice": ("CREATE TYPE s.u (x int); ALTER TYPE s.u ADD x int", "has a field x already"),
    "rename field": (
        "CREATE TYPE s.u (x int); ALTER TYPE s.u RENAME y TO z",
        "cannot rename field y",
    ),
    "type in use": (
        (
            "CREATE TYPE s.u (x int);"
            f"CREATE TABLE s.t (k int PRIMARY KEY, v frozen<u>) WITH ID = {ID}1; DROP TYPE s.u;"
        ),
        "type s.u was dropped while in use",
    ),
    "endless type": (
        (
            "CREATE TYPE s.u (x int); ALTER TYPE s.u ADD y frozen<u>;"
            f"CREATE TABLE s.t (k int PRIMARY KEY, v frozen<u>) WITH ID = {ID}1;"
        ),
        "types nest deeper than 64",
    ),
    "no keyspace": ("CREATE TABLE t (k int PRIMARY KEY)", "expected a table with its keyspace"),
    "same keyspace": ("CREATE KEYSPACE s; CREATE KEYSPACE s;", "this keyspace exists already"),
    "alter unknown keyspace": ("ALTER KEYSPACE s WITH durable_writes = true", "unknown keyspace"),
    "drop unknown keyspace": ("DROP KEYSPACE s", "unknown keyspace"),
    "replication": ("CREATE KEYSPACE s WITH replication = 3", "expected a map as replication"),
    "view of nothing": ("CREATE MATERIALIZED VIEW s.v AS SELECT * FROM s.t", "unknown table"),
    "view without key": (
        f"{USERS} CREATE MATERIALIZED VIEW s.v AS SELECT * FROM shop.users",  # noqa: S608 (DDL)
        "PRIMARY KEY",
    ),
    "unknown view": ("ALTER MATERIALIZED VIEW s.v WITH cdc = true", "unknown view"),
    "no schema": ("SELECT 1", "line 1, column 1: expected a CREATE, ALTER or DROP of a schema"),
    "no semicolon": ("CREATE KEYSPACE a CREATE KEYSPACE b", "expected ';', found 'create'"),
    "second line": ("CREATE KEYSPACE a;\n  DROP x", "line 2, column 3: expected a CREATE"),
    "open string": ("CREATE KEYSPACE 'a", "line 1, column 17: the string is never closed"),
    "open value": ("CREATE KEYSPACE a WITH b = 'c", "column 28: the string is never closed"),
    "open, passed over": ("CREATE INDEX ON a (b) /* c", "column 23: the comment is never closed"),
    "open, after all else": (f'{USERS} "', "the name is never closed"),
    "open, in a mask": ("CREATE TABLE s.t (a int MASKED WITH $$", "the string is never closed"),
    "a mistake before": ("CREATE x;\nCREATE KEYSPACE 'a", "line 1, column 1: expected a CREATE"),
    "no value": ("CREATE KEYSPACE s WITH a = }", "expected a value"),
}


@pytest.mark.parametrize("name", BAD)
def test_contradictions_are_refused_with_their_place(name: str) -> None:
    """DDL that makes no sense gives a named error that says where."""
    text, message = BAD[name]
    with pytest.raises(SchemaTextError) as caught:
        parse_schema(text)
    assert message in str(caught.value)


def test_errors_name_the_file() -> None:
    """The place of an error begins with the name given for the text."""
    with pytest.raises(SchemaTextError, match=r"schema\.cql: line 1, column 1"):
        parse_schema("?", place="schema.cql")


WORDS = """CREATE ALTER DROP TABLE TYPE KEYSPACE MATERIALIZED VIEW shop.users s.t ( ) , ; id int
PRIMARY KEY WITH AND ID = cdc true { } : 'x' ADD RENAME TO USING TIMESTAMP 7 STATIC IF NOT EXISTS
CLUSTERING ORDER BY DESC COMPACT STORAGE list < > frozen SELECT * FROM AS text"""


@given(st.lists(st.sampled_from(WORDS.split()), max_size=25))
def test_any_words_are_a_schema_or_a_named_error(words: list[str]) -> None:
    """No row of DDL words makes the parser raise anything but its own error."""
    with suppress(SchemaTextError):
        schema = parse_schema(USERS + " ".join(words))
        assert "shop.users" in {table.qualified for table in schema.tables.values()}

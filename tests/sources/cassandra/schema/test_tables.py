"""Schema values order their columns and name system tables as Cassandra does."""

import re
from uuid import UUID

import pytest

from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.tables import (
    ColumnKind,
    ColumnSchema,
    TableSchema,
    system_table_id,
)
from headrace.sources.cassandra.schema.types import CqlType, parse_type
from helpers.settings.native_modules import ROOT

SYSTEM_TABLES = {
    ("system_schema", "tables"): "afddfb9d-bc1e-3068-8056-eed6c302ba09",
    ("system_schema", "columns"): "24101c25-a2ae-3af7-87c1-b40ee1aca33f",
    ("system", "local"): "7ad54392-bcdd-35a6-8417-4e047860b377",
    ("system", "batches"): "919a4bc5-7a33-3573-b03e-13fc3f68b465",
    ("system", "paxos"): "b7b7f0c2-fd0a-3410-8c05-3ef614bb7c2d",
}


@pytest.mark.parametrize("name", SYSTEM_TABLES)
def test_system_tables_have_ids_of_their_names(name: tuple[str, str]) -> None:
    """A system table's id is the one that every node gives it, of UUID version 3."""
    found = system_table_id(*name)
    assert (UUID(SYSTEM_TABLES[name]), 3) == (found, found.version)


def test_key_columns_are_never_complex() -> None:
    """A collection in the primary key is one value, frozen or not."""
    tags = parse_type("set<int>")
    key = ColumnSchema("k", ColumnKind.PARTITION_KEY, 0, tags)
    regular = ColumnSchema("r", ColumnKind.REGULAR, -1, tags)
    assert (False, True) == (key.is_complex, regular.is_complex)


def test_names_are_quoted_in_the_canonical_text() -> None:
    """Names that CQL would not read as they are stand in quotes; `qualified` never quotes."""
    columns = (
        ColumnSchema("Key", ColumnKind.PARTITION_KEY, 0, CqlType("int")),
        ColumnSchema("order", ColumnKind.CLUSTERING, 0, CqlType("int"), descending=True),
        ColumnSchema("gone", ColumnKind.REGULAR, -1, CqlType("int"), is_dropped=True),
    )
    table = TableSchema("My Shop", "users", UUID(int=1), cdc=True, columns=columns)
    assert (
        'CREATE TABLE "My Shop".users ("Key" int, "order" int, PRIMARY KEY (("Key"), "order"))'
        ' WITH CLUSTERING ORDER BY ("order" DESC);\n'
    ) == table.text
    assert "My Shop.users" == table.qualified


def test_the_pages_example_has_the_id_it_says() -> None:
    """The canonical text on the page about Avro is that of its table, and so is the id."""
    page = (ROOT / "docs" / "avro.md").read_text()
    (text,) = re.findall(r"^```cql\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    keyspace = "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy'};\n"
    made = parse_schema(keyspace + text.replace(") WITH CL", f") WITH ID = {UUID(int=1)} AND CL"))
    table = made.table("shop.orders")

    assert table is not None
    assert text == table.text
    assert f"The id of this table is `{table.schema_id.hex()}`" in page

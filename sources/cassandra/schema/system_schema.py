"""The tables in which Cassandra keeps its schema, of all releases from 4.0 to 6.0 together.

Their mutations are in every log, and show how the schema changed there. Their ids are made from
their names, and no column changes its type between releases, so one definition reads all. Plain
data; `schema_rows` interprets the rows.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final
from uuid import UUID

from headrace.sources.cassandra.schema.tables import (
    ColumnKind,
    ColumnSchema,
    TableSchema,
    in_order,
    system_table_id,
)
from headrace.sources.cassandra.schema.types import parse_type

KEYSPACE: Final = "system_schema"
_TEXTS: Final = "frozen<list<text>>"
_OPTIONS: Final = "frozen<map<text, text>>"
_TABLE_OPTIONS: Final[Mapping[str, str]] = {
    "additional_write_policy": "text",
    "allow_auto_snapshot": "boolean",
    "auto_repair": _OPTIONS,
    "bloom_filter_fp_chance": "double",
    "caching": _OPTIONS,
    "cdc": "boolean",
    "comment": "text",
    "compaction": _OPTIONS,
    "compression": _OPTIONS,
    "crc_check_chance": "double",
    "dclocal_read_repair_chance": "double",
    "default_time_to_live": "int",
    "extensions": "frozen<map<text, blob>>",
    "fast_path": _OPTIONS,
    "gc_grace_seconds": "int",
    "id": "uuid",
    "incremental_backups": "boolean",
    "max_index_interval": "int",
    "memtable": "text",
    "memtable_flush_period_in_ms": "int",
    "min_index_interval": "int",
    "pending_drop": "boolean",
    "read_repair": "text",
    "read_repair_chance": "double",
    "speculative_retry": "text",
    "transactional_migration_from": "text",
    "transactional_mode": "text",
}
_OF_COLUMN: Final = ("table_name", "column_name")
_OF_FUNCTION: Final = {"argument_types": _TEXTS}
# Each table's clustering columns, of type text unless listed otherwise, and its other columns.
_TABLES: Final[Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]]] = {
    "aggregates": (
        ("aggregate_name", "argument_types"),
        {
            "deterministic": "boolean",
            "final_func": "text",
            "initcond": "text",
            "return_type": "text",
            "state_func": "text",
            "state_type": "text",
        },
    ),
    "functions": (
        ("function_name", "argument_types"),
        {
            "argument_names": _TEXTS,
            "body": "text",
            "called_on_null_input": "boolean",
            "deterministic": "boolean",
            "language": "text",
            "monotonic": "boolean",
            "monotonic_on": _TEXTS,
            "return_type": "text",
        },
    ),
    "keyspaces": (
        (),
        {
            "durable_writes": "boolean",
            "fast_path": _OPTIONS,
            "replication": _OPTIONS,
            "replication_type": "text",
        },
    ),
    "tables": (("table_name",), {"flags": "frozen<set<text>>", **_TABLE_OPTIONS}),
    "views": (
        ("view_name",),
        {
            "base_table_id": "uuid",
            "base_table_name": "text",
            "include_all_columns": "boolean",
            "where_clause": "text",
            **_TABLE_OPTIONS,
        },
    ),
    "columns": (
        _OF_COLUMN,
        {
            "clustering_order": "text",
            "column_name_bytes": "blob",
            "kind": "text",
            "position": "int",
            "type": "text",
        },
    ),
    "dropped_columns": (_OF_COLUMN, {"dropped_time": "timestamp", "kind": "text", "type": "text"}),
    "types": (("type_name",), {"field_names": _TEXTS, "field_types": _TEXTS}),
    "column_masks": (
        _OF_COLUMN,
        {
            "function_argument_nulls": "frozen<list<boolean>>",
            "function_argument_types": _TEXTS,
            "function_argument_values": _TEXTS,
            "function_keyspace": "text",
            "function_name": "text",
        },
    ),
    "column_constraints": (("table_name", "column_name"), {"expression": "text"}),
    "indexes": (("table_name", "index_name"), {"kind": "text", "options": _OPTIONS}),
    "triggers": (("table_name", "trigger_name"), {"options": _OPTIONS}),
}


def _table(name: str, clustering: Iterable[str], others: Mapping[str, str]) -> TableSchema:
    types = {"keyspace_name": "text", **dict.fromkeys(clustering, "text"), **others}
    types |= {column: cql_type for column, cql_type in _OF_FUNCTION.items() if column in types}
    kinds = {"keyspace_name": (ColumnKind.PARTITION_KEY, 0)}
    kinds |= {column: (ColumnKind.CLUSTERING, i) for i, column in enumerate(clustering)}
    columns = [
        ColumnSchema(column, *kinds.get(column, (ColumnKind.REGULAR, -1)), parse_type(cql_type))
        for column, cql_type in types.items()
    ]
    table_id = system_table_id(KEYSPACE, name)
    return TableSchema(KEYSPACE, name, table_id, cdc=False, columns=in_order(columns))


SCHEMA_TABLES: Final[Mapping[UUID, TableSchema]] = MappingProxyType(
    {table.table_id: table for table in (_table(name, *parts) for name, parts in _TABLES.items())}
)
IDS: Final = frozenset(table_id.bytes for table_id in SCHEMA_TABLES)

"""Converts rows of `system_schema` to a table, and a table to such rows.

The rows are from a log, from the driver, or made from a table in a file. Their values are plain:
strings, numbers, lists and maps of strings. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from headrace.sources.cassandra.schema.tables import (
    ColumnKind,
    ColumnSchema,
    KeyspaceSchema,
    TableSchema,
    in_order,
    udts_of,
)
from headrace.sources.cassandra.schema.types import TYPE_DEPTH_MAX, CqlType, parse_type

_DENSE: Final = ("dense", "super")  # Flags of COMPACT STORAGE, like a missing "compound".

Values = Mapping[str, Any]  # A row by column; its system table defines the types.


class TableRows(msgspec.Struct, frozen=True, array_like=True):
    """The rows of `system_schema` about one table or view.

    `own` is its row of `tables` or `views`; `columns` and `dropped` are by column name, `types` by
    the name of the UDT. A `dropped_time` is in µs; None if only the drop itself is known.
    """

    keyspace: str
    name: str
    own: Values
    columns: Mapping[str, Values]
    dropped: Mapping[str, Values]
    types: Mapping[str, Values]
    is_view: bool = False

    @classmethod
    def of(cls, table: TableSchema) -> "TableRows":
        """Return the rows of *table*."""
        flags = ["compound", *["dense"] * table.is_compact, *["counter"] * table.is_counter]
        columns: dict[str, Values] = {}
        dropped: dict[str, Values] = {}
        for column in table.columns:
            kind, cql_type = column.kind.value, str(column.type)
            if not column.is_dropped:
                columns[column.name] = {
                    "kind": kind,
                    "type": cql_type,
                    "position": column.position,
                    "clustering_order": "desc" if column.descending else "asc",
                }
            if column.is_dropped or column.dropped_us is not None:
                us = column.dropped_us
                dropped[column.name] = {"kind": kind, "type": cql_type, "dropped_time": us}
        types = {
            udt.name: {
                "field_names": [name for name, _ in udt.fields],
                "field_types": [str(inner) for _, inner in udt.fields],
            }
            for udt in udts_of(column.type for column in table.columns)
        }
        own: dict[str, object] = {"id": str(table.table_id), "cdc": table.cdc, "flags": flags}
        if table.transactional_mode or table.transactional_migration_from:
            own["transactional_mode"] = table.transactional_mode
            own["transactional_migration_from"] = table.transactional_migration_from
        return cls(table.keyspace, table.name, own, columns, dropped, types, table.is_view)

    def table(self, *, is_dropped: bool = False) -> TableSchema:
        """Return the table that the rows describe.

        Raises:
            SchemaTextError: a type cannot be read, or a UDT is missing in `types`.
            KeyError, ValueError: Cassandra would not write such rows.

        """
        found = [self._column(name, row) for name, row in self.columns.items()]
        found += [
            self._column(name, row, is_dropped=True)
            for name, row in self.dropped.items()
            if name not in self.columns
        ]
        flags = set(self.own.get("flags", ("compound",)) or ())  # Views have none.
        return TableSchema(
            self.keyspace,
            self.name,
            UUID(str(self.own["id"])),
            bool(self.own.get("cdc")),  # Only nodes with CDC enabled have the column.
            in_order(found),
            is_counter="counter" in flags,
            is_compact="compound" not in flags or not flags.isdisjoint(_DENSE),
            is_view=self.is_view,
            is_dropped=is_dropped,
            transactional_mode=self.own.get("transactional_mode") or "",
            transactional_migration_from=self.own.get("transactional_migration_from") or "",
        )

    def _column(self, name: str, row: Values, *, is_dropped: bool = False) -> ColumnSchema:
        kind = ColumnKind(row["kind"])
        lookup = _Udts(self.keyspace, self.types).find
        return ColumnSchema(
            name,
            kind,
            -1 if is_dropped else row["position"],
            parse_type(row["type"], self.keyspace, lookup),
            descending=row.get("clustering_order") == "desc",
            dropped_us=self.dropped.get(name, {}).get("dropped_time"),
            is_dropped=is_dropped,
        )


def keyspace_of(name: str, row: Values) -> KeyspaceSchema:
    """Return the keyspace of a row of `keyspaces`."""
    return KeyspaceSchema(
        name,
        dict(row["replication"]),
        durable_writes=row.get("durable_writes") is not False,
        is_tracked=row.get("replication_type") == "tracked",
    )


class _Udts:
    """Finds UDTs by name, with their fields."""

    def __init__(self, keyspace: str, types: Mapping[str, Values]) -> None:
        self._keyspace = keyspace
        self._types = types
        self._depth = 0

    def find(self, keyspace: str, name: str) -> CqlType | None:
        row = self._types.get(name)
        if row is None or keyspace != self._keyspace or self._depth > TYPE_DEPTH_MAX:
            return None
        self._depth += 1
        pairs = zip(row["field_names"], row["field_types"], strict=True)
        fields = tuple((n, parse_type(text, keyspace, self.find).freeze()) for n, text in pairs)
        self._depth -= 1
        return CqlType(name, keyspace=keyspace, fields=fields)

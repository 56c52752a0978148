"""Tables as a reader of a log needs them: columns in order, types, ids, schema ids.

Plain values, made by `ddl.parse_schema` or by hand; nothing here parses or does I/O.

The canonical text of a table, whose MD5 is its schema id:

* one `CREATE TYPE ks.name (field type, ...);` line per UDT the table needs, inner ones first, then
  one `CREATE TABLE ks.name (column type[ static], ..., PRIMARY KEY ((p, ...)[, c, ...]))` line,
  with ` WITH CLUSTERING ORDER BY (c ASC, ...)` when one of them is DESC; then `;`
* columns in this module's order, without dropped ones; types as `system_schema` spells them;
  names quoted only where CQL demands it; lines end with a line feed, the last one too
* no table id and no option: what does not change a record does not change its schema id.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from hashlib import md5
from typing import Final
from uuid import UUID

import msgspec

from headrace.plugins.cql_text import quote_name
from headrace.sources.cassandra.schema.types import CqlType

# Cassandra's own; other names with these prefixes are users'.
SYSTEM_KEYSPACES: Final = frozenset(
    {
        "system",
        "system_accord",
        "system_auth",
        "system_cluster_metadata",
        "system_distributed",
        "system_schema",
        "system_traces",
    }
)


class ColumnKind(StrEnum):
    """A column's part in its table."""

    PARTITION_KEY = "partition_key"
    CLUSTERING = "clustering"
    STATIC = "static"
    REGULAR = "regular"


_RANKS: Final = {kind: rank for rank, kind in enumerate(ColumnKind)}


class ColumnSchema(msgspec.Struct, frozen=True):
    """One column. `position` counts from 0 within the key's part, and is -1 for other kinds.

    `dropped_us` is the time of the last DROP in µs if known: cells written at or before it do not
    count, even if the column was added again. `is_dropped`: it was not added again.
    """

    name: str
    kind: ColumnKind
    position: int
    type: CqlType
    descending: bool = False
    dropped_us: int | None = None
    is_dropped: bool = False

    @property
    def is_complex(self) -> bool:
        """Whether the log contains this column cell by cell."""
        return self.kind in (ColumnKind.STATIC, ColumnKind.REGULAR) and self.type.is_complex

    @property
    def is_list(self) -> bool:
        """Whether it is a list whose elements are cells of their own."""
        return self.is_complex and not self.type.is_udt and self.type.name == "list"


class TableSchema(msgspec.Struct, frozen=True, dict=True):
    """One table, as of the end of a schema's history.

    `columns` are in this order: partition key and clustering (by position), static, regular (each
    by the bytes of their names), dropped ones (by the same). `is_dropped`: the table was dropped
    later, and its entries can still be in a log. Empty `transactional_…` are unknown.
    """

    keyspace: str
    name: str
    table_id: UUID
    cdc: bool
    columns: tuple[ColumnSchema, ...]
    is_counter: bool = False
    is_compact: bool = False
    is_view: bool = False
    is_dropped: bool = False
    transactional_mode: str = ""
    transactional_migration_from: str = ""

    @cached_property
    def text(self) -> str:
        """The canonical text; only needed for tables that are delivered."""
        return _table_text(self)

    @cached_property
    def schema_id(self) -> bytes:
        """The MD5 of the canonical text."""
        return md5(self.text.encode(), usedforsecurity=False).digest()

    def __hash__(self) -> int:
        """Hash the fields that distinguish versions of a table, without the columns."""
        return hash((self.table_id, self.schema_id, self.cdc))

    @property
    def qualified(self) -> str:
        """The table as `keyspace.name`, unquoted."""
        return f"{self.keyspace}.{self.name}"

    @property
    def partition_key(self) -> tuple[ColumnSchema, ...]:
        """The partition key columns, by position."""
        return self._of_kind(ColumnKind.PARTITION_KEY)

    @property
    def clustering(self) -> tuple[ColumnSchema, ...]:
        """The clustering columns, by position."""
        return self._of_kind(ColumnKind.CLUSTERING)

    def _of_kind(self, kind: ColumnKind) -> tuple[ColumnSchema, ...]:
        return tuple([column for column in self.columns if column.kind is kind])


class KeyspaceSchema(msgspec.Struct, frozen=True):
    """One keyspace; `replication` has `class`, and `replication_factor` or one entry per DC.

    `is_tracked`: the keyspace has `replication_type = 'tracked'`.
    """

    name: str
    replication: Mapping[str, str]
    durable_writes: bool = True
    is_tracked: bool = False


class Schema(msgspec.Struct, frozen=True):
    """Keyspaces by name and tables by id, dropped tables included."""

    keyspaces: Mapping[str, KeyspaceSchema]
    tables: Mapping[UUID, TableSchema]

    def table(self, name: str) -> TableSchema | None:
        """Return the table `keyspace.name` if it exists and was not dropped, else None."""
        live = (table for table in self.tables.values() if not table.is_dropped)
        return next((table for table in live if table.qualified == name), None)


def in_order(columns: Iterable[ColumnSchema]) -> tuple[ColumnSchema, ...]:
    """Return *columns* in the order of `TableSchema.columns`."""
    return tuple(sorted(columns, key=_order))


def _order(column: ColumnSchema) -> tuple[bool, int, int, bytes]:
    """Return the sort key for the order of `TableSchema.columns`."""
    rank = 0 if column.is_dropped else _RANKS[column.kind]
    return column.is_dropped, rank, column.position, column.name.encode()


def system_table_id(keyspace: str, table: str) -> UUID:
    """Return the id of a system table; system tables are those whose id has version 3."""
    digest = md5(f"{keyspace}{table}".encode(), usedforsecurity=False).digest()
    return UUID(bytes=digest, version=3)


def _table_text(table: TableSchema) -> str:
    columns = [column for column in table.columns if not column.is_dropped]
    lines = [_type_line(udt) for udt in udts_of(column.type for column in columns)]
    parts = [_declaration(column) for column in columns]
    partition = ", ".join([quote_name(column.name) for column in table.partition_key])
    clustering = table.clustering
    rest = "".join([f", {quote_name(column.name)}" for column in clustering])
    parts.append(f"PRIMARY KEY (({partition}){rest})")
    name = f"{quote_name(table.keyspace)}.{quote_name(table.name)}"
    order = _clustering_order(clustering)
    lines.append(f"CREATE TABLE {name} ({', '.join(parts)}){order};")
    return "".join([f"{line}\n" for line in lines])


def _declaration(column: ColumnSchema) -> str:
    static = " static" if column.kind is ColumnKind.STATIC else ""
    return f"{quote_name(column.name)} {column.type}{static}"


def _clustering_order(clustering: Iterable[ColumnSchema]) -> str:
    if True not in [column.descending for column in clustering]:
        return ""
    orders = (f"{quote_name(c.name)} {'DESC' if c.descending else 'ASC'}" for c in clustering)
    return f" WITH CLUSTERING ORDER BY ({', '.join(orders)})"


def udts_of(types: Iterable[CqlType]) -> Sequence[CqlType]:
    """Return the UDTs in *types*, each once, after the UDTs that it contains."""
    found: dict[str, CqlType] = {}
    for cql_type in types:
        if not cql_type.is_native:
            _collect_udts(cql_type, found)
    return list(found.values())


def _collect_udts(cql_type: CqlType, found: dict[str, CqlType]) -> None:
    if cql_type.is_udt and cql_type.name in found:
        return
    for inner in (*cql_type.arguments, *(inner for _name, inner in cql_type.fields)):
        _collect_udts(inner, found)
    if cql_type.is_udt:
        found[cql_type.name] = cql_type


def _type_line(udt: CqlType) -> str:
    fields = ", ".join(f"{quote_name(name)} {inner}" for name, inner in udt.fields)
    return f"CREATE TYPE {quote_name(udt.keyspace)}.{quote_name(udt.name)} ({fields});"

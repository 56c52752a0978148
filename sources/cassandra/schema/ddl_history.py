"""A schema while its history is applied: tables and types that statements can still change.

The DDL parser calls it; the result is a frozen `Schema`. A dropped table keeps its last state,
since its entries can still be in a log.
"""

from typing import Final
from uuid import UUID

import msgspec

from headrace.sources.cassandra.schema.cursor import SchemaTextError
from headrace.sources.cassandra.schema.tables import (
    ColumnKind,
    ColumnSchema,
    KeyspaceSchema,
    Schema,
    TableSchema,
    in_order,
)
from headrace.sources.cassandra.schema.types import TYPE_DEPTH_MAX, CqlType

_OFF: Final = ("", "off")  # Without a mode, it is off.


class Options(msgspec.Struct):
    """The options after WITH; maps of options keep their values as text."""

    values: dict[str, str | dict[str, str]] = msgspec.field(default_factory=dict)
    descending: list[str] = msgspec.field(default_factory=list)
    compact: bool = False


class ColumnDraft(msgspec.Struct, frozen=True):
    """A column whose part of the key is not known yet; UDTs in `type` have no fields yet."""

    type: CqlType
    kind: ColumnKind = ColumnKind.REGULAR
    dropped_us: int | None = None


class TableDraft(msgspec.Struct):
    """A table or view after the statements so far."""

    keyspace: str
    name: str
    table_id: UUID
    base: "TableDraft | None" = None
    selects_all: bool = False
    columns: dict[str, ColumnDraft] = msgspec.field(default_factory=dict)
    dropped: dict[str, ColumnDraft] = msgspec.field(default_factory=dict)
    partition_key: list[str] = msgspec.field(default_factory=list)
    clustering: list[str] = msgspec.field(default_factory=list)
    descending: list[str] = msgspec.field(default_factory=list)
    cdc: bool = False
    compact: bool = False
    mode: str = ""
    migrates_from: str = ""
    is_made: bool = False

    def apply(self, options: Options) -> None:
        """Apply the options that matter to a reader of the log.

        A change of the mode that turns Accord on or off starts a migration, unless an option says
        otherwise.
        """
        if "cdc" in options.values:
            self.cdc = str(options.values["cdc"]).lower() == "true"
        mode = str(options.values.get("transactional_mode", self.mode)).lower()
        if self.is_made and (mode in _OFF) != (self.mode in _OFF):
            self.migrates_from = self.mode or "off"
        self.mode = mode
        migrates_from = options.values.get("transactional_migration_from", self.migrates_from)
        self.migrates_from = str(migrates_from).lower()

    def drop_column(self, name: str, dropped_us: int | None) -> bool:
        """Move a column to the dropped ones; False if it is unknown or part of the key."""
        if name not in self.columns or name in (*self.partition_key, *self.clustering):
            return False
        self.dropped[name] = msgspec.structs.replace(self.columns.pop(name), dropped_us=dropped_us)
        return True

    def add_column(self, name: str, column: ColumnDraft) -> None:
        """Add a column, perhaps one that was dropped."""
        before = self.dropped.pop(name, None)
        self.columns[name] = (
            msgspec.structs.replace(column, dropped_us=before.dropped_us) if before else column
        )

    def rename(self, old: str, new: str) -> bool:
        """Rename a column of the primary key; False if it is not one, or *new* exists."""
        if new in self.columns:
            return False
        for names in (self.partition_key, self.clustering):
            if old in names:
                names[names.index(old)] = new
                self.columns[new] = self.columns.pop(old)
                self.descending = [new if name == old else name for name in self.descending]
                return True
        return False

    def drop_compact_storage(self) -> None:
        """Show the columns that compact storage hid; their bytes do not change."""
        if self.compact:
            self._show_compact_columns()
            self.compact = False

    def _show_compact_columns(self) -> None:
        """Add the columns that Cassandra keeps beside the declared ones with COMPACT STORAGE.

        Without clustering columns, the declared ones become static, above rows of name and value.
        With them, a table of keys only has one empty value.
        """
        regular = {n: c for n, c in self.columns.items() if n not in self.partition_key}
        if not self.clustering:
            counters = any(column.type.name == "counter" for column in regular.values())
            for name, column in regular.items():
                self.columns[name] = msgspec.structs.replace(column, kind=ColumnKind.STATIC)
            clustering = self._free_name("column1")
            self.clustering.append(clustering)
            self.columns[clustering] = ColumnDraft(CqlType("text"))
            value = CqlType("counter" if counters else "blob")
            self.columns[self._free_name("value")] = ColumnDraft(value)
        elif not set(regular) - set(self.clustering):
            self.columns[self._free_name("value")] = ColumnDraft(CqlType("empty"))

    def _free_name(self, name: str) -> str:
        stem = name.rstrip("1")
        number = 1
        while name in self.columns:
            number += 1
            name = f"{stem}{number if stem == 'column' else number - 1}"
        return name


class History:
    """The result of the statements so far: the live tables and types by name."""

    def __init__(self) -> None:
        """Start with an empty schema."""
        self.keyspaces: dict[str, KeyspaceSchema] = {}
        self.types: dict[tuple[str, str], list[tuple[str, CqlType]]] = {}
        self.tables: dict[tuple[str, str], TableDraft] = {}
        self._gone: dict[UUID, TableSchema] = {}
        self._ids: set[UUID] = set()

    def udt(self, keyspace: str, name: str) -> CqlType | None:
        """Return a reference to the UDT, or None; its fields are filled in by `schema`."""
        known = (keyspace, name) in self.types
        return CqlType(name, keyspace=keyspace) if known else None

    def add_table(self, table: TableDraft) -> bool:
        """Add a table; False if its id exists."""
        if table.table_id in self._ids:
            return False
        self._ids.add(table.table_id)
        table.is_made = True
        self.tables[table.keyspace, table.name] = table
        return True

    def add_column(self, table: TableDraft, name: str, column: ColumnDraft) -> None:
        """Add a column to a table, and to its views that select all."""
        table.add_column(name, column)
        for view in self.tables.values():
            if view.base is table and view.selects_all and column.kind is not ColumnKind.STATIC:
                view.add_column(name, column)

    def rename(self, table: TableDraft, old: str, new: str) -> bool:
        """Rename a column in a table and in its views; see `TableDraft.rename`."""
        if not table.rename(old, new):
            return False
        for view in self.tables.values():
            if view.base is table:
                view.rename(old, new)
        return True

    def drop_table(self, key: tuple[str, str]) -> bool:
        """Drop a table, keeping its last state under its id; False if it does not exist."""
        table = self.tables.get(key)
        if table is None:
            return False
        self._gone[table.table_id] = self._finish(table, is_dropped=True)
        del self.tables[key]
        return True

    def drop_keyspace(self, name: str) -> bool:
        """Drop a keyspace with its tables and types; False if it does not exist."""
        if self.keyspaces.pop(name, None) is None:
            return False
        for key in [key for key in self.tables if key[0] == name]:
            self.drop_table(key)
        for key in [key for key in self.types if key[0] == name]:
            del self.types[key]
        return True

    def schema(self) -> Schema:
        """Return the resulting schema."""
        live = (self._finish(table, is_dropped=False) for table in self.tables.values())
        tables = self._gone | {table.table_id: table for table in live}
        return Schema(dict(self.keyspaces), tables)

    def _finish(self, draft: TableDraft, *, is_dropped: bool) -> TableSchema:
        table = msgspec.structs.replace(
            draft,
            columns=dict(draft.columns),
            clustering=list(draft.clustering),
        )
        if table.compact:
            table.drop_compact_storage()
        columns = [self._column(table, n, c, is_dropped=False) for n, c in table.columns.items()]
        columns += [self._column(table, n, c, is_dropped=True) for n, c in table.dropped.items()]
        return TableSchema(
            keyspace=table.keyspace,
            name=table.name,
            table_id=table.table_id,
            cdc=table.cdc,
            columns=in_order(columns),
            is_counter=any(column.type.name == "counter" for column in columns),
            is_compact=draft.compact,
            is_view=table.base is not None,
            is_dropped=is_dropped,
            transactional_mode=table.mode,
            transactional_migration_from=table.migrates_from,
        )

    def _column(
        self, table: TableDraft, name: str, draft: ColumnDraft, *, is_dropped: bool
    ) -> ColumnSchema:
        kind, position = draft.kind, -1
        if name in table.partition_key:
            kind, position = ColumnKind.PARTITION_KEY, table.partition_key.index(name)
        elif name in table.clustering:
            kind, position = ColumnKind.CLUSTERING, table.clustering.index(name)
        resolved = self._resolve(draft.type, {})
        if position >= 0:
            resolved = resolved.freeze()
        return ColumnSchema(
            name=name,
            kind=kind,
            position=position,
            type=resolved,
            descending=name in table.descending,
            dropped_us=draft.dropped_us,
            is_dropped=is_dropped,
        )

    def _resolve(
        self, cql_type: CqlType, known: dict[tuple[str, str], CqlType], depth: int = 0
    ) -> CqlType:
        """Give the UDTs in *cql_type* their fields; *known* holds those already resolved."""
        if cql_type.is_native:
            return cql_type
        if depth > TYPE_DEPTH_MAX:
            raise SchemaTextError(f"types nest deeper than {TYPE_DEPTH_MAX}: {cql_type}")
        key = (cql_type.keyspace, cql_type.name)
        arguments = tuple(self._resolve(t, known, depth + 1) for t in cql_type.arguments)
        if not cql_type.is_udt:
            return msgspec.structs.replace(cql_type, arguments=arguments)
        if key not in known:
            if key not in self.types:
                raise SchemaTextError(f"type {'.'.join(key)} was dropped while in use")
            fields = self.types[key]
            known[key] = msgspec.structs.replace(
                cql_type,
                frozen=False,
                fields=tuple((n, self._resolve(t, known, depth + 1).freeze()) for n, t in fields),
            )
        return msgspec.structs.replace(known[key], frozen=cql_type.frozen)

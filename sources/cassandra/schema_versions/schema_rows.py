"""The rows of `system_schema` as one node's log writes them, and the resulting schema.

Rows are merged by write time, as in Cassandra, so mutations that arrive twice or late do no harm.
Rows from a file or the driver rank below all rows from the log, and a table that the log creates
takes nothing from them: they are often newer than the place in the log. A dropped table stays
known, since its entries can still follow.

Immutable: `apply` returns a new value. No I/O.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import md5
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from headrace.plugins import HeadraceError
from headrace.sources.cassandra.mutation.changes import (
    Cell,
    Mutation,
    PartitionUpdate,
    RangeDeletion,
    Row,
)
from headrace.sources.cassandra.schema.system_schema import KEYSPACE
from headrace.sources.cassandra.schema.system_schema_rows import TableRows, Values, keyspace_of
from headrace.sources.cassandra.schema.tables import (
    SYSTEM_KEYSPACES,
    KeyspaceSchema,
    Schema,
    TableSchema,
)

GONE_MAX: Final = 1_000  # Dropped tables that stay known.
_DECODED_MAX: Final = 16  # The splits of a job have the same rows; few others are in use at a time.
_NEVER: Final = -(1 << 63)
_FOREVER: Final = (1 << 63) - 1
_GIVEN: Final = _NEVER + 1  # The write time of rows that are not from the log.
_US_PER_MS: Final = 1_000
# The columns kept from each table's rows.
_KEPT: Final[Mapping[str, frozenset[str]]] = {
    "keyspaces": frozenset({"replication", "durable_writes", "replication_type"}),
    "tables": frozenset(
        {"id", "cdc", "flags", "transactional_mode", "transactional_migration_from"}
    ),
    "views": frozenset({"id", "cdc"}),
    "columns": frozenset({"kind", "position", "type", "clustering_order"}),
    "dropped_columns": frozenset({"kind", "type", "dropped_time"}),
    "types": frozenset({"field_names", "field_types"}),
}
_OF_COLUMN: Final = 2  # Clustering columns of a table with rows about columns.
_WHOLE, _FLOOR = "whole", "floor"  # Our own notes, merged and stored like the rest.


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """One row: the newest deletion and liveness, and each value with its write time, in µs."""

    deleted_us: int = _NEVER
    live_us: int = _NEVER
    cells: dict[str, tuple[int, Any]] = {}

    def values(self) -> Values | None:
        """Return the values that a read would return; None if the row does not exist."""
        found = {name: value for name, (us, value) in self.cells.items() if us > self.deleted_us}
        return found if found or self.live_us > self.deleted_us else None


class Group(msgspec.Struct, frozen=True):
    """The group of a row: a system table, a keyspace, and a table if the row is about a column."""

    kind: str
    keyspace: str
    table: str = ""


Rows = Mapping[str, Stored]
Groups = Mapping[Group, Rows]


class _Snapshot(msgspec.Struct, frozen=True, array_like=True):
    given: bytes
    groups: list[tuple[str, str, str, dict[str, Stored]]]
    gone: list[TableRows]


@dataclass(frozen=True)
class SchemaRows:
    """The rows and the resulting `schema`; `given` is the fingerprint of the given schema."""

    given: bytes = b""
    groups: Groups = field(default_factory=dict)
    schema: Schema = field(default_factory=lambda: Schema({}, {}))

    @classmethod
    def of(cls, schema: Schema) -> "SchemaRows":
        """Return the rows of a schema from a file or from the driver."""
        return cls().with_given(schema, fingerprint(schema))

    def with_given(self, schema: Schema, given: bytes) -> "SchemaRows":
        """Replace the given schema, which ranks below the rows from the log, with *schema*."""
        edit = _Edit(self.groups)
        edit.forget_given()
        for keyspace in schema.keyspaces.values():
            edit.give_keyspace(keyspace)
        for table in schema.tables.values():
            if not table.is_dropped and table.keyspace not in SYSTEM_KEYSPACES:
                edit.give_table(table)
        gone = {i: table for i, table in schema.tables.items() if table.is_dropped}
        before = Schema({}, {**self.schema.tables, **gone})
        return SchemaRows(given, edit.groups, _schema(edit.groups, before, edit.given))

    def with_table(self, table: TableSchema, keyspace: KeyspaceSchema | None) -> "SchemaRows":
        """Replace the known rows of *table* with the given ones; leave other tables unchanged."""
        if table.is_dropped:
            tables = {table.table_id: table, **self.schema.tables}
            return replace(self, schema=Schema(self.schema.keyspaces, tables))
        edit = _Edit(self.groups)
        if keyspace is not None:
            edit.give_keyspace(keyspace)
        edit.replace_table(table)
        known = edit.untouched(self.schema)
        return SchemaRows(self.given, edit.groups, _schema(edit.groups, self.schema, known))

    def apply(self, mutation: Mutation) -> "SchemaRows":
        """Merge a mutation of `system_schema`. Return this object if nothing changes.

        Raises:
            BadMutationError: range markers do not pair.
            BadValueError: a value does not fit its column.

        """
        edit = _Edit(self.groups)
        edit.fold(mutation)
        if not edit.changed:
            return self
        known = edit.untouched(self.schema)
        return SchemaRows(self.given, edit.groups, _schema(edit.groups, self.schema, known))

    def encode(self) -> bytes:
        """Return the rows as bytes for `decode`."""
        groups = [(g.kind, g.keyspace, g.table, dict(rows)) for g, rows in self.groups.items()]
        gone = [TableRows.of(t) for t in self.schema.tables.values() if t.is_dropped]
        return msgspec.msgpack.encode(_Snapshot(self.given, groups, gone))

    @classmethod
    def decode(cls, raw: bytes) -> "SchemaRows":
        """Decode the result of `encode`.

        Raises:
            msgspec.MsgspecError: *raw* is something else.

        """
        return _decoded(raw)


@lru_cache(maxsize=_DECODED_MAX)
def _decoded(raw: bytes) -> SchemaRows:
    snapshot = msgspec.msgpack.decode(raw, type=_Snapshot)
    groups = {Group(kind, ks, table): rows for kind, ks, table, rows in snapshot.groups}
    gone = (rows.table(is_dropped=True) for rows in snapshot.gone)
    before = Schema({}, {table.table_id: table for table in gone})
    return SchemaRows(snapshot.given, groups, _schema(groups, before, {}))


def fingerprint(schema: Schema) -> bytes:
    """Return 16 bytes that differ for different given schemas."""
    digest = md5(usedforsecurity=False)
    for table_id, table in sorted(schema.tables.items()):
        digest.update(repr((table_id, table, table.text)).encode())
    digest.update(repr(sorted(schema.keyspaces.items())).encode())
    return digest.digest()


class _Edit:
    """A copy of groups while rows are merged; `touched` are the tables (keyspace, name)."""

    def __init__(self, groups: Groups) -> None:
        self.groups: dict[Group, Rows] = dict(groups)
        self._copied: set[Group] = set()
        self.changed = False
        self.touched: set[tuple[str, str]] = set()
        self.types_touched: set[str] = set()
        self.given: dict[tuple[str, str], TableSchema] = {}
        """Tables of which there are only rows that were given: those rows come to them."""
        self._columns: dict[tuple[object, ...], Stored] = {}  # Many tables have the same.

    def untouched(self, schema: Schema) -> Mapping[tuple[str, str], TableSchema]:
        """Return the tables of *schema*, the previous one, whose rows have not changed."""
        return {
            (table.keyspace, table.name): table
            for table in schema.tables.values()
            if not table.is_dropped
            and table.keyspace not in self.types_touched
            and (table.keyspace, table.name) not in self.touched
        }

    # ---- what was given ----

    def give(self, group: Group, name: str, values: Values) -> None:
        row = self.groups.get(group, {}).get(name)
        cells = {n: (_GIVEN, v) for n, v in values.items()}
        if row is None:
            self._put(group, name, Stored(live_us=_GIVEN, cells=cells))
        else:
            live_us = max(row.live_us, _GIVEN)
            self._put(group, name, Stored(row.deleted_us, live_us, cells | row.cells))

    def _give_columns(self, group: Group, columns: Mapping[str, Values]) -> None:
        """Set all given rows of an empty group."""
        rows = {}
        for name, values in columns.items():
            key = tuple(values.items())
            row = self._columns.get(key)
            if row is None:
                cells = {n: (_GIVEN, v) for n, v in key}
                row = self._columns[key] = Stored(live_us=_GIVEN, cells=cells)
            rows[name] = row
        self.groups[group] = rows
        self._copied.add(group)

    def give_keyspace(self, keyspace: KeyspaceSchema) -> None:
        values: dict[str, object] = {
            "replication": dict(keyspace.replication),
            "durable_writes": keyspace.durable_writes,
            "replication_type": "tracked" if keyspace.is_tracked else "untracked",
        }
        self.give(Group("keyspaces", keyspace.name), "", values)

    def give_table(self, table: TableSchema) -> None:
        """Add the given rows of a table below those of the log, unless the log has the table."""
        keyspace, name = table.keyspace, table.name
        if table_values(self.groups, keyspace, name) is not None:
            return
        rows = TableRows.of(table)
        own = Group("views" if table.is_view else "tables", keyspace)
        columns = Group("columns", keyspace, name)
        is_new = not (
            name in self.groups.get(own, {})
            or self.groups.get(columns)
            or self.groups.get(Group("dropped_columns", keyspace, name))
        )
        self.give(own, name, rows.own)
        self.give(Group(_WHOLE, keyspace), name, {"id": rows.own["id"]})
        if is_new:
            self._give_columns(columns, rows.columns)
            if not rows.types:  # The log may have newer rows of these.
                self.given[keyspace, name] = table
        else:
            for column, values in rows.columns.items():
                self.give(columns, column, values)
        for column, values in rows.dropped.items():
            self.give(Group("dropped_columns", keyspace, name), column, values)
        for udt, values in rows.types.items():
            self.give(Group("types", keyspace), udt, values)

    def replace_table(self, table: TableSchema) -> None:
        """Replace all known rows of a table's name, deletions included."""
        for group in list(self.groups):
            if group.keyspace != table.keyspace:
                continue
            if group.table == table.name:
                self.groups[group] = {}
            elif group.kind in {"tables", "views", _WHOLE}:
                rows = self.groups[group]
                self.groups[group] = {n: row for n, row in rows.items() if n != table.name}
        self.give_table(table)

    def forget_given(self) -> None:
        for group, rows in list(self.groups.items()):
            self.groups[group] = {n: row for n, row in rows.items() if row.live_us != _GIVEN}

    def forget_table(self, keyspace: str, name: str, before_us: int = _FOREVER) -> None:
        """Forget a table's rows from before *before_us*, but keep deletions."""
        for kind in ("columns", "dropped_columns"):
            group = Group(kind, keyspace, name)
            self.groups[group] = {
                n: row
                for n, row in self.groups.get(group, {}).items()
                if row.live_us >= before_us or row.deleted_us > row.live_us
            }
        self.touched.add((keyspace, name))

    # ---- what the log says ----

    def fold(self, mutation: Mutation) -> None:
        """Merge a mutation, which is always about one keyspace."""
        first = mutation.updates[0]
        keyspace = first.key.decode(errors="replace")
        if keyspace in SYSTEM_KEYSPACES or first.table.keyspace != KEYSPACE:
            return
        created: set[str] = set()
        updates = [u for u in mutation.updates if u.table.name in _KEPT]
        for update in updates:
            if update.table.name == "columns":
                created |= self._forget_created(keyspace, list(_rows_of(keyspace, update)))
        for update in updates:
            self._fold_update(keyspace, update)
        for name in created:
            known = table_values(self.groups, keyspace, name)
            if known is not None:
                self._put(Group(_WHOLE, keyspace), name, Stored(cells={"id": (0, known["id"])}))

    def _fold_update(self, keyspace: str, update: PartitionUpdate) -> None:
        kind = update.table.name
        if update.deletion is not None:
            self._delete(kind, keyspace, update.deletion.timestamp_us, None)
        for item in update.rows_and_ranges():
            if isinstance(item, RangeDeletion):
                self._delete(kind, keyspace, item.deletion.timestamp_us, item)
        for group, name, row in _rows_of(keyspace, update):
            self._fold_row(group, name, row)

    def _fold_row(self, group: Group, name: str, row: Row) -> None:
        floor = self.groups.get(Group(_FLOOR, group.keyspace), {}).get(group.kind, Stored())
        before = self.groups.get(group, {}).get(name, Stored(floor.deleted_us))
        deleted_us = max(before.deleted_us, row.deletion.timestamp_us if row.deletion else _NEVER)
        live_us = max(before.live_us, row.liveness.timestamp_us if row.liveness else _NEVER)
        cells = dict(before.cells)
        for column in row.columns:
            if column.name in _KEPT[group.kind] and column.cells:
                cell = column.cells[0]
                if cell.timestamp_us >= cells.get(column.name, (_NEVER, None))[0]:
                    value = None if cell.raw is None else _plain(column.name, cell)
                    cells[column.name] = (cell.timestamp_us, value)
        self._put(group, name, Stored(deleted_us, live_us, cells))

    def _forget_created(self, keyspace: str, rows: Sequence[tuple[Group, str, Row]]) -> set[str]:
        """Forget older columns of tables that *rows* contain as a whole. Return the tables' names.

        A statement that alters a table writes only the altered columns. RENAME, the only one that
        can write a whole partition key, deletes the old names.
        """
        created = set()
        for table in {group.table for group, _, _ in rows}:
            own = [row for group, _, row in rows if group.table == table]
            written = [{c.name: c.cells[0].value for c in row.columns if c.cells} for row in own]
            places = {v["position"] for v in written if v.get("kind") == "partition_key"}
            if places and places == set(range(len(places))) and all(written):
                written_us = max((r.liveness.timestamp_us for r in own if r.liveness), default=0)
                self.forget_table(keyspace, table, written_us)
                created.add(table)
        return created

    def _delete(
        self, kind: str, keyspace: str, deleted_us: int, covered: RangeDeletion | None
    ) -> None:
        """Delete the rows of a partition in *covered*, or all; also rows that come later."""
        if covered is None:
            self._put(Group(_FLOOR, keyspace), kind, Stored(deleted_us))
        for group, rows in list(self.groups.items()):
            if (group.kind, group.keyspace) != (kind, keyspace):
                continue
            for name, row in rows.items():
                place = [part.encode() for part in (group.table, name) if part]
                if covered is None or _covers(covered, place):
                    deleted = msgspec.structs.replace(
                        row, deleted_us=max(row.deleted_us, deleted_us)
                    )
                    self._put(group, name, deleted)

    def _put(self, group: Group, name: str, row: Stored) -> None:
        rows = self.groups.get(group, {})
        if rows.get(name) == row:
            return
        self.changed = True
        if group not in self._copied:  # The original rows belong to another version.
            self._copied.add(group)
            self.groups[group] = rows = dict(rows)
        cast("dict[str, Stored]", rows)[name] = row
        if group.kind == "types":
            self.types_touched.add(group.keyspace)
        self.touched.add((group.keyspace, group.table or name))


def _rows_of(keyspace: str, update: PartitionUpdate) -> Iterator[tuple[Group, str, Row]]:
    """Yield the update's rows, with the group and the name of each."""
    for item in update.items:
        if isinstance(item, Row) and not item.is_static:
            names = [(raw or b"").decode(errors="replace") for raw in item.clustering or ()]
            table = names[0] if len(names) == _OF_COLUMN else ""
            yield Group(update.table.name, keyspace, table), names[-1] if names else "", item


def _covers(covered: RangeDeletion, place: Sequence[bytes]) -> bool:
    """Return whether a row is in a range; bounds can be prefixes, all clustering is ascending."""
    for bound, side in ((covered.start, 1), (covered.end, -1)):
        if bound is None:
            continue
        wanted = [raw or b"" for raw in bound.values]
        own = list(place[: len(wanted)])
        if own == wanted and not bound.inclusive:
            return False
        if own != wanted and (own > wanted) != (side > 0):
            return False
    return True


def _plain(name: str, cell: Cell) -> Any:  # noqa: ANN401 (see Values)
    """Return a value in its stored form: strings, numbers, lists and maps of strings."""
    assert cell.raw is not None  # noqa: S101 (not asked for tombstones)
    if name == "dropped_time":  # ms; Cassandra compares write times with it in µs.
        return int.from_bytes(cell.raw, "big", signed=True) * _US_PER_MS
    value = cell.value
    if isinstance(value, UUID):
        return str(value)
    return sorted(map(str, value)) if isinstance(value, frozenset) else value


def table_values(groups: Groups, keyspace: str, name: str) -> Values | None:
    """Return the row of a table or view, or None if it does not exist."""
    for kind in ("tables", "views"):
        row = groups.get(Group(kind, keyspace), {}).get(name)
        values = row.values() if row else None
        if values is not None and values.get("id"):
            return values
    return None


def _schema(groups: Groups, before: Schema, known: Mapping[tuple[str, str], TableSchema]) -> Schema:
    """Return the schema of *groups*; *known* are tables that need not be built from rows.

    Tables of *before* that no longer exist were dropped.
    """
    live: dict[UUID, TableSchema] = {}
    for group, rows in groups.items():
        if group.kind not in {"tables", "views"}:
            continue
        for name in rows:
            table = known.get((group.keyspace, name)) or _built(groups, group, name)
            if table is not None:
                live[table.table_id] = table
    gone = {
        table_id: table if table.is_dropped else msgspec.structs.replace(table, is_dropped=True)
        for table_id, table in before.tables.items()
        if table_id not in live
    }
    while len(gone) > GONE_MAX:
        del gone[next(iter(gone))]
    keyspaces = {}
    for group, rows in groups.items():
        values = rows[""].values() if group.kind == "keyspaces" and "" in rows else None
        if values is not None:
            options = dict(values.get("replication") or {})
            options["class"] = str(options.get("class")).rpartition(".")[2]
            described = {**values, "replication": options}
            keyspaces[group.keyspace] = keyspace_of(group.keyspace, described)
    return Schema(keyspaces, {**gone, **live})


def _built(groups: Groups, group: Group, name: str) -> TableSchema | None:
    """Return the table; None if it was dropped, or part of it is unknown."""
    keyspace = group.keyspace
    own = groups[group][name].values()
    whole = groups.get(Group(_WHOLE, keyspace), {}).get(name)
    if own is None or whole is None or whole.cells["id"][1] != own.get("id"):
        return None
    rows = TableRows(
        keyspace,
        name,
        own,
        _values(groups, Group("columns", keyspace, name)),
        _values(groups, Group("dropped_columns", keyspace, name)),
        _values(groups, Group("types", keyspace)),
        group.kind == "views",
    )
    try:
        return rows.table()
    except (HeadraceError, AttributeError, KeyError, TypeError, ValueError):  # Not written so.
        return None


def _values(groups: Groups, group: Group) -> Mapping[str, Values]:
    found = ((name, row.values()) for name, row in groups.get(group, {}).items())
    return {name: values for name, values in found if values is not None}

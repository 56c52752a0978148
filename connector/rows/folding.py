"""Folds changes in the envelope `cep44` into rows by Cassandra's rules, in any order.

The states of rows and partitions are plain data, so that any store of bytes can keep them. The
newest write time decides which value is valid. On a tie an expiring value beats one that does not
expire, a tombstone beats both, then the later expiry, then the larger value. A deletion covers what
was written at its time or earlier.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import cached_property
from ipaddress import ip_address
from typing import Any, Final
from uuid import UUID

import msgspec

from headrace.connector.rows.byte_folding import ByteFold
from headrace.connector.rows.fold_plans import plan_of
from headrace.connector.serde.avro_types import (
    AvroType,
    definitions,
    field_of,
    is_complex,
    opened,
    without_null,
)
from headrace.connector.serde.codecs.records import writer_of
from headrace.plugins import Document, RecordSchema

State = dict[str, Any]  # Any: plain data.
Value = Any  # Any: the value of an Avro type.

NEVER: Final = -(1 << 63)
_PACK: Final = msgspec.msgpack.Encoder(order="deterministic")
_ORDER: Final = re.compile(r" WITH CLUSTERING ORDER BY \((.*)\)")
_TIME_UUID: Final = 1


class TableView:
    """The parts of a table's schema that reading its rows needs."""

    def __init__(self, schema: RecordSchema) -> None:
        """Read the schema of changes in the envelope `cep44`."""
        whole = opened(schema.value, definitions(schema.value))
        payload = field_of(whole, "payload")
        assert payload is not None  # noqa: S101 (every change has it)
        record = payload["type"]
        self.table = schema.table
        self.names = {f["name"]: f.get("cqlName", f["name"]) for f in record["fields"]}
        self.types = {field["name"]: field["type"][1] for field in record["fields"]}
        self.key: list[str] = record["partitionKey"]
        self.clustering: list[str] = record["clustering"]
        self.static: list[str] = record["static"]
        keys_and_statics = {*self.key, *self.clustering, *self.static}
        self.regular = [name for name in self.types if name not in keys_and_statics]
        found = _ORDER.search(schema.text)  # Earlier schemas have it only in their text.
        orders = record.get("clusteringOrder") or (found[1].split(", ") if found else [])
        self.descending = [order.endswith("DESC") for order in orders]
        self._schema = schema

    def folded(self, state: bytes | None, value: Document) -> bytes:
        """Return *state* with one more change; repeating a change has no effect.

        Raises:
            BadStateError: the state is damaged.

        """
        return self.reading(value).fold(state)

    def reading(self, value: Document) -> ByteFold:
        """Return the fold after it has read one change."""
        self.fold.read(self._write(value))
        return self.fold

    @cached_property
    def fold(self) -> ByteFold:
        """The fold of changes of the schema from their bytes; for one thread at a time."""
        return ByteFold(plan_of(self._schema))

    @cached_property
    def _write(self) -> Callable[[Document], bytes]:
        return writer_of(self._schema.value)

    def position(self, values: Iterable[Value], names: Iterable[str]) -> list["_Place"]:
        """Return keys that sort as clustering values do in the table."""
        flags = self.descending or [False] * len(self.clustering)
        return [
            _Place(sort_key(self.types[name], value), descending=flag)
            for name, value, flag in zip(names, values, flags, strict=False)
        ]


class _Place:
    """A clustering value in the table's order."""

    __slots__ = ("descending", "key")

    def __init__(self, key: Any, *, descending: bool) -> None:  # noqa: ANN401 (by type)
        self.key = key
        self.descending = descending

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Place) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: "_Place") -> bool:
        return bool(other.key < self.key if self.descending else self.key < other.key)


def row_key(value: Document, view: TableView) -> bytes:
    """Return the name of a change's row or partition."""
    payload = value["payload"]
    partition = [payload[name] for name in view.key]
    if value["operationType"] in ("DELETE_RANGE", "DELETE_PARTITION") or value["isStatic"]:
        return partition_key(view.table, partition)
    return _PACK.encode([view.table, partition, [payload[name] for name in view.clustering]])


def partition_key(table: str, partition: list[Value]) -> bytes:
    """Return the name of a partition."""
    return _PACK.encode([table, partition, None])


def row_of(
    view: TableView,
    key: tuple[list[Value], list[Value]],
    state: State,
    partition: State | None,
    now_s: int,
) -> Document | None:
    """Return a row at *now_s* as SELECT shows it, by CQL names, or None without a row."""
    partition = partition or {"deleted": NEVER, "columns": {}}
    found = columns_of(view, key[1], state, partition, now_s)
    if found is None:
        return None
    static = shown_columns(partition["columns"], partition["deleted"], now_s)
    keys = dict(zip((*view.key, *view.clustering), (*key[0], *key[1]), strict=True))
    return {cql: (keys | static | found).get(name) for name, cql in view.names.items()}


def columns_of(
    view: TableView, clustering: list[Value], state: State, partition: State | None, now_s: int
) -> State | None:
    """Return a row's regular columns as `shown_columns` does, or None without a row."""
    after = deleted_until(view, clustering, state, partition)
    found = shown_columns(state["columns"], after, now_s)
    return found if found or is_live(state, after, now_s) else None


def deleted_until(
    view: TableView, clustering: list[Value], state: State, partition: State | None
) -> int:
    """Return the newest time of a deletion that covers the whole row."""
    after: int = state["deleted"]
    if partition is None:
        return after
    after = max(partition["deleted"], after)
    for written, start, end in partition.get("ranges", ()):
        if written > after and _covers(view, clustering, start, end):
            after = written
    return after


def is_live(state: State, after: int, now_s: int) -> bool:
    """Return whether an INSERT makes the row exist, independent of its values."""
    live = state.get("live", [NEVER, False, 0])
    return bool(live[0] > after and (not live[1] or live[2] > now_s))


def static_row(view: TableView, key: list[Value], state: State, now_s: int) -> Document | None:
    """Return a partition without rows as SELECT shows it, or None without static columns."""
    found = shown_columns(state["columns"], state["deleted"], now_s)
    keys = dict(zip(view.key, key, strict=True))
    return {cql: (keys | found).get(name) for name, cql in view.names.items()} if found else None


def _covers(view: TableView, values: list[Value], start: Value, end: Value) -> bool:
    own = view.position(values, view.clustering)
    for bound, is_start in ((start, True), (end, False)):
        if bound is None:
            continue
        names = view.clustering[: bound["count"]]
        prefix = view.position([bound["values"][name] for name in names], names)
        part = own[: len(prefix)]
        if part == prefix:
            if not bound["inclusive"]:
                return False
        elif (part < prefix) == is_start:
            return False
    return True


def shown_columns(columns: State, after: int, now_s: int) -> State:
    """Return the columns with a value at *now_s*, or with the cells of a collection or UDT.

    All deletions up to *after* cover the whole row.
    """
    found = {}
    for name, column in columns.items():
        if isinstance(column, Mapping):
            since = max(after, column["deleted"])
            cells = [c[2] for _, c in sorted(column["cells"].items()) if lives(c, since, now_s)]
            if cells:
                found[name] = cells
        elif lives(column, after, now_s):
            found[name] = column[2][1]
    return found


def lives(cell: list[Any], after: int, now_s: int) -> bool:
    """Return whether a value exists at *now_s*: no deletion up to *after* covers it."""
    written, expires, content = cell
    return written > after and content is not None and (expires is None or expires > now_s)


def readable(view: TableView, row: Document) -> Document:
    """Return a *row*, by CQL names, with collections instead of their cells."""
    return {
        cql: collected(view, alias, row[cql])
        if row[cql] is not None and is_complex(view.types[alias])
        else row[cql]
        for alias, cql in view.names.items()
        if cql in row
    }


def collected(view: TableView, name: str, cells: list[list[Value]]) -> Value:
    """Return a collection's cells as a list or an object; a UDT's by CQL names."""
    fields = field_of(view.types[name], "fields")
    if fields is not None:
        values = {each[0]: each[1] for each in cells}
        named = fields["type"]["fields"]
        return {f.get("cqlName", f["name"]): values.get(f["name"]) for f in named}
    kind = str(view.types[name].get("cqlType"))
    ordered = in_order(view, name, cells)
    if kind.startswith("set<"):
        return [each[0] for each in ordered]
    if kind.startswith("list<"):
        return [each[1] for each in ordered]
    return {each[0] if isinstance(each[0], str) else str(each[0]): each[1] for each in ordered}


def in_order(view: TableView, name: str, cells: list[list[Value]]) -> list[list[Value]]:
    """Return the cells of a collection, pairs of key and value, sorted by key."""
    key = field_of(field_of(view.types[name], "cells")["type"]["items"], "key")  # type: ignore[index]
    return sorted(cells, key=lambda cell: sort_key(key["type"], cell[0]))  # type: ignore[index]


def sort_key(kind: AvroType, value: Value) -> tuple[Any, ...]:  # Any: by type.
    """Return a key that sorts as Cassandra sorts values of an opened type; null is first."""
    if value is None:
        return (0,)
    return 1, _value_key(without_null(kind), value)


def _value_key(kind: AvroType, value: Value) -> Any:  # noqa: ANN401, PLR0911 (by type)
    """Return a key that sorts as values do; compound values are compared part by part."""
    name = kind if isinstance(kind, str) else kind.get("cqlType") or kind.get("logicalType")
    if name == "uuid":
        parsed = UUID(value)
        time = parsed.time if parsed.version == _TIME_UUID else 0
        return parsed.version or 0, time, parsed.bytes
    if name == "inet":
        return ip_address(value).packed
    if name == "varint":
        return int.from_bytes(value, "big", signed=True)
    if isinstance(value, Mapping):
        if value.keys() == {"scale", "unscaled"}:
            unscaled = int.from_bytes(value["unscaled"], "big", signed=True)
            return Fraction(unscaled) / Fraction(10) ** value["scale"]
        return [sort_key(field["type"], value[field["name"]]) for field in kind["fields"]]
    if isinstance(value, list):
        return [sort_key(kind["items"], each) for each in value]
    if isinstance(value, float):
        return value != value, value  # noqa: PLR0124 (NaN is last)
    return value if isinstance(value, int | bytes) else value.encode()

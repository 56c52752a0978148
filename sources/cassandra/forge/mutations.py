"""Mutations as bytes (sections 4 to 7 of docs/commit-log.md), from documents of mutation JSON.

A document has the form that `headrace inspect --form mutations` prints; descriptive members
(`segment`, `messaging`, `position`, `size`, `keyspace`, `cdc`, `token`, `text`) are ignored.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from headrace.sources.cassandra.errors import ScriptError
from headrace.sources.cassandra.forge.values import fixed_length
from headrace.sources.cassandra.mutation.vints import sized, vint
from headrace.sources.cassandra.schema.tables import ColumnKind, ColumnSchema, Schema, TableSchema

MESSAGING: Final = {7: 12, 8: 13, 9: 14}  # Of commit log versions.
MESSAGING_60: Final = 14
_TIMESTAMP_EPOCH: Final = 1_442_880_000_000_000
_LDT_EPOCH: Final = 1_442_880_000
_LIVE_TS: Final = -(1 << 63)
_LIVE_LDT: Final = {12: 0x7FFF_FFFF}
_LIVE_LDT_LATER: Final = 0xFFFF_FFFF
_CLUSTERING_BATCH: Final = 32
_BITMAP_COLUMNS: Final = 64
_KINDS: Final = {
    "EXCL_END_BOUND": 0,
    "INCL_START_BOUND": 1,
    "EXCL_END_INCL_START_BOUNDARY": 2,
    "INCL_END_EXCL_START_BOUNDARY": 5,
    "INCL_END_BOUND": 6,
    "EXCL_START_BOUND": 7,
}
_PARTITION_DELETION, _STATIC_ROW, _ROW_ESTIMATE = 0x04, 0x08, 0x10
_END, _MARKER = 0x01, 0x02
_LIVENESS, _LIVENESS_TTL, _DELETION, _ALL_COLUMNS = 0x04, 0x08, 0x10, 0x20
_COMPLEX_DELETION, _EXTENDED = 0x40, 0x80
_DELETED, _EXPIRING, _EMPTY, _ROW_TIMESTAMP, _ROW_TTL = 0x01, 0x02, 0x04, 0x08, 0x10

Document = Mapping[str, Any]  # Any: parsed JSON.


def encode_mutation(document: Document, schema: Schema, messaging: int) -> bytes:
    """Return the bytes of a mutation in a messaging version.

    Raises:
        ScriptError: the document is incomplete, or does not fit the schema.

    """
    flags = b"\0" if messaging >= MESSAGING_60 else b""
    try:
        updates = [_Update(each, schema, messaging).encoded() for each in document["updates"]]
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, struct.error) as error:
        what = f"{type(error).__name__}: {error}"
        raise ScriptError(
            f"is not a mutation: {what}", hint="headrace inspect --form mutations prints the form"
        ) from error
    return flags + vint(len(updates)) + b"".join(updates)


class _Update:
    """One partition update while it is written."""

    def __init__(self, document: Document, schema: Schema, messaging: int) -> None:
        self._document = document
        self._messaging = messaging
        self._table = _table(document, schema)
        self._clustering = [column.type for column in self._table.clustering]
        kinds = ColumnKind.STATIC, ColumnKind.REGULAR
        self._columns = {c.name: c for c in self._table.columns if c.kind in kinds}
        self._ts, self._ldt, self._ttl = _stats(document)

    def encoded(self) -> bytes:
        document, items = self._document, self._document["items"]
        static, deletion = document.get("static"), document.get("partition_deletion")
        flags = _ROW_ESTIMATE
        flags |= _PARTITION_DELETION if deletion else 0
        flags |= _STATIC_ROW if static else 0
        rows = [item for item in items if "marker" not in item]
        statics, regulars = self._header([static] if static else []), self._header(rows)
        parts = [self._table.table_id.bytes]
        if self._messaging >= MESSAGING_60:
            parts.append(vint(document.get("epoch", 0)))
        parts += [sized(bytes.fromhex(document["key"])), bytes([flags])]
        parts.append(vint(self._ts - _TIMESTAMP_EPOCH))
        parts.append(vint(_signed32(self._ldt - _LDT_EPOCH)) + vint(self._ttl))
        parts.append(_names(statics) if static else b"")
        parts.append(_names(regulars))
        parts.append(self._deletion_time(deletion) if deletion else b"")
        parts.append(self._row(static, statics, static=True) if static else b"")
        parts.append(vint(len(rows)))
        parts += [
            self._marker(item) if "marker" in item else self._row(item, regulars) for item in items
        ]
        return b"".join(parts) + bytes([_END])

    def _header(self, rows: Iterable[Document]) -> list[ColumnSchema]:
        """Return the columns of *rows*: simple ones, then complex ones, by name (4.3)."""
        names = {name for row in rows for name in row["columns"]}
        found = [self._columns[name] for name in names]
        return sorted(found, key=lambda column: (column.is_complex, column.name.encode()))

    def _row(self, row: Document, header: Sequence[ColumnSchema], *, static: bool = False) -> bytes:
        columns = row["columns"]
        present = [column for column in header if column.name in columns]
        liveness, deletion = row.get("liveness"), row.get("deletion")
        expiry = liveness if liveness is not None and "ttl" in liveness else None
        cut = any("deletion" in columns[c.name] for c in present if c.is_complex)
        flags = _LIVENESS * (liveness is not None) | _LIVENESS_TTL * (expiry is not None)
        flags |= _DELETION * (deletion is not None) | _COMPLEX_DELETION * cut
        flags |= _ALL_COLUMNS * (len(present) == len(header)) | _EXTENDED * static
        parts = [bytes([flags, 1] if static else [flags])]
        parts.append(b"" if static else self._values(row["clustering"]))
        if liveness is not None:
            parts.append(self._timestamp(liveness["ts"]))
        if expiry is not None:
            parts.append(self._ttl_of(expiry["ttl"]) + self._ldt_of(expiry["ldt"]))
        parts.append(self._deletion_time(deletion) if deletion else b"")
        parts.append(b"" if len(present) == len(header) else _subset(present, header))
        parts += [self._column(c, columns[c.name], liveness, cut=cut) for c in present]
        return b"".join(parts)

    def _column(
        self, column: ColumnSchema, given: Document, liveness: Document | None, *, cut: bool
    ) -> bytes:
        if not column.is_complex:
            return self._cell(given, liveness, fixed_length(column.type))
        ldt = _LIVE_LDT.get(self._messaging, _LIVE_LDT_LATER)
        deletion = given.get("deletion", {"ts": _LIVE_TS, "ldt": ldt})
        cells = [self._cell(cell, liveness, None) for cell in given["cells"]]
        before = self._deletion_time(deletion) if cut else b""
        return before + vint(len(cells)) + b"".join(cells)

    def _cell(self, cell: Document, liveness: Document | None, length: int | None) -> bytes:
        """Return a cell (5.3); *length* is the fixed length of the column's type, if it has one."""
        value = bytes.fromhex(cell.get("value", ""))
        deleted, expiring = "tombstone" in cell, "ttl" in cell
        live = liveness or {}
        same_time = live.get("ts") == cell["ts"]
        same_ttl = expiring and all(live.get(x) == cell[x] for x in ("ttl", "ldt"))
        flags = _DELETED * deleted | _EXPIRING * expiring | _EMPTY * (not value)
        flags |= _ROW_TIMESTAMP * same_time | _ROW_TTL * same_ttl
        parts = [bytes([flags]), b"" if same_time else self._timestamp(cell["ts"])]
        if (deleted or expiring) and not same_ttl:
            parts.append(self._ldt_of(cell["ldt"]))
        if expiring and not same_ttl:
            parts.append(self._ttl_of(cell["ttl"]))
        if "path" in cell:
            parts.append(sized(bytes.fromhex(cell["path"])))
        if value and length is not None and length != len(value):
            raise ScriptError(f"expected a value of {length} bytes, found {len(value)}")
        parts.append(value if length is not None or not value else sized(value))
        return b"".join(parts)

    def _marker(self, marker: Document) -> bytes:
        values = marker["values"]
        times = [marker[side] for side in ("close", "open") if side in marker]
        parts = [bytes([_MARKER, _KINDS[marker["marker"]]]), struct.pack(">H", len(values))]
        parts.append(self._values(values) if values else b"")
        return b"".join(parts) + b"".join(map(self._deletion_time, times))

    def _values(self, values: Sequence[str | None]) -> bytes:
        """Return clustering values (5.2)."""
        if len(values) > len(self._clustering):
            raise ScriptError(f"{len(values)} values for {len(self._clustering)} columns")
        parts = []
        for begin in range(0, len(values), _CLUSTERING_BATCH):
            batch = values[begin : begin + _CLUSTERING_BATCH]
            parts.append(vint(sum(_absence(v) << 2 * i for i, v in enumerate(batch))))
            types = self._clustering[begin : begin + _CLUSTERING_BATCH]
            for value, cql_type in zip(batch, types, strict=False):
                raw = bytes.fromhex(value or "")
                if raw:
                    parts.append(raw if fixed_length(cql_type) is not None else sized(raw))
        return b"".join(parts)

    def _deletion_time(self, deletion: Document) -> bytes:
        return self._timestamp(deletion["ts"]) + self._ldt_of(deletion["ldt"])

    def _timestamp(self, ts: int) -> bytes:
        return vint(ts - self._ts)

    def _ldt_of(self, ldt: int) -> bytes:
        return vint(_signed32(ldt - self._ldt))

    def _ttl_of(self, ttl: int) -> bytes:
        return vint(_signed32(ttl - self._ttl))


def _table(document: Document, schema: Schema) -> TableSchema:
    if "id" in document:
        found = schema.tables.get(UUID(document["id"]))
    else:
        found = schema.table(document["table"])
    if found is None:
        wanted = document.get("table", document.get("id"))
        raise ScriptError(f"{wanted} is not in the schema")
    return found


def _stats(document: Document) -> tuple[int, int, int]:
    """Return the smallest timestamp, local deletion time and TTL in the update (4.2)."""
    times = list(_times(document))
    stamps = [time["ts"] for time in times]
    locals_s = [time["ldt"] for time in times if "ldt" in time]
    ttls = [time["ttl"] for time in times if "ttl" in time]
    return (
        min(stamps, default=_TIMESTAMP_EPOCH),
        min(locals_s, default=_LDT_EPOCH),
        min(ttls, default=0),
    )


def _times(document: Document) -> Iterator[Document]:
    """Yield everything in the update that has a timestamp."""
    if "partition_deletion" in document:
        yield document["partition_deletion"]
    for item in [*([document["static"]] if "static" in document else []), *document["items"]]:
        for part in ("liveness", "deletion", "close", "open"):
            if part in item:
                yield item[part]
        for column in item.get("columns", {}).values():
            if "deletion" in column:
                yield column["deletion"]
            yield from column.get("cells", [column])


def _names(header: Sequence[ColumnSchema]) -> bytes:
    return vint(len(header)) + b"".join(sized(column.name.encode()) for column in header)


def _subset(present: Sequence[ColumnSchema], header: Sequence[ColumnSchema]) -> bytes:
    """Return the encoded subset of the header's columns that a row has (section 7)."""
    have = [header.index(column) for column in present]
    missing = [i for i in range(len(header)) if i not in have]
    if len(header) < _BITMAP_COLUMNS:
        return vint(sum(1 << i for i in missing))
    listed = have if len(have) < len(header) // 2 else missing
    return vint(len(missing)) + b"".join(map(vint, listed))


def _absence(value: str | None) -> int:
    return 2 if value is None else 1 if not value else 0


def _signed32(value: int) -> int:
    """Return a difference of 32-bit numbers, extended to 64 bits as in Cassandra."""
    return (value + 0x8000_0000 & 0xFFFF_FFFF) - 0x8000_0000

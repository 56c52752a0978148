"""Mutations as JSON documents, for comparing two readers of a log.

Bytes stay bytes, in lower-case hex, so that nothing depends on the form of values.
"""

from typing import Final

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
from headrace.sources.cassandra.mutation.values import Value
from headrace.sources.cassandra.native import constants, ops

Document = dict[str, Value]

_BOUND_NAMES: Final = {
    constants.EXCL_END: "EXCL_END_BOUND",
    constants.INCL_START: "INCL_START_BOUND",
    constants.EXCL_END_INCL_START: "EXCL_END_INCL_START_BOUNDARY",
    constants.INCL_END_EXCL_START: "INCL_END_EXCL_START_BOUNDARY",
    constants.INCL_END: "INCL_END_BOUND",
    constants.EXCL_START: "EXCL_START_BOUND",
}


def mutation_document(mutation: Mutation, *, cdc: bool | None = None) -> Document:
    """Return *mutation* as a JSON object with its members in the order of the format.

    *cdc* overrides the value from the tables of the mutation.
    """
    return {
        "segment": mutation.segment_id,
        "messaging": mutation.messaging,
        "position": mutation.position,
        "size": mutation.size_bytes,
        "keyspace": mutation.keyspace,
        "cdc": mutation.cdc if cdc is None else cdc,
        "updates": [_update(update) for update in mutation.updates],
    }


def _update(update: PartitionUpdate) -> Document:
    document: Document = {
        "table": update.table.qualified,
        "id": str(update.table.table_id),
        "key": update.key.hex(),
        "token": str(ops.token(update.key, 0, len(update.key))),
    }
    if update.deletion is not None:
        document["partition_deletion"] = _deletion(update.deletion)
    if update.static is not None and not _is_empty(update.static):
        document["static"] = _row(update.static)
    document["items"] = [
        _row(item) if isinstance(item, Row) else _marker(item)
        for item in update.items
        if not (isinstance(item, Row) and _is_empty(item))
    ]
    return document


def _is_empty(row: Row) -> bool:
    """Return whether *row* is empty: Cassandra's reader skips it."""
    return row.liveness is None and row.deletion is None and not _written(row)


def _written(row: Row) -> list[Column]:
    """Return the columns that have a cell or a deletion; a logged column may have neither."""
    return [column for column in row.columns if column.cells or column.deletion is not None]


def _row(row: Row) -> Document:
    document: Document = {
        "clustering": "static" if row.clustering is None else _values(row.clustering)
    }
    if row.liveness is not None:
        document["liveness"] = _liveness(row.liveness)
    if row.deletion is not None:
        document["deletion"] = _deletion(row.deletion)
    document["columns"] = {column.name: _column(column) for column in _written(row)}
    return document


def _liveness(liveness: Liveness) -> Document:
    document: Document = {"ts": liveness.timestamp_us}
    if liveness.ttl_s is not None:
        document |= {"ttl": liveness.ttl_s, "ldt": liveness.expires_s}
    return document


def _column(column: Column) -> Document:
    if not column.schema.is_complex:
        return _cell(column.cells[0])
    document: Document = {}
    if column.deletion is not None:
        document["deletion"] = _deletion(column.deletion)
    document["cells"] = [_cell(cell) for cell in column.cells]
    return document


def _cell(cell: Cell) -> Document:
    document: Document = {"ts": cell.timestamp_us}
    if cell.ttl_s is not None:
        document["ttl"] = cell.ttl_s
    if cell.local_s is not None:
        document["ldt"] = cell.local_s
    if cell.path is not None:
        document["path"] = cell.path.hex()
    if cell.raw is None:
        document["tombstone"] = True
    else:
        document["value"] = cell.raw.hex()
    return document


def _marker(marker: RangeMarker) -> Document:
    document: Document = {"marker": _BOUND_NAMES[marker.kind], "values": _values(marker.values)}
    if marker.close is not None:
        document["close"] = _deletion(marker.close)
    if marker.open is not None:
        document["open"] = _deletion(marker.open)
    return document


def _deletion(deletion: Deletion) -> Document:
    return {"ts": deletion.timestamp_us, "ldt": deletion.local_s}


def _values(values: tuple[bytes | None, ...]) -> list[str | None]:
    return [None if raw is None else raw.hex() for raw in values]

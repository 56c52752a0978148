"""What a mutation says, in parts that are equal whatever bytes it is logged in.

An atom is one cell, row liveness or deletion, with its time: what Cassandra's merge keeps or drops
as a whole. Read repair and repair streams write with other headers, subsets and bases, several
mutations as one or one as several; the atoms stay (lines 17 and 19 of docs/agreement.md). Must not
do I/O.

A deleted range is one atom from end to end. A stream that had to split one, because newer deletions
lie over it or the range crosses two chunks, says something new here, never something known.
"""

from hashlib import blake2b
from struct import Struct
from typing import Final, Protocol

from headrace.sources.cassandra.changes import (
    Bound,
    Cell,
    Deletion,
    Mutation,
    PartitionUpdate,
    RangeDeletion,
    Row,
)

ATOM_BYTES: Final = 16

# What is hashed says its own lengths, so that no two atoms are made of the same bytes: first where
# it is (table, key, whether it is in a row; clustering or bounds), then what stands there.
_PLACE: Final = Struct("<16sBI")  # Table id, _IN_ROW and its like, bytes of the key.
_LENGTH: Final = Struct("<q")  # Of a clustering value; -1 is null. First their number.
_ATOM: Final = Struct("<BqqqIq")  # Kind, time, TTL, second, bytes of the column, of the path.

_IN_PARTITION, _IN_STATIC, _IN_ROW, _IN_RANGE = range(4)
_LIVENESS, _DELETION, _COMPLEX, _VALUE, _TOMBSTONE = range(5)
_UNSET: Final = -1
_OPEN, _EXCLUSIVE, _INCLUSIVE = range(3)


class _Hash(Protocol):
    """What hashlib makes."""

    def copy(self) -> "_Hash":
        """Return one that goes on from here by itself."""

    def update(self, data: bytes, /) -> None:
        """Take more bytes."""

    def digest(self) -> bytes:
        """Return the hash of all bytes."""


def atoms_of(mutation: Mutation) -> frozenset[bytes]:
    """Return the atoms of *mutation*, 16 bytes each.

    None for one that has no changes: it says nothing. Of one that is cut short by an unknown table
    only what is known, so it equals nothing that is whole.

    Raises:
        BadMutationError: range markers that do not pair, as in `changes_of`.

    """
    found: set[bytes] = set()
    for update in mutation.updates:
        if update.deletion is not None:
            found.add(_deletion(_place(update, _IN_PARTITION), update.deletion))
        if update.static is not None:
            _add_row(found, update, update.static)
        for item in update.rows_and_ranges():
            if isinstance(item, Row):
                _add_row(found, update, item)
            else:
                found.add(_range(update, item))
    return frozenset(found)


def _add_row(found: set[bytes], update: PartitionUpdate, row: Row) -> None:
    place = _place(update, _IN_STATIC if row.clustering is None else _IN_ROW)
    if row.clustering:
        place.update(_values(row.clustering))
    if row.liveness is not None:
        live = row.liveness
        atom = place.copy()
        atom.update(
            _ATOM.pack(
                _LIVENESS,
                live.timestamp_us,
                _UNSET if live.ttl_s is None else live.ttl_s,
                _UNSET if live.expires_s is None else live.expires_s,
                0,
                _UNSET,
            )
        )
        found.add(atom.digest())
    if row.deletion is not None:
        found.add(_deletion(place, row.deletion))
    for column in row.columns:
        name = column.schema.name.encode()
        if column.deletion is not None:
            found.add(_deletion(place, column.deletion, _COMPLEX, name))
        for cell in column.cells:
            atom = place.copy()
            atom.update(_cell(cell, name))
            found.add(atom.digest())


def _cell(cell: Cell, name: bytes) -> bytes:
    path, raw = cell.path, cell.raw
    head = _ATOM.pack(
        _TOMBSTONE if raw is None else _VALUE,
        cell.timestamp_us,
        _UNSET if cell.ttl_s is None else cell.ttl_s,
        _UNSET if cell.local_s is None else cell.local_s,
        len(name),
        _UNSET if path is None else len(path),
    )
    return b"".join((head, name, path or b"", raw or b""))


def _range(update: PartitionUpdate, item: RangeDeletion) -> bytes:
    place = _place(update, _IN_RANGE)
    place.update(_bound(item.start) + _bound(item.end))
    return _deletion(place, item.deletion)


def _bound(bound: Bound | None) -> bytes:
    if bound is None:
        return bytes([_OPEN])
    return bytes([_INCLUSIVE if bound.inclusive else _EXCLUSIVE]) + _values(bound.values)


def _values(values: tuple[bytes | None, ...]) -> bytes:
    parts = [_LENGTH.pack(len(values))]
    for value in values:
        if value is None:
            parts.append(_LENGTH.pack(_UNSET))
        else:
            parts.extend((_LENGTH.pack(len(value)), value))
    return b"".join(parts)


def _place(update: PartitionUpdate, kind: int) -> _Hash:
    head = _PLACE.pack(update.table.table_id.bytes, kind, len(update.key))
    return blake2b(head + update.key, digest_size=ATOM_BYTES)


def _deletion(
    place: _Hash, deletion: Deletion, kind: int = _DELETION, column: bytes = b""
) -> bytes:
    atom = place.copy()
    atom.update(
        _ATOM.pack(kind, deletion.timestamp_us, _UNSET, deletion.local_s, len(column), _UNSET)
    )
    atom.update(column)
    return atom.digest()

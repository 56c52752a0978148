"""Cuts a mutation into parts that do not depend on the bytes it is logged in.

An atom is one cell, row liveness or deletion, with its time: Cassandra's merge keeps or drops it as
a whole. Read repair and repair streams write with other headers, subsets and bases, and join or
divide mutations; the atoms stay the same (lines 17 and 19 of docs/agreement.md). Made from the
parser's operations, because a stream has millions of them. Must not do I/O.

A deleted range is one atom from end to end. If a stream had to split one, because newer deletions
cover it or the range spans two chunks, it has a new atom, never a known one.
"""

from hashlib import blake2b
from struct import Struct
from typing import Final, Protocol

from headrace.sources.cassandra.mutation.errors import BadMutationError
from headrace.sources.cassandra.mutation.parser import Cutter
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.schema.layout import Catalogue

ATOM_BYTES: Final = 16

# The hashed bytes include their lengths, so that no two atoms have the same bytes: first the place
# (table, key, a constant like _IN_ROW; clustering or bounds), then the content.
_PLACE: Final = Struct("<16sBI")  # Table id, where in the partition, bytes of the key.
_LENGTH: Final = Struct("<q")  # Of a clustering value; -1 is null. After the number of values.
_ATOM: Final = Struct("<BqqqIq")  # Kind, time, TTL, second, bytes of the column, of the path.

_IN_PARTITION, _IN_STATIC, _IN_ROW, _IN_RANGE = range(4)
_LIVENESS, _DELETION, _COMPLEX, _VALUE, _TOMBSTONE = range(5)
_UNSET: Final = -1
_OPEN, _EXCLUSIVE, _INCLUSIVE = b"\0", b"\1", b"\2"
_INCLUSIVE_ENDS: Final = (constants.INCL_END, constants.INCL_END_EXCL_START)
_INCLUSIVE_STARTS: Final = (constants.INCL_START, constants.EXCL_END_INCL_START)


class _Hash(Protocol):
    """A hash object of hashlib."""

    def copy(self) -> "_Hash":
        """Return an independent copy."""

    def update(self, data: bytes, /) -> None:
        """Add bytes."""

    def digest(self) -> bytes:
        """Return the hash of all bytes."""


class AtomCutter:
    """Cuts raw mutations into atoms. For one thread."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Cut mutations of the tables in *catalogue*; `cutter` is reused for each."""
        self.cutter = Cutter(catalogue)
        self._tables = catalogue.tables
        self._names: dict[int, list[bytes]] = {}  # Of the columns, by table.
        self._raw = b""
        self._words: list[int] = []
        self._found: set[bytes] = set()
        self._table = b""
        self._key = b""
        self._columns: list[bytes] = []

    def atoms_of(self, raw: bytes, messaging: int) -> frozenset[bytes]:
        """Return the atoms of a raw mutation, 16 bytes each.

        Empty for a mutation without changes.

        Raises:
            UnknownTableError: an update is of a table that is not in the catalogue.
            BadMutationError: the bytes do not fit the schema, or range markers do not pair.

        """
        self.cutter.cut(raw, 0, len(raw), messaging)
        self._raw = raw
        # An operation without a kind, after the last one, ends every walk.
        self._words = [*self.cutter.operations[: self.cutter.count * constants.WIDTH].tolist(), 0]
        self._found = set()
        at = 0
        while self._words[at]:
            at = self._update(at)
        return frozenset(self._found)

    def _update(self, at: int) -> int:
        words = self._words
        index = words[at + constants.COLUMN]
        if index not in self._names:
            columns = self._tables[index].columns
            self._names[index] = [column.name.encode() for column in columns]
        self._columns = self._names[index]
        self._table = self._tables[index].table_id.bytes
        self._key = self._bytes(at)
        at += constants.WIDTH
        opened: bytes | None = None
        while (kind := words[at]) not in (0, constants.UPDATE):
            if kind == constants.ROW:
                at = self._row(at)
            elif kind == constants.MARKER:
                at, opened = self._marker(at, opened)
            else:  # The partition's deletion.
                self._add_deletion(self._place(_IN_PARTITION), at, _DELETION, b"")
                at += constants.WIDTH
        if opened is not None:
            raise BadMutationError("a range does not end")
        return at

    def _row(self, at: int) -> int:
        words, found = self._words, self._found
        flags = words[at + constants.FLAGS]
        place = self._place(_IN_STATIC if flags & constants.ROW_STATIC else _IN_ROW)
        row, at = at, at + constants.WIDTH
        if words[at] == constants.VALUE:
            values, at = self._values(at)
            place.update(values)
        if flags & constants.HAS_TIMESTAMP:
            ttl = words[row + constants.TTL] if flags & constants.HAS_TTL else _UNSET
            expires = words[row + constants.LDT] if flags & constants.HAS_TTL else _UNSET
            time = words[row + constants.TIMESTAMP]
            atom = place.copy()
            atom.update(_ATOM.pack(_LIVENESS, time, ttl, expires, 0, _UNSET))
            found.add(atom.digest())
        while True:
            kind = words[at]
            if kind == constants.CELL:
                atom = place.copy()
                atom.update(self._cell(words[at : at + constants.WIDTH]))
                found.add(atom.digest())
            elif kind == constants.COMPLEX:
                if words[at + constants.FLAGS]:
                    name = self._columns[words[at + constants.COLUMN]]
                    self._add_deletion(place, at, _COMPLEX, name)
            elif kind == constants.ROW_DELETION:
                self._add_deletion(place, at, _DELETION, b"")
            else:
                return at
            at += constants.WIDTH

    def _cell(self, operation: list[int]) -> bytes:
        """Return the bytes of a cell to hash."""
        _, column, time, second, ttl, start, length, path, path_length, flags = operation
        if not flags & constants.IS_EXPIRING:
            ttl = _UNSET
            if not flags & constants.IS_DELETED:
                second = _UNSET
        name = self._columns[column]
        kind = _TOMBSTONE if flags & constants.IS_DELETED else _VALUE
        said = _ATOM.pack(kind, time, ttl, second, len(name), path_length) + name
        if path_length > 0:
            said += self._raw[path : path + path_length]
        return said + self._raw[start : start + length]

    def _marker(self, at: int, opened: bytes | None) -> tuple[int, bytes | None]:
        """Read a marker. Return the next place and the open range's start bound, as *opened*."""
        words = self._words
        kind, count = words[at + constants.FLAGS], words[at + constants.COLUMN]
        at += constants.WIDTH
        values = b""
        if count:
            values, at = self._values(at)
        if words[at] == constants.MARKER_CLOSE:
            if opened is None:
                raise BadMutationError("a range ends that did not start")
            place = self._place(_IN_RANGE)
            place.update(opened + _bound(values, inclusive=kind in _INCLUSIVE_ENDS))
            self._add_deletion(place, at, _DELETION, b"")
            at, opened = at + constants.WIDTH, None
        if words[at] == constants.MARKER_OPEN:
            if opened is not None:
                raise BadMutationError("a range starts inside another")
            at, opened = at + constants.WIDTH, _bound(values, inclusive=kind in _INCLUSIVE_STARTS)
        return at, opened

    def _values(self, at: int) -> tuple[bytes, int]:
        """Return the clustering values at *at* with their number and lengths."""
        words, raw = self._words, self._raw
        parts = [b""]
        begin = at
        while words[at] == constants.VALUE:
            length = words[at + constants.LENGTH]
            parts.append(_LENGTH.pack(length))
            if length > 0:
                start = words[at + constants.START]
                parts.append(raw[start : start + length])
            at += constants.WIDTH
        parts[0] = _LENGTH.pack((at - begin) // constants.WIDTH)
        return b"".join(parts), at

    def _place(self, kind: int) -> _Hash:
        head = _PLACE.pack(self._table, kind, len(self._key))
        return blake2b(head + self._key, digest_size=ATOM_BYTES)

    def _add_deletion(self, place: _Hash, at: int, kind: int, column: bytes) -> None:
        words = self._words
        time, second = words[at + constants.TIMESTAMP], words[at + constants.LDT]
        atom = place.copy()
        atom.update(_ATOM.pack(kind, time, _UNSET, second, len(column), _UNSET) + column)
        self._found.add(atom.digest())

    def _bytes(self, at: int) -> bytes:
        start = self._words[at + constants.START]
        return self._raw[start : start + self._words[at + constants.LENGTH]]


def _bound(values: bytes, *, inclusive: bool) -> bytes:
    if not values:
        return _OPEN
    return (_INCLUSIVE if inclusive else _EXCLUSIVE) + values

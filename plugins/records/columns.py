"""Changes of one table as typed columns: buffers in the layout of Apache Arrow, and their types.

Separate from `records` because few sources have them, and only bulk work uses them. A caller with
Arrow makes arrays of the buffers without a copy; this module does not need Arrow.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, overload

import msgspec

from headrace.plugins.records.encoded import EncodedRecords, Facts


class ColumnKind(StrEnum):
    """The kind of a column's values."""

    BOOLEAN = "boolean"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    """38 digits, `scale` of them behind the point."""
    TEXT = "text"
    BYTES = "bytes"
    DATE = "date"
    """Days since 1970, in 32 bits."""
    TIMESTAMP = "timestamp"
    """µs since 1970."""
    LIST = "list"
    MAP = "map"
    STRUCT = "struct"


class ColumnType(msgspec.Struct, frozen=True):
    """A column's type. `fields` are those of a struct; a list has one, a map two: key and value."""

    kind: ColumnKind
    fields: tuple[tuple[str, "ColumnType"], ...] = ()
    scale: int = 0


class ColumnBuffers(msgspec.Struct, frozen=True):
    """One column of `count` values in Arrow's layout, little-endian.

    `valid` has a bit per value, the lowest first: set if it is not null. `offsets` has one more
    than there are values, of 32 bits, for strings, bytes, lists and maps; `values` are of fixed
    width, bits for booleans, or the content of strings and bytes, to which the offsets point.
    `children` has one column per field; a map's two are consecutive.
    """

    type: ColumnType
    count: int
    valid: memoryview
    offsets: memoryview | None = None
    values: memoryview | None = None
    children: Sequence["ColumnBuffers"] = ()


class Pieces(Sequence[bytes]):
    """Byte strings that are consecutive in memory, none of them null: a column of bytes."""

    def __init__(self, buffers: ColumnBuffers) -> None:
        """Set the column of bytes."""
        assert buffers.offsets is not None  # noqa: S101 (bytes have them)
        assert buffers.values is not None  # noqa: S101 (bytes have them)
        self.buffers = buffers
        self._offsets = buffers.offsets.cast("i")
        self._values = buffers.values

    @property
    def size_bytes(self) -> int:
        """The size of all together."""
        return len(self._values)

    def __len__(self) -> int:
        """Return their number."""
        return self.buffers.count

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        """Return one, or some, as separate objects."""
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        return bytes(self._values[self._offsets[at] : self._offsets[at + 1]])


# Any: what Arrow accepts as a value of the column's type.
TypedColumn = ColumnBuffers | Sequence[Any]


class TypedChanges(msgspec.Struct, frozen=True):
    """The changes of one table in a batch: `row` is a struct with a field for each of its columns.

    A field is null if the change does not have the column, deleted its value, or wrote one that its
    type cannot hold: then the column's name is in `unfit`. `cells` has facts besides the values, a
    list per change: see CELL_TYPE. `bounds`, for tables with ranges of rows, is a struct of two
    structs `start` and `end`, null where a side is open; see `bounds_type`. `encoded` are the same
    changes as messages, if requested. A column is a buffer, or its values as Arrow accepts them: a
    struct is a mapping, which may leave out null fields, a map is pairs, a timestamp is a number.
    """

    row: TypedColumn
    cells: TypedColumn
    unfit: TypedColumn
    bounds: TypedColumn | None
    facts: Facts
    encoded: EncodedRecords | None = None

    def __len__(self) -> int:
        """Return the number of changes."""
        return self.row.count if isinstance(self.row, ColumnBuffers) else len(self.row)


_TEXT = ColumnType(ColumnKind.TEXT)
CELL_TYPE = ColumnType(
    ColumnKind.STRUCT,
    (
        ("column", _TEXT),
        ("element", ColumnType(ColumnKind.BYTES)),
        ("write_time", ColumnType(ColumnKind.TIMESTAMP)),
        ("ttl", ColumnType(ColumnKind.INT32)),
        ("expires", ColumnType(ColumnKind.INT64)),
        ("deleted", ColumnType(ColumnKind.BOOLEAN)),
    ),
)
"""What is to be said of a cell besides its value: it was deleted, or was written at another time
than the change, or ends otherwise than the row. `column` is null for the row itself, when it ends;
`element` is as the source stores it, and null for a whole column. `ttl` and `expires` are in
seconds, the latter since 1970."""
CELLS_TYPE = ColumnType(ColumnKind.LIST, (("element", CELL_TYPE),))
UNFIT_TYPE = ColumnType(ColumnKind.LIST, (("element", _TEXT),))


def bounds_type(clustering: Sequence[tuple[str, ColumnType]]) -> ColumnType | None:
    """Return the type of ranges in tables whose rows are ordered by the columns *clustering*.

    A side has a prefix of these columns, `count` of them, the others null.
    """
    if not clustering:
        return None
    side = ColumnType(
        ColumnKind.STRUCT,
        (
            ("values", ColumnType(ColumnKind.STRUCT, tuple(clustering))),
            ("count", ColumnType(ColumnKind.INT32)),
            ("inclusive", ColumnType(ColumnKind.BOOLEAN)),
        ),
    )
    return ColumnType(ColumnKind.STRUCT, (("start", side), ("end", side)))


class TableType(msgspec.Struct, frozen=True):
    """The types of `TypedChanges` of a table, which a source knows before it reads."""

    table: str
    row: ColumnType
    bounds: ColumnType | None

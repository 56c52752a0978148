"""A table of many columns, and updates of a row of it: what folding wide rows is measured with."""

import struct
from typing import Final
from uuid import UUID

TABLE: Final = UUID("4f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a")
_EPOCH_US: Final = 0xE9D96A43C000  # Since Cassandra's own epoch.


def wide_ddl(columns: int) -> str:
    """Return the DDL of a table with an int as key and *columns* ints, 100 to 999 of them."""
    names = ", ".join(f"c{i} int" for i in range(columns))
    return f"CREATE TABLE bench.wide (k int PRIMARY KEY, {names}) WITH ID = {TABLE};"


def wide_updates(columns: int, count: int) -> list[bytes]:
    """Return *count* mutations, each of all columns of the row 7 and a microsecond newer."""
    names = sorted(f"c{i}".encode() for i in range(columns))
    header = _vint(columns) + b"".join(bytes([len(name)]) + name for name in names)
    start = b"\x01" + TABLE.bytes + b"\x04\0\0\0\x07\x10"
    return [
        start
        + b"\xfc"
        + (_EPOCH_US + number).to_bytes(6, "big")
        + b"\0\0"
        + header
        + b"\x01\x24\0"
        + b"".join(b"\x08" + struct.pack(">i", number + i) for i in range(columns))
        + b"\x01"
        for number in range(count)
    ]


def _vint(value: int) -> bytes:
    """Return an unsigned vint of two bytes: longer than need be, which readers accept."""
    return struct.pack(">H", value | 0x8000)

"""A table of many columns, and updates of all of them."""

from uuid import UUID

from headrace.sources.cassandra.mutation.vints import vint
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.tables import Schema

_ID = UUID("3f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a")
_NOW = 0xE9D96A43C000  # Microseconds since Cassandra's own epoch.
_NAMES = "c{:03}"


def wide_schema(columns: int) -> Schema:
    """Return a table with an int as key and *columns* ints."""
    names = ", ".join(f"{_NAMES.format(i)} int" for i in range(columns))
    return parse_schema(f"CREATE TABLE s.wide (k int PRIMARY KEY, {names}) WITH ID = {_ID}")


def wide_mutation(columns: int, number: int) -> bytes:
    """Return the mutation of update *number*: column i becomes 1000 * number + i, at its µs."""
    names = b"".join(b"\x04" + _NAMES.format(i).encode() for i in range(columns))
    cells = b"".join(b"\x08" + (1_000 * number + i).to_bytes(4, "big") for i in range(columns))
    stats = vint(_NOW + number) + vint(0) + vint(0)
    row = b"\x24" + vint(0) + cells + b"\x01"
    return b"".join(
        (b"\x01", _ID.bytes, b"\x04\0\0\0\x07\x10", stats, vint(columns), names, b"\x01", row)
    )

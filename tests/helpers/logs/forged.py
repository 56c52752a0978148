"""The tables of forged logs, and their rows as mutations."""

from uuid import UUID

from headrace.sources.cassandra.forge import wire
from headrace.sources.cassandra.forge.mutations import MESSAGING, encode_mutation
from headrace.sources.cassandra.forge.segments import SEGMENT_ID
from headrace.sources.cassandra.mutation.vints import vint
from headrace.sources.cassandra.schema.ddl import parse_schema

TABLE = UUID("0f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a")
OTHER = UUID("1f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a")
UNKNOWN = UUID("2f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a")
SCHEMA = f"""
CREATE KEYSPACE forged WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': '3'}};
CREATE TABLE forged.t (k blob PRIMARY KEY, v blob) WITH cdc = true AND ID = {TABLE};
CREATE TABLE forged.other (k blob PRIMARY KEY, v blob) WITH cdc = false AND ID = {OTHER};
"""
NOW_US = 1_700_000_000_000_000
_SCHEMA = parse_schema(SCHEMA)
_MESSAGING_60 = MESSAGING[9]


def update(
    key: bytes, value: bytes = b"", *, table: UUID = TABLE, messaging: int = 12, at_us: int = 0
) -> bytes:
    """Return one update: INSERT of the row (*key*, *value*), *at_us* after a fixed time."""
    ts = NOW_US + at_us
    columns = {"v": {"ts": ts, "value": value.hex()}}
    row = {"clustering": [], "liveness": {"ts": ts}, "columns": columns}
    made = {"id": str(TABLE), "key": key.hex(), "epoch": 5, "items": [row]}
    whole = encode_mutation({"updates": [made]}, _SCHEMA, messaging)
    # A table that is not in the schema has the same bytes, but for its id.
    return table.bytes + whole[len(mutation(messaging=messaging)) + len(table.bytes) :]


def mutation(*updates: bytes, messaging: int = 12) -> bytes:
    """Return a mutation of *updates*."""
    flags = b"\0" if messaging >= _MESSAGING_60 else b""
    return flags + vint(len(updates)) + b"".join(updates)


def insert(
    key: bytes, value: bytes = b"", *, table: UUID = TABLE, messaging: int = 12, at_us: int = 0
) -> bytes:
    """Return a mutation of one update."""
    only = update(key, value, table=table, messaging=messaging, at_us=at_us)
    return mutation(only, messaging=messaging)


def header(
    version: int = 7, segment_id: int = SEGMENT_ID, parameters: bytes = b"{}", flip: int = 0
) -> bytes:
    """Return a segment's header; *flip* is the error in the last byte of its checksum."""
    made = wire.header(version, segment_id, parameters)
    return made[:-1] + bytes([made[-1] ^ flip])


def marker(at: int, following: int) -> bytes:
    """Return the sync marker at *at*, with the place of the next one."""
    return wire.marker(at, following, SEGMENT_ID)

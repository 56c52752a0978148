"""Commit log segments made by hand: headers, sync markers, entries and mutations with right sums.

Written from the description of the format, with zlib for the checksums; shares nothing with the
code under test but the schema's text.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

SEGMENT_ID = 1_700_000_000_000
MESSAGING = {7: 12, 8: 13, 9: 14}
TABLE = UUID("0f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a")
OTHER = UUID("1f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a")
UNKNOWN = UUID("2f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a")
SCHEMA = f"""
CREATE KEYSPACE forged WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': '3'}};
CREATE TABLE forged.t (k blob PRIMARY KEY, v blob) WITH cdc = true AND ID = {TABLE};
CREATE TABLE forged.other (k blob PRIMARY KEY, v blob) WITH cdc = false AND ID = {OTHER};
"""
_NOW = 0xE9D96A43C000  # Microseconds since Cassandra's own epoch.
_ROW_ESTIMATE, _LIVE_AND_ALL, _ROW_TIME, _END = b"\x10", b"\x24", b"\x08", b"\x01"


@dataclass(frozen=True)
class Forged:
    """A segment, where its first marker is, and the logical end of each entry and section."""

    content: bytes
    header_bytes: int
    ends: Sequence[int]
    section_ends: Sequence[int]


def vint(value: int) -> bytes:
    """Return an unsigned vint: as many leading ones as bytes follow the first."""
    extra = next(n for n in range(9) if n == 8 or value < 1 << 7 * (n + 1))
    if extra == 8:
        return b"\xff" + value.to_bytes(8, "big")
    raw = bytearray(value.to_bytes(extra + 1, "big"))
    raw[0] |= 0xFF00 >> extra & 0xFF
    return bytes(raw)


def update(
    key: bytes, value: bytes = b"", *, table: UUID = TABLE, messaging: int = 12, at_us: int = 0
) -> bytes:
    """Return one update: INSERT of the row (*key*, *value*), *at_us* after a fixed time."""
    epoch = vint(5) if messaging >= MESSAGING[9] else b""
    content = vint(_NOW + at_us) + vint(0) + vint(0) + vint(1) + vint(1) + b"v" + vint(1)
    row = _LIVE_AND_ALL + vint(0) + _ROW_TIME + vint(len(value)) + value + _END
    return table.bytes + epoch + vint(len(key)) + key + _ROW_ESTIMATE + content + row


def mutation(*updates: bytes, messaging: int = 12) -> bytes:
    """Return a mutation of *updates*."""
    flags = b"\0" if messaging >= MESSAGING[9] else b""
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
    """Return a segment's header; *flip* is what its checksum is wrong by."""
    halves = segment_id & 0xFFFF_FFFF, segment_id >> 32
    crc = zlib.crc32(struct.pack(">IIII", version, *halves, len(parameters)) + parameters)
    start = struct.pack(">IQH", version, segment_id, len(parameters))
    return start + parameters + struct.pack(">I", crc ^ flip)


def marker(at: int, following: int, segment_id: int = SEGMENT_ID) -> bytes:
    """Return the sync marker that stands at *at* and says where the next one is."""
    halves = segment_id & 0xFFFF_FFFF, segment_id >> 32
    return struct.pack(">II", following, zlib.crc32(struct.pack(">III", *halves, at)))


def entry(raw: bytes) -> bytes:
    """Return a mutation between its size and its checksums."""
    size = struct.pack(">I", len(raw))
    crc = zlib.crc32(size)
    return size + struct.pack(">I", crc) + raw + struct.pack(">I", zlib.crc32(raw, crc))


def segment(
    sections: Iterable[Iterable[bytes]],
    *,
    version: int = 7,
    segment_id: int = SEGMENT_ID,
    zeros: int = 64,
) -> Forged:
    """Return a segment of *sections* of raw mutations, with *zeros* after the last one."""
    content = bytearray(header(version, segment_id))
    first = len(content)
    ends = []
    section_ends = []
    for raws in sections:
        at = len(content)
        body = bytearray()
        for raw in raws:
            body += entry(raw)
            ends.append(at + 8 + len(body))
        content += marker(at, at + 8 + len(body), segment_id) + body
        section_ends.append(len(content))
    return Forged(bytes(content) + bytes(zeros), first, tuple(ends), tuple(section_ends))


def write_segment(
    folder: Path,
    content: bytes,
    *,
    version: int = 7,
    segment_id: int = SEGMENT_ID,
    index: str | None = "0\nCOMPLETED",
) -> Path:
    """Write a segment, and its index unless that is None; return the segment's path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"CommitLog-{version}-{segment_id}.log"
    path.write_bytes(content)
    if index is not None:
        (folder / f"CommitLog-{version}-{segment_id}_cdc.idx").write_text(index)
    return path

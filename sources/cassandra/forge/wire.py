"""The smallest parts of a segment: variable integers, header, sync markers, framed entries."""

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Final

MARKER_BYTES: Final = 8
_MASK32: Final = 0xFFFF_FFFF


def header(version: int, segment_id: int, parameters: Mapping[str, object] | bytes) -> bytes:
    """Return a segment's header (2.1); bytes as *parameters* are written as they are."""
    text = parameters
    if not isinstance(text, bytes):
        text = json.dumps(parameters, separators=(",", ":"), sort_keys=True).encode()
    halves = segment_id & _MASK32, segment_id >> 32
    crc = zlib.crc32(struct.pack(">IIII", version, *halves, len(text)) + text)
    return struct.pack(">IQH", version, segment_id, len(text)) + text + struct.pack(">I", crc)


def marker(at: int, following: int, segment_id: int) -> bytes:
    """Return the sync marker at file byte *at*, with the position of the next one (2.3)."""
    halves = segment_id & _MASK32, segment_id >> 32
    return struct.pack(">II", following & _MASK32, zlib.crc32(struct.pack(">III", *halves, at)))


def entry(mutation: bytes) -> bytes:
    """Return an entry: a mutation between its size and its checksums (3.2)."""
    size = struct.pack(">I", len(mutation))
    crc = zlib.crc32(size)
    return b"".join(
        (size, struct.pack(">I", crc), mutation, struct.pack(">I", zlib.crc32(mutation, crc)))
    )

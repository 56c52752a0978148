"""The smallest parts of a segment: variable integers, header, sync markers, framed entries."""

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Final

MARKER_BYTES: Final = 8
_EXTRA_MAX: Final = 8
_BITS_PER_BYTE: Final = 7  # Of a value, until all eight extra bytes are there.
_MASK32: Final = 0xFFFF_FFFF


def vint(value: int) -> bytes:
    """Return the shortest unsigned variable integer; *value* counts modulo 2^64 (section 6)."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    extra = 0
    while extra < _EXTRA_MAX and value >> _BITS_PER_BYTE * (extra + 1):
        extra += 1
    if extra == _EXTRA_MAX:
        return b"\xff" + value.to_bytes(_EXTRA_MAX, "big")
    raw = bytearray(value.to_bytes(extra + 1, "big"))
    raw[0] |= 0xFF00 >> extra & 0xFF
    return bytes(raw)


def signed_vint(value: int) -> bytes:
    """Return a signed variable integer, as durations have them."""
    return vint(value << 1 ^ value >> 63)


def sized(content: bytes) -> bytes:
    """Return *content* behind its length."""
    return vint(len(content)) + content


def header(version: int, segment_id: int, parameters: Mapping[str, object] | bytes) -> bytes:
    """Return a segment's header (2.1); bytes as *parameters* are written as they are."""
    text = parameters
    if not isinstance(text, bytes):
        text = json.dumps(parameters, separators=(",", ":"), sort_keys=True).encode()
    halves = segment_id & _MASK32, segment_id >> 32
    crc = zlib.crc32(struct.pack(">IIII", version, *halves, len(text)) + text)
    return struct.pack(">IQH", version, segment_id, len(text)) + text + struct.pack(">I", crc)


def marker(at: int, following: int, segment_id: int) -> bytes:
    """Return the sync marker that stands at file byte *at* and says where the next one is (2.3)."""
    halves = segment_id & _MASK32, segment_id >> 32
    return struct.pack(">II", following & _MASK32, zlib.crc32(struct.pack(">III", *halves, at)))


def entry(mutation: bytes) -> bytes:
    """Return a mutation between its size and its checksums (3.2)."""
    size = struct.pack(">I", len(mutation))
    crc = zlib.crc32(size)
    return b"".join(
        (size, struct.pack(">I", crc), mutation, struct.pack(">I", zlib.crc32(mutation, crc)))
    )

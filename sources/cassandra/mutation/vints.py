"""Cassandra's variable-length integers."""

from typing import Final

_EXTRA_MAX: Final = 8
_BITS_PER_BYTE: Final = 7  # Of a value, unless all eight extra bytes are used.


def vint(value: int) -> bytes:
    """Return the shortest unsigned variable integer; *value* is taken modulo 2^64 (section 6)."""
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
    """Return a signed variable integer, as in durations."""
    return vint(value << 1 ^ value >> 63)


def sized(content: bytes) -> bytes:
    """Return *content* preceded by its length."""
    return vint(len(content)) + content

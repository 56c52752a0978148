"""The first bytes of an entry: its table, its partition key and its first write time."""

from typing import Final

from headrace.sources.cassandra.native import constants

_TABLE_ID_BYTES: Final = 16
_EPOCH_US: Final = 1_442_880_000_000_000  # Write times count from here.
_WORD: Final = 1 << 64


def first_table_id(raw: bytes, messaging: int) -> bytes:
    """Return the id of the table of a raw mutation's first update."""
    at = _first_update(raw, messaging)
    return raw[at : at + _TABLE_ID_BYTES]


def partition_key(raw: bytes, messaging: int) -> bytes:
    """Return the partition key of a raw mutation, which all of its updates share."""
    begin, end = _key(raw, messaging)
    return raw[begin:end]


def first_write_us(raw: bytes, messaging: int) -> int | None:
    """Return the earliest write time of a raw mutation's first update; None if it is empty."""
    at = _key(raw, messaging)[1]
    if at >= len(raw) or raw[at] & constants.IS_EMPTY:
        return None
    found = (_EPOCH_US + _vint(raw, at + 1)[0]) % _WORD
    return found - _WORD if found >> 63 else found


def _key(raw: bytes, messaging: int) -> tuple[int, int]:
    """Return the begin and the end of the partition key."""
    at = _first_update(raw, messaging) + _TABLE_ID_BYTES
    if messaging >= constants.MESSAGING_60:
        at += 1 + _extra(raw, at)  # The schema epoch.
    length, begin = _vint(raw, at)
    return begin, begin + length


def _vint(raw: bytes, at: int) -> tuple[int, int]:
    """Return the vint at *at*, and its end."""
    extra = _extra(raw, at)
    end = at + 1 + extra
    bits = 8 * extra + max(0, 7 - extra)
    return int.from_bytes(raw[at:end], "big") & (1 << bits) - 1, end


def _first_update(raw: bytes, messaging: int) -> int:
    at = 1 if messaging >= constants.MESSAGING_60 else 0  # Flags.
    return at + 1 + _extra(raw, at)  # The number of updates.


def _extra(raw: bytes, at: int) -> int:
    """Return how many bytes follow the first byte of the vint at *at*: its leading one bits."""
    return 8 - (raw[at] ^ 0xFF).bit_length() if at < len(raw) else 0

"""The first bytes of an entry: its table and its partition key."""

from typing import Final

from headrace.sources.cassandra.native import constants

_TABLE_ID_BYTES: Final = 16


def first_table_id(raw: bytes, messaging: int) -> bytes:
    """Return the id of the table of a raw mutation's first update."""
    at = _first_update(raw, messaging)
    return raw[at : at + _TABLE_ID_BYTES]


def partition_key(raw: bytes, messaging: int) -> bytes:
    """Return the partition key of a raw mutation, which all its updates share."""
    at = _first_update(raw, messaging) + _TABLE_ID_BYTES
    if messaging >= constants.MESSAGING_60:
        at += 1 + _extra(raw, at)  # The schema epoch.
    begin = at + 1 + _extra(raw, at)
    length = int.from_bytes(raw[at:begin], "big") & (1 << 7 * (begin - at)) - 1
    return raw[begin : begin + length]


def _first_update(raw: bytes, messaging: int) -> int:
    at = 1 if messaging >= constants.MESSAGING_60 else 0  # Flags.
    return at + 1 + _extra(raw, at)  # The number of updates.


def _extra(raw: bytes, at: int) -> int:
    """Return how many bytes follow the first byte of the vint at *at*: its leading one bits."""
    return 8 - (raw[at] ^ 0xFF).bit_length() if at < len(raw) else 0

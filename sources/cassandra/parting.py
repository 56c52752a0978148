"""States of jobs that part, that lose tables, and that become one again. Pure; no hot path."""

from collections.abc import Collection, Mapping
from typing import Final

from headrace.sources.cassandra import codes

_KIND_BITS: Final = 0xFF
_KEYSPACE_SHIFT, _KEYSPACE_BITS = 32, 0xFFFF
_PENDING: Final = "mutations.pending"


def opened(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the books of a job that goes its own way: they open with what is pending (I3)."""
    pending = counters.get(_PENDING, 0)
    return {"mutations.opening": pending, _PENDING: pending}


def without_keyspaces(content: bytes, gone: Collection[int]) -> bytes:
    """Return rows of records without those of the keyspaces numbered *gone*.

    Nobody knows their replicas any more, so nothing can be said of their mutations.
    """
    rows = memoryview(content).cast("Q")
    kept = bytearray()
    at = 0
    while at < len(rows):
        meta = rows[at + codes.META]
        kind = meta & _KIND_BITS
        end = at + codes.RECORD_WORDS
        if kind in (codes.PENDING, codes.EXPIRED_DROPPED):
            end += rows[at + codes.LOCATIONS] * (codes.LOCATION_WORDS - 1)
        if kind == codes.FREE or meta >> _KEYSPACE_SHIFT & _KEYSPACE_BITS not in gone:
            kept += rows[at:end].tobytes()
        at = end
    return bytes(kept)

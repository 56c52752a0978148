"""States of forked jobs, and of jobs that lost tables. Pure; not a hot path."""

from array import array
from collections.abc import Collection, Mapping
from typing import Final

from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.state.rows import keyspace_of, kind_of, rows_of

_PENDING: Final = "mutations.pending"


def opened(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the initial books of a forked job: they start with the pending mutations (I3)."""
    pending = counters.get(_PENDING, 0)
    return {"mutations.opening": pending, _PENDING: pending}


def without_keyspaces(words: memoryview, gone: Collection[int]) -> memoryview:
    """Return rows of records without those of the keyspaces numbered *gone*.

    Their replicas are no longer known, so agreement cannot be decided.
    """
    kept = array("Q")
    for row in rows_of(words):
        if kind_of(row) == constants.FREE or keyspace_of(row) not in gone:
            kept.extend(row)
    return memoryview(kept.tobytes()).cast("Q")

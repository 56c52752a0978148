"""Reads several splits of a source in turns up to the end of its logs, as a worker does."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, TypeVar

import msgspec

from headrace.connector.replay.shards import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    IDLE_READS,
    LINGER_MS,
)
from headrace.plugins import Batch, Demand, Done, Reader

_BATCHES_MAX: Final = 64  # Batches of `BATCH_BYTES_MAX` that are read at once for all splits.

K = TypeVar("K")


def _together(key: object) -> AbstractContextManager[None]:
    """Make an error of one reader end all."""
    del key
    return nullcontext()


def read_in_turns(
    readers: dict[K, Reader],
    take: Callable[[K, Batch], None],
    settle: Callable[[], None],
    *,
    alone: Callable[[K], AbstractContextManager[None]] = _together,
) -> set[K]:
    """Read from *readers* in turns until they are done, or have nothing.

    *take* gets each batch, with the key of its reader; *settle* is called after each round. *alone*
    wraps the work for one reader: it may suppress an error, and then removes the reader. Returns
    the keys of readers whose logs could not be read completely in the last round.
    """
    more = Demand(
        records_max=BATCH_RECORDS_MAX,
        bytes_max=BATCH_BYTES_MAX * max(1, min(_BATCHES_MAX, len(readers))),
        linger_ms=LINGER_MS,
        position_due=False,
        end_may_wait=True,
    )
    # Ends are due if nothing else comes: one costs as much as a small batch.
    ends = msgspec.structs.replace(more, end_may_wait=False)
    idle, short = 0, set[K]()
    while idle < IDLE_READS and readers:
        demand = ends if idle else more
        idle += 1
        short.clear()
        for key, reader in list(readers.items()):
            with alone(key):
                came = reader.read(demand)
                if isinstance(came, Batch):
                    idle = 0
                    take(key, came)
                elif isinstance(came, Done):
                    del readers[key]
                elif came.more:
                    short.add(key)
        settle()
    return short

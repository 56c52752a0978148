"""Delivers a part of a micro-batch: what a split has between two offsets. Needs no Spark."""

from collections.abc import Callable

from msgspec import structs

from headrace.connector.replay.sending import Sending
from headrace.connector.replay.shards import encode_with_retries
from headrace.connector.replay.stream.checkpoint import Checkpoint
from headrace.connector.replay.stream.microbatches import Reading
from headrace.connector.runtime.splits.ledger import tally
from headrace.connector.serde import Encoder
from headrace.connector.stores import Counters, Loss, TableCounts, add_counters


def deliver_part(
    reading: Reading,
    sending: Sending,
    encoder: Encoder,
    checkpoint: Checkpoint,
    lose: Callable[[Loss], None],
) -> Counters:
    """Return the counters of what was delivered; what was read is in the state of the split.

    *lose* takes what could not be made into records.
    """
    delivered: Counters = {}
    refused = sending.refused.copy()
    for batch in reading.batches():
        sending.announce(batch)
        checkpoint.keep_schemas(batch.schemas())
        encoded = encode_with_retries(encoder, batch)
        counters, losses = tally(encoded, reading.place)
        for loss in losses:
            lose(loss)
        reading.count({t: structs.replace(c, delivered=0) for t, c in counters.items()})
        settled = {t: TableCounts(delivered=c.delivered) for t, c in counters.items()}
        delivered = add_counters(delivered, settled)
        sending.take(encoded, batch)
    sending.finish()
    lost = sending.refused - refused
    moved = {t: TableCounts(delivered=-n, dead_lettered=n) for t, n in lost.items()}
    return add_counters(delivered, moved)

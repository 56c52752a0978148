"""Delivers parts of a micro-batch: the changes of splits between two offsets. Needs no Spark."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TypeVar

from msgspec import structs

from headrace.connector.replay.framing.turns import read_in_turns
from headrace.connector.replay.sending import OUTSTANDING_RECORDS_MAX, Sending
from headrace.connector.replay.shards import encode_with_retries, reader_of, short_of, split_of
from headrace.connector.replay.stream.checkpoint import Checkpoint
from headrace.connector.replay.stream.microbatches import Reading
from headrace.connector.runtime.splits.ledger import tally
from headrace.connector.serde import Encoder
from headrace.connector.stores import Counters, Loss, TableCounts, add_counters
from headrace.plugins import Batch, CloseReason, Reader, Source

K = TypeVar("K")


class PartDelivery:
    """The delivery of a part into the sink, and its counters."""

    def __init__(
        self,
        reading: Reading,
        sending: Sending,
        encoder: Encoder,
        checkpoint: Checkpoint,
        lose: Callable[[Loss], None],
    ) -> None:
        """Read nothing yet. *sending* is of this part; *lose* takes quarantined mutations."""
        self.reading = reading
        self.sending = sending
        self._encoder, self._checkpoint, self._lose = encoder, checkpoint, lose
        self._delivered: Counters = {}

    def run(self) -> Counters:
        """Deliver the part; return counters of deliveries. The split's state has those of reads."""
        for batch in self.reading.batches():
            self.take(batch)
        return self.finish()

    def take(self, batch: Batch) -> None:
        """Send a batch."""
        self.sending.announce(batch)
        self._checkpoint.keep_schemas(batch.schemas())
        encoded = encode_with_retries(self._encoder, batch)
        counters, losses = tally(encoded, self.reading.place)
        for loss in losses:
            self._lose(loss)
        self.reading.count({t: structs.replace(c, delivered=0) for t, c in counters.items()})
        settled = {t: TableCounts(delivered=c.delivered) for t, c in counters.items()}
        self._delivered = add_counters(self._delivered, settled)
        self.sending.take(encoded, batch)

    def finish(self) -> Counters:
        """Return the counters once all records are settled."""
        self.sending.finish()
        lost = self.sending.refused
        moved = {t: TableCounts(delivered=-n, dead_lettered=n) for t, n in lost.items()}
        return add_counters(self._delivered, moved)


def deliver_together(deliveries: Mapping[K, PartDelivery]) -> Mapping[K, Counters]:
    """Deliver parts of one batch in one pass over the logs; return the counters of each.

    The logs are read once for all, as a worker reads them for its splits. All parts send through
    one writer.

    Raises:
        LogShortError: a log is shorter than when the batch was planned.
        HeadraceError: the source cannot be read, as at a gap, or a part cannot be delivered.

    """
    parts = list(deliveries.values())

    def take(part: PartDelivery, batch: Batch) -> None:
        part.reading.note(batch)
        part.take(batch)

    def settle_many() -> None:
        if sum(part.sending.outstanding for part in parts) > OUTSTANDING_RECORDS_MAX:
            for part in parts:
                part.sending.finish()

    with parts[0].reading.source() as source, ExitStack() as readers:
        for part in read_in_turns(_opened(source, parts, readers), take, settle_many):
            raise short_of(part.reading.shard)
    for part in parts:
        part.reading.store()
    return {name: part.finish() for name, part in deliveries.items()}


def _opened(
    source: Source, parts: Sequence[PartDelivery], readers: ExitStack
) -> dict[PartDelivery, Reader]:
    """Return a reader for each of *parts*; *readers* closes them."""
    made: dict[PartDelivery, Reader] = {}
    splits = source.plan()
    for part in parts:
        shard = part.reading.shard
        reader = made[part] = reader_of(source, split_of(shard, splits), shard)
        readers.callback(reader.close, CloseReason.FINISHED)
    return made

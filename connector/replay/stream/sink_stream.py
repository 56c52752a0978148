"""`headrace.sink` as the end of a stream of micro-batches. Imports pyspark."""

import pickle
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from headrace.connector.foundation.configured import configured
from headrace.connector.replay.delivery import sink_and_encoder
from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.frames.mistakes import check_options
from headrace.connector.replay.framing.block_rows import rows_of
from headrace.connector.replay.framing.framed_shards import SplitFiles
from headrace.connector.replay.sending import Sending
from headrace.connector.replay.shards import close_kept, inside, keep_modules, origin_of
from headrace.connector.replay.stream.checkpoint import Checkpoint
from headrace.connector.replay.stream.microbatches import Part, Reading
from headrace.connector.replay.stream.part_delivery import PartDelivery, deliver_together
from headrace.connector.replay.stream.split_transactions import SplitTransactions
from headrace.connector.replay.stream.streaming import job_of
from headrace.connector.replay.stream.terms import Settled
from headrace.connector.runtime.failures.tolerance import ErrorPolicy, NotToleratedError
from headrace.connector.serde import Encoder
from headrace.connector.stores import Counters, Loss, StateLostError
from headrace.plugins import RecordSchema, Sink

if TYPE_CHECKING:
    import pyarrow as pa

RETRY_SECONDS_MAX: Final = 120  # How long a task starts transactions again, exactly once.
_OPTIONS: Final = ("job", "name", "generation", "checkpointlocation", "queryname")
_BATCH: Final = "streaming.sql.batchId"  # As Spark tells its tasks.


@dataclass
class SplitsDelivered(WriterCommitMessage):
    """What one task has delivered, by the split's index in the plan."""

    splits: Mapping[int, Settled]


class SinkStream(DataSourceStreamArrowWriter):
    """Delivers what `headrace.segments` reads in the format `sink` to the sink of the same job.

    The rows of a split must all come to one task.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """Read the job. Raises ConfigError."""
        check_options("a stream into headrace.sink", options, _OPTIONS)
        _, self._text, self._checkpoint = job_of(options)

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> SplitsDelivered:
        """Read the splits of the rows, and deliver; return when all is settled.

        Without blocks of their logs they are read in one pass. What the sink refuses is
        dead-lettered.
        """
        parts: dict[int, Part] = {}
        with tempfile.TemporaryDirectory(prefix="headrace-framed-") as folder:
            files = SplitFiles(Path(folder))
            for number, part, block in rows_of(iterator):
                if part is not None:
                    parts[number] = pickle.loads(part)  # noqa: S301 (made by `read`)
                else:
                    files.put(str(number), block)
            if files.splits - {str(number) for number in parts}:
                hint = 'put .repartitionById(tasks, "split") between the two'
                raise bad_option("split", "the rows of a split came to several tasks", hint)
            try:
                return SplitsDelivered(self._deliver(parts, files))
            finally:
                close_kept()
                keep_modules()

    def _deliver(self, parts: Mapping[int, Part], files: SplitFiles) -> Mapping[int, Settled]:
        """Deliver splits through one sink; return what became of each."""
        text = self._text
        if not parts:
            return {}
        with (
            inside(str(text.directory)),
            sink_and_encoder(text.sink, text.name, origin_of(text.source), text.bounds) as opened,
        ):
            deliver = self._deliver_once if opened[0].is_transactional else self._deliver_all
            return deliver(opened, parts, files)

    def _deliver_once(
        self, opened: tuple[Sink, Encoder], parts: Mapping[int, Part], files: SplitFiles
    ) -> Mapping[int, Settled]:
        """Deliver one split after another, each in a transaction."""
        policy = ErrorPolicy.of(opened[0].config, retry_seconds_max=RETRY_SECONDS_MAX)
        once = SplitTransactions(opened, self._checkpoint, policy, _batch())
        return {n: once.deliver(parts[n], files.file_of(str(n))) for n in sorted(parts)}

    def _deliver_all(
        self, opened: tuple[Sink, Encoder], parts: Mapping[int, Part], files: SplitFiles
    ) -> Mapping[int, Settled]:
        """Deliver through one writer: splits with blocks one by one, the others together."""
        sink, encoder = opened
        _, config = configured("sink", self._text.sink, self._text.bounds)
        policy = ErrorPolicy.of(config, retry_seconds_max=0)
        asides = {number: _Aside(self._checkpoint, policy) for number in sorted(parts)}
        schemas: dict[bytes, RecordSchema] = {}
        with closing(sink.open()) as writer:

            def part_of(number: int) -> PartDelivery:
                lose, file = asides[number].take, files.file_of(str(number))
                reading = Reading(parts[number], self._checkpoint, file)
                sending = Sending(sink, encoder, lose=lose, shared=writer, schemas=schemas)
                return PartDelivery(reading, sending, encoder, self._checkpoint, lose)

            counters: Mapping[int, Counters]
            if files.splits:  # The blocks of a split are read for it alone.
                counters = {number: part_of(number).run() for number in asides}
            else:
                counters = deliver_together({number: part_of(number) for number in asides})
        for number, aside in asides.items():
            aside.keep(number)
        return {number: Settled(counters[number]) for number in asides}

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        """Count the delivered records (I3); all of them are settled.

        Raises:
            StateLostError: a split did not report, or twice.

        """
        found = [each.splits for each in messages if isinstance(each, SplitsDelivered)]
        counted = {number: settled for each in found for number, settled in each.items()}
        numbers = [number for each in found for number in each]
        if sorted(numbers) != list(range(len(counted))) or not counted:
            said = f"splits {sorted(numbers)} reported what they delivered in batch {batchId}"
            hint = "start the job again: it repeats the batch"
            raise StateLostError(said, place=f"job {self._text.name}", hint=hint)
        self._checkpoint.settle_open(batchId, {n: each.losses for n, each in counted.items()})
        counters = [counted[n].counters for n in sorted(counted)]
        self._checkpoint.count_delivered(batchId, counters)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        """Do nothing: the batch is repeated, and consumers recognize changes by name."""


class _Aside:
    """Records that a split could not deliver: stored, unless the sink's options say to stop."""

    def __init__(self, checkpoint: Checkpoint, policy: ErrorPolicy) -> None:
        self._checkpoint = checkpoint
        self._policy = policy
        self._batch = _batch()
        self._losses: list[Loss] = []

    def take(self, loss: Loss) -> None:
        """Remember a loss. Raises NotToleratedError if losses are not allowed."""
        if not self._policy.tolerant:
            raise NotToleratedError(f"{loss.code}: {loss.message}", place=loss.place)
        self._losses.append(loss)

    def keep(self, split: int) -> None:
        """Store the losses of a split; those of an earlier attempt are replaced."""
        self._checkpoint.set_aside(self._batch, split, self._losses)
        self._losses = []


def _batch() -> int:
    """Return the number of the batch, which all attempts of a task share."""
    context = TaskContext.get()
    return 0 if context is None else int(context.getLocalProperty(_BATCH) or 0)

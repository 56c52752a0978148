"""`headrace.segments` and `headrace.sink` as streams of micro-batches. Imports pyspark.

The driver lists files and opens none. Tasks of the first stage frame parts of logs, each once; a
shuffle sends what they found to the tasks of splits. These agree, encode and deliver up to the end
of the batch: each key keeps its order. Where these are few, each reads the logs for its splits in
one pass instead.
"""

import pickle
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from headrace.connector.control.jobs import JobText, job_text, read_job
from headrace.connector.foundation.configured import configured
from headrace.connector.replay.columns import encoded_rows
from headrace.connector.replay.delivery import sink_and_encoder
from headrace.connector.replay.errors import JobChangedError, bad_option
from headrace.connector.replay.frames.mistakes import check_options
from headrace.connector.replay.framing.block_rows import batches_of, rows_of
from headrace.connector.replay.framing.framed_shards import SHARDS_MIN, Framing, SplitFiles
from headrace.connector.replay.sending import Sending
from headrace.connector.replay.shards import SourceSpec, close_kept, inside, keep_modules, origin_of
from headrace.connector.replay.stream.checkpoint import Checkpoint, Offset, checkpoint_of
from headrace.connector.replay.stream.microbatches import ALL_BYTES, Course, Part, Reading
from headrace.connector.replay.stream.part_delivery import PartDelivery, deliver_together
from headrace.connector.replay.stream.split_transactions import SplitTransactions
from headrace.connector.replay.stream.terms import Settled
from headrace.connector.runtime.failures.tolerance import ErrorPolicy, NotToleratedError
from headrace.connector.serde import Encoder
from headrace.connector.stores import Counters, Loss, StateLostError, TableCounts
from headrace.connector.stores.job import state_of
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import NumberPosition, RecordBatch, RecordSchema, Sink

if TYPE_CHECKING:
    import pyarrow as pa

AS_SINK: Final = "sink"
BATCH_BYTES: Final = 512 * 1024 * 1024  # What a batch costs by itself is little beside it.
RETRY_SECONDS_MAX: Final = 120  # How long a task starts transactions again, exactly once.
_OPTIONS: Final = ("job", "name", "generation", "format", "batch_bytes", "tasks")
_SINK_OPTIONS: Final = ("job", "name", "generation", "checkpointlocation", "queryname")
_BATCH: Final = "streaming.sql.batchId"  # As Spark tells its tasks.


@dataclass(frozen=True, slots=True)
class PartsPartition(InputPartition):
    """The task that tells each split what to do."""

    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class LogPartition(InputPartition):
    """A task that frames a part of a log."""

    framing: Framing


@dataclass
class Delivered(WriterCommitMessage):
    """The counters of what one task has delivered."""

    counters: Counters

    @property
    def rejected(self) -> int:
        """The number of records that the sink refused permanently."""
        return sum(each.dead_lettered for each in self.counters.values())


@dataclass
class SplitsDelivered(WriterCommitMessage):
    """What one task has delivered, by the split's index in the plan."""

    splits: Mapping[int, Settled]


class SegmentStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the source of a job as a stream; the job's checkpoint has the state of its splits."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options. Raises ConfigError."""
        check_options("a stream of headrace.segments", options, _OPTIONS)
        if (given := options.get("format")) != AS_SINK:
            said = f"of a stream is `{AS_SINK}`, found {given!r}"
            raise bad_option("format", said, f'option("format", "{AS_SINK}")')
        self._path, self._text, self._checkpoint = _job_of(options)
        self._limit = ReadMaxBytes(_number_of("batch_bytes", options, BATCH_BYTES))
        self._tasks = _number_of("tasks", options, SHARDS_MIN)
        self._made: Course | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """Return the bound of a micro-batch."""
        return self._limit

    def initialOffset(self) -> Offset:  # type: ignore[override]  # noqa: N802 (none of ours changes)
        """Return the start of a job that has read nothing."""
        return self._course().initial()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # type: ignore[override]  # noqa: N802 (as above)
        """Return the end of the next batch; *start* if there is nothing new."""
        size_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else ALL_BYTES
        return self._course().ahead(start, size_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """End at the current end of the logs."""
        self._course().end_here()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return a task for what splits are to do, and one for each part of a log to be framed."""
        course = self._course()
        parts = course.parts(start, end)
        # Few tasks read the logs themselves for less CPU than blocks take. Exactly once, splits are
        # delivered one after another, each in a transaction: then each log is read once before.
        is_pass = self._tasks < SHARDS_MIN and parts[0].term is None
        framing = None if is_pass else course.framing(parts)
        logs = () if framing is None else framing.parts
        return [
            PartsPartition(parts),
            *(LogPartition(replace(framing, parts=[log])) for log in logs if framing is not None),
        ]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield rows for splits. Spark calls it in a task, once for each attempt."""
        if isinstance(partition, PartsPartition):
            yield from batches_of(
                (number, pickle.dumps(part), None) for number, part in enumerate(partition.parts)
            )
            return
        assert isinstance(partition, LogPartition)  # noqa: S101 (made above)
        framing = partition.framing
        numbers = {split: number for number, split in enumerate(framing.splits)}
        yield from batches_of(
            (numbers[split], None, block) for split, block in framing.frame(framing.parts)
        )

    def commit(self, end: Offset) -> None:
        """Delete the state before *end*."""
        self._checkpoint.states.forget_before(end)

    def stop(self) -> None:
        """Close what the driver opened."""
        if self._made is not None:
            self._made.close()

    def _course(self) -> Course:
        if self._made is None:
            text = self._text
            with closing(read_job(self._path, text.name).open_store()) as store:
                job_key = store.job_key()
            spec = SourceSpec.of_job(text)
            self._made = Course(spec, self._checkpoint, start=text.start, job_key=job_key)
        return self._made


def deliver_rows(sending: Sending, iterator: Iterator["pa.RecordBatch"]) -> Delivered:
    """Deliver a task's rows; return when all are settled."""
    taken: Counter[str] = Counter()
    with closing(sending):
        for rows in iterator:
            encoded = encoded_rows(rows)
            taken.update(encoded.tables)
            sending.take(encoded, RecordBatch("spark", NumberPosition(0), 0, []))
        sending.finish()
    refused = sending.refused
    return Delivered(
        {
            t: TableCounts(delivered=n - refused[t], dead_lettered=refused[t])
            for t, n in taken.items()
        }
    )


class SinkStream(DataSourceStreamArrowWriter):
    """Delivers what `headrace.segments` reads in the format `sink` to the sink of the same job.

    The rows of a split must all come to one task.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """Read the job. Raises ConfigError."""
        check_options("a stream into headrace.sink", options, _SINK_OPTIONS)
        _, self._text, self._checkpoint = _job_of(options)

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


def _number_of(name: str, options: Mapping[str, str], default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or not int(text):
        raise bad_option(name, f"expected a number above 0, found {text!r}")
    return int(text)


def _job_of(options: Mapping[str, str]) -> tuple[Path, JobText, Checkpoint]:
    if "job" not in options:
        raise bad_option("job", "is required", "the job file whose source or sink is meant")
    path = Path(options["job"]).absolute()
    asked = options.get("generation")
    text = job_text(path, options.get("name")) if asked is None else _text_of(path, options, asked)
    return path, text, checkpoint_of(text.state, text.name)


def _text_of(path: Path, options: Mapping[str, str], generation: str) -> JobText:
    """Return the job as statements define it in *generation*.

    Raises:
        JobChangedError: by now they define it otherwise.

    """
    place, name = state_of(path, options.get("name"))
    with closing(open_notes(place, create=False)) as notes, notes.snapshot():
        text = job_text(path, name, notes=notes)
        now = notes.board.wanted(name).generation
    if str(now) != generation:
        said = f"statements changed it: found generation {now}, expected {generation}"
        raise JobChangedError(said, place=f"job {text.name}", hint="the stream is started again")
    return text

"""`headrace.segments` and `headrace.sink` as streams of micro-batches. Imports pyspark.

The driver lists files and opens none. A task reads a split up to the end of the batch, and its
records go to the sink without a shuffle: each key keeps its order.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from headrace.connector.control.jobs import JobText, job_text, read_job
from headrace.connector.replay.columns import encoded_rows, sink_batch
from headrace.connector.replay.delivery import sink_and_encoder
from headrace.connector.replay.errors import JobChangedError, bad_option
from headrace.connector.replay.frames.mistakes import check_options
from headrace.connector.replay.sending import Sending
from headrace.connector.replay.shards import SourceSpec, encode_with_retries, inside, origin_of
from headrace.connector.replay.stream.checkpoint import Checkpoint, Offset, checkpoint_of
from headrace.connector.replay.stream.microbatches import ALL_BYTES, Course, Part, Reading
from headrace.connector.runtime.failures.tolerance import ErrorPolicy, NotToleratedError
from headrace.connector.runtime.splits.ledger import tally
from headrace.connector.stores import Counters, Loss, TableCounts
from headrace.connector.stores.job import state_of
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.target_state import Board
from headrace.plugins import NumberPosition, RecordBatch, Sink

if TYPE_CHECKING:
    import pyarrow as pa

AS_SINK: Final = "sink"
BATCH_BYTES: Final = 128 * 1024 * 1024
_OPTIONS: Final = ("job", "name", "generation", "format", "batch_bytes")
_SINK_OPTIONS: Final = ("job", "name", "generation", "checkpointlocation", "queryname")
_BATCH: Final = "streaming.sql.batchId"  # As Spark tells its tasks.


@dataclass(frozen=True, slots=True)
class PartPartition(InputPartition):
    """One task's work."""

    part: Part


@dataclass
class Delivered(WriterCommitMessage):
    """The counters of what one task has delivered."""

    counters: Counters

    @property
    def rejected(self) -> int:
        """The number of records that the sink refused permanently."""
        return sum(each.dead_lettered for each in self.counters.values())


class SegmentStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the source of a job as a stream; the job's checkpoint has the state of its splits."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options. Raises ConfigError."""
        check_options("a stream of headrace.segments", options, _OPTIONS)
        if (given := options.get("format")) != AS_SINK:
            said = f"of a stream is `{AS_SINK}`, found {given!r}"
            raise bad_option("format", said, f'option("format", "{AS_SINK}")')
        self._path, self._text, self._checkpoint = _job_of(options)
        self._limit = ReadMaxBytes(_size_of(options.get("batch_bytes", str(BATCH_BYTES))))
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

    def partitions(self, start: Offset, end: Offset) -> Sequence[PartPartition]:
        """Return a task for each split."""
        return [PartPartition(part) for part in self._course().parts(start, end)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the records of a split. Spark calls it in a task, once for each attempt."""
        assert isinstance(partition, PartPartition)  # noqa: S101 (made above)
        place = f"split {partition.part.shard.split}"
        text, checkpoint = self._text, self._checkpoint
        origin = origin_of(text.source)
        with (
            inside(str(text.directory)),
            sink_and_encoder(text.sink, text.name, origin, text.bounds) as made,
        ):
            sink, encoder = made
            aside = _Aside(checkpoint, sink, "read")
            reading = Reading(partition.part, checkpoint)
            for batch in reading.batches():
                schemas = batch.schemas()
                encoder.announce(schemas)
                checkpoint.keep_schemas(schemas)
                encoded = encode_with_retries(encoder, batch)
                counters, losses = tally(encoded, place)
                for loss in losses:
                    aside.take(loss)
                reading.count(
                    {t: msgspec.structs.replace(c, delivered=0) for t, c in counters.items()}
                )
                if len(encoded):
                    yield sink_batch(encoded, origin)
            aside.keep()

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
    """Writes what `headrace.segments` reads in the format `sink` to the sink of the same job."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Read the job. Raises ConfigError."""
        check_options("a stream into headrace.sink", options, _SINK_OPTIONS)
        _, self._text, self._checkpoint = _job_of(options)

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> Delivered:
        """Deliver a task's rows; return when all are settled. Refused ones are dead-lettered."""
        text = self._text
        with (
            inside(str(text.directory)),
            sink_and_encoder(text.sink, text.name, origin_of(text.source), text.bounds) as made,
        ):
            sink, encoder = made
            aside = _Aside(self._checkpoint, sink, "write")
            delivered = deliver_rows(Sending(sink, encoder, lose=aside.take), iterator)
            aside.keep()
            return delivered

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        """Count the delivered records (I3); all of them are settled."""
        counted = [each.counters if isinstance(each, Delivered) else {} for each in messages]
        self._checkpoint.count_delivered(batchId, counted)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        """Do nothing: the batch is repeated, and consumers recognize changes by name."""


class _Aside:
    """Records that a task could not deliver: stored, unless the sink's options say to stop."""

    def __init__(self, checkpoint: Checkpoint, sink: Sink, stage: str) -> None:
        self._checkpoint = checkpoint
        self._policy = ErrorPolicy.of(sink.config, retry_ms_max=0)
        self._place = (*_task(), stage)
        self._losses: list[Loss] = []

    def take(self, loss: Loss) -> None:
        """Remember a loss. Raises NotToleratedError if losses are not allowed."""
        if not self._policy.tolerant:
            raise NotToleratedError(f"{loss.code}: {loss.message}", place=loss.place)
        self._losses.append(loss)

    def keep(self) -> None:
        """Store the losses; those of an earlier attempt are replaced."""
        self._checkpoint.set_aside(*self._place, self._losses)


def _task() -> tuple[int, int]:
    """Return the batch and the part of the task, which all its attempts share."""
    context = TaskContext.get()
    if context is None:
        return 0, 0
    return int(context.getLocalProperty(_BATCH) or 0), context.partitionId()


def _size_of(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise bad_option("batch_bytes", f"expected a number above 0, found {text!r}")
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
        now = Board(notes).wanted(name).generation
    if str(now) != generation:
        said = f"statements changed it: found generation {now}, expected {generation}"
        raise JobChangedError(said, place=f"job {text.name}", hint="the stream is started again")
    return text

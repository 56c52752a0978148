"""`headrace.segments` as a stream of micro-batches, for `sink_stream`. Imports pyspark.

The driver lists files and opens none. Tasks of the first stage frame parts of logs, each once; a
shuffle sends the blocks to the tasks of splits. These agree, encode and deliver up to the end of
the batch: each key keeps its order. If these tasks are few, each reads the logs for its splits in
one pass instead.
"""

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from headrace.connector.control.jobs import JobText, job_text, read_job
from headrace.connector.replay.errors import JobChangedError, bad_option
from headrace.connector.replay.frames.mistakes import check_options
from headrace.connector.replay.framing.block_rows import AS_SINK, batches_of
from headrace.connector.replay.framing.framed_shards import SHARDS_MIN, Framing
from headrace.connector.replay.shards import SourceSpec
from headrace.connector.replay.stream.checkpoint import Checkpoint, Offset, checkpoint_of
from headrace.connector.replay.stream.microbatches import ALL_BYTES, Course, Part
from headrace.connector.stores.job import state_of
from headrace.connector.stores.open_control_store import open_notes

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES: Final = 512 * 1024 * 1024  # What a batch costs by itself is little beside it.
_OPTIONS: Final = ("job", "name", "generation", "format", "batch_bytes", "tasks")


@dataclass(frozen=True, slots=True)
class PartsPartition(InputPartition):
    """The task that sends each split its order."""

    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class LogPartition(InputPartition):
    """A task that frames a part of a log."""

    framing: Framing


class SegmentStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the source of a job as a stream; the job's checkpoint has the state of its splits."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options. Raises ConfigError."""
        check_options("a stream of headrace.segments", options, _OPTIONS)
        if (given := options.get("format")) != AS_SINK:
            said = f"of a stream is `{AS_SINK}`, found {given!r}"
            raise bad_option("format", said, f'option("format", "{AS_SINK}")')
        self._path, self._text, self._checkpoint = job_of(options)
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
        """Return a task with the orders of splits, and one for each part of a log to frame."""
        course = self._course()
        parts = course.parts(start, end)
        # If tasks are few, they use less CPU without blocks. Exactly once, splits are delivered one
        # after another, each in a transaction: then each log is read once before.
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


def _number_of(name: str, options: Mapping[str, str], default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or not int(text):
        raise bad_option(name, f"expected a number above 0, found {text!r}")
    return int(text)


def job_of(options: Mapping[str, str]) -> tuple[Path, JobText, Checkpoint]:
    """Return the file of the job that both ends of a stream name, the job, and its checkpoint.

    Raises:
        ConfigError: it is not named, or wrong.
        JobChangedError: by now statements define it otherwise.

    """
    if "job" not in options:
        raise bad_option("job", "is required", "the job file whose source or sink is meant")
    path = Path(options["job"]).absolute()
    asked = options.get("generation")
    text = job_text(path, options.get("name")) if asked is None else _text_of(path, options, asked)
    return path, text, checkpoint_of(text.state, text.name)


def _text_of(path: Path, options: Mapping[str, str], generation: str) -> JobText:
    """Return the job as statements define it in *generation*.

    Raises:
        JobChangedError: the statements have changed it since.

    """
    place, name = state_of(path, options.get("name"))
    with closing(open_notes(place, create=False)) as notes, notes.snapshot():
        text = job_text(path, name, notes=notes)
        now = notes.board.wanted(name).generation
    if str(now) != generation:
        said = f"statements changed it: found generation {now}, expected {generation}"
        raise JobChangedError(said, place=f"job {text.name}", hint="the stream is started again")
    return text

"""A stream without Spark: what Spark calls is called by hand, and its checkpoint is written."""

import contextlib
import itertools
import json
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import structlog
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.connector.commands.bulk.run_on_spark import failure_of
from headrace.connector.foundation import crash
from headrace.connector.hosting.host import Engine, Host
from headrace.connector.replay.frames.sources import SegmentSource
from headrace.connector.replay.stream.checkpoint import Checkpoint, Offset
from headrace.connector.replay.stream.sink_stream import SinkStream
from headrace.connector.replay.stream.stream_driver import StreamDriver
from headrace.connector.replay.stream.streaming import SegmentStream
from headrace.connector.stores.job import Job
from headrace.connector.stores.target_state import Wanted
from headrace.plugins import HeadraceError

BATCHES_MAX = 100
TASKS = 2  # Of splits.
MANY = 8  # Of which each does not read all logs.
PAUSE_SECONDS = 0.01  # Where there is nothing to read.


class ByHand:
    """A stream without Spark; it keeps the committed offset, as a checkpoint does."""

    def __init__(
        self, path: Path, folder: Path, *, batch_bytes: int = 1, tasks: int = MANY, **options: str
    ) -> None:
        """Start without a checkpoint in *folder*; *options* are more of both ends.

        The reader plans for so many *tasks* of splits.
        """
        self.of_job = {"job": str(path), **options}
        bounds = {"batch_bytes": str(batch_bytes), "tasks": str(tasks)}
        self.of_reader = {**self.of_job, "format": "sink", **bounds}
        self.folder = folder
        self.reader = self.started()
        self.at: Offset = self.reader.initialOffset()
        self.batches = 0

    def started(self) -> SegmentStream:
        """Return the stream that Spark makes when a query starts; it asks for columns first."""
        source = SegmentSource(self.of_reader)
        assert "block" in source.schema()
        return source.streamReader(StructType())

    def begin_again(self) -> None:
        """Restart, as after a crash."""
        self.reader.stop()
        self.reader = self.started()

    def next_end(self) -> Offset:
        """Return the end of the next batch, as Spark stores it: of one that failed, the same."""
        planned = self._logged("offsets")
        if planned.exists():
            known: Offset = json.loads(planned.read_text().splitlines()[-1])
            return known
        end = self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())
        kept: Offset = json.loads(json.dumps(end))
        return kept

    def deliver(self, end: Offset) -> None:
        """Read a batch and write it, in tasks on other machines with a shuffle between them."""
        self.log("offsets", json.dumps(end))
        ends = self.started(), SinkStream(self.of_job)  # Spark makes them once for a batch.
        rows: list[pa.RecordBatch] = []
        for number, partition in enumerate(self.reader.partitions(self.at, end)):
            reader, part = pickle.loads(pickle.dumps((ends[0], partition)))  # noqa: S301 (our own)
            with _task(self.batches, number):
                rows += self.first_stage(reader, part)
        shuffled = pa.Table.from_batches(rows)
        settled: list[WriterCommitMessage | None] = []
        for number in range(TASKS):
            mine = pc.equal(pc.bit_wise_and(shuffled["split"], TASKS - 1), number)
            writer = pickle.loads(pickle.dumps(ends[1]))  # noqa: S301 (our own)
            with _task(self.batches, number):
                settled.append(writer.write(iter(shuffled.filter(mine).to_batches())))
        ends[1].commit(settled, self.batches)

    def first_stage(
        self, reader: SegmentStream, partition: InputPartition
    ) -> Iterable[pa.RecordBatch]:
        """Return the rows of a task of the first stage."""
        return reader.read(partition)

    def step(self) -> bool:
        """Take a batch; return whether there was one."""
        end = self.next_end()
        if end == self.at:
            return False
        self.reader.commit(self.at)
        self.deliver(end)
        self.log("commits", "{}")
        self.at = end
        self.batches += 1
        return True

    def log(self, kind: str, line: str) -> None:
        """Write a batch into the checkpoint, as Spark does."""
        path = self._logged(kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"v1\n{line}")

    def _logged(self, kind: str) -> Path:
        return self.folder / "offsets" / kind / str(self.batches)

    def run(self) -> None:
        """Take all batches."""
        while self.step():
            assert self.batches < BATCHES_MAX


class HandQuery(ByHand):
    """A query over a stream by hand, which takes a batch each time it is waited for."""

    def __init__(
        self,
        job: Job,
        generation: int,
        checkpoint: Checkpoint,
        *,
        until_idle: bool,
        batch_bytes: int,
    ) -> None:
        """Continue the checkpoint, if there is one."""
        assert job.file is not None
        options = {"name": job.name, "generation": str(generation)}
        self.until_idle = until_idle
        super().__init__(
            job.file, checkpoint.folder, batch_bytes=batch_bytes, tasks=MANY, **options
        )
        committed = checkpoint.committed()
        if committed is not None:
            self.batches, self.at = committed[0] + 1, committed[1]
        if self.until_idle:
            self.reader.prepareForTriggerAvailableNow()
        self.isActive = True
        self.status = {"isTriggerActive": False}
        self.recentProgress: list[SimpleNamespace] = []

    def awaitTermination(self, timeout: int | None = None) -> bool:  # noqa: N802 (Spark's name)
        """Take a batch; a failure is Spark's, with the name of ours in it."""
        del timeout
        try:
            found = self.step()
        except HeadraceError as error:
            kind = f"{type(error).__module__}.{type(error).__qualname__}"
            raise PySparkException(f"Traceback:\n{kind}: {error}") from error
        if found:
            progress = SimpleNamespace(
                batchId=self.batches - 1, batchDuration=1, timestamp="2026-11-29T09:28:15.129Z"
            )
            self.recentProgress.append(progress)
        elif not self.until_idle:
            threading.Event().wait(PAUSE_SECONDS)
        return self.until_idle and not found

    def stop(self) -> None:
        """End."""
        self.isActive = False
        self.reader.stop()


def engine_by_hand(
    *, until_idle: bool = True, batch_bytes: int = 1, seen: Callable[[HandQuery], object] = id
) -> Engine:
    """Return an engine of queries by hand, each of which is shown to *seen*."""

    def begin(job: Job, generation: int, checkpoint: Checkpoint) -> HandQuery:
        query = HandQuery(
            job, generation, checkpoint, until_idle=until_idle, batch_bytes=batch_bytes
        )
        seen(query)
        return query

    def engine(job: Job, wanted: Wanted) -> StreamDriver:
        log = structlog.stdlib.get_logger()
        return StreamDriver(job, wanted, begin, failure_of, get_ready=list, log=log)

    return engine


def run_by_hand(path: Path, *, job: str | None = None, batch_bytes: int = 1) -> int:
    """Run a job to the end of its logs; return how many changes were delivered."""
    engine = engine_by_hand(batch_bytes=batch_bytes)
    log = structlog.stdlib.get_logger()
    _, report = Host(path, log=log, job=job, engine=engine).run(until_idle=True)
    assert report is not None
    return report.changes


class Death(BaseException):
    """A process ends here."""


def dying(monkeypatch: pytest.MonkeyPatch, step: str, time: int) -> None:
    """Let the process end when it reaches a step for the *time*-th time."""
    left = itertools.count(1)

    def reached(point: str) -> None:
        if point == step and next(left) == time:
            raise Death

    monkeypatch.setattr(crash, "reached", reached)


def overtake_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a second attempt deliver a batch whole when the first has sent a split of it.

    The first one continues then: it is about to commit.
    """
    queries: list[HandQuery] = []
    original, reached = HandQuery.step, crash.reached

    def step(query: HandQuery) -> bool:
        queries.append(query)
        return original(query)

    def overtake(point: str) -> None:
        if point == "part_sent":
            monkeypatch.setattr(crash, "reached", reached)
            queries[-1].deliver(queries[-1].next_end())

    monkeypatch.setattr(HandQuery, "step", step)
    monkeypatch.setattr(crash, "reached", overtake)


@contextlib.contextmanager
def _task(batch: int, part: int) -> Iterator[None]:
    """Let the block be a task of Spark."""
    properties = {"streaming.sql.batchId": str(batch)}
    task = SimpleNamespace(getLocalProperty=properties.get, partitionId=lambda: part)
    with mock.patch.object(TaskContext, "get", return_value=task):
        yield

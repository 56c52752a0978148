"""`headrace run --engine spark`: a job as a stream of micro-batches. Imports pyspark.

Spark's checkpoint is the job's position; the job's state file has its key only. The driver waits,
reports batches, and stops the query when it is asked to.
"""

import argparse
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Final

import structlog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.connector.commands.run import balance, called, metrics_served, stopped_by_signals
from headrace.connector.control.jobs import JobText, job_text, read_job
from headrace.connector.replay.delivery import sink_and_encoder
from headrace.connector.replay.errors import StreamFailedError, bad_option
from headrace.connector.replay.session import session
from headrace.connector.replay.shards import SourceSpec, inside
from headrace.connector.replay.stream.checkpoint import Checkpoint, checkpoint_of
from headrace.connector.replay.stream.stream_books import StreamMeasures, stream_books
from headrace.connector.replay.stream.streaming import AS_SINK
from headrace.connector.runtime.books.equations import total
from headrace.connector.runtime.books.figures import figures_of, figures_text
from headrace.connector.runtime.books.summary import books_text, dead_letters_text
from headrace.connector.runtime.failures.tolerance import ErrorPolicy
from headrace.connector.runtime.metrics import in_detail
from headrace.connector.stores.job import Job
from headrace.plugins import (
    NO_ORIGIN,
    ConfigError,
    HeadraceError,
    MicroBatches,
    MissingRequirementError,
    Problem,
)
from headrace.plugins.metrics import Measure

LOOK_EVERY_SECONDS: Final = 1
_STOP_LOOK_SECONDS: Final = 0.1
_KEPT_BATCHES: Final = 1_000  # Of which Spark tells what they were.
_MS: Final = 1_000
_HINT: Final = "started again, the job repeats the batch"
_SAID_CHARS_MAX: Final = 2_000
# Spark gives a new Python process 10 seconds, which no setting changes: a busy machine needs more.
_LATE: Final = "Python worker failed to connect back"
_LATE_IN_A_ROW_MAX: Final = 5
# An error of ours as Python writes it at the end of a trace: its class, and what it says.
_OURS: Final = re.compile(r"\b(headrace\.[\w.]+)\.(\w+Error): (.+)(?:\nhint: (.+))?$", re.MULTILINE)


def main(given: argparse.Namespace) -> int:
    """Run a job on Spark until SIGTERM, or until all there is was taken. Returns the exit status.

    Raises:
        HeadraceError: by what stopped it.

    """
    if given.summary_json:
        raise bad_option(
            "--summary-json", "is a worker's", "`headrace verify --json` has the books"
        )
    if given.batch_bytes is not None and given.batch_bytes < 1:
        raise bad_option("--batch-bytes", f"must be at least 1, found {given.batch_bytes}")
    path: Path = given.job_file.absolute()
    text, job = job_text(path, given.job), read_job(path, given.job)
    checkpoint = checkpoint_of(text.state, text.name)
    stopped = threading.Event()
    source = SourceSpec.of_job(text)
    with checkpoint.running(), stopped_by_signals(stopped.set):
        job_key = _check(text, job, source)
        measures = StreamMeasures(source, job_key, checkpoint) if given.metrics else None
        settings = {"spark.sql.streaming.numRecentProgressUpdates": str(_KEPT_BATCHES)}
        with (
            metrics_served(_measures(measures, job), lambda: job.name, given.metrics),
            session(given.master, settings) as spark,
        ):
            done = _Batches(job.name, measures)
            _run(lambda: _begin(spark, path, job, checkpoint, given), stopped, job, done)
    if given.until_idle:
        books = stream_books(source, job_key, checkpoint)
        sys.stdout.write(figures_text(figures_of(books), called(given)))
        sys.stdout.write(books_text(books) if given.books else "")
        sys.stdout.write(f"run: {done.records} records in {done.count} micro-batches\n")
        lost = [c.dead_lettered + c.quarantined for c in total(books).counters.values()]
        sys.stderr.write(dead_letters_text(sum(lost), f"they are in {checkpoint.lost}"))
        balance(books)
    return 0


def _check(text: JobText, job: Job, source: SourceSpec) -> bytes:
    """Find before Spark starts what would stop every task; return the job's key.

    Raises:
        ConfigError: the job asks for what only a worker does; or a worker ran it.
        MissingRequirementError: what it reads, or keeps its key in, cannot be used.

    """
    problems = []
    hint = "run it without --engine spark, or leave that out"
    if text.bounds is not None:
        problems.append(Problem("sink", "jobs of statements are for workers", hint))
    if issubclass(job.source, MicroBatches):
        found = job.source.only_for_workers(job.source_config)
        problems += [replace(problem, key=f"source.{problem.key}") for problem in found]
    policy = ErrorPolicy.of(job.sink_config, retry_ms_max=0)
    if policy.topic:
        key = "sink.errors.deadletterqueue.topic.name"
        problems.append(Problem(key, "on Spark there is no topic for dead letters", hint))
    if policy.budget_records is not None:
        problems.append(Problem("sink.errors.budget.records", "is not counted on Spark", hint))
    with (
        inside(str(text.directory)),
        sink_and_encoder(text.sink, text.name, NO_ORIGIN) as (sink, _),
    ):
        if sink.is_transactional:
            problems.append(Problem("sink", "only workers deliver exactly once", hint))
    with closing(job.open_store()) as store:
        job_key = store.job_key()
        if any(state.position is not None for state in store.states()):
            said = f"a worker ran {text.name}, whose position is in {text.state.name}"
            problems.append(Problem("job", said, "give it another name to run it on Spark"))
    if problems:
        raise ConfigError(problems)
    with inside(source.directory), closing(source.open()) as made:
        made.plan()
        MicroBatches.of(made).ahead(None, 0)
    return job_key


def _begin(
    spark: SparkSession, path: Path, job: Job, checkpoint: Checkpoint, given: argparse.Namespace
) -> StreamingQuery:
    options = {"job": str(path), "name": job.name}
    bounds = {} if given.batch_bytes is None else {"batch_bytes": str(given.batch_bytes)}
    changes = (
        spark.readStream.format("headrace.segments")
        .options(**options, **bounds, format=AS_SINK)
        .load()
    )
    writer = changes.writeStream.format("headrace.sink").options(**options)
    writer = writer.option("checkpointLocation", checkpoint.spark.as_uri()).outputMode("append")
    if given.until_idle:
        writer = writer.trigger(availableNow=True)
    else:
        every_ms = max(1, round(job.runtime.commit_max_seconds * _MS))
        writer = writer.trigger(processingTime=f"{every_ms} milliseconds")
    return writer.queryName(job.name).start()


def _measures(measures: StreamMeasures | None, job: Job) -> Callable[[], Iterable[Measure]]:
    if measures is None:
        return tuple
    return lambda: in_detail(measures.all(), job.runtime)


@dataclass
class _Batches:
    """The micro-batches of a run that were delivered."""

    job: str
    measures: StreamMeasures | None
    newest: int = -1
    count: int = 0
    records: int = 0

    def look(self, query: StreamingQuery) -> None:
        """Count and log what *query* has delivered since the last look."""
        log = structlog.stdlib.get_logger().bind(job=self.job)
        for progress in query.recentProgress:
            if progress.batchId > self.newest and progress.numInputRows:
                self.newest = progress.batchId
                self.count += 1
                self.records += progress.numInputRows
                if self.measures is not None:
                    self.measures.note(progress.numInputRows, progress.batchDuration)
                log.info("micro_batch", batch=self.newest, records=progress.numInputRows)
        if self.measures is not None:
            self.measures.look()


def _run(
    begin: Callable[[], StreamingQuery], stopped: threading.Event, job: Job, done: _Batches
) -> None:
    """Follow the query to its end. One whose Python process starts too late is started again.

    Raises:
        HeadraceError: the query failed.

    """
    late = 0
    while True:
        before = done.count
        try:
            return _follow(begin(), stopped, job, done)
        except PySparkException as error:
            late = late + 1 if done.count == before else 1
            if _LATE not in str(error) or late > _LATE_IN_A_ROW_MAX:
                raise failure_of(str(error)) from error
            log = structlog.stdlib.get_logger().bind(job=job.name)
            log.warning("stream_restarted", reason=_LATE, in_a_row=late)


def _follow(query: StreamingQuery, stopped: threading.Event, job: Job, done: _Batches) -> None:
    while True:
        try:
            ended = query.awaitTermination(LOOK_EVERY_SECONDS)
        finally:
            done.look(query)
        if ended:
            return
        if stopped.is_set():
            _stop(query, job.runtime.stop_seconds_max)
            return


def _stop(query: StreamingQuery, seconds_max: float) -> None:
    """Let the batch that runs end, within bounds; one that is cut off comes again."""
    until = time.monotonic() + seconds_max
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
        time.sleep(_STOP_LOOK_SECONDS)
    query.stop()


def failure_of(said: str) -> HeadraceError:
    """Return the error of ours in what Spark says of a failure; else what Spark says."""
    for module, name, message, hint in reversed(_OURS.findall(said)):
        kind = getattr(import_module(module), name, None)
        if isinstance(kind, type) and issubclass(kind, HeadraceError):
            told = f"{kind.code}: {message}"
            if issubclass(kind, ConfigError):
                return ConfigError([Problem("", told, hint)])
            if issubclass(kind, MissingRequirementError):
                return MissingRequirementError(told, hint=hint)
            return StreamFailedError(told, hint=hint or _HINT)
    lines = [line for line in said.splitlines() if line.strip()]
    return StreamFailedError(" ".join(lines[:3])[:_SAID_CHARS_MAX], hint=_HINT)

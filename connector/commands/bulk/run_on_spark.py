"""Runs of a job as a stream of micro-batches, for `headrace run`. Imports pyspark."""

import argparse
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from typing import Final

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.connector.hosting.host import Engine
from headrace.connector.replay.errors import StreamFailedError
from headrace.connector.replay.framing.block_rows import AS_SINK, SPLIT
from headrace.connector.replay.framing.framed_shards import SHARDS_MIN
from headrace.connector.replay.session import session, width
from headrace.connector.replay.stream.checkpoint import Checkpoint
from headrace.connector.replay.stream.stream_driver import StreamDriver
from headrace.connector.stores.job import Job
from headrace.connector.stores.target_state import Wanted
from headrace.plugins import ConfigError, HeadraceError, MissingRequirementError, Problem

_KEPT_BATCHES: Final = 1_000  # Spark reports the progress of the last ones.
_MS: Final = 1_000
_HINT: Final = "started again, the job repeats the batch"
_SAID_CHARS_MAX: Final = 2_000
# One of our errors, as Python prints it at the end of a traceback: class, message and hint.
_OURS: Final = re.compile(r"\b(headrace\.[\w.]+)\.(\w+Error): (.+)(?:\nhint: (.+))?$", re.MULTILINE)


@contextmanager
def spark_engine(given: argparse.Namespace, log: structlog.stdlib.BoundLogger) -> Iterator[Engine]:
    """Yield a factory of runs of a job on Spark; Spark starts with the first run."""
    with ExitStack() as stack:

        @cache
        def spark() -> SparkSession:
            settings = {"spark.sql.streaming.numRecentProgressUpdates": str(_KEPT_BATCHES)}
            return stack.enter_context(session(given.master, settings))

        def begin(job: Job, generation: int, checkpoint: Checkpoint) -> StreamingQuery:
            return _begin(spark(), job, generation, checkpoint, given)

        def engine(job: Job, wanted: Wanted) -> StreamDriver:
            return StreamDriver(
                job,
                wanted,
                begin,
                failure_of,
                get_ready=spark,
                log=log,
                new_state=given.new_state,
            )

        yield engine


def _begin(
    spark: SparkSession,
    job: Job,
    generation: int,
    checkpoint: Checkpoint,
    given: argparse.Namespace,
) -> StreamingQuery:
    options = {"job": str(job.file), "name": job.name, "generation": str(generation)}
    tasks = _tasks(spark, checkpoint)
    bounds = {"tasks": str(tasks)}
    if given.batch_bytes is not None:
        bounds["batch_bytes"] = str(given.batch_bytes)
    changes = (
        spark.readStream.format("headrace.segments")
        .options(**options, **bounds, format=AS_SINK)
        .load()
        .repartitionById(tasks, SPLIT)
    )
    writer = changes.writeStream.format("headrace.sink").options(**options)
    writer = writer.option("checkpointLocation", checkpoint.spark.as_uri()).outputMode("append")
    if given.until_idle:
        writer = writer.trigger(availableNow=True)
    else:
        every_ms = max(1, round(job.runtime.commit_max_seconds * _MS))
        writer = writer.trigger(processingTime=f"{every_ms} milliseconds")
    return writer.queryName(f"headrace: job {job.name}").start()


def _tasks(spark: SparkSession, checkpoint: Checkpoint) -> int:
    """Return how many tasks share the splits.

    One for each core if each task reads the logs once for its splits; else two for each core, so
    that no task waits long.
    """
    begun, most = checkpoint.begun(), width(spark)
    if most >= SHARDS_MIN or checkpoint.terms():
        most *= 2
    return min(most, len(begun.seqs) or most) if begun else most


def failure_of(said: str) -> HeadraceError:
    """Return our own error from Spark's message about a failure, or one with that message."""
    for module, name, message, hint in reversed(_OURS.findall(said)):
        kind = getattr(import_module(module), name, None)
        if isinstance(kind, type) and issubclass(kind, HeadraceError):
            text = f"{kind.code}: {message}"
            if issubclass(kind, ConfigError):
                return ConfigError([Problem("", text, hint)])
            if issubclass(kind, MissingRequirementError):
                return MissingRequirementError(text, hint=hint)
            return StreamFailedError(text, hint=hint or _HINT)
    lines = [line for line in said.splitlines() if line.strip()]
    return StreamFailedError(" ".join(lines[:3])[:_SAID_CHARS_MAX], hint=_HINT)

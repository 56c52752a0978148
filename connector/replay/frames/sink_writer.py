"""Writes frames to `headrace.sink` for Spark. Imports pyspark.

A task ends when all of its records are settled, and fails otherwise.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from headrace.connector.control.jobs import JobText, job_text
from headrace.connector.replay.columns import encoded_rows
from headrace.connector.replay.delivery import sink_and_encoder
from headrace.connector.replay.errors import DeliveryRefusedError, bad_option
from headrace.connector.replay.frames.mistakes import check_options
from headrace.connector.replay.runs import new_run
from headrace.connector.replay.sending import Sending
from headrace.connector.replay.shards import inside, origin_of
from headrace.connector.stores import Counters, TableCounts
from headrace.plugins import NumberPosition, RecordBatch

SINK_OPTIONS: Final = ("job", "suffix", "run")


@dataclass
class Delivered(WriterCommitMessage):
    """The counters of what one task has delivered."""

    counters: Counters

    @property
    def rejected(self) -> int:
        """The number of records that the sink refused permanently."""
        return sum(each.dead_lettered for each in self.counters.values())


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


class SinkWriter(DataSourceArrowWriter):
    """Writes rows with the columns of segments to the sink of a job; see `docs/spark.md`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Read the job. Raises ConfigError."""
        check_options("headrace.sink", options, SINK_OPTIONS)
        text = job_of(options)
        self._given = dict(text.sink)
        self._origin = origin_of(text.source)
        self._directory = str(text.directory)
        self._suffix = options.get("suffix", "")
        self._run = options.get("run") or new_run("spark")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Delivered:
        """Deliver a task's rows; return when all are settled."""
        with (
            inside(self._directory),
            sink_and_encoder(self._given, self._run, self._origin) as (sink, encoder),
        ):
            sending = Sending(sink, encoder, run=self._run, attempt=1, suffix=self._suffix)
            return deliver_rows(sending, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Fail the query if records were refused permanently: nothing else would report them."""
        rejected = sum(each.rejected for each in messages if isinstance(each, Delivered))
        if rejected:
            raise DeliveryRefusedError(f"{rejected} records were refused permanently")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: consumers recognize a change that is delivered again by its name."""


def job_of(options: Mapping[str, str]) -> JobText:
    """Return the job whose sink *options* name.

    Raises:
        ConfigError: it is not named, or wrong.

    """
    if "job" not in options:
        raise bad_option("job", "is required", "the job file whose sink is meant")
    return job_text(Path(options["job"]).absolute())

"""What bulk work takes: a log as Arrow columns, and a replay's shards, each after the other.

Without Spark, which only hands the shards out: what is read and written never goes through it.
"""

from collections.abc import Mapping
from pathlib import Path
from time import process_time_ns
from typing import Any, Final

from headrace.connector.control.jobs import JobText, job_text
from headrace.connector.obs.logging import configure
from headrace.connector.replay.columns import arrow_schema, record_batch
from headrace.connector.replay.delivery import Target, deliver
from headrace.connector.replay.frames.typed_columns import typed_batch
from headrace.connector.replay.planning import by_log, planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import SourceSpec, batches, encoded_changes, opened
from headrace.connector.serde import Encoder
from headrace.plugins import Encoding, TypedColumns

SHARDS: Final = 4
_NS: Final = 1_000_000_000


def arrow(job: str, table: str = "") -> Mapping[str, object]:
    """Read the first node's log by itself, and make Arrow columns of its changes.

    They are the columns of *table*, or without one the bytes of messages.
    """
    configure("warning")
    spec = by_log(_spec(job_text(Path(job))))[0]
    (shard,) = planned(spec, Selection(), shards=1).shards
    encoder = Encoder(Encoding(codec="avro"), joined=True)
    changes = 0
    with opened(shard) as source:
        target = TypedColumns.of(source).table_type(table) if table else None
        schema = arrow_schema(source.origin)
        started = process_time_ns()
        for batch in batches(source, shard):
            if target is None:
                rows = record_batch(encoded_changes(encoder, batch), schema)
            else:
                rows = typed_batch(
                    batch.typed(target, with_messages=False), target, None, source.origin
                )
            changes += rows.num_rows
        cpu_ns = process_time_ns() - started
    return {"changes": changes, "cpu_ns": cpu_ns}


def shards(job: str, folder: str) -> Mapping[str, object]:
    """Replay a job in shards: into Parquet files in *folder*, or without one into its sink."""
    configure("warning")
    text = job_text(Path(job))
    sink: dict[str, Any] | None = None if folder else dict(text.sink)
    target = Target(directory=str(text.directory), path=folder, sink=sink)
    plan = planned(_spec(text), Selection(), shards=SHARDS)
    done = [deliver(shard, target, run="bench", attempt=1) for shard in plan.shards]
    for report in done:
        assert not report.problem, report.problem  # noqa: S101 (else nothing was measured)
    cpu_seconds = sum(report.cpu_seconds for report in done)
    changes = sum(report.delivered for report in done)
    return {"changes": changes, "cpu_ns": int(cpu_seconds * _NS)}


def _spec(text: JobText) -> SourceSpec:
    return SourceSpec(given=dict(text.source), directory=str(text.directory), job=text.name)

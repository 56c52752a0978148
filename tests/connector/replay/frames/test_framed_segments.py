"""Shards of a frame whose logs are framed once, beside tasks of the data source: without Spark."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from headrace.connector.replay.frames.framed_segments import blocks_of, changes_of
from headrace.connector.replay.frames.sources import SegmentPartition, SegmentReader
from headrace.connector.replay.framing import framed_shards
from headrace.connector.replay.framing.framed_shards import framing_of
from helpers.recordings.corpora import recording

TABLE = "ring_cobalt_ticket.b_gale_umbra"
CHUNK_ROWS = 3


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framed_shards, "SHARDS_MIN", 2)
    monkeypatch.setattr(framed_shards, "PART_BYTES", 300_000)


def alone(partitions: Sequence[SegmentPartition]) -> list[Mapping[str, Any]]:
    """Return the rows of tasks that each read all logs."""
    return [row for each in partitions for batch in each.batches() for row in batch.to_pylist()]


def once(partitions: Sequence[SegmentPartition], tasks: int) -> list[Mapping[str, Any]]:
    """Return the rows of so many *tasks*, by shard, behind a shuffle."""
    framing = framing_of([each.shard for each in partitions])
    assert framing is not None
    blocks = [
        rows
        for number in range(len(framing.parts) + 1)
        for rows in blocks_of(framing, iter([pa.RecordBatch.from_pydict({"id": [number]})]))
    ]
    table = pa.Table.from_batches(blocks)
    found: list[Mapping[str, Any]] = []
    for task in range(tasks):
        mine = pa.array(split % tasks == task for split in table["split"].to_pylist())
        rows = table.filter(mine).to_batches(max_chunksize=CHUNK_ROWS)
        found += [row for batch in changes_of(partitions, iter(rows)) for row in batch.to_pylist()]
    return found


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("shards", [4, 9])
@pytest.mark.parametrize(
    "options",
    [{}, {"table": TABLE, "format": "none"}, {"token_range": "0:4611686018427387904"}],
    ids=lambda options: "+".join(options) or "all",
)
def test_shards_and_tasks(options: Mapping[str, str], shards: int, tasks: int) -> None:
    """However many shards and tasks there are, the rows are those of the data source."""
    given = {"path": str(recording("5.0-ring") / "segments"), "shards": str(shards), **options}
    given["schema"] = str(recording("5.0-ring") / "schema.cql")
    partitions = SegmentReader(given).partitions()
    rows = once(partitions, tasks)

    assert rows
    assert sorted(map(str, alone(partitions))) == sorted(map(str, rows))


def test_a_shard_without_blocks() -> None:
    """It reads the logs itself, as where they cannot be framed."""
    given = {"path": str(recording("5.0-ring") / "segments"), "shards": "2"}
    given["schema"] = str(recording("5.0-ring") / "schema.cql")
    partitions = SegmentReader(given).partitions()
    framing = framing_of([each.shard for each in partitions])
    assert framing is not None
    plan = blocks_of(framing, iter([pa.RecordBatch.from_pydict({"id": [len(framing.parts)]})]))

    rows = [row for batch in changes_of(partitions, plan) for row in batch.to_pylist()]
    assert alone(partitions) == rows

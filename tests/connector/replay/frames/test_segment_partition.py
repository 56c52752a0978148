"""Tasks of `headrace.segments` that read the logs once on a machine, beside those that do not."""

import pickle
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import structlog
from pyspark.sql.types import StructType

from headrace.connector.replay import shards
from headrace.connector.replay.frames.segment_partition import SegmentPartition
from headrace.connector.replay.frames.sources import SegmentSource
from headrace.connector.replay.framing import framed_shards, shared_blocks
from headrace.connector.replay.planning import planned
from headrace.connector.replay.selection import Selection
from headrace.plugins import MissingRequirementError
from helpers.recordings.corpora import recording
from helpers.settings.seeds import soaked

TASKS = 9
ORIGIN = ("copies", "node", "segment", "position", "value")  # Of whichever copy came first.
AMID = "2023-11-15T22:24:49.019188"  # The writes of the ring.
Rows = Sequence[Mapping[str, Any]]


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that tasks share; a batch has a few changes."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    monkeypatch.setattr(framed_shards, "PART_BYTES", 400_000)
    monkeypatch.setattr(shards, "BATCH_BYTES_MAX", 4_000)
    return tmp_path / "headrace-framed"


def tasks(tmp_path: Path, **options: str) -> Sequence[SegmentPartition]:
    """Return the tasks of a frame of a ring's logs, as they travel."""
    place = str(recording("5.0-ring") / "segments")
    cache = str(tmp_path / "cache")
    given = {"path": place, "shards": str(TASKS), "shard_bytes": "1", "cache": cache, **options}
    made = SegmentSource(given).reader(StructType()).partitions()
    found: Sequence[SegmentPartition] = pickle.loads(pickle.dumps(made))  # noqa: S301 (our own)
    return found


def rows(partitions: Sequence[SegmentPartition]) -> Rows:
    """Return all rows by name, without the copies that they were made from."""
    found = [
        {name: cell for name, cell in row.items() if name not in ORIGIN}
        for each in partitions
        for batch in each.batches()
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: (row["mutation"] or b"", row["index"]))


@pytest.mark.soak
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"from": AMID, "operations": "UPDATE"},
        {"token_range": "-8000000000000000000:8000000000000000000", "format": "json"},
        *soaked(
            {"from": AMID},
            {"operations": "UPDATE"},
            {"table": "ring_cobalt_ticket.b_gale_umbra", "format": "none"},
        ),
    ],
)
def test_the_same_rows(
    options: Mapping[str, str], tmp_path: Path, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of a frame are those of tasks that read the logs themselves, for any selection."""
    once = rows(tasks(tmp_path, **options))
    assert room.exists()

    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert once
    assert rows(tasks(tmp_path, **options)) == once


def test_first_rows(tmp_path: Path, room: Path) -> None:
    """The first rows come before anything is framed: Spark starts the first task alone for them."""
    first, *others = tasks(tmp_path)

    assert list(islice(first.batches(), 1))
    assert not room.exists()
    assert list(islice(others[0].batches(), 1))
    assert room.exists()


def test_few_tasks(tmp_path: Path, room: Path) -> None:
    """Fewer than eight tasks read the logs themselves, which takes less; so do those of one log."""
    assert rows(tasks(tmp_path, shards="7"))
    one = tasks(tmp_path, shards="7")[0]
    assert one.shared is None
    alone = SegmentSource({"path": str(recording("5.0-ring") / "segments"), "agreement": "none"})
    assert all(each.shared is None for each in alone.reader(StructType()).partitions())
    assert not room.exists()


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the logs cannot be read once, each task reads them, and a warning says why."""

    def full(*_: object) -> str:
        raise MissingRequirementError("it is full")

    right = rows(tasks(tmp_path))
    monkeypatch.setattr(shared_blocks, "write_piece", full)
    with structlog.testing.capture_logs() as reported:
        assert right == rows(tasks(tmp_path))

    assert {("logs_not_framed", "it is full")} == {(e["event"], e["error"]) for e in reported}


def test_small_logs_have_few_tasks(tmp_path: Path) -> None:
    """With less than `shard_bytes` of logs for each, tasks are fewer than `shards`, at least 4."""
    size = planned(tasks(tmp_path)[0].shard.source, Selection()).size_bytes
    few, some, alone, two = (
        tasks(tmp_path, shards=count, shard_bytes=str(least), **options)
        for count, least, options in (
            ("64", size, {}),
            ("64", size // 10, {}),
            ("64", size, {"agreement": "none"}),
            ("2", size, {}),
        )
    )

    assert (4, 10, 2) == (len(few), len(some), len(two))
    assert len(alone) > 10
    assert rows(few) == rows(some)

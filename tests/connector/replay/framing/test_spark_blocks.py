"""How shards are shared among tasks of Spark, and blocks in files: without Spark."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from headrace.connector.replay.framing import framed_shards, spark_blocks
from headrace.connector.replay.framing.framed_shards import (
    Framing,
    SplitFiles,
    framing_of,
    write_piece,
)
from headrace.connector.replay.framing.spark_blocks import tasks_of
from headrace.connector.replay.planning import planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, close_kept
from headrace.sources.cassandra.framed import log_framing
from helpers.recordings.shards import Read, read, ring


def framing_for(shards: Sequence[Shard]) -> Framing:
    """Return how the logs are read for *shards*."""
    framing = framing_of(shards)
    assert framing is not None
    return framing


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framed_shards, "SHARDS_MIN", 2)


@pytest.mark.parametrize("cores", [1, 2, 3, 100])
@pytest.mark.parametrize("shards", [2, 7, 64])
def test_each_split_is_in_one_task(shards: int, cores: int) -> None:
    """Tasks have about as many splits each, and there are at most four of them for each core."""
    framing = framing_for(planned(ring("5.0-ring"), Selection(), shards=shards).shards)
    tasks = tasks_of(framing, cores)

    assert sorted(framing.splits) == sorted(chain.from_iterable(tasks))
    assert min(shards, 4 * cores) == len(tasks)
    assert max(map(len, tasks)) - min(map(len, tasks)) <= 1


def test_large_logs_have_more_tasks() -> None:
    """A task that dies is repeated: of large logs it has no more than some tens of MiB."""
    framing = framing_for(planned(ring("5.0-ring"), Selection(), shards=64).shards)
    large = replace(framing, parts=[*framing.parts] * 20)
    parts_of_a_task = spark_blocks.TASK_BYTES // framed_shards.PART_BYTES

    assert len(large.parts) // parts_of_a_task == len(tasks_of(large, 1)) > 4


@pytest.mark.parametrize(("shards", "cores"), [(2, 1), (7, 1), (32, 2)])
def test_shards_and_tasks(
    shards: int, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However shards are shared among tasks, they read the same rows, books and positions.

    An attempt to frame a part that does not count, as it died, leaves what is not read.
    """
    monkeypatch.setattr(framed_shards, "PART_BYTES", 300_000)
    monkeypatch.setattr(log_framing, "HELD_BYTES_MAX", 100_000)
    plan = planned(ring("5.0-ring"), Selection(), shards=shards).shards
    framing = framing_for(plan)
    found: dict[str, Read] = {}
    write_piece(framing, tmp_path, framing.parts[0])
    names = [write_piece(framing, tmp_path, part) for part in framing.parts]
    of_split = {shard.split: shard for shard in plan}
    tasks = tasks_of(framing, cores)

    def do(number: int, files: SplitFiles) -> dict[str, Read]:
        splits = tasks[number]
        assert files.splits == set(splits)
        return {s: read(replace(of_split[s], framed=files.file_of(s))) for s in splits}

    for task in enumerate(tasks):
        found |= spark_blocks.with_pieces([tmp_path / name for name in names], do, task)
        close_kept()

    with framed_shards.framed(plan) as once:
        assert {shard.split: read(shard) for shard in once} == found

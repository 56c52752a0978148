"""How full a log's disk is, and how fast it fills."""

import os
import time
from pathlib import Path

import pytest

from headrace.plugins import LogSpace
from headrace.sources.cassandra.logs.space import spaces

DAY = 86_400


@pytest.mark.parametrize(
    ("ages", "growth"),
    [
        ([], None),
        ([0], None),
        ([1_000, 0], 0.1),
        ([1_000, 500, 0], 0.2),
        ([DAY, 1_800, 900], 200 / 3_600),
        ([DAY, 2 * DAY], 0.0),
    ],
)
def test_growth(tmp_path: Path, ages: list[int], growth: float | None) -> None:
    """The growth is what came within an hour, or since the first file if there is none older."""
    for number, age in enumerate(ages):
        path = tmp_path / f"CommitLog-7-{number}.log"
        path.write_bytes(bytes(100))
        os.utime(path, (time.time() - age,) * 2)
    (tmp_path / "other").write_bytes(bytes(100))
    (found,) = spaces({"n1": tmp_path, "n2": tmp_path / "none"}, 1_000)

    assert ({"node": "n1"}, 100 * len(ages)) == (found.partition, found.used_bytes)
    assert (pytest.approx(growth, rel=0.01) if growth is not None else None) == found.growth


@pytest.mark.parametrize(
    ("limit", "free", "growth", "room", "seconds"),
    [
        (1_000, 5_000, 10.0, 900, 90.0),
        (1_000, 50, 10.0, 50, 5.0),
        (50, 5_000, None, 0, None),
        (None, 500, 0.0, 500, None),
        (None, None, 10.0, None, None),
    ],
)
def test_time_to_full(
    limit: int | None,
    free: int | None,
    growth: float | None,
    room: int | None,
    seconds: float | None,
) -> None:
    """A log is full when its limit is reached, or its disk."""
    space = LogSpace(
        partition={}, used_bytes=100, limit_bytes=limit, free_bytes=free, growth=growth
    )
    assert (room, seconds) == (space.room_bytes, space.full_in_seconds)

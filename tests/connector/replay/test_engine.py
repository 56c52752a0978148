"""Tasks of shards whose logs were read once, beside tasks that each read all logs."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from headrace.connector.replay.comparing.bucket_sums import Comparison, LogSide, Wanted
from headrace.connector.replay.comparing.reconciling import at_level_one
from headrace.connector.replay.delivery import Search
from headrace.connector.replay.engine import NO_SPARK, engine
from headrace.connector.replay.planning import planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, SourceSpec
from headrace.sources.cassandra.logs.directory import SegmentFile
from helpers.recordings.corpora import recording

MIDDLE_US = 1_700_597_089_019_188  # Amid the writes of the ring of 5.0.


@dataclass
class Read:
    """How many bytes of segments were read."""

    size: int = 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Read:
    """Count the bytes that are read of segments."""
    found = Read()
    read_into = SegmentFile.read_into

    def counting(self: SegmentFile, offset: int, buffer: memoryview) -> int:
        came = read_into(self, offset, buffer)
        found.size += came
        return came

    monkeypatch.setattr(SegmentFile, "read_into", counting)
    return found


def test_what_is_compared_of_logs_is_read_once(counted: Read, tmp_path: Path) -> None:
    """Sums, single changes, and what any one log has are the same, and each byte is read once.

    So is what was written after the compared time, which an index would let a replay leave out.
    """
    place = recording("5.0-ring")
    nodes = {node: str(place / "segments" / node) for node in ("node1", "node2", "node3")}
    given = {"plugin": "cassandra", "nodes": nodes, "schema": str(place / "schema.cql")}
    spec = SourceSpec(given=given, directory=str(place), cache=str(tmp_path))
    assert Search(spec)()
    selection = Selection(to_us=MIDDLE_US)
    comparison = Comparison(
        sink={"plugin": "files", "path": "/dev/null"},
        origin=spec.origin,
        directory=str(place),
        buckets=2,
        selection=selection,
    )
    shards: list[Shard] = list(planned(spec, selection, shards=8).shards)
    summed = partial(LogSide, comparison=comparison)
    alone = [summed(shard)() for shard in shards]
    tables = {table for each in alone for table, *_ in each.sums}
    wanted = Wanted(rows=frozenset((table, 1, 0) for table in tables))
    single = partial(LogSide, comparison=replace(comparison, wanted=wanted))
    works = [(summed, shards), (single, shards), (single, at_level_one(shards))]
    expected = [[make(shard)() for shard in of] for make, of in works]
    counted.size = 0
    with engine(NO_SPARK) as here, here.once(shards) as over:
        found = [over(make, of) for make, of in works]

    assert sum(len(each.touched) for each in expected[1])
    assert sum(len(each.rows) for each in expected[2])
    assert expected == found
    logs = (place / "segments").rglob("*.log")
    assert counted.size <= 1.1 * sum(path.stat().st_size for path in logs)

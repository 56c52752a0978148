"""Sums over the changes of one side."""

from pathlib import Path

import pytest

from headrace.connector.replay.comparing.bucket_sums import (
    Comparison,
    LogSide,
    Members,
    Summing,
    Wanted,
)
from headrace.connector.replay.comparing.reconciling import joined
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, SourceSpec
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from helpers.logs.forged import NOW_US, insert
from helpers.logs.gap_jobs import NODES, WHOLE, GapJob

BUCKET = ("ks.t", 1, 0)
HASHES = (1 << 63, (1 << 63) + 5, 7)


def test_sums_of_parts_are_the_sum_of_the_whole() -> None:
    """Sums wrap at 64 bits, in any order and in any parts; duplicates count once."""
    whole, one, other = Summing(), Summing(), Summing()
    for hashed in (*HASHES, HASHES[0]):
        whole.add(BUCKET, hashed)
    for part, hashes in ((one, HASHES[:1]), (other, HASHES[:0:-1])):
        for hashed in hashes:
            part.add(BUCKET, hashed)

    assert {BUCKET: Members(3, 12)} == whole.sums() == joined([other.sums(), one.sums()])


@pytest.mark.parametrize("to_us", [4, 5, 6])
def test_a_change_is_compared_or_its_row_may_differ(tmp_path: Path, to_us: int) -> None:
    """A key that was written at the end of the compared time, or later, is touched."""
    job = GapJob(tmp_path, splits=1)
    raws = [insert(b"k%d" % at_us, b"v", at_us=at_us) for at_us in range(3, 8)]
    for node in NODES:
        made = segment([raws], segment_id=SEGMENT_ID)
        write_segment(job.folder / node, made.content, segment_id=SEGMENT_ID, index=WHOLE)
    source = SourceSpec(given={"plugin": "cassandra", "splits": 1, **job.source}, directory="/")
    comparison = Comparison(
        sink={"plugin": "files", "path": str(tmp_path / "out.jsonl")},
        origin=source.origin,
        directory="/",
        buckets=1,
        selection=Selection(to_us=NOW_US + to_us),
        wanted=Wanted(rows=frozenset({("forged.t", 0, 0)})),
    )
    found = LogSide(Shard(number=1, split="1-of-1", source=source), comparison)()

    assert "" == found.problem
    compared, touched = {row.key for row in found.rows}, {key for _, key in found.touched}
    assert (to_us - 3, 8 - to_us) == (len(compared), len(touched))
    assert 5 == len(compared | touched)

"""A log that is read from its middle is read with the schema of that place, found by framing."""

import itertools
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import pytest
import structlog

from corpora import recording
from headrace.connector.replay.columns import record_batch
from headrace.connector.replay.planning import Bounds, planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, SourceSpec, batches, opened
from headrace.sources.cassandra.chunks import seal, unseal
from headrace.sources.cassandra.segment_index import SUFFIX, SegmentIndex

SCHEMAS: Final = ("4.0-schema", "6.0-v9-schema")
MAGIC: Final = b"HRSI"
Rows = Counter[tuple[object, ...]]


@pytest.fixture(autouse=True)
def _own_log() -> None:
    """Log to where this test's output goes, not where an earlier command's went."""
    structlog.reset_defaults()


def spec(folder: Path, cache: Path | None = None) -> SourceSpec:
    """Return a source over a recording of one node; what it finds is kept in *cache*."""
    given = {
        "plugin": "cassandra",
        "nodes": {"node1": str(folder / "segments")},
        "schema": str(folder / "schema.cql"),
        "consistency": "ONE",
    }
    return SourceSpec(given=given, directory="/", cache=str(cache or ""))


def rows(shards: Sequence[Shard]) -> Rows:
    """Return all that shards come to, with the ids of schemas and the places."""
    found: Rows = Counter()
    for shard in shards:
        with opened(shard) as source:
            for batch in batches(source, shard):
                columns = record_batch(batch.encode("avro")).drop_columns(["write_time"])
                found.update(tuple(row.values()) for row in columns.to_pylist())
    return found


def in_parts(source: SourceSpec, whole: Rows, step: int = 9) -> Rows:
    """Return what the parts between some of the places in *whole* come to, read one by one."""
    places = [":".join(map(str, place)) for place in sorted(row[-2:] for row in whole)]
    found: Rows = Counter()
    for after, until in itertools.pairwise(["", *places[step::step], ""]):
        bounds = Bounds(after=after, until=until)
        found += rows(planned(source, Selection(), bounds=bounds, shards=1).shards)
    return found


def indexes(cache: Path) -> list[Path]:
    """Return the files that were kept."""
    return sorted(cache.rglob(f"*{SUFFIX}"))


@pytest.mark.parametrize("name", SCHEMAS)
def test_parts_of_a_log_equal_the_whole(name: str, tmp_path: Path) -> None:
    """Cut anywhere, a log gives the same, with all its versions of tables; also from indexes."""
    folder = recording(name)
    whole = rows(planned(spec(folder), Selection(), shards=1).shards)

    assert whole == in_parts(spec(folder), whole)
    assert whole == in_parts(spec(folder, tmp_path), whole)
    assert whole == in_parts(spec(folder, tmp_path), whole)
    assert len(whole) > 40
    assert 1 < len(indexes(tmp_path))


@pytest.mark.parametrize("name", ["5.0-schema", "wrapped/lz4"])
def test_a_plan_cuts_a_large_segment(name: str) -> None:
    """Tasks begin in the middle of segments, packed ones too, and together read all."""
    source = spec(recording(name.partition("/")[0]).parent / name)
    parts = planned(source, Selection(), shards=9, by_place=True).shards

    assert 9 <= len(parts)
    assert rows(planned(source, Selection(), shards=1).shards) == rows(parts)
    assert parts[0].resume is None
    assert all(a.until == b.resume for a, b in itertools.pairwise(parts))


def test_what_is_kept_is_used(tmp_path: Path) -> None:
    """An index is believed while its segment has the same size and time, and none other is."""
    folder = tmp_path / "copy"
    shutil.copytree(recording("5.0-schema"), folder)
    source = spec(folder, tmp_path / "cache")
    whole = rows(planned(source, Selection(), shards=1).shards)
    assert whole == in_parts(source, whole, 20)

    first = indexes(tmp_path / "cache")[0]
    true = first.read_bytes()
    index = msgspec.msgpack.decode(unseal(MAGIC, true, ""), type=SegmentIndex)
    lie = msgspec.structs.replace(index, changes=())
    first.write_bytes(seal(MAGIC, msgspec.msgpack.encode(lie)))

    assert index.changes
    assert whole != in_parts(source, whole, 20)

    stale = msgspec.structs.replace(lie, modified_ms=lie.modified_ms + 1)
    for wrong in (seal(MAGIC, msgspec.msgpack.encode(stale)), true[:-1], b""):
        first.write_bytes(wrong)
        assert whole == in_parts(source, whole, 20)
        assert true == first.read_bytes()


def test_a_folder_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    """Where nothing can be kept, each part searches for itself."""
    (tmp_path / "file").touch()
    whole = rows(planned(spec(recording("5.0-schema")), Selection(), shards=1).shards)

    assert whole == in_parts(spec(recording("5.0-schema"), tmp_path / "file"), whole, 20)


def test_damage_before_a_part_costs_no_statement_behind_it(tmp_path: Path) -> None:
    """A section that cannot be read is left, and what stands behind it is found."""
    folder = tmp_path / "copy"
    shutil.copytree(recording("5.0-schema"), folder)
    first = min((folder / "segments").glob("*.log"))
    content = bytearray(first.read_bytes())
    content[9_000] ^= 0xFF
    first.write_bytes(content)

    whole = rows(planned(spec(folder), Selection(), shards=1).shards)

    assert whole == in_parts(spec(folder), whole, 20)

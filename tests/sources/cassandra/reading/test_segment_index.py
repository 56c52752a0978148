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

from headrace.connector.replay.columns import arrow_schema, record_batch
from headrace.connector.replay.delivery import Search
from headrace.connector.replay.planning import Bounds, by_log, planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, SourceSpec, batches, opened
from headrace.sources.cassandra.encode.origin import ORIGIN
from headrace.sources.cassandra.reading.segment_index import SUFFIX, SegmentIndex
from headrace.sources.cassandra.state.chunks import seal, unseal
from helpers.recordings.corpora import recording

pytestmark = pytest.mark.long

SCHEMAS: Final = ("4.0-schema", "6.0-v9-schema")
COLUMNS = arrow_schema(ORIGIN)
NAMES: Final = ["table", "operation", "key", "mutation", "index"]  # The same from every copy.
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
        "gaps": "expire",
    }
    return SourceSpec(given=given, directory="/", cache=str(cache or ""))


def rows(shards: Sequence[Shard]) -> Rows:
    """Return all that shards come to, with the ids of schemas and the places."""
    found: Rows = Counter()
    for shard in shards:
        with opened(shard) as source:
            for batch in batches(source, shard):
                columns = record_batch(batch.encode("avro"), COLUMNS).drop_columns(["write_time"])
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
    index = index_in(first)
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
    # An index of sections is made in one pass, and has the same statements.
    assert whole == in_parts(spec(folder, tmp_path / "found"), whole, 20)
    Search(spec(folder, tmp_path / "indexed"))()
    found, indexed = (
        {path.name: index_in(path).changes for path in indexes(tmp_path / kept)}
        for kept in ("found", "indexed")
    )
    assert found == indexed
    assert sum(map(len, found.values())) > 10


def ring(cache: Path) -> SourceSpec:
    """Return a recorded ring; what is found in it is kept in *cache*."""
    folder = recording("5.0-ring")
    nodes = {node: str(folder / "segments" / node) for node in ("node1", "node2", "node3")}
    given = {"plugin": "cassandra", "nodes": nodes, "schema": str(folder / "schema.cql")}
    return SourceSpec(given=given, directory="/", cache=str(cache))


def selected(source: SourceSpec, selection: Selection, *, sparing: bool) -> Rows:
    """Return what is selected of a source, read whole."""
    found: Rows = Counter()
    for shard in planned(source, selection, shards=1).shards:
        with opened(shard, sparing=sparing) as made:
            for batch in batches(made, shard):
                columns = record_batch(selection.apply(batch.encode("avro")), COLUMNS).select(NAMES)
                found.update(tuple(row.values()) for row in columns.to_pylist())
    return found


def test_what_is_passed_over_has_nothing_that_is_wanted(tmp_path: Path) -> None:
    """For any tables and times an indexed ring gives the same and reads less."""
    source = ring(tmp_path)
    sections = [
        section
        for each in by_log(source)
        for index in [Search(each)()]
        for path in (tmp_path / next(iter(each.given["nodes"]))).glob(f"*{SUFFIX}")
        for section in index_in(path).sections
        if index
    ]
    tables = ("ring_cobalt_ticket.a_frost_stock", "ring_cobalt_ticket.b_gale_umbra")
    times = sorted({s.oldest_us for s in sections} | {s.newest_us for s in sections})
    whole = planned(source, Selection(), shards=1).size_bytes

    assert 10 < len(sections)
    assert {*tables} < {name for section in sections for name in section.tables}
    assert 0 == sum(Search(each)() for each in by_log(source))
    for selection in (
        *(Selection(tables=frozenset([table])) for table in tables),
        *(
            Selection(from_us=a, to_us=b + 1)
            for a, b in itertools.pairwise(times[:: len(times) // 4])
        ),
        Selection(from_us=times[-1] + 1),
    ):
        wanted = selected(source, selection, sparing=False)
        assert wanted == selected(source, selection, sparing=True)
    nothing = planned(source, Selection(from_us=times[-1] + 1), shards=1)
    assert nothing.size_bytes < whole


def test_a_packed_log_is_passed_over_too(tmp_path: Path) -> None:
    """Of a compressed segment the sections that are not wanted are not unpacked."""
    source = spec(recording("wrapped") / "lz4", tmp_path)
    everything = planned(source, Selection(), shards=1).shards
    Search(source)()
    times = [s.newest_us for path in indexes(tmp_path) for s in index_in(path).sections if s.tables]

    for selection in (Selection(from_us=t, to_us=t + 1_000) for t in (min(times), max(times))):
        wanted = selected(source, selection, sparing=False)
        assert wanted == selected(source, selection, sparing=True)
        assert 0 < len(wanted) < len(rows(everything))


def index_in(path: Path) -> SegmentIndex:
    """Return what a file says."""
    return msgspec.msgpack.decode(unseal(MAGIC, path.read_bytes(), ""), type=SegmentIndex)

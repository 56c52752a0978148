"""The Cassandra source as bulk work reads it: in independent shards."""

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import structlog

from headrace.connector.replay.columns import arrow_schema, record_batch
from headrace.connector.replay.delivery import Target, deliver
from headrace.connector.replay.planning import Bounds, by_log, planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, SourceSpec, batches, opened
from headrace.connector.serde import codec
from headrace.plugins import OPERATIONS, Batch, CheckResult, EncodedRecords, LogArchive
from headrace.plugins.errors import ConfigError
from headrace.sources.cassandra.commitlog.segment import header_length
from headrace.sources.cassandra.encode.origin import ORIGIN
from helpers.logs.node_logs import everything, forged_nodes
from helpers.recordings.batches import recorded_batches
from helpers.recordings.corpora import recording
from helpers.servers.registries import registry
from helpers.settings.filled import filled

pytestmark = pytest.mark.long

RING = "5.0-ring"
NODES = ("node1", "node2", "node3")
Identity = tuple[str, str, int, bytes, int, bytes | None]


@pytest.fixture(autouse=True)
def _own_log() -> None:
    """Log to this test's output, not to that of an earlier command."""
    structlog.reset_defaults()


def ring(name: str = RING) -> dict[str, object]:
    """Return the options of a job over a recorded ring."""
    folder = recording(name)
    return {
        "nodes": {node: str(folder / "segments" / node) for node in NODES},
        "schema": str(folder / "schema.cql"),
    }


def spec(options: dict[str, object]) -> SourceSpec:
    """Return a Cassandra source with these options, as a job file has it."""
    return SourceSpec(given={"plugin": "cassandra", **options}, directory="/")


def read(shards: Sequence[Shard]) -> Counter[Identity]:
    """Return the changes of shards, without copies and origin."""
    found: Counter[Identity] = Counter()
    for shard in shards:
        with opened(shard) as source:
            found.update(each for batch in batches(source, shard) for each in identities(batch))
    return found


def identities(batch: Batch) -> Iterator[Identity]:
    """Yield the identity and content of each record, from its columns."""
    for row in rows_of(batch.encode("avro")):
        parts = ("table", "operation", "write_time", "mutation", "index", "key")
        yield tuple(row[part] for part in parts)  # type: ignore[misc]


def rows_of(encoded: EncodedRecords) -> list[dict[str, object]]:
    """Return records as Arrow has them; times are numbers, as Python's end with year 9999."""
    rows = record_batch(encoded, arrow_schema(ORIGIN))
    place = rows.schema.names.index("write_time")
    times = rows.column(place).cast(pa.int64())
    found: list[dict[str, object]] = rows.set_column(place, "write_time", times).to_pylist()
    return found


@pytest.mark.parametrize("name", ["5.0-types", "5.0-ops"])
@pytest.mark.parametrize("encoding", ["avro", "json"])
def test_facts_are_those_of_the_records(name: str, encoding: str) -> None:
    """The columns beside encoded records have the same facts as the records."""
    for batch in filled(recorded_batches(name)):
        records = list(batch.records())
        encoded = batch.encode(encoding)
        rows = rows_of(encoded)

        assert [r.timestamp_us for r in records] == list(encoded.facts.timestamps_us)  # type: ignore[union-attr]
        assert [r.operation.value for r in records] == [row["operation"] for row in rows]
        assert [r.schema.table for r in records] == [row["table"] for row in rows]
        assert [r.schema.schema_id for r in records] == [row["schema_id"] for row in rows]
        assert [r.value["mutation"] for r in records] == [row["mutation"] for row in rows]
        for name_ in ("index", "copies", "node", "segment", "position"):
            assert [r.value[name_] for r in records] == [row[name_] for row in rows]


def test_record_by_record_facts() -> None:
    """A codec that encodes record by record has times and operations, too."""
    batch = recorded_batches("5.0-ops")[0]
    encoded = codec("avro").encode(batch)

    assert encoded.facts is not None
    assert [r.timestamp_us for r in batch.records()] == list(encoded.facts.timestamps_us)
    wanted = [OPERATIONS.index(r.operation) for r in batch.records()]
    assert wanted == list(encoded.facts.operations)


@pytest.mark.parametrize("name", [RING, "4.1-ring"])
def test_shards_agree_as_a_worker_does(name: str) -> None:
    """Shards, each reading for itself, give the same as one reader of all splits."""
    worker = Counter(each for batch in everything(ring(name)) for each in identities(batch))

    plan = planned(spec(ring(name)), Selection(), shards=5)

    assert 5 == len(plan.shards)
    assert worker == read(plan.shards)
    assert worker.total() > 1_000


def test_level_is_kept() -> None:
    """Shards publish what the job's consistency level accepts, and no more."""
    options = ring() | {"consistency": "ALL"}
    worker = Counter(each for batch in everything(options) for each in identities(batch))

    assert worker == read(planned(spec(options), Selection()).shards)


def test_node_by_log() -> None:
    """Without agreement every mutation of each log is delivered."""
    single = ring() | {"nodes": {"node2": ring()["nodes"]["node2"]}, "consistency": "ONE"}  # type: ignore[index]
    alone = Counter(each for batch in everything(single) for each in identities(batch))

    specs = by_log(spec(ring()))

    assert 3 == len(specs)
    assert alone == read(planned(specs[1], Selection()).shards)


def test_token_range() -> None:
    """Two parts of the ring, divided anywhere, are the whole; only their splits are read."""
    middle = 123_456_789
    whole = read(planned(spec(ring()), Selection()).shards)
    low = planned(spec(ring()), Selection(tokens=((-(1 << 63), middle),)), shards=8)
    high = planned(spec(ring()), Selection(tokens=((middle, (1 << 63) - 1),)), shards=8)

    assert [5, 4] == [len(low.shards), len(high.shards)]
    assert whole == read(low.shards) + read(high.shards)


def section_end(index: Path, most: int) -> int:
    """Return the last sync marker at or before *most*, as the index of a live segment has it."""
    content = index.with_name(index.name.replace("_cdc.idx", ".log")).read_bytes()
    at = header_length(content[:14])
    while (following := int.from_bytes(content[at : at + 4], "big")) <= most:
        at = following
    return at


def test_reading_ends_where_it_was_planned(tmp_path: Path) -> None:
    """No shard reads what is logged after the planning."""
    folder = recording(RING)
    for node in NODES:
        shutil.copytree(folder / "segments" / node, tmp_path / node)
    options = ring() | {"nodes": {node: str(tmp_path / node) for node in NODES}}
    indexes = {path: path.read_bytes() for path in tmp_path.glob("node[12]/*.idx")}
    for path in indexes:
        path.write_text(str(section_end(path, 300_000)))
    plan = planned(spec(options), Selection())
    before = read(plan.shards)
    for path, content in indexes.items():
        path.write_bytes(content)

    assert before == read(plan.shards)
    assert 0 < before.total() < read(planned(spec(options), Selection()).shards).total()


def test_reading_starts_at_a_place() -> None:
    """A position limits a replay in the same way as it moves a data source."""
    plan = planned(spec(ring()), Selection(), bounds=Bounds(after="latest"))

    assert 0 == plan.size_bytes
    assert Counter() == read(plan.shards)


def test_tables_times_and_operations(tmp_path: Path) -> None:
    """A selection delivers what the records' facts select, and counts all that was read."""
    rows = read(planned(spec(ring()), Selection()).shards)
    times = sorted(each[2] for each in rows.elements())
    low, high = times[len(times) // 4], times[3 * len(times) // 4]
    table, operation = next(iter(rows))[:2]
    selection = Selection(
        tables=frozenset({table}), operations=frozenset({operation}), from_us=low, to_us=high
    )
    plan = planned(spec(ring()), selection)
    target = Target(directory=str(tmp_path), path="out")

    reports = [deliver(shard, target, run="r1", attempt=1) for shard in plan.shards]

    wanted = sum(
        count
        for each, count in rows.items()
        if each[:2] == (table, operation) and low <= each[2] < high
    )
    assert wanted == sum(report.delivered for report in reports)
    assert rows.total() == sum(report.changes for report in reports)
    assert wanted == pq.read_table(tmp_path / "out").num_rows
    assert 0 < wanted < rows.total()


def test_a_damaged_segment_is_reported_once(tmp_path: Path) -> None:
    """A damaged segment is reported by one shard; all other copies count in all shards."""
    folder = recording(RING)
    for node in NODES:
        shutil.copytree(folder / "segments" / node, tmp_path / node)
    victim = min((tmp_path / "node1").glob("*.log"))
    content = bytearray(victim.read_bytes())
    content[200_000:200_200] = bytes(200)
    victim.write_bytes(content)
    options = ring() | {"nodes": {node: str(tmp_path / node) for node in NODES}}
    target = Target(directory=str(tmp_path), path="out")

    reports = [
        deliver(shard, target, run="r1", attempt=1)
        for shard in planned(spec(options), Selection()).shards
    ]

    assert [""] * 4 == [report.problem for report in reports]
    assert victim.name in "".join(reports[0].notes)
    assert [[]] * 3 == [report.notes for report in reports[1:]]


def test_missing_archive() -> None:
    """A missing folder is named when the work is planned."""
    options = ring() | {"nodes": {"node1": "nowhere"}, "consistency": "ONE"}

    with pytest.raises(Exception, match="nowhere") as raised:
        planned(spec(options), Selection())
    assert "not_cdc_raw" == raised.value.code  # type: ignore[attr-defined]


def test_unknown_table_is_named() -> None:
    """A table that the schema does not have is a configuration error."""
    with pytest.raises(ConfigError, match=r"shop\.nothing is not in the schema"):
        planned(spec(ring() | {"tables": ["shop.nothing"]}), Selection())


def test_flaws(tmp_path: Path) -> None:
    """Gaps, duplicate segments and ranges before the logs are found by file names alone."""
    options = forged_nodes(tmp_path, {"a": [], "b": []})
    for node, numbers in {"a": (1_000, 1_001, 1_004), "b": (1_004, 2_003)}.items():
        for path in (tmp_path / node).iterdir():
            path.unlink()
        for number in numbers:
            (tmp_path / node / f"CommitLog-7-{number}.log").touch()
            index = tmp_path / node / f"CommitLog-7-{number}_cdc.idx"
            index.write_text("10\nCOMPLETED")
    (tmp_path / "a" / "CommitLog-7-1001.log").unlink()
    source = spec(options | {"consistency": "ONE"}).open()

    found = LogArchive.of(source).flaws(from_ms=900, to_ms=1_002)

    failed = [f.message for f in found if f.result is CheckResult.FAILED]
    unknown = [f.message for f in found if f.result is CheckResult.UNKNOWN]
    assert [
        "segment 1004 is in the logs of a and b",
        "segment 1001 of a is missing: only its index is there",
        "the log of b begins at 1970-01-01T00:00:01.004000+00:00, behind all that is asked for",
    ] == failed
    assert [
        "a has no segments between 1001 and 1004",
        "b has no segments between 1004 and 2003",
        "the log of a begins at 1970-01-01T00:00:01+00:00, and not where it is asked for",
    ] == unknown


def test_framed_messages_wait_for_the_numbers_of_their_schemas(tmp_path: Path) -> None:
    """Each shard publishes the schemas itself, and continues when the registry has answered."""
    folder = recording("4.1-ops")
    given = {"nodes": {"n": str(folder / "segments")}, "schema": str(folder / "schema.cql")}
    shards = planned(spec({**given, "consistency": "ONE", "splits": 1}), Selection()).shards
    sink = {"plugin": "null", "schema.store": "registry", "schema.framing": "confluent"}
    sink["subject.name.strategy"] = "RecordNameStrategy"
    with registry(tmp_path / "registry.db") as address:
        target = Target(directory=str(tmp_path), sink={**sink, "schema.store.url": address})
        reports = [deliver(shard, target, run="r1", attempt=1) for shard in shards]

    assert [""] * len(shards) == [report.problem for report in reports]
    assert any(report.delivered for report in reports)

"""Bad input to a replay is named by option, file or shard; all other shards are done."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from headrace.connector.replay.columns import arrow_schema, record_batch
from headrace.connector.replay.runs import RunTable, ShardRow, ShardState
from headrace.sources.cassandra.encode.origin import ORIGIN
from headrace.sources.cassandra.forge.segments import SEGMENT_ID
from helpers.logs.forged import TABLE, insert
from helpers.logs.gap_jobs import GapJob
from helpers.logs.node_logs import everything
from helpers.recordings.corpora import recording

SEGMENTS = 334  # Of each of three nodes: about a thousand.
POISONED = 77


class Replays:
    """Replays of a job into a folder, without Spark."""

    def __init__(self, job: GapJob, capsys: pytest.CaptureFixture[str]) -> None:
        """Start without a run."""
        self.job = job
        self._capsys = capsys

    def plan(self, *options: str) -> tuple[int, str]:
        """Plan; return the exit status, and the run or the error."""
        status = self.job.replay("plan", "--json", "--to-folder", "out", *options)
        said = self._capsys.readouterr()
        return status, json.loads(said.out)["run"] if status == 0 else said.err

    def said(self) -> str:
        """Return the lines of standard error since the last plan."""
        return self._capsys.readouterr().err

    def execute(self, run: str) -> int:
        """Execute a run; return the exit status."""
        return self.job.replay("run", run, "--master", "none")

    def rows(self, run: str) -> list[ShardRow]:
        """Return the shards of a run."""
        with closing(RunTable(self.job.folder / "state.db")) as table:
            return list(table.shards(run))

    def states(self, run: str) -> Counter[ShardState]:
        """Return the number of shards by state."""
        return Counter(row.state for row in self.rows(run))

    def keys(self) -> list[bytes]:
        """Return the keys in the folder, sorted."""
        found = pq.read_table(self.job.folder / "out", columns=["key"])
        return sorted(found.column("key").to_pylist())


@pytest.fixture
def replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Replays:
    """Return replays of a job, whose nodes have segments with different names."""
    job = GapJob(tmp_path)
    for number in (1, 2, 3):
        job.spread(number, insert(b"k%d" % number, b"v", table=TABLE))
    return Replays(job, capsys)


def test_an_unknown_table(replays: Replays) -> None:
    """A plan refuses an unknown table, suggests the nearest name, and stores nothing."""
    status, said = replays.plan("--tables", "forged.t,forged.tt,nowhere.at_all")

    assert 2 == status
    assert "tables: 'forged.tt' is not a table of the source" in said
    assert "did you mean forged.t?" in said
    assert "tables: 'nowhere.at_all' is not a table of the source" in said
    with closing(RunTable(replays.job.folder / "state.db")) as table:
        assert [] == table.runs()


def test_a_schema_that_changed_within_the_range(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each change has the schema of its place in the log, in every shard, as from a worker."""
    folder = recording("5.0-schema")
    source = {
        "nodes": {"node1": str(folder / "segments")},
        "schema": str(folder / "schema.cql"),
    }
    job = GapJob(tmp_path)
    document = yaml.safe_load(job.path.read_text())
    document["source"] = {"plugin": "cassandra", **source}
    job.path.write_text(yaml.safe_dump(document))
    replays = Replays(job, capsys)
    status, run = replays.plan("--shards", "5", "--accept-gaps")
    assert (0, 0) == (status, replays.execute(run))

    wanted = Counter(
        row
        for batch in everything(source)
        for row in columns_of(record_batch(batch.encode("avro"), arrow_schema(ORIGIN)).to_pylist())
    )
    found = Counter(columns_of(pq.read_table(tmp_path / "out").to_pylist()))
    assert wanted == found
    ids = {(table, schema_id) for table, schema_id, *_ in found}
    assert max(Counter(table for table, _ in ids).values()) > 1


def columns_of(rows: list[dict[str, object]]) -> Iterator[tuple[object, ...]]:
    """Yield the columns of changes."""
    for row in rows:
        yield tuple(row[n] for n in ("table", "schema_id", "operation", "mutation", "index", "key"))


def test_a_range_outside_retention(replays: Replays) -> None:
    """A range before all kept segments is refused; one that is partly kept gives a warning."""
    status, said = replays.plan("--from", "1999-01-01", "--to", "2000-01-01")
    assert (1, True) == (status, "error [archive_gap]" in said)
    assert "the log of n1 begins at 2023-11-14T22:13:20.001000+00:00, behind all" in said

    status, run = replays.plan("--from", "1999-01-01")
    assert (0, 0) == (status, replays.execute(run))
    assert 3 == len(replays.keys())


def test_a_missing_archive(replays: Replays) -> None:
    """A node's folder that is missing or empty is named before anything is done."""
    folder = replays.job.folder / "n2"
    folder.rename(replays.job.folder / "away")
    status, said = replays.plan()
    assert (3, True) == (status, "n2" in said)
    folder.mkdir()
    status, said = replays.plan()

    assert (1, True) == (status, "error [archive_gap]" in said)
    assert "the log of n2 is empty" in said


def test_an_archive_that_goes_after_the_plan(replays: Replays) -> None:
    """Shards fail by name while the archive is missing, and pass when it is back."""
    _, run = replays.plan("--shards", "3")
    folder = replays.job.folder / "n2"
    folder.rename(replays.job.folder / "away")
    assert 1 == replays.execute(run)
    assert {ShardState.FAIL: 3} == replays.states(run)
    assert all("n2" in row.report["problem"] for row in replays.rows(run))

    (replays.job.folder / "away").rename(folder)
    assert 0 == replays.execute(run)
    assert ({ShardState.PASS: 3}, 3) == (replays.states(run), len(replays.keys()))


def test_overlapping_segments(replays: Replays) -> None:
    """A segment in the logs of two nodes would count twice: it is refused, unless accepted."""
    for path in (replays.job.folder / "n1").glob(f"*-{SEGMENT_ID + 2}*"):
        shutil.copy(path, replays.job.folder / "n3")
    status, said = replays.plan()

    assert (1, True) == (status, "error [archive_gap]" in said)
    assert f"segment {SEGMENT_ID + 2} is in the logs of n1 and n3" in said
    assert 0 == replays.plan("--accept-gaps")[0]


def test_gapped_segments(replays: Replays) -> None:
    """A segment with an index but without data is refused; missing segment ids are reported."""
    (log,) = (replays.job.folder / "n1").glob(f"*-{SEGMENT_ID + 2}.log")
    log.rename(replays.job.folder / log.name)
    status, said = replays.plan()
    assert (1, True) == (status, f"segment {SEGMENT_ID + 2} of n1 is missing" in said)

    status, run = replays.plan("--accept-gaps")
    assert (0, 0) == (status, replays.execute(run))
    assert 3 == len(replays.keys())  # Two of three nodes have it.
    for path in (replays.job.folder / "n1").glob(f"*-{SEGMENT_ID + 2}*"):
        path.unlink()
    assert 0 == replays.job.replay("plan", "--to-folder", "out")
    between = f"{SEGMENT_ID + 1} and {SEGMENT_ID + 3}"
    assert f"n1 has no segments between {between}" in replays.said()


def test_poisoned_segments_of_a_thousand(replays: Replays) -> None:
    """Damage of one node, and a row that cannot be decoded, are named; all else is done."""
    job = replays.job
    for number in range(4, SEGMENTS):
        job.spread(number, insert(b"k%d" % number, b"v", table=TABLE))
    good = insert(b"bad", b"v" * 40, table=TABLE)
    job.spread(SEGMENTS, good[:-42] + b"\xff" * 42)
    damaged = job.poison(POISONED, b"k%d" % POISONED)
    _, run = replays.plan("--shards", "4")

    assert 0 == replays.execute(run)
    assert {ShardState.PASS: 4} == replays.states(run)
    assert SEGMENTS - 1 == len(replays.keys())
    notes = [note for row in replays.rows(run) for note in row.report["notes"]]
    assert any(damaged in note for note in notes)
    assert any(str(SEGMENTS) in note for note in notes)
    assert 2 == len(notes)

"""Logs that are read once for all shards, beside shards that each read all logs."""

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from headrace.connector.replay import delivery
from headrace.connector.replay.delivery import Search, Target, deliver
from headrace.connector.replay.framing import framed_shards
from headrace.connector.replay.framing.framed_shards import framed, framing_of
from headrace.connector.replay.planning import Bounds, planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, SourceSpec
from headrace.connector.runtime import making
from headrace.connector.stores.job import Job
from headrace.plugins import Context, Sink
from headrace.sources.cassandra.errors import StateError
from headrace.sources.cassandra.framed import log_framing
from headrace.sources.cassandra.framed.blocks import BlockFile
from headrace.sources.cassandra.logs.reread import Copies
from headrace.sources.cassandra.logs.rescued_copies import Rescued
from headrace.sources.cassandra.reading import pump
from helpers.recordings.batches import source_of
from helpers.recordings.corpora import recording
from helpers.recordings.segment_reads import note_reads
from helpers.recordings.shards import Read, read, ring
from helpers.settings.seeds import soaked

ORIGIN = ("copies", "node", "segment", "position", "value")  # A value has the others.
MIDDLE_US = 1_700_597_089_019_188  # Amid the writes of the ring of 5.0.


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framed_shards, "SHARDS_MIN", 2)


def both(shards: Sequence[Shard]) -> tuple[Sequence[Read], Sequence[Read]]:
    """Return what *shards* read by themselves, and what they read of logs that were read once."""
    alone = [read(shard) for shard in shards]
    with framed(shards) as once:
        assert all(shard.framed for shard in once)
        return alone, [read(shard) for shard in once]


def named(reads: Sequence[Read]) -> list[Mapping[str, Any]]:
    """Return all changes by name, without the copies that they were made from."""
    rows = [
        {k: v for k, v in row.items() if k not in ORIGIN} for read in reads for row in read.rows
    ]
    return sorted(rows, key=lambda row: (row["mutation"], row["index"]))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "shards"),
    [
        *(("4.1-ring", 8), ("5.0-ring", 2), ("6.0-v9-ring", 8)),
        *soaked(("4.1-ring", 2), ("5.0-ring", 8), ("6.0-v9-ring", 2)),
    ],
)
def test_a_ring(name: str, shards: int) -> None:
    """Shards of a ring with a late replica read the same rows in the same order, books and ends."""
    alone, once = both(planned(ring(name), Selection(), shards=shards).shards)

    assert sum(len(each.rows) for each in alone)
    assert alone == once


def test_many_shards() -> None:
    """Many shards take longer turns of each log: other copies may come first, of the same rows."""
    alone, once = both(planned(ring("5.0-ring"), Selection(), shards=32).shards)

    assert named(alone) == named(once)
    assert [each.position for each in alone] == [each.position for each in once]


@pytest.mark.parametrize("name", ["5.0-schema", "6.0-v9-schema", "5.0-types", "4.0-random"])
def test_a_node(name: str) -> None:
    """So do shards of one log, whose schema changes in it."""
    spec = SourceSpec(given=source_of(name), directory=str(recording(name)))
    alone, once = both(planned(spec, Selection(), shards=4).shards)

    assert sum(len(each.rows) for each in alone)
    assert alone == once


@pytest.mark.parametrize("name", ["5.0-lz4-files", "5.0-v8-direct-files"])
def test_packed_segments(name: str) -> None:
    """Positions in compressed segments are logical, as when they are read directly."""
    folder = recording(name)
    given = source_of(name, nodes={"node1": str(folder / "stopped" / "cdc_raw")})
    spec = SourceSpec(given=given, directory=str(folder))
    alone, once = both(planned(spec, Selection(), shards=3).shards)

    assert sum(len(each.rows) for each in alone)
    assert alone == once


@pytest.mark.parametrize(
    "selection",
    [
        Selection(tokens=((-(1 << 62), 1 << 61),)),
        Selection(tables=frozenset(["ring_cobalt_ticket.b_gale_umbra"])),
        Selection(from_us=MIDDLE_US),
        Selection(to_us=MIDDLE_US, operations=frozenset(["INSERT"])),
    ],
)
def test_a_selection(selection: Selection) -> None:
    """A selection selects the same rows."""
    spec = ring("5.0-ring")
    alone, once = both(planned(spec, selection, shards=5).shards)

    assert sum(len(each.rows) for each in alone)
    assert alone == once


def test_an_index(tmp_path: Path) -> None:
    """Parts that an index spares are in no block, and the rows are the same."""
    spec = replace(ring("5.0-ring"), cache=str(tmp_path))
    assert Search(spec)()
    selection = Selection(to_us=MIDDLE_US)
    shards = planned(spec, selection, shards=3).shards
    alone, once = both(shards)

    assert named(alone) == named(once)
    assert [each.position for each in alone] == [each.position for each in once]
    assert framed_bytes(shards) < framed_bytes(planned(spec, Selection(), shards=3).shards)


def framed_bytes(shards: Sequence[Shard]) -> int:
    """Return the size of all blocks of *shards*."""
    framing = framing_of(shards)
    assert framing is not None
    return sum(len(block) for _, block in framing.frame(framing.parts))


def test_bounds() -> None:
    """What is before one position and behind another one is not read."""
    spec = ring("5.0-ring")
    names = sorted((recording("5.0-ring") / "segments" / "node1").glob("*.log"))
    segment = names[0].stem.rpartition("-")[2]
    whole = [read(shard) for shard in planned(spec, Selection(), shards=4).shards]
    for bounds in (
        Bounds(after=f"node1:{segment}:300000"),
        Bounds(until=f"node1:{segment}:300000"),
        Bounds(after=f"node1:{segment}:100000", until=f"node1:{segment}:700000"),
    ):
        alone, once = both(planned(spec, Selection(), bounds=bounds, shards=4).shards)

        assert alone == once
        assert alone != whole


def test_parts_of_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts end amid sections, and blocks amid parts: the rows are the same."""
    monkeypatch.setattr(framed_shards, "PART_BYTES", 100_000)
    monkeypatch.setattr(log_framing, "HELD_BYTES_MAX", 10_000)
    shards = planned(ring("4.1-ring"), Selection(), shards=3).shards
    framing = framing_of(shards)
    alone, once = both(shards)

    assert framing is not None
    assert len(framing.parts) > 20
    assert alone == once


def test_short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns of a log end at the same places, so that the same copies come first."""
    monkeypatch.setattr(pump, "CHUNK_BYTES", 5_000)
    alone, once = both(planned(ring("5.0-ring"), Selection(), shards=3).shards)

    assert alone == once


def test_damage(tmp_path: Path) -> None:
    """A damaged segment is left to the shards, which treat it as they do without the others."""
    spec = ring("5.0-ring", tmp_path, gaps="expire")
    log = max((tmp_path / "5.0-ring/segments/node2").glob("*.log"), key=lambda f: f.stat().st_size)
    content = bytearray(log.read_bytes())
    for at in (50_000, 250_000, 400_000):
        content[at] ^= 0xFF
    log.write_bytes(content)
    alone, once = both(planned(spec, Selection(), shards=4).shards)

    assert [each for read in alone for each in read.lost]
    assert alone == once


def test_a_missing_segment(tmp_path: Path) -> None:
    """A log without one of its segments counts as it does for shards that read it."""
    spec = ring("5.0-ring", tmp_path, gaps="expire")
    (first, *_) = sorted((tmp_path / "5.0-ring/segments/node3").glob("*.log"))
    plan = planned(spec, Selection(), shards=4)
    first.unlink()
    alone, once = both(plan.shards)

    assert sum(len(each.rows) for each in alone)
    assert alone == once


def test_each_byte_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many shards there are, they read no more of the segments than their bytes."""
    shards = planned(ring("5.0-ring"), Selection(), shards=32).shards
    sizes = note_reads(monkeypatch)
    with framed(shards) as once:
        rows = sum(len(read(shard).rows) for shard in once)

    logs = (recording("5.0-ring") / "segments").rglob("*.log")
    assert rows
    assert sum(sizes) <= 1.1 * sum(path.stat().st_size for path in logs)


def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the nodes in whose logs mutations are read again, once for each."""
    nodes: list[str] = []
    at = Copies.at

    def noted(self: Copies, node: str, segment: int, position: int, length: int) -> Rescued | None:
        nodes.append(node)
        return at(self, node, segment, position, length)

    monkeypatch.setattr(Copies, "at", noted)
    return nodes


def test_one_replica_sends_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of about three copies one has bytes; the others are digests. Little is read again."""
    shards = planned(ring("5.0-ring"), Selection(), shards=8).shards
    nodes = fetched(monkeypatch)
    both_sent = digests = 0
    with framed(shards) as once:
        rows = sum(len(read(shard).rows) for shard in once)
        for shard in once:
            file = BlockFile(Path(shard.framed))
            blocks = [each for log in file.segments.values() for of in log.values() for each in of]
            both_sent += sum(block.head.both for block in blocks)
            digests += sum(block.head.digests for block in blocks)
            file.close()

    assert rows
    assert 2.5 * both_sent < digests < 3.1 * both_sent
    assert len(nodes) < rows // 10  # A replica was late: its log does not have all.


@pytest.mark.soak
@pytest.mark.parametrize("node", ["node2", *soaked("node1", "node3")])
def test_a_replica_that_misses_mutations(
    node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it should have sent is read in the logs that have it: as if they had sent it."""
    spec = ring("5.0-ring", tmp_path, gaps="expire")
    logs = sorted((tmp_path / "5.0-ring/segments" / node).glob("*.log"))
    plan = planned(spec, Selection(), shards=4)
    max(logs, key=lambda path: path.stat().st_size).unlink()
    nodes = fetched(monkeypatch)
    alone, once = both(plan.shards)

    assert sum(len(each.rows) for each in alone)
    assert len(nodes) > 500
    assert {"node1", "node2", "node3"} - {node} <= set(nodes)
    assert alone == once


def test_bytes_that_are_gone(tmp_path: Path) -> None:
    """A mutation that no log sent, and whose segments are gone since, stops its shard."""
    spec = ring("5.0-ring", tmp_path, gaps="expire")
    folder = tmp_path / "5.0-ring/segments"
    plan = planned(spec, Selection(), shards=4)
    max((folder / "node1").glob("*.log"), key=lambda path: path.stat().st_size).unlink()
    with framed(plan.shards) as once:
        for path in folder.rglob("*.log"):
            path.write_bytes(b"")
        with pytest.raises(StateError, match="a mutation"):
            read(once[0])


def test_shards_that_read_other_parts() -> None:
    """One shard, shards with bounds of their own, and sources without logs are not framed."""
    spec = ring("5.0-ring")
    (one,) = planned(spec, Selection(), shards=1).shards
    two = planned(spec, Selection(), shards=2).shards
    files = SourceSpec(given={"plugin": "files", "path": "*.jsonl"}, directory=spec.directory)

    assert None is framing_of([one])
    assert None is framing_of([two[0], replace(two[1], resume=two[1].until)])
    assert None is framing_of([replace(shard, source=files) for shard in two])


def test_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room for what is framed, shards read the logs themselves; a warning says so."""

    @contextlib.contextmanager
    def nowhere(**_: object) -> Any:  # noqa: ANN401 (a generator)
        yield "/nowhere"

    monkeypatch.setattr(tempfile, "TemporaryDirectory", nowhere)
    shards = planned(ring("5.0-ring"), Selection(), shards=2).shards
    with structlog.testing.capture_logs() as reported, framed(shards) as once:
        assert shards == once

    assert ["logs_not_framed"] == [each["event"] for each in reported]


def test_few_shards_read_the_logs_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks take more CPU than they save where less than `SHARDS_MIN` shards read the logs."""
    monkeypatch.undo()
    for shards in (framed_shards.SHARDS_MIN - 1, framed_shards.SHARDS_MIN):
        framing = framing_of(planned(ring("5.0-ring"), Selection(), shards=shards).shards)
        assert (framing is None) == (shards < framed_shards.SHARDS_MIN)


def test_shards_share_a_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Framed shards of a run have one sink, until one of them fails; all is closed in the end."""
    made: list[str] = []
    make = making.made_sink

    def counted(job: Job, context: Context) -> Sink:
        made.append(job.name)
        return make(job, context)

    monkeypatch.setattr(delivery, "made_sink", counted)
    shards = planned(ring("5.0-ring"), Selection(), shards=6).shards
    target = Target(directory=str(tmp_path), sink={"plugin": "files", "path": "out.jsonl"})
    with framed(shards) as once:
        lost = replace(once[3], framed=str(tmp_path / "lost"))
        (tmp_path / "lost").write_bytes(b"no blocks")
        reports = [
            deliver(shard, target, run=run, attempt=1)
            for run, shard in (*(("r", s) for s in (*once[:3], lost, *once[3:])), ("s", once[0]))
        ]

    assert [False, False, False, True, False, False, False, False] == [
        bool(report.problem) for report in reports
    ]
    assert ["r", "r", "s"] == made
    lines = len((tmp_path / "out.jsonl").read_text().splitlines())
    assert sum(report.delivered for report in reports) == lines
    assert delivery._KeptSink.made is None  # noqa: SLF001 (that it was closed)

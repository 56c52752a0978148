"""Micro-batches whose logs are framed once for all splits, beside a worker of the same job."""

import errno
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.datasource import InputPartition

from headrace.connector.replay.framing import framed_shards
from headrace.connector.replay.framing.framed_shards import SplitFiles
from headrace.connector.replay.stream.checkpoint import checkpoint_of
from headrace.connector.replay.stream.sink_stream import SinkStream, SplitsDelivered
from headrace.connector.replay.stream.streaming import LogPartition, SegmentStream
from headrace.connector.replay.stream.terms import Settled, Term
from headrace.connector.stores import StateLostError
from headrace.plugins import ConfigError, MissingRequirementError
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.forge.wrapping import PLAIN, Wrapping, compression
from helpers.logs.forged import insert
from helpers.logs.gap_jobs import NODES, GapJob
from helpers.recordings.batches import source_of
from helpers.recordings.corpora import recording
from helpers.recordings.segment_reads import note_reads
from helpers.settings.seeds import soaked
from helpers.streams.by_hand import MANY, TASKS, ByHand, run_by_hand

WHOLE = 1 << 40
VARIES = ("copies", "node", "segment", "position")
LOGS = ("node1", "node2", "node3")


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framed_shards, "SHARDS_MIN", 2)
    monkeypatch.setattr(framed_shards, "PART_BYTES", 300_000)


def ring_job(folder: Path, splits: int, segments: Path | None = None) -> GapJob:
    """Return a job over a recorded ring with a late replica."""
    place = segments or recording("5.0-ring") / "segments"
    schema = str(recording("5.0-ring") / "schema.cql")
    job = GapJob(folder, splits=splits)
    job.change(nodes={node: str(place / node) for node in LOGS}, schema=schema)
    return job


def stream_of(job: GapJob, batch_bytes: int = WHOLE, tasks: int = MANY) -> ByHand:
    """Return a stream of a job without a checkpoint, for so many *tasks* of splits."""
    folder = job.folder / "state.db.spark" / "orders"
    return ByHand(job.path, folder, batch_bytes=batch_bytes, tasks=tasks)


def said(job: GapJob) -> Mapping[str, list[str]]:
    """Return what the sink got, in its order, by key."""
    found: dict[str, list[str]] = defaultdict(list)
    for document in job.documents():
        key = json.dumps([document.get("table"), document.get("key")], sort_keys=True)
        rest = {name: value for name, value in document.items() if name not in VARIES}
        found[key].append(json.dumps(rest, sort_keys=True))
    return found


def by_worker(job: GapJob) -> Mapping[str, list[str]]:
    """Return what a worker delivers of the same logs."""
    (job.folder / "out.jsonl").unlink()
    job.path.write_text(job.path.read_text().replace("job: orders", "job: others"))
    assert 0 == job.run()
    return said(job)


@pytest.mark.soak
@pytest.mark.parametrize("splits", [2, 16, *soaked(8, 32)])
def test_what_a_worker_delivers(splits: int, tmp_path: Path) -> None:
    """With any number of splits each key gets what a worker delivers, in its order."""
    job = ring_job(tmp_path, splits)
    stream_of(job).run()
    by_spark = said(job)

    assert by_worker(job) == by_spark


def test_books_and_positions(tmp_path: Path) -> None:
    """Books and positions are those of a worker, and balance."""
    job = ring_job(tmp_path, 4)
    run_by_hand(job.path, batch_bytes=WHOLE)
    by_spark = job.verified()
    by_worker(job)

    assert sum(t["delivered"] for t in by_spark["total"]["tables"].values())
    assert job.verified()["splits"] == by_spark["splits"]


@pytest.mark.soak
@pytest.mark.parametrize(("splits", "batch_bytes"), [(8, 400_000), *soaked((2, 150_000))])
def test_many_batches(
    splits: int, batch_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch has the rows, order, books and positions of splits that read the logs alone."""
    found = []
    for name, few in (("framed", 2), ("alone", splits + 1)):
        monkeypatch.setattr(framed_shards, "SHARDS_MIN", few)
        (tmp_path / name).mkdir()
        job = ring_job(tmp_path / name, splits)
        run_by_hand(job.path, batch_bytes=batch_bytes)
        found.append((said(job), job.verified()["splits"], batches_of(job)))
    framed, alone = found

    assert framed[2] > 2
    assert alone == framed


def batches_of(job: GapJob) -> int:
    """Return how many batches were committed."""
    committed = checkpoint_of(job.folder / "state.db", "orders").committed()
    assert committed is not None
    return committed[0] + 1


@pytest.mark.parametrize("name", ["5.0-schema", "6.0-v9-schema"])
def test_a_schema_that_changes_within_a_batch(name: str, tmp_path: Path) -> None:
    """Each entry has the schema of its place, in every split."""
    job = GapJob(tmp_path, splits=4)
    job.change(**{name: value for name, value in source_of(name).items() if name != "plugin"})
    stream_of(job).run()
    by_spark = said(job)

    assert by_worker(job) == by_spark


def test_each_byte_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many splits there are, a batch reads no more of the segments than their bytes."""
    logs = (recording("5.0-ring") / "segments").rglob("*.log")
    whole = bytes_read(tmp_path / "whole", WHOLE, monkeypatch)

    assert whole <= 1.1 * sum(path.stat().st_size for path in logs)
    assert bytes_read(tmp_path / "many", 600_000, monkeypatch) <= 1.3 * whole


def bytes_read(folder: Path, batch_bytes: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how much a stream reads of segments, with many splits."""
    folder.mkdir()
    stream = stream_of(ring_job(folder, 16), batch_bytes)
    with monkeypatch.context() as counting:
        counting.setattr(framed_shards, "PART_BYTES", 32 * 1024 * 1024)
        sizes = note_reads(counting)
        stream.run()
    return sum(sizes)


@pytest.mark.parametrize(
    ("few", "wrapping"), [(2, PLAIN), (3, compression("LZ4Compressor"))], ids=["framed", "alone"]
)
def test_small_mutations_of_all_logs_come_together(
    few: int, wrapping: Wrapping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of segments with more mutations than may wait none gives way: books are a worker's."""
    monkeypatch.setattr(framed_shards, "SHARDS_MIN", few)
    job = GapJob(tmp_path, records_max=20_000)
    rows = [insert(b"key %d" % number) for number in range(50_000)]
    sections = [rows[at : at + 2_000] for at in range(0, len(rows), 2_000)]
    for number, node in enumerate(NODES, start=SEGMENT_ID):
        made = segment(sections, segment_id=number, wrapping=wrapping)
        index = f"{made.durable}\nCOMPLETED"
        write_segment(tmp_path / node, made.content, segment_id=number, index=index)
    job.deliver({"plugin": "null"}, {})
    run_by_hand(job.path, batch_bytes=3_000_000)
    by_spark = job.verified()

    assert batches_of(job) > 2
    assert 50_000 == by_spark["total"]["tables"]["forged.t"]["delivered"]
    assert 0 == by_spark["figures"]["dead_lettered"]
    job.path.write_text(job.path.read_text().replace("job: orders", "job: others"))
    assert 0 == job.run()
    assert shown(job.verified()) == shown(by_spark)


@pytest.mark.parametrize(
    ("few", "batch_bytes"),
    [(2, 21_000_000), (3, 21_000_000), (3, WHOLE)],
    ids=["framed", "alone", "whole"],
)
def test_a_node_that_was_down(
    few: int, batch_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that begins later is read later: no mutation gives way, and books are a worker's."""
    monkeypatch.setattr(framed_shards, "SHARDS_MIN", few)
    job = GapJob(tmp_path, records_max=3_000)
    rows = [insert(b"key %d" % n, bytes(1_000), at_us=n * 10_000) for n in range(16_000)]
    for node, first in zip(NODES, (8_000, 0, 0), strict=True):
        number = SEGMENT_ID + first * 10  # The time in ms at which the node started.
        sections = [rows[at : at + 100] for at in range(first, len(rows), 100)]
        made = segment(sections, segment_id=number)
        index = f"{made.durable}\nCOMPLETED"
        write_segment(tmp_path / node, made.content, segment_id=number, index=index)
    job.deliver({"plugin": "null"}, {})
    run_by_hand(job.path, batch_bytes=batch_bytes)
    by_spark = job.verified()

    assert (batches_of(job) == 1) is (batch_bytes == WHOLE)
    assert 0 == by_spark["figures"]["dead_lettered"]
    assert 16_000 == by_spark["total"]["tables"]["forged.t"]["delivered"]
    job.path.write_text(job.path.read_text().replace("job: orders", "job: others"))
    assert 0 == job.run()
    assert shown(job.verified()) == shown(by_spark)


def shown(books: Mapping[str, Any]) -> object:
    """Return what books of splits say of mutations and tables, but not of what is remembered."""
    return {
        name: (
            split["tables"],
            {k: n for k, n in split["books"].items() if k.startswith("mutations.")},
        )
        for name, split in books["splits"].items()
    }


def test_few_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tasks read the logs themselves, each once for all its splits; no part is framed."""
    job = ring_job(tmp_path, 16)
    stream = stream_of(job, tasks=TASKS)
    sizes = note_reads(monkeypatch)
    planned = stream.reader.partitions(stream.at, stream.next_end())
    stream.run()
    logs = (recording("5.0-ring") / "segments").rglob("*.log")

    assert 1 == len(planned)
    assert sum(sizes) <= 1.3 * TASKS * sum(path.stat().st_size for path in logs)
    by_spark = said(job)
    assert by_worker(job) == by_spark


def test_few_tasks_exactly_once(tmp_path: Path) -> None:
    """Exactly once few tasks get blocks too: they deliver their splits one after another."""
    job = ring_job(tmp_path, 4)
    stream = stream_of(job, tasks=TASKS)
    term = Term(checkpoint="", key="", token=1, moved=0, first=0, seq=0, is_kept=False, home="")
    checkpoint = checkpoint_of(tmp_path / "state.db", "orders")
    checkpoint.put_terms({f"{number}-of-4": term for number in range(1, 5)})

    assert len(rows_of(stream)) > len(LOGS)


class Repeated(ByHand):
    """A stream whose tasks of the first stage run twice; of some splits the first one counts."""

    def first_stage(
        self, reader: SegmentStream, partition: InputPartition
    ) -> Iterable[pa.RecordBatch]:
        """Return rows of two attempts, those of a split of one of them."""
        for attempt in range(2):
            table = pa.Table.from_batches(reader.read(partition))
            of_this = pc.equal(pc.bit_wise_and(table["split"], 1), attempt)
            yield from table.filter(of_this).to_batches()


def test_a_task_of_the_first_stage_that_is_repeated(tmp_path: Path) -> None:
    """If its first result is lost when some splits have read it, the others get the same rows."""
    job = ring_job(tmp_path, 4)
    stream = Repeated(job.path, tmp_path / "state.db.spark" / "orders", batch_bytes=WHOLE)
    stream.run()
    by_spark = said(job)

    assert by_worker(job) == by_spark


def test_damage(tmp_path: Path) -> None:
    """A damaged segment is left to the splits, which treat it as a worker does."""
    job = copied_ring(tmp_path, gaps="expire")
    log = max((tmp_path / "segments/node2").glob("*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(log.read_bytes())
    for at in (50_000, 250_000, 400_000):
        content[at] ^= 0xFF
    log.write_bytes(content)
    run_by_hand(job.path, batch_bytes=WHOLE)
    by_spark, found = said(job), job.verified()["splits"]

    assert by_worker(job) == by_spark
    assert job.verified()["splits"] == found


def copied_ring(folder: Path, **options: object) -> GapJob:
    """Return a job with *options* over a ring that a test may damage."""
    for node in LOGS:
        place = folder / "segments" / node
        place.mkdir(parents=True)
        for path in (recording("5.0-ring") / "segments" / node).iterdir():
            (place / path.name).write_bytes(path.read_bytes())
    job = ring_job(folder, 4, folder / "segments")
    job.change(**options)
    return job


def rows_of(stream: ByHand) -> pa.Table:
    """Return all rows of the first stage of the next batch."""
    partitions = stream.reader.partitions(stream.at, stream.next_end())
    assert len([each for each in partitions if isinstance(each, LogPartition)]) >= len(LOGS)
    return pa.Table.from_batches([rows for each in partitions for rows in stream.reader.read(each)])


def test_a_sink_without_options(tmp_path: Path) -> None:
    """The sink of a job may be one that keeps its options for itself, as `null` does."""
    job = ring_job(tmp_path, 2)
    job.deliver({"plugin": "null"}, {})
    delivered = run_by_hand(job.path, batch_bytes=WHOLE)

    assert delivered == job.delivered()


def test_rows_of_a_split_in_several_tasks(tmp_path: Path) -> None:
    """Without a shuffle between the stages a task is refused; nothing is delivered by halves."""
    stream = stream_of(ring_job(tmp_path, 4))
    blocks = rows_of(stream).filter(pc.is_valid(pc.field("block")))

    with pytest.raises(ConfigError, match="came to several tasks"):
        SinkStream(stream.of_job).write(iter(blocks.to_batches()))


def test_a_split_that_does_not_report(tmp_path: Path) -> None:
    """A batch is not committed if the result of a split is missing, or came twice."""
    sink = SinkStream(stream_of(ring_job(tmp_path, 4)).of_job)
    for numbers in ([], [0, 2], [0, 1, 1]):
        with pytest.raises(StateLostError, match="reported what they delivered"):
            sink.commit([SplitsDelivered({number: Settled({})}) for number in numbers], 0)


def test_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task whose disk is full fails with the folder and what to do."""
    stream = stream_of(ring_job(tmp_path, 4))
    rows = rows_of(stream)

    def full(_self: SplitFiles, _split: str, _block: memoryview) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SplitFiles, "_append", full)
    with pytest.raises(MissingRequirementError, match="No space left on device"):
        SinkStream(stream.of_job).write(iter(rows.to_batches()))

"""Micro-batches without Spark, called as Spark calls them: plan, read, write, commit."""

import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
import yaml
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

from headrace.connector.commands.cli import main
from headrace.connector.hosting.host import Host
from headrace.connector.replay.errors import LogShortError
from headrace.connector.replay.frames.sources import SinkTarget
from headrace.connector.replay.stream.checkpoint import Known, Offset, States
from headrace.connector.replay.stream.sink_stream import SinkStream, SplitsDelivered
from headrace.connector.replay.stream.streaming import SegmentStream
from headrace.connector.replay.stream.terms import Settled
from headrace.connector.runtime.failures.tolerance import NotToleratedError
from headrace.connector.stores import StateLostError
from headrace.plugins import ConfigError, HeadraceError
from helpers.logs.gap_jobs import GapJob
from helpers.streams.by_hand import ByHand as Stream
from helpers.streams.by_hand import HandQuery, engine_by_hand, run_by_hand

if TYPE_CHECKING:
    from headrace.plugins.metrics import Sample


class ByHand(Stream):
    """A stream of a job over forged logs."""

    def __init__(self, job: GapJob, *, batch_bytes: int = 1) -> None:
        """Start without a checkpoint."""
        folder = job.folder / "state.db.spark" / "orders"
        super().__init__(job.path, folder, batch_bytes=batch_bytes)


@pytest.fixture
def job(tmp_path: Path) -> GapJob:
    """Return a job with four segments in the log of each node; some copies arrive late."""
    made = GapJob(tmp_path, splits=1)
    made.log(1, range(10))
    made.log(2, range(10, 14), nodes=("n1", "n2"))
    made.log(3, range(20, 30), nodes=("n1",))
    made.log(3, range(24, 34), nodes=("n2", "n3"))
    made.log(4, range(40, 44))
    return made


EXPECTED = [*range(14), *range(24, 34), *range(40, 44)]  # The rows that two of three nodes have.


@pytest.mark.parametrize(("batch_bytes", "batches"), [(1, 11), (1 << 40, 1)])
def test_what_a_worker_delivers(job: GapJob, batch_bytes: int, batches: int) -> None:
    """With batches of any size the sink gets the same as from a worker."""
    job.change(splits=2)
    stream = ByHand(job, batch_bytes=batch_bytes)
    stream.run()

    assert (EXPECTED, batches) == (job.rows(), stream.batches)
    by_spark = Counter(map(without_origin, job.documents()))
    (job.folder / "out.jsonl").unlink()
    job.path.write_text(job.path.read_text().replace("job: orders", "job: others"))
    assert 0 == job.run()
    assert Counter(map(without_origin, job.documents())) == by_spark


@pytest.mark.parametrize("batch_bytes", [1, 1 << 40])
def test_books(job: GapJob, batch_bytes: int) -> None:
    """`headrace verify` checks Spark's commits by the same books as a worker's (I3)."""
    job.change(splits=2)
    stream = ByHand(job, batch_bytes=batch_bytes)
    stream.deliver(stream.next_end())  # A repeated batch counts once.
    assert len(EXPECTED) == run_by_hand(job.path, batch_bytes=batch_bytes)
    on_spark = job.verified()
    job.path.write_text(job.path.read_text().replace("job: orders", "job: others"))
    assert 0 == job.run()

    by_worker = job.verified()
    assert len(EXPECTED) == sum(t["delivered"] for t in on_spark["total"]["tables"].values())
    assert without_order(by_worker["total"]) == without_order(on_spark["total"])
    assert by_worker["splits"].keys() == on_spark["splits"].keys()


def test_the_sink_is_compared_with_the_books(
    job: GapJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """`headrace verify --sink` finds what Spark's tasks delivered, and misses what is gone."""
    run_by_hand(job.path)
    sink = job.verified("--sink")["sink"]
    (table,) = sink["tables"].values()
    assert (len(EXPECTED), 0, 0) == (table["found"], table["missing"], sink["unreadable"])

    out = job.folder / "out.jsonl"
    out.write_bytes(b"".join(out.read_bytes().splitlines(keepends=True)[:-1]))
    assert 4 == main(["verify", "--sink", str(job.path)])
    assert f"sink: 1 of {len(EXPECTED)} delivered changes" in capsys.readouterr().err


def without_order(verified: Mapping[str, dict[str, object]]) -> Mapping[str, object]:
    """Return books without the counters that depend on the order of the logs."""
    fates = (".first", ".counted", ".surplus")
    return {
        **verified,
        "books": {
            name: count
            for name, count in verified["books"].items()
            if not (name.startswith("entries.") and name.endswith(fates))
        },
    }


def test_books_that_differ(job: GapJob, capsys: pytest.CaptureFixture[str]) -> None:
    """Records that are lost between reading and writing appear in the books."""
    stream = ByHand(job, batch_bytes=1 << 40)
    stream.step()
    SinkStream(stream.of_job).commit([SplitsDelivered({0: Settled({})})], 0)
    run_by_hand(job.path)

    assert 4 == job.call("verify")
    assert "[books_differ]: " in capsys.readouterr().err


def test_measures(job: GapJob) -> None:
    """The driver reports its batches, and the books of the last commit."""
    found: dict[str, Sequence[Sample]] = {}
    before: set[str] = set()
    host: Host

    def look(query: HandQuery) -> None:
        before.update(each.name for each in host.measures())
        stop = query.stop

        def stopped() -> None:
            found.update({each.name: each.samples for each in host.measures()})
            stop()

        query.stop = stopped  # type: ignore[method-assign]

    engine = engine_by_hand(seen=look)
    host = Host(job.path, log=structlog.stdlib.get_logger(), engine=engine)
    host.run(until_idle=True)

    fates = {labels["fate"]: count for labels, count in found["headrace_changes_total"]}
    assert 3 == len(before)
    assert [({}, len(EXPECTED))] == [*found["headrace_micro_batch_records_total"]]
    assert (len(EXPECTED), len(EXPECTED)) == (fates["cut"], fates["delivered"])
    assert {0} == {count for _, count in found["headrace_books_differ"]}
    assert {0} == {count for _, count in found["headrace_backlog_bytes"]}


def test_books_that_are_gone(job: GapJob) -> None:
    """A checkpoint without the books of what was delivered is refused."""
    stream = ByHand(job)
    stream.step()
    shutil.rmtree(stream.folder / "delivered")

    with pytest.raises(StateLostError, match="delivered up to batch 0"):
        stream.step()
    with pytest.raises(StateLostError, match="delivered up to batch 0"):
        run_by_hand(job.path)


def without_origin(document: Mapping[str, object]) -> str:
    """Return what does not depend on the process that read it."""
    varies = ("copies", "node", "segment", "position")
    return json.dumps({k: v for k, v in document.items() if k not in varies}, sort_keys=True)


def test_a_batch_that_is_cut_off_comes_again(job: GapJob) -> None:
    """A batch that was delivered and not committed is repeated, and no other is."""
    stream = ByHand(job, batch_bytes=1 << 40)
    end = stream.next_end()
    stream.deliver(end)
    stream.begin_again()
    job.log(5, range(50, 52))
    stream.deliver(end)
    stream.log("commits", "{}")
    stream.at, stream.batches = end, 1
    stream.run()

    assert sorted(2 * EXPECTED + [50, 51]) == job.rows()


def test_a_live_segment_is_read_to_its_durable_end(job: GapJob) -> None:
    """A segment is read to its durable end; what follows is read later, once."""
    job.log(5, range(60, 62), index="0\n")
    stream = ByHand(job)
    stream.run()
    before = job.rows()
    job.log(5, range(60, 62))
    stream.run()

    assert EXPECTED == before
    assert [*EXPECTED, 60, 61] == job.rows()


def test_until_idle_ends_at_what_was_there(job: GapJob) -> None:
    """What is logged after the start of the query is left to the next query."""
    stream = ByHand(job)
    stream.reader.prepareForTriggerAvailableNow()
    job.log(5, range(50, 52))
    stream.run()

    assert EXPECTED == job.rows()
    assert stream.at == stream.reader.latestOffset(stream.at, ReadAllAvailable())


def test_start_latest(job: GapJob) -> None:
    """A job that starts at the end reads what is logged later."""
    job.begin_at("latest")
    stream = ByHand(job)
    stream.run()
    (job.folder / "out.jsonl").touch()
    before = job.rows()
    job.log(5, range(50, 52))
    stream.run()

    assert ([], [50, 51]) == (before, job.rows())


def test_states_are_kept_while_they_may_be_needed(job: GapJob) -> None:
    """A batch can be repeated until the next one starts; if its start is lost nothing is read."""
    stream = ByHand(job)
    folder = job.folder / "state.db.spark" / "orders" / "states"
    counts = [len(list(folder.iterdir())) for _ in range(4) if stream.step()]

    assert [2, 2, 2, 2] == counts
    shutil.rmtree(folder)
    with pytest.raises(StateLostError, match="what split 1-of-1 knew"):
        stream.step()


@pytest.mark.parametrize("damage", ["torn", "of another place"])
def test_damaged_states_are_named(tmp_path: Path, damage: str) -> None:
    """A state that is damaged, or of another place, is refused."""
    states = States(tmp_path)
    here: Offset = {"parts": [[{"node": "n"}, {"at": 1}]]}
    there: Offset = {"parts": []}
    states.store(here, "1", Known())
    states.store(there, "1", Known())
    one, other = tmp_path.glob("*/1")
    one.write_bytes(one.read_bytes()[:-1] if damage == "torn" else other.read_bytes())

    failures = []
    for offset in (here, there):
        try:
            states.load(offset, "1")
        except StateLostError as error:
            failures.append(error.code)
    assert ["state_lost"] == failures


def test_a_gap_is_named(job: GapJob) -> None:
    """A segment that vanished while it was half read fails the batch with a worker's error."""
    job.log(5, range(50, 52), index="150\n")
    stream = ByHand(job)
    stream.run()
    job.log(6, range(60, 62))
    job.lose("n2", 5)

    with pytest.raises(HeadraceError, match=r"vanished before it was read") as failure:
        stream.run()
    assert "log_gap" == failure.value.code


def test_a_log_that_is_short_is_named(job: GapJob) -> None:
    """A log that is shorter than the driver saw fails the batch instead of ending it early."""
    stream = ByHand(job, batch_bytes=1 << 40)
    end = stream.next_end()
    job.lose("n3", 4)

    with pytest.raises(LogShortError, match="the logs end before"):
        stream.deliver(end)


def test_what_cannot_be_delivered_is_a_dead_letter(job: GapJob) -> None:
    """A failed record is kept with its bytes; with `errors.tolerance: none` the batch fails."""
    document = yaml.safe_load(job.path.read_text())
    document["sink"] |= {"transforms": "t", "transforms.t.type": "ValueToKey"}
    document["sink"]["transforms.t.fields"] = "nobody"
    job.path.write_text(yaml.safe_dump(document))
    stream = ByHand(job, batch_bytes=1 << 40)
    end = stream.next_end()
    stream.deliver(end)

    (file,) = (job.folder / "state.db.spark" / "orders" / "dead-letters").iterdir()
    lost = [json.loads(line) for line in file.read_text().splitlines()]
    assert {"quarantined"} == {each["kind"] for each in lost}
    document["sink"]["errors.tolerance"] = "none"
    job.path.write_text(yaml.safe_dump(document))
    with pytest.raises(NotToleratedError):
        stream.deliver(end)


@pytest.mark.parametrize(
    "options",
    [
        {"format": "sink"},
        {"job": "job.yaml", "format": "avro"},
        {"job": "job.yaml", "format": "sink", "batch_bytes": "0"},
        {"job": "job.yaml", "format": "sink", "token_range": "0:1"},
    ],
)
def test_options(options: Mapping[str, str], job: GapJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream without a job, and options that only a batch query has, are refused."""
    monkeypatch.chdir(job.folder)

    with pytest.raises(ConfigError, match=r"is required|of a stream|expected a number"):
        SegmentStream(options)


def test_a_stream_goes_to_the_sink_of_its_job(job: GapJob) -> None:
    """A stream into the sink of a job needs what its segments are as a stream."""
    target = SinkTarget({"job": str(job.path)})

    with pytest.raises(ConfigError, match="columns block, part, split are missing"):
        target.streamWriter(
            StructType([StructField(n, BinaryType()) for n in ("table", "key", "value")]),
            overwrite=False,
        )

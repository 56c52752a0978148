"""What a task does with a shard; the source of files stands for any source."""

import json
import time
from collections import deque
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.connector.replay import sending
from headrace.connector.replay.delivery import ShardReport, Target, deliver
from headrace.connector.replay.errors import DeliveryRefusedError
from headrace.connector.replay.planning import planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.sending import Sending
from headrace.connector.replay.shards import Shard, SourceSpec, batches, opened
from headrace.connector.serde import Encoder
from headrace.plugins import ConfigError, Encoding
from headrace.plugins.testing.doubles import (
    ChaosConfig,
    ChaosResult,
    ChaosSink,
    ChaosWriter,
    context,
)

ROWS = 30


class LateSink(ChaosSink):
    """Settles nothing before it is drained; `most` is the largest number of outstanding batches."""

    most = 0

    def open(self) -> ChaosWriter:
        """Return a writer."""
        return LateWriter(self)


class LateWriter(ChaosWriter):
    """Settles batches when it is drained."""

    def __init__(self, sink: LateSink) -> None:
        """Write for *sink*."""
        super().__init__(sink)
        self._late = sink

    def drain(self, deadline_ms: int) -> bool:
        """Count the outstanding batches, and settle them."""
        self._late.most = max(self._late.most, sum(len(d.encoded) for d, _ in self._late.held))
        self._late.let_go()
        return super().drain(deadline_ms)


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    """Return the only shard of a folder with one file of lines."""
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"id": number % 3, "n": number}) for number in range(ROWS)]
    (tmp_path / "in" / "orders.jsonl").write_text("".join(f"{line}\n" for line in lines))
    spec = SourceSpec(given={"plugin": "files", "path": "in/*.jsonl"}, directory=str(tmp_path))
    (made,) = planned(spec, Selection()).shards
    return made


def to_parquet(shard: Shard, folder: Path, run: str = "r1") -> ShardReport:
    """Deliver into Parquet files in JSON."""
    target = Target(directory=str(folder), path="out", format="json")
    return deliver(shard, target, run=run, attempt=1)


def test_parquet(shard: Shard, tmp_path: Path) -> None:
    """A shard becomes a file for each table; its row counts are returned."""
    report = to_parquet(shard, tmp_path)

    (file,) = (tmp_path / "out").rglob("*.parquet")
    rows = pq.read_table(file).to_pylist()
    assert (ROWS, ROWS, "") == (report.changes, report.delivered, report.problem)
    assert list(range(ROWS)) == [json.loads(row["value"])["n"] for row in rows]


def test_a_shard_that_is_done_again_replaces_its_files(shard: Shard, tmp_path: Path) -> None:
    """A repeated shard of a run replaces its rows; another run adds rows."""
    to_parquet(shard, tmp_path)
    to_parquet(shard, tmp_path)
    once = pq.read_table(tmp_path / "out").num_rows
    to_parquet(shard, tmp_path, run="r2")

    assert (ROWS, 2 * ROWS) == (once, pq.read_table(tmp_path / "out").num_rows)


def test_a_failed_shard_leaves_nothing(shard: Shard, tmp_path: Path) -> None:
    """A failed shard reports its error's name, and no part of its file is visible."""
    with (tmp_path / "in" / "orders.jsonl").open("a") as file:
        file.write("not JSON\n")
    (tmp_path / "out").write_text("in the way")

    report = to_parquet(shard, tmp_path)

    assert report.problem.startswith("target_unwritable: ")
    assert "in the way" == (tmp_path / "out").read_text()


def test_sink(shard: Shard, tmp_path: Path) -> None:
    """A replay can deliver into any sink."""
    target = Target(directory=str(tmp_path), sink={"plugin": "files", "path": "out.jsonl"})

    report = deliver(shard, target, run="r1", attempt=1)

    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert (ROWS, "") == (report.delivered, report.problem)
    assert list(range(ROWS)) == [json.loads(line)["n"] for line in lines]


def test_side_topics_need_topics(shard: Shard, tmp_path: Path) -> None:
    """A sink without topics has no side topics: a run must not write to its live target."""
    given = {"plugin": "files", "path": "out.jsonl"}
    target = Target(directory=str(tmp_path), sink=given, suffix=".replay")

    report = deliver(shard, target, run="r1", attempt=1)

    assert report.problem.startswith("config: --suffix: the job's sink has no topics")
    assert not (tmp_path / "out.jsonl").exists()


def test_missing_directory(shard: Shard, tmp_path: Path) -> None:
    """A machine without the job's folder gives an error that says so."""
    lost = SourceSpec(given=shard.source.given, directory=str(tmp_path / "nowhere"))

    with pytest.raises(ConfigError, match="on every machine"):
        planned(lost, Selection())


def test_the_rate_is_kept(shard: Shard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task waits after each second's worth of changes, so that it never exceeds its rate."""
    slept: list[float] = []
    monkeypatch.setattr(time, "monotonic", lambda: sum(slept))
    monkeypatch.setattr(time, "sleep", slept.append)
    target = Target(directory=str(tmp_path), path="out", format="json", rate=4)
    report = deliver(shard, target, run="r1", attempt=1)

    assert ("", ROWS) == (report.problem, report.delivered)
    assert ROWS / 4 == sum(slept)
    assert 1 >= max(slept)


def test_a_target_is_begun_with_the_first_rows(
    shard: Shard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be written fails the first batch, not the end of a long shard."""
    begun: list[bool] = []
    out = tmp_path / "out"
    monkeypatch.setattr(time, "sleep", lambda _: begun.append(any(out.rglob("*.part"))))
    target = Target(directory=str(tmp_path), path="out", format="json", rate=4)
    report = deliver(shard, target, run="r1", attempt=1)

    assert ("", ROWS) == (report.problem, report.delivered)
    assert begun
    assert all(begun)


@pytest.mark.parametrize("fate", [ChaosResult.MISCOUNT, ChaosResult.CONFUSE])
def test_a_delivery_with_an_invalid_result_is_sent_again(shard: Shard, fate: ChaosResult) -> None:
    """As a whole, a few times; then the shard fails, and the error has the numbers."""
    script = deque([fate])
    sink = ChaosSink(ChaosConfig(script=script), context())
    outlet = Sending(sink, Encoder(Encoding(codec="json")))
    with opened(shard) as source:
        for batch in batches(source, shard, records_max=ROWS):
            outlet.take(outlet.encode(batch), batch)
    outlet.finish()
    again = len(sink.written)
    script.extend([fate] * sending.TRIES_MAX)
    with opened(shard) as source:
        for batch in batches(source, shard, records_max=ROWS):
            outlet.take(outlet.encode(batch), batch)

    assert 2 * ROWS == again
    with pytest.raises(DeliveryRefusedError, match=rf"1 missing \(first: {ROWS - 1}\)"):
        outlet.finish()


def test_what_is_outstanding_is_bounded(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    """N05: a sink that settles late holds at most one batch beyond the bound, in any shard."""
    monkeypatch.setattr(sending, "OUTSTANDING_RECORDS_MAX", 6)
    sink = LateSink(ChaosConfig(script=deque([ChaosResult.HOLD] * ROWS)), context())
    outlet = Sending(sink, Encoder(Encoding(codec="json")))

    with opened(shard) as source:
        for batch in batches(source, shard, records_max=2):
            outlet.take(outlet.encode(batch), batch)
    outlet.finish()

    assert (8, ROWS) == (sink.most, len(sink.written))

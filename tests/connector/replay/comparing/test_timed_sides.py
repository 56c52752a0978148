"""What a comparison sends to a collector, and says in a file, of the parts that it read."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from headrace.connector.replay.comparing.bucket_sums import Comparison, TopicSide
from headrace.connector.replay.comparing.timed_sides import gathering
from headrace.connector.replay.engine import gather_here
from headrace.connector.replay.run_metrics import CompareMeasures
from headrace.connector.replay.selection import Selection
from headrace.plugins import NO_ORIGIN
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.logs.gap_jobs import GapJob
from helpers.servers.collector import Collector, attributes, collecting

if TYPE_CHECKING:
    from headrace.plugins.telemetry.spans import WorkTrace

ROWS = 40
OPTIONS = ("--no-table", "--grace=0", "--master=none")


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """Return a broker of the test's own."""
    made = EmbeddedBroker()
    yield made
    del made


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def read(spans: Sequence[Span], side: str) -> list[int]:
    """Return how many records were read of each part of a side."""
    reported = [attributes(span.attributes) for span in spans]
    return [int(str(t["headrace.records"])) for t in reported if t["headrace.side"] == side]


def counted(collector: Collector, name: str) -> dict[object, float]:
    """Return the last value of a counter, by side."""
    points = collector.newest()[name].sum.data_points
    return {attributes(p.attributes)["side"]: p.as_double for p in points}


def job_into(folder: Path, broker: EmbeddedBroker, collector: Collector) -> GapJob:
    """Return a job whose changes are in the topic `t`, and that names a collector."""
    job = GapJob(folder)
    job.log(1, range(ROWS))
    sink = {"plugin": "kafka", "bootstrap.servers": broker.bootstrap_servers, "topic": "t"}
    job.deliver(sink, {})
    assert 0 == job.run()
    job.trace(collector.url)
    return job


def test_reconcile_is_sent(tmp_path: Path, broker: EmbeddedBroker) -> None:
    """There is a span of each shard of the logs and each part of the topic, and their counts."""
    place = tmp_path / "compared.prom"
    with collecting() as collector:
        job = job_into(tmp_path, broker, collector)
        report = f"--report={tmp_path / 'report'}"
        assert 0 == job.call("reconcile", *OPTIONS, report, f"--metrics-file={place}")
        spans = collector.spans()
        parts = counted(collector, "headrace_compared_parts_total")
        records = counted(collector, "headrace_compared_records_total")

    logs, topic = read(spans, "logs"), read(spans, "topic")
    assert [ROWS, ROWS] == [sum(logs), sum(topic)]
    assert {"logs": len(logs), "topic": len(topic)} == parts
    assert {"logs": ROWS, "topic": ROWS} == records
    assert {("compare", 0)} == {(span.name, span.status.code) for span in spans}
    assert all(0 < span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)
    assert len(spans) == len({str(attributes(s.attributes)["headrace.part"]) for s in spans})
    shown = f'headrace_compared_records_total{{job="orders",side="topic"}} {ROWS}.0'
    assert shown in place.read_text()


def test_a_part_that_fails_is_traced() -> None:
    """The trace of a part that cannot be read has the code of the error, and no records."""
    traces: list[WorkTrace] = []
    measures = CompareMeasures("r1", trace=traces.append)
    comparison = Comparison(
        sink={"plugin": "nowhere"},
        origin=NO_ORIGIN,
        directory="/",
        buckets=4,
        selection=Selection(),
    )

    (report,) = gathering(gather_here, measures)([TopicSide("t:0", comparison, {})])

    (trace,) = traces
    assert report.problem.startswith(f"{trace.problem}: ")
    assert ("compare", "t:0", 0) == (
        trace.name,
        trace.attributes["headrace.part"],
        trace.attributes["headrace.records"],
    )


@pytest.mark.parametrize("target", ["files", "topic"])
def test_verify_is_sent(
    tmp_path: Path, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    """There is a span of each shard whose files, or messages, were compared with the logs."""
    with collecting() as collector:
        job = job_into(tmp_path, broker, collector)
        into = ("--to-folder", "out") if target == "files" else ()
        capsys.readouterr()
        assert 0 == job.replay("plan", "--json", "--accept-gaps", "--shards", "3", *into)
        run = json.loads(capsys.readouterr().out)["run"]
        assert 0 == job.replay("run", run, "--master", "none")
        assert 0 == job.replay("verify", run, "--master", "none")
        spans = [span for span in collector.spans() if span.name == "compare"]
        records = counted(collector, "headrace_compared_records_total")

    assert {run} == {attributes(span.attributes)["headrace.run"] for span in spans}
    assert ROWS == sum(read(spans, target)) == records[target]
    assert 3 == len(read(spans, "files" if target == "files" else "logs"))

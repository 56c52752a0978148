"""Metrics of bulk work: in a file, and over HTTP while it runs."""

import json
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.connector.control.jobs import job_text
from headrace.connector.replay.delivery import ShardReport
from headrace.connector.replay.options import Metered
from headrace.connector.replay.run_metrics import RunMeasures, telling
from headrace.connector.replay.runs import ShardState
from helpers.logs.gap_jobs import GapJob
from helpers.servers.collector import attributes, collecting
from helpers.servers.ports import free_port

Samples = dict[tuple[str, ...], float]


def samples(text: str) -> Samples:
    """Return the samples of a text, by name and labels."""
    return {
        (each.name, *(v for k, v in sorted(each.labels.items()) if k != "job")): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def test_a_run_writes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file has the number of shards by state, and the number of changes."""
    job, place = GapJob(tmp_path), tmp_path / "run.prom"
    job.log(1, range(30))
    assert 0 == job.replay("plan", "--json", "--accept-gaps", "--shards", "3", "--to-folder", "out")
    run = json.loads(capsys.readouterr().out)["run"]
    more = ("--master", "none", "--metrics-file", str(place))
    assert 0 == job.replay("run", run, *more)

    found = samples(place.read_text())
    assert 3 == found["headrace_run_shards", run, "PASS"]
    assert 30 == found["headrace_run_changes_total", "delivered", run]
    assert 0 == found["headrace_run_shards", run, "STARTED"]
    assert 0 < found["headrace_run_cpu_seconds_total", run]
    assert [place] == list(tmp_path.glob("*run.prom*"))


def test_a_run_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job with a collector sends it a span of each shard, and the last metrics of the run."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    job = GapJob(tmp_path)
    job.log(1, range(30))
    with collecting() as collector:
        job.trace(collector.url)
        plan = ("--json", "--accept-gaps", "--shards", "3", "--to-folder", "out")
        assert 0 == job.replay("plan", *plan)
        run = json.loads(capsys.readouterr().out)["run"]
        assert 0 == job.replay("run", run, "--master", "none")
        found = [attributes(span.attributes) for span in collector.spans()]
        counted = collector.newest()["headrace_run_changes_total"].sum.data_points

    assert {("orders", run)} == {(each["headrace.job"], each["headrace.run"]) for each in found}
    assert [1, 2, 3] == sorted(int(str(each["headrace.shard"])) for each in found)
    assert 30 == sum(int(str(each["headrace.records"])) for each in found)
    assert [30] == [point.as_double for point in counted]


def test_catching_up_writes_a_file(tmp_path: Path) -> None:
    """The file has what was committed of each split."""
    job, place = GapJob(tmp_path), tmp_path / "lag.prom"
    job.log(1, range(10))
    assert 0 == job.run()
    job.log(2, range(10, 40))
    more = ("--master", "none", "--lag-bytes", "0", "--metrics-file", str(place))
    assert 0 == job.replay("catch-up", *more)

    found = samples(place.read_text())
    changes = [found["headrace_catch_up_changes_total", split] for split in ("1-of-2", "2-of-2")]
    assert 30 == sum(changes)
    assert 1 == found["headrace_catch_up_chunks_total", "1-of-2"]


def test_served_while_it_runs(tmp_path: Path) -> None:
    """The same metrics are served until the work ends."""
    metrics, port = RunMeasures("r1"), free_port()
    given = Metered(metrics=f"127.0.0.1:{port}")
    job = GapJob(tmp_path)
    with telling(given, job_text(job.path), metrics):
        metrics.step({ShardState.PASS: 2}, ShardReport(number=1, delivered=7, size_bytes=70))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()

    assert 'job="orders"' in text
    found = samples(text)
    assert (2, 7) == (
        found["headrace_run_shards", "r1", "PASS"],
        found["headrace_run_changes_total", "delivered", "r1"],
    )


@pytest.mark.parametrize(
    "option", [("--metrics", "10.0.0.1:9404"), ("--metrics-file", "/nowhere/at/all.prom")]
)
def test_what_cannot_be_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, str]
) -> None:
    """An address that other machines can reach, and a file that cannot be written, are refused."""
    job = GapJob(tmp_path)
    job.log(1, range(1))
    assert 0 == job.run()

    assert 2 == job.replay("catch-up", "--master", "none", *option)
    assert f"{option[0]}: " in capsys.readouterr().err

"""OTLP: the spans of batches and the measures of a job, as a collector gets them."""

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from structlog.testing import capture_logs

from headrace.connector.hosting.host import Host
from headrace.plugins import ConfigError
from headrace.plugins.metrics import Measure, Passed, counter
from headrace.plugins.telemetry import OtelMissingError, otlp
from headrace.plugins.testing.doubles import context
from helpers.jobs.children import until
from helpers.jobs.live_worker import running
from helpers.servers.collector import Collector, attributes, collecting

CHANGES = 30
STEPS = ["read", "encode", "deliver", "commit"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def job_file(**runtime: object) -> Path:
    """Return the job file of a file with so many changes, in batches of 7."""
    lines = [json.dumps({"table": "ks.t", "key": {"id": n}, "n": n}) for n in range(CHANGES)]
    Path("in.jsonl").write_text("\n".join(lines) + "\n")
    document = {
        "job": "lines",
        "state": "state.db",
        "source": {"plugin": "files", "path": "in.jsonl"},
        "sink": {"plugin": "files", "path": "out.jsonl"},
        "runtime": {"batch_records_max": 7, "commit_max_seconds": 0.05, **runtime},
    }
    Path("job.yaml").write_text(yaml.safe_dump(document))
    return Path("job.yaml")


def delivered(collector: Collector) -> float:
    """Return how many changes were delivered, by the last metrics."""
    metric = collector.newest().get("headrace_changes_total")
    points = [] if metric is None else metric.sum.data_points
    found = [p for p in points if attributes(p.attributes)["fate"] == "delivered"]
    return sum(float(point.as_double or point.as_int) for point in found)


def test_a_job_is_traced() -> None:
    """A collector gets a span of each batch with its steps, and the counters of the books."""
    with collecting() as collector:
        job = job_file(**{"otel.endpoint": collector.url, "otel.every_seconds": 0.1})
        with running(job):
            until(lambda: delivered(collector) == CHANGES, "the changes were not counted")
            metrics = collector.newest()
        spans = collector.spans()

    assert [] == senders()
    whole = [span for span in spans if not span.parent_span_id]
    batches = [attributes(span.attributes) for span in whole]
    assert {"batch"} == {span.name for span in whole}
    assert CHANGES == sum(int(str(each["headrace.records"])) for each in batches)
    assert all(int(str(each["headrace.records"])) <= 7 for each in batches)
    assert {("lines", 1)} == {(e["headrace.job"], e["headrace.attempts"]) for e in batches}
    assert len(whole) == len({each["headrace.batch"] for each in batches})
    for span in whole:
        steps = [each for each in spans if each.parent_span_id == span.span_id]
        assert STEPS == [each.name for each in steps]
        assert {span.trace_id} == {each.trace_id for each in steps}
        ends = [span.start_time_unix_nano, *(each.end_time_unix_nano for each in steps)]
        assert ends == [*(each.start_time_unix_nano for each in steps), span.end_time_unix_nano]
        assert sorted(ends) == ends
    assert len(spans) == len(whole) * (1 + len(STEPS))
    changes = metrics["headrace_changes_total"].sum
    assert changes.is_monotonic
    assert {"lines"} == {attributes(p.attributes)["job"] for p in changes.data_points}
    publish = metrics["headrace_publish_seconds"].histogram.data_points[0]
    assert 0 < publish.count == sum(publish.bucket_counts) <= len(whole)


def test_a_short_run_sends_what_it_counted() -> None:
    """The last sending has the counters of splits that have ended, and the latest position."""
    with collecting() as collector:
        job = job_file(**{"otel.endpoint": collector.url, "otel.every_seconds": 60})
        Host(job, log=structlog.stdlib.get_logger()).run(until_idle=True)

        assert 1 == len(collector.metrics)
        assert CHANGES == delivered(collector)
        places = collector.newest()["headrace_committed_position"].gauge.data_points
        assert Path("in.jsonl").stat().st_size in {each.as_int for each in places}


def test_metrics_come_again() -> None:
    """Metrics are sent each `otel.every_seconds`, each time as of then."""
    with collecting() as collector:

        def times() -> list[int]:
            metrics = [
                metric
                for request in list(collector.metrics)
                for metric in request.resource_metrics[0].scope_metrics[0].metrics
            ]
            return [
                metric.sum.data_points[0].time_unix_nano
                for metric in metrics
                if metric.name == "headrace_changes_total" and metric.sum.data_points
            ]

        job = job_file(**{"otel.endpoint": collector.url, "otel.every_seconds": 0.1})
        with running(job):
            until(lambda: len(times()) >= 3, "there were fewer than three")
        assert sorted(set(times())) == times()


@pytest.mark.parametrize("listens", [False, True], ids=["refuses", "is_silent"])
def test_an_endpoint_that_does_not_answer_harms_nothing(
    listens: bool,  # noqa: FBT001 (a case)
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A job delivers all meanwhile, ends in time, and says once that something was not sent."""
    monkeypatch.setattr(otlp, "SEND_SECONDS_MAX", 0.2)
    monkeypatch.setattr(otlp, "CLOSE_SECONDS_MAX", 2.0)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        url = f"http://user:hidden@127.0.0.1:{server.getsockname()[1]}"
        job = job_file(**{"otel.endpoint": url, "otel.every_seconds": 0.1})
        with capture_logs() as logs, running(job):
            until(lambda: has_warned(logs), "nothing was said")
            until(lambda: out().count("\n") == CHANGES, "it was not delivered")

    events = [each["event"] for each in logs]
    assert (1, 1) == (events.count("otlp_not_sent"), events.count("stopped"))
    assert "hidden" not in str(logs)
    assert [] == [each for each in caplog.records if each.name.startswith("opentelemetry")]


def has_warned(logs: list[MutableMapping[str, Any]]) -> bool:
    """Say whether the warning is in *logs*."""
    return any(each["event"] == "otlp_not_sent" for each in list(logs))


def out() -> str:
    """Return what the sink wrote."""
    return Path("out.jsonl").read_text() if Path("out.jsonl").exists() else ""


def senders() -> list[threading.Thread]:
    """Return the threads that send."""
    return [each for each in threading.enumerate() if each.name == "otlp"]


def sender_to(
    url: str, measures: Callable[[], Iterable[Measure]] = tuple[Measure, ...]
) -> otlp.OtlpSender:
    """Return a sender that sends only at its end."""
    return otlp.OtlpSender(
        url,
        3600,
        measures=measures,
        labels={"job": "j"},
        instance="w",
        stages=("written", "durable", "framed"),
        clock=context().clock,
        log=context().log,
    )


def test_measures_of_one_name_are_one_metric() -> None:
    """What several runs count under one name goes into one metric, without counters of 0."""
    with collecting() as collector:
        runs = [("a", 1.0), ("b", 0.0), ("c", 2.0)]
        reported = [counter("n_total", "It counts.", [({"run": run}, n)]) for run, n in runs]
        sender_to(collector.url, lambda: reported).close()
        points = collector.newest()["n_total"].sum.data_points

    found = [(attributes(each.attributes), each.as_double) for each in points]
    assert [({"job": "j", "run": "a"}, 1.0), ({"job": "j", "run": "c"}, 2.0)] == found


def test_the_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hangs while it is asked for measures does not keep the run from its end."""
    monkeypatch.setattr(otlp, "CLOSE_SECONDS_MAX", 0.01)
    released = threading.Event()

    def hang() -> Iterable[Measure]:
        released.wait(20)
        return ()

    sender_to("http://127.0.0.1:4318", hang).close()
    hanging = senders()
    released.set()
    for each in hanging:
        each.join()

    assert 1 == len(hanging)


def test_stages_are_events_and_the_oldest_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stages of a source are events of its batch; what waits is bounded."""
    monkeypatch.setattr(otlp, "BATCHES_MAX", 8)
    with collecting() as collector:
        sender = sender_to(collector.url)
        trail = sender.trail("s")
        for seq in range(10):
            trail.added(seq, 1, 1, [Passed(1, (1_000, None, 2_000.5))])
            trail.settled(seq, 1, 2, 3)
        trail.committed(9, 4)
        sender.close()
        whole = [span for span in collector.spans() if span.name == "batch"]

    assert [*range(2, 10)] == [attributes(span.attributes)["headrace.batch"] for span in whole]
    stages = [(each.name, each.time_unix_nano) for each in whole[0].events]
    assert [("written", 1_000_000_000), ("framed", 2_000_500_000)] == stages


def test_a_wrong_url_is_refused() -> None:
    """The endpoint is a URL of HTTP; what was given is not repeated, it may hold a password."""
    job = job_file(**{"otel.endpoint": "grpc://user:hidden@x"})

    with pytest.raises(ConfigError, match="is not a URL of HTTP") as refused:
        Host(job, log=context().log).run(until_idle=True)

    assert "hidden" not in str(refused.value)


def test_without_the_extra_the_hint_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that asks for OTLP without its packages ends with a named error."""
    monkeypatch.delitem(sys.modules, "headrace.plugins.telemetry.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    job = job_file(**{"otel.endpoint": "http://127.0.0.1:4318"})

    with pytest.raises(OtelMissingError, match=r"\[otel\]"):
        Host(job, log=context().log).run(until_idle=True)

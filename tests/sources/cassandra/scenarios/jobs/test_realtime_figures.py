"""What IEP-104 asks a realtime job to log and to count is there while one runs.

Brokers go away until the buffer is full and the mode changes, and come back.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import structlog
from structlog.testing import CapturingLogger

from headrace.plugins.metrics import STAGE_SECONDS
from helpers.jobs.children import until
from helpers.logs.live_log import LiveLog
from helpers.servers.kafka_clients import way
from helpers.servers.mock_cluster import MockCluster
from helpers.servers.scraped import Samples, asked, one, running
from helpers.settings.native_modules import ROOT

__all__ = ["way"]

pytestmark = [
    pytest.mark.usefixtures("way"),
    pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux"),
]

BUFFER_BYTES = 20_000
FIRST, LATER, ROUNDS = 10, 20, 20
ALL = FIRST + LATER * ROUNDS

# What IEP-104 wants in the log: our event, and what that says.
EVENTS = {
    "initialization (amount of records read during the restore)": (
        "realtime_started",
        {"records", "size_bytes"},
    ),
    "buffer is full": ("realtime_buffer_full", {"buffered_bytes", "capacity_bytes"}),
    "switch between modes": ("mode_changed", {"before", "after", "reason"}),
    "failure": ("split_failed", {"error_code", "error"}),
    "clearing cdc dir": ("segments_disposed", {"cdc_raw", "segments", "size_bytes", "newest"}),
}

# What it wants as metrics, and what we have besides: our metric, its labels, and whether the
# largest sum of such samples while the job runs is right.
METRICS: Mapping[str, tuple[str, Mapping[str, str], Callable[[float], bool]]] = {
    "count of wal segments": ("headrace_log_segments_total", {}, lambda n: n > ROUNDS),
    "count of wal entries": ("headrace_entries_total", {"fate": "first"}, lambda n: n == ALL),
    "current buffer size": ("headrace_realtime_buffer_bytes", {}, lambda n: n >= BUFFER_BYTES),
    "capacity": ("headrace_realtime_buffer_capacity_bytes", {}, lambda n: n == BUFFER_BYTES),
    "overflows": ("headrace_realtime_overflows_total", {}, lambda n: n >= 1),
    "mode of CDC: realtime": ("headrace_mode", {"mode": "realtime"}, lambda n: n == 1),
    "mode of CDC: log": ("headrace_mode", {"mode": "log"}, lambda n: n == 1),
    "mode switches": ("headrace_mode_changes_total", {"reason": "buffer_full"}, lambda n: n >= 1),
    "lag between buffer and WAL archive (segments)": (
        "headrace_unread_segments",
        {"node": "node"},
        lambda n: 1 < n <= ROUNDS,
    ),
    "lag between WAL and CDC consumer (milliseconds)": (
        "headrace_lag_seconds",
        {},
        lambda seconds: 0 < seconds < 600,
    ),
    "current state": ("headrace_split_state", {"state": "RUNNING"}, lambda n: n >= 1),
    **{
        f"stage {step}": ("headrace_stage_seconds_count", {"stage": step}, lambda n: n == ALL)
        for step in (
            "written_to_durable",
            "durable_to_framed",
            "framed_to_agreed",
            "agreed_to_acknowledged",
        )
    },
}


def job_of(folder: Path, log: LiveLog, servers: str, **options: object) -> Path:
    """Write the job file of a realtime job over *log*."""
    realtime = {
        "mode": "realtime",
        "realtime.buffer_bytes": BUFFER_BYTES,
        "realtime.return_after_seconds": 0.5,
        "disposal": "delete",
    }
    job = {
        "job": "job",
        "state": str(folder / "state.db"),
        "source": {"plugin": "cassandra", **log.source(**realtime | options)},
        "sink": {
            "plugin": "kafka",
            "bootstrap.servers": servers,
            "topic": "changes",
            "format": "json",
            "reconnect.backoff.max.ms": 100,
        },
        "runtime": {"commit_max_seconds": 0.1},
    }
    (folder / "job.yaml").write_text(json.dumps(job))
    return folder / "job.yaml"


def events_of(reported: CapturingLogger) -> Sequence[Mapping[str, object]]:
    """Return the events so far."""
    return [call.kwargs for call in reported.calls if call.kwargs]


def largest(scrapes: Sequence[Samples], name: str, labels: Mapping[str, str]) -> float:
    """Return the largest sum that a scrape has of these samples, -1 where there are none."""
    return max((one(found, name, **labels) for found in scrapes if name in found), default=-1)


def check_histogram(found: Samples) -> None:
    """Check that the buckets of each stage are cumulative, and the last one is the count."""
    bounds = [*map(str, STAGE_SECONDS), "+Inf"]
    for labels, count in found["headrace_stage_seconds_count"]:
        assert {"job", "stage"} == labels.keys()
        own = [
            s for s in found["headrace_stage_seconds_bucket"] if s[0]["stage"] == labels["stage"]
        ]
        assert bounds == [each["le"] for each, _ in own]
        values = [value for _, value in own]
        assert sorted(values) == values
        assert count == values[-1]
        assert one(found, "headrace_stage_seconds_sum", stage=labels["stage"]) >= 0


def test_what_iep_104_lists_is_reported(tmp_path: Path) -> None:
    """Each metric has the value that the run gives it, and each event comes with its fields."""
    log, reported, scrapes = LiveLog(tmp_path / "node"), CapturingLogger(), list[Samples]()
    bound = structlog.wrap_logger(reported, processors=[lambda _, __, event: event])
    with MockCluster() as cluster:
        job = job_of(tmp_path, log, cluster.bootstrap_servers)
        log.append(FIRST)
        log.sync()
        with running(job, bound) as metrics:

            def seen(condition: Callable[[Samples], bool]) -> Callable[[], bool]:
                def is_seen() -> bool:
                    scrapes.append(asked(metrics.port))
                    return condition(scrapes[-1])

                return is_seen

            def has(count: int) -> Callable[[], bool]:
                return seen(lambda s: one(s, "headrace_changes_total", fate="delivered") >= count)

            until(has(FIRST), "nothing was delivered")
            cluster.down()
            for _ in range(ROUNDS):
                log.append(LATER)
                log.sync(rolls=True)
            fell = seen(lambda s: one(s, "headrace_mode_changes_total", after="log") > 0)
            until(fell, "it did not fall back")
            cluster.up()
            until(has(ALL), "not all was delivered")
            returned = seen(lambda s: one(s, "headrace_mode", mode="realtime") > 0)
            until(returned, "it did not return")
            until(seen(lambda s: one(s, "headrace_unread_segments") == 0), "something is unread")
            end = scrapes[-1]

    wrong = {
        asked_for: value
        for asked_for, (name, labels, is_right) in METRICS.items()
        if not is_right(value := largest(scrapes, name, labels))
    }
    assert {} == wrong
    check_histogram(end)
    events = {str(each["event"]): each.keys() for each in events_of(reported)}
    for name, fields in EVENTS.values():
        assert name == "split_failed" or fields <= events[name]
    # The last committed place: of the last change, or the end of its segment.
    segment_id, position = log.places[-1]
    committed = "headrace_committed_position"
    assert segment_id <= one(end, committed, node="node", of="segment_id")
    assert position <= one(end, committed, of="position") or segment_id < one(
        end, committed, of="segment_id"
    )
    assert all(0 <= value <= 2 for _, value in end["headrace_lag_seconds"])


def test_a_failure_is_reported(tmp_path: Path) -> None:
    """With `realtime.on_overflow: fail` the event of the failure says what it was."""
    log, reported = LiveLog(tmp_path / "node"), CapturingLogger()
    bound = structlog.wrap_logger(reported, processors=[lambda _, __, event: event])

    def failed() -> Sequence[Mapping[str, object]]:
        return [each for each in events_of(reported) if each["event"] == "split_failed"]

    with MockCluster() as cluster:
        options = {"realtime.on_overflow": "fail"}
        job = job_of(tmp_path, log, cluster.bootstrap_servers, **options)
        log.append(FIRST)
        log.sync()
        with running(job, bound) as metrics:
            until(lambda: one(asked(metrics.port), "headrace_changes_total") > 0, "it did not run")
            cluster.down()
            for _ in range(ROUNDS):
                log.append(LATER)
                log.sync()
            until(lambda: bool(failed()), "it did not fail")

    name, fields = EVENTS["failure"]
    assert name == failed()[0]["event"]
    assert fields <= failed()[0].keys()
    assert "realtime_buffer_full" == failed()[0]["error_code"]


def test_what_iep_104_lists_is_documented() -> None:
    """Each metric has a row in its page, and each event one in the operator's."""
    metrics = (ROOT / "docs" / "metrics.md").read_text()
    events = (ROOT / "docs" / "operations.md").read_text()
    rows = set(re.findall(r"`(headrace_\w+)`", metrics))
    wanted = {name.removesuffix("_count") for name, _, _ in METRICS.values()}
    assert set() == wanted - rows
    for name, _ in EVENTS.values():
        assert f"`{name}`" in events

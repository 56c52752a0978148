"""A job in mode realtime whose brokers go away: it falls back, and returns by itself."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from structlog.testing import CapturingLogger

from helpers.jobs.children import until
from helpers.jobs.live_worker import delivered, working
from helpers.logs.live_log import LiveLog
from helpers.servers.kafka_clients import way
from helpers.servers.mock_cluster import MockCluster

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["way"]

pytestmark = [
    pytest.mark.usefixtures("way"),
    pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux"),
]


def test_brokers_that_go_away_and_come_back(tmp_path: Path) -> None:
    """The mode is log once the buffer is full; all is delivered, and it is realtime again."""
    log, reported = LiveLog(tmp_path / "node"), CapturingLogger()
    realtime = {
        "mode": "realtime",
        "realtime.buffer_bytes": 20_000,
        "realtime.return_after_seconds": 0.5,
    }

    def changed() -> list[tuple[str, str]]:
        found: list[Mapping[str, str]] = [call.kwargs for call in reported.calls if call.kwargs]
        named = [each for each in found if each.get("event") == "mode_changed"]
        return [(each["after"], each["reason"]) for each in named]

    def has(count: int) -> bool:
        return delivered(tmp_path / "state.db", "job") >= count

    with MockCluster() as cluster:
        job = {
            "job": "job",
            "state": str(tmp_path / "state.db"),
            "source": {"plugin": "cassandra", **log.source(**realtime)},
            "sink": {
                "plugin": "kafka",
                "bootstrap.servers": cluster.bootstrap_servers,
                "topic": "changes",
                "format": "json",
                "reconnect.backoff.max.ms": 100,
            },
            "runtime": {"commit_max_seconds": 0.1},
        }
        (tmp_path / "job.yaml").write_text(json.dumps(job))
        log.append(10)
        log.sync()
        bound = structlog.wrap_logger(reported, processors=[lambda _, __, event: event])
        with working(tmp_path / "job.yaml", bound):
            until(lambda: has(10), "nothing was delivered")
            assert [("realtime", "started")] == changed()
            cluster.down()
            for _ in range(20):
                log.append(20)
                log.sync()
            until(lambda: ("log", "buffer_full") in changed(), "it did not fall back")
            cluster.up()
            until(lambda: has(410), "not all was delivered")
            until(lambda: ("realtime", "backlog_is_small") == changed()[-1], "it did not return")

"""The agent's process and its place behind the node's."""

import json
import os
import platform
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.plugins import ConfigError
from headrace.sources.cassandra.agent import command
from headrace.sources.cassandra.agent.command import NICE
from headrace.sources.cassandra.agent.protocol import SEGMENTS_PATH
from helpers.jobs.children import RUN, next_line, until
from helpers.servers.collector import Collector, attributes, collecting
from helpers.servers.rest_server import Client

IOPRIO_GET = {"x86_64": 252, "aarch64": 31}
IDLE = "3"
PROGRAM = """
import ctypes, os, sys, threading
from headrace.sources.cassandra.agent.command import go_behind

def tell():
    print(os.nice(0), ctypes.CDLL(None).syscall(int(sys.argv[1]), 1, 0) >> 13)

go_behind()
tell()
other = threading.Thread(target=tell)
other.start()
other.join()
"""


@pytest.mark.skipif(platform.machine() not in IOPRIO_GET, reason="Linux has other numbers there")
def test_the_node_goes_first() -> None:
    """All its threads are nice, and have the disk when no one else wants it."""
    number = str(IOPRIO_GET[platform.machine()])
    reported = subprocess.run(  # noqa: S603 (ourselves)
        [sys.executable, "-c", PROGRAM, number], capture_output=True, text=True, check=True
    ).stdout

    expected = f"{min(os.nice(0) + NICE, 19)} {IDLE}\n"
    assert expected * 2 == reported


def requests_in(collector: Collector) -> dict[object, float]:
    """Return the numbers of requests by status, as they were sent last."""
    metric = collector.newest().get("headrace_agent_requests_total")
    points = metric.sum.data_points if metric else ()
    return {attributes(each.attributes)["status"]: each.as_int or each.as_double for each in points}


def test_it_sends_its_metrics(tmp_path: Path) -> None:
    """A collector gets the agent's metrics again and again, the requests by status among them."""
    (tmp_path / "cdc_raw").mkdir()
    with collecting() as collector:
        child = subprocess.Popen(  # noqa: S603 (headrace itself)
            [
                *(sys.executable, "-c", RUN, "agent", "--cdc-raw", str(tmp_path / "cdc_raw")),
                *("--listen", "127.0.0.1:0", "--otel-endpoint", collector.url),
                *("--otel-every-seconds", "0.1"),
            ],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"NO_PROXY": "127.0.0.1"},
        )
        try:
            port = json.loads(next_line(child, "stderr", holding="agent_started"))["port"]
            ask = Client(port)
            assert [200, 404] == [ask("GET", each).status for each in (SEGMENTS_PATH, "/nowhere")]
            until(lambda: len(requests_in(collector)) == 2, "the requests were not counted")
            until(lambda: len(collector.of_all("headrace_agent_sent_bytes_total")) > 3, "too few")
            child.terminate()
            assert 0 == child.wait(180)
        finally:
            child.kill()
            child.communicate()

    assert {"200": 1, "404": 1} == requests_in(collector)
    points = collector.of_all("headrace_agent_sent_bytes_total")
    times_ns = [each.time_unix_nano for each in points]
    assert min(b - a for a, b in pairwise(times_ns)) < 5 * 10**9


def test_a_wrong_collector_is_found_before_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endpoint that is not a URL ends the agent before a reader could reach it."""
    (tmp_path / "cdc_raw").mkdir()
    monkeypatch.setattr(command, "go_behind", lambda: pytest.fail("it went on"))
    with pytest.raises(ConfigError, match="otel_endpoint: is not a URL"):
        command.main(["--cdc-raw", str(tmp_path / "cdc_raw"), "--otel-endpoint", "collector:4318"])

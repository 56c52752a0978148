"""A broker that is slow or gone costs memory up to the bound, and no more."""

import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.plugins.testing.doubles import context
from helpers.jobs.children import until
from helpers.jobs.live_worker import delivered, working
from helpers.servers.mock_cluster import MockCluster

pytestmark = pytest.mark.usefixtures("way")

LINES = 200_000
LINE = json.dumps({"text": "x" * 500}) + "\n"  # 100 MB in all.
GROWTH_BYTES_MAX = 50_000_000
WINDOW_BYTES = 2_000_000
WINDOW_LINES = WINDOW_BYTES // len(LINE)


@dataclass
class Slow:
    """A worker in this process, and the cluster that it writes to."""

    cluster: MockCluster
    folder: Path

    def delivered(self) -> int:
        """Return how many lines are delivered, by the committed books."""
        return delivered(self.folder / "state.db", "lines")

    def running(self) -> AbstractContextManager[None]:
        """Run the worker on a thread."""
        return working(self.folder / "job.yaml", context().log)


def resident_bytes() -> int:
    """Return what this process has in memory."""
    status = Path("/proc/self/status").read_text()
    (kilobytes,) = re.findall(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kilobytes) * 1024


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Slow]:
    """Return a job over much more than may be in memory."""
    (tmp_path / "in.jsonl").write_text(LINE * LINES)
    with MockCluster() as cluster:
        job = {
            "job": "lines",
            "state": str(tmp_path / "state.db"),
            "source": {"plugin": "files", "path": str(tmp_path / "in.jsonl")},
            "sink": {
                "plugin": "kafka",
                "bootstrap.servers": cluster.bootstrap_servers,
                "topic": "slow",
                "format": "json",
                "reconnect.backoff.max.ms": 100,
            },
            "runtime": {
                "outstanding_bytes_max": WINDOW_BYTES,
                "commit_max_bytes": WINDOW_BYTES,
                "tick_min_ms": 5,
            },
        }
        (tmp_path / "job.yaml").write_text(json.dumps(job))
        yield Slow(cluster, tmp_path)


def test_a_broker_that_is_gone_stops_the_reading(slow: Slow) -> None:
    """K06: the worker reads its bound and waits; when the broker is back, the rest follows."""
    before = resident_bytes()
    with slow.running():
        until(lambda: slow.delivered() > 0, "nothing was delivered")
        slow.cluster.down()
        seen = [-1, -1, slow.delivered()]
        until(lambda: _settled(seen, slow.delivered()), "it never stood still")
        standing = slow.delivered()
        growth = resident_bytes() - before
        slow.cluster.up()
        until(lambda: slow.delivered() > standing, "nothing followed")

    assert standing < LINES
    assert growth < GROWTH_BYTES_MAX


def test_a_slow_broker_is_not_outrun(slow: Slow) -> None:
    """K06: what is read keeps to the broker's pace, whatever the source has."""
    slow.cluster.delay(300)
    before = resident_bytes()
    growth = 0

    def has(lines: int) -> bool:
        nonlocal growth
        growth = max(growth, resident_bytes() - before)
        return slow.delivered() >= lines

    with slow.running():
        until(lambda: has(1), "nothing was delivered")
        until(lambda: has(5 * WINDOW_LINES), "it stands still")
        reached = slow.delivered()
        slow.cluster.delay(0)

    assert reached < LINES
    assert growth < GROWTH_BYTES_MAX


def _settled(seen: list[int], now: int) -> bool:
    """Say whether the last looks all saw the same."""
    seen.append(now)
    return len(set(seen[-20:])) == 1 and len(seen) > 20

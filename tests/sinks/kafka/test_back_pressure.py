"""A broker that is gone costs memory up to the bound, and no more."""

import json
import re
import threading
from pathlib import Path

from children import until
from headrace.connector.job import read_job
from headrace.connector.runtime.worker import Worker
from headrace.connector.stores.sqlite import SqliteStore
from headrace.plugins.testing.doubles import context
from mock_cluster import MockCluster

LINES = 200_000
LINE = json.dumps({"text": "x" * 500}) + "\n"  # 100 MB in all.
GROWTH_BYTES_MAX = 50_000_000


def resident_bytes() -> int:
    """Return what this process has in memory."""
    status = Path("/proc/self/status").read_text()
    (kilobytes,) = re.findall(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kilobytes) * 1024


def test_a_broker_that_is_gone_stops_the_reading(tmp_path: Path) -> None:
    """The worker reads its bound and waits; when the broker is back, the rest follows."""
    (tmp_path / "in.jsonl").write_text(LINE * LINES)
    state = tmp_path / "state.db"

    def delivered() -> int:
        store = SqliteStore.open(state, "lines")
        counts = [c.delivered for s in store.states() for c in s.counters.values()]
        store.close()
        return sum(counts)

    with MockCluster() as cluster:
        job = {
            "job": "lines",
            "state": str(state),
            "source": {"plugin": "files", "path": str(tmp_path / "in.jsonl")},
            "sink": {
                "plugin": "kafka",
                "bootstrap.servers": cluster.bootstrap_servers,
                "topic": "slow",
                "format": "json",
                "reconnect.backoff.max.ms": 100,
            },
            "runtime": {
                "outstanding_bytes_max": 2_000_000,
                "commit_max_bytes": 2_000_000,
                "tick_min_ms": 5,
            },
        }
        (tmp_path / "job.yaml").write_text(json.dumps(job))
        before = resident_bytes()
        worker = Worker(read_job(tmp_path / "job.yaml"), log=context().log)
        thread = threading.Thread(target=worker.run, kwargs={"until_idle": False})
        thread.start()
        try:
            until(lambda: delivered() > 0, "nothing was delivered")
            cluster.down()
            seen = [-1, -1, delivered()]
            until(lambda: _settled(seen, delivered()), "it never stood still")
            standing = delivered()
            growth = resident_bytes() - before
            cluster.up()
            until(lambda: delivered() > standing, "nothing followed")
        finally:
            worker.stop()
            thread.join(60)

    assert standing < LINES
    assert growth < GROWTH_BYTES_MAX


def _settled(seen: list[int], now: int) -> bool:
    """Say whether the last looks all saw the same."""
    seen.append(now)
    return len(set(seen[-20:])) == 1 and len(seen) > 20

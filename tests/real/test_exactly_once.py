"""Exactly once: whatever dies, a consumer of what is committed sees every change one time."""

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from children import JobFolder, write_lines
from committed import committed, counted

pytestmark = pytest.mark.real

FILES, LINES = 4, 1_500
RUNTIME = {
    "tick_min_ms": 5,
    "commit_max_seconds": 0.05,
    "batch_records_max": 40,
    "lease_seconds": 60,
}
# Of the steps of a run, those before, within and after a transaction.
STEPS = ("loaded:3", "encoded:50", "submitted:50", "settled:50", "commit_heads:7", "committed:9")


@dataclass(frozen=True)
class Stream:
    """A job into a topic of its own."""

    job: JobFolder
    bootstrap_servers: str
    topic: str

    def counts(self) -> Counter[Hashable]:
        """Return how often a consumer of what is committed sees each line."""
        found = committed(self.bootstrap_servers, self.topic)
        return counted(found, lambda value: tuple(json.loads(value).values()))


def everything(lines: int = LINES) -> set[object]:
    """Return all lines."""
    return {(name, n) for name in range(FILES) for n in range(lines)}


def stream_of(bootstrap_servers: str, folder: Path, runtime: dict[str, object]) -> Stream:
    """Return a job that copies a few files, and has not run yet."""
    topic = f"once-{uuid4().hex}"
    write_lines(folder, FILES, range(LINES))
    job = {
        "job": topic,
        "state": "state.db",
        "source": {"plugin": "files", "path": "in*.jsonl"},
        "sink": {
            "plugin": "kafka",
            "bootstrap.servers": bootstrap_servers,
            "topic": topic,
            "format": "json",
            "exactly.once": True,
        },
        "runtime": RUNTIME | runtime,
    }
    (folder / "job.yaml").write_text(json.dumps(job))
    return Stream(JobFolder(folder, lambda line: line["n"]), bootstrap_servers, topic)


@pytest.fixture
def stream(bootstrap_servers: str, tmp_path: Path) -> Stream:
    """Return a job into the session's broker."""
    return stream_of(bootstrap_servers, tmp_path, {})


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step(stream: Stream, step: str) -> None:
    """Before, within and after a transaction: what follows SIGKILL is no second time."""
    assert -signal.SIGKILL == stream.job.finish(crash_at=step), stream.job.log()
    assert 0 == stream.job.finish(), stream.job.log()

    assert dict.fromkeys(everything(), 1) == stream.counts()


@pytest.mark.parametrize("seed", range(1))
def test_killed_at_random_moments(stream: Stream, seed: int) -> None:
    """However often the process is killed, every line is there once."""
    moment = random.Random(seed)  # noqa: S311 (a test's dice)
    kills = 0
    while True:
        child = stream.job.start("--until-idle")
        time.sleep(moment.uniform(0.8, 2.5) * (1 + kills / 10))  # The moment is the test.
        child.kill()
        if -signal.SIGKILL != child.wait():
            break
        kills += 1
        assert kills < 100, stream.job.log()
    assert 0 == stream.job.finish(), stream.job.log()

    assert dict.fromkeys(everything(), 1) == stream.counts()

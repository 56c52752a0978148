"""What tells that logs are written to, and a worker that such an event wakes."""

import dataclasses
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import structlog
import yaml

from headrace.plugins import Demand, parse_config
from headrace.plugins.testing.doubles import DrivenClock, context
from headrace.sources.cassandra.agent import server
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.logs.folder_watch import CHECKED_MS, Inotify
from headrace.sources.cassandra.reading.written_logs import SEGMENT_BYTES, SEGMENTS
from headrace.sources.cassandra.source import CassandraSource
from helpers.jobs.live_worker import working
from helpers.logs.forged import SCHEMA
from helpers.logs.live_log import LiveLog
from helpers.logs.node_logs import batches, open_all, source
from helpers.servers.agents import TOKEN, serving

TICK_SECONDS = 60
SECONDS_MAX = 20
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux")


@contextmanager
def reading(folder: Path, clock: DrivenClock, **options: object) -> Iterator[CassandraSource]:
    """Give a source whose readers have read a log twice."""
    (folder / "schema.cql").write_text(SCHEMA.replace("'3'", "'1'"))
    made = source(
        {
            "nodes": {"node": str(folder / "node")},
            "schema": str(folder / "schema.cql"),
            "consistency": "ONE",
            **options,
        },
        clock,
    )
    readers = open_all(made).values()
    for _ in range(2):  # The second listing is watched.
        list(batches(readers))
    yield made
    made.close()


def test_an_event_tells(tmp_path: Path) -> None:
    """A sync does, and a listing that is older than a second; nothing else."""
    clock, log = DrivenClock(), LiveLog(tmp_path / "node")
    with reading(tmp_path, clock) as made:
        assert ["node"] == list(made.written_logs())
        assert [] == list(made.silent_logs())
        assert isinstance(made.descriptor(), int)
        assert not made.is_written(["node"])
        log.append(2)
        log.sync()
        assert made.is_written(["node"])
        assert not made.is_written([])

    with reading(tmp_path, clock) as made:
        assert not made.is_written(["node"])
        clock.advance(CHECKED_MS)
        assert made.is_written(["node"])


def test_what_another_has_listed_is_news(tmp_path: Path) -> None:
    """An event that another caller of the log took still counts until the cursor has read it."""
    clock, log = DrivenClock(), LiveLog(tmp_path / "node")
    with reading(tmp_path, clock) as made:
        log.append(2)
        log.sync()
        unread = made.unread_bytes(["node"])  # It lists the log.

        assert made.is_written(["node"])
        assert 0 < unread <= log.places[-1][1]


def test_an_older_agent_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log is one that does not tell."""
    monkeypatch.setattr(server, "MARK_HEADER", "Server-Timing")  # It gives no marks.
    capture = structlog.testing.LogCapture()
    log = LiveLog(tmp_path / "node")
    with serving(log.folder) as served:
        options = log.source(nodes={"node": {"url": served.url}}, agent_token=TOKEN)
        reported = structlog.wrap_logger(None, processors=[capture])
        given = dataclasses.replace(context(DrivenClock()), log=reported)
        made = CassandraSource(parse_config(CassandraConfig, options), given)
        for reader in open_all(made).values():
            for _ in range(3):
                reader.read(Demand())
        assert ([], ["node"]) == (list(made.written_logs()), list(made.silent_logs()))
        made.close()
    events = [each for each in capture.entries if each["event"] == "agent_cannot_tell"]
    assert ["node"] == [each["node"] for each in events]


def test_what_is_unread(tmp_path: Path) -> None:
    """It is counted from the cursor; nothing of logs that are not read."""
    clock, log = DrivenClock(), LiveLog(tmp_path / "node")
    log.append(5)
    log.sync()
    with reading(tmp_path, clock) as made:
        assert 0 == made.unread_bytes(["node"]) == made.unread_bytes(["other"])
        log.append(3)
        log.sync(rolls=True)
        first = made.unread_bytes(["node"])
        log.append(3)
        log.sync()
        assert 0 < first < made.unread_bytes(["node"])


def test_the_buffer_has_room_for_segments(tmp_path: Path) -> None:
    """For some of Cassandra's default size, or of that of the largest one."""
    clock, log = DrivenClock(), LiveLog(tmp_path / "node")
    log.sync()
    with reading(tmp_path, clock) as made:
        assert SEGMENTS * SEGMENT_BYTES == made.buffer_bytes()
        path = next((tmp_path / "node").glob("*.log"))
        with path.open("r+b") as file:
            file.truncate(2 * SEGMENT_BYTES)
        assert 2 * SEGMENTS * SEGMENT_BYTES == made.buffer_bytes()


@pytest.mark.parametrize(
    ("mode", "way"),
    [
        ("realtime", "directory"),
        ("realtime", "directory without inotify"),
        ("realtime", "agent"),
        ("log", "directory"),
        ("log", "agent"),
    ],
)
def test_a_worker_does_not_wait_for_the_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, way: str
) -> None:
    """In mode realtime a change is delivered at once, while the tick is a minute away."""
    log, out = LiveLog(tmp_path / "node"), tmp_path / "out"
    job = tmp_path / "job.yaml"

    def come(count: int, seconds: float) -> bool:
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            files = [out] if out.is_file() else list(out.glob("*"))
            if sum(len(each.read_text().splitlines()) for each in files) >= count:
                return True
            time.sleep(0.01)
        return False

    log.append(1)
    log.sync()
    with ExitStack() as stack:
        options = log.source(mode=mode)
        if way == "agent":
            secret = tmp_path / "token"
            secret.write_text(TOKEN)
            served = stack.enter_context(serving(log.folder))
            options |= {
                "nodes": {"node": {"url": served.url}},
                "agent_token": f"${{file:{secret}}}",
            }
        if way == "directory without inotify":
            monkeypatch.setattr(Inotify, "watch", lambda *_: None)
        document = {
            "job": "job",
            "state": "state.db",
            "source": {"plugin": "cassandra", **options},
            "sink": {"plugin": "files", "path": str(out)},
            "runtime": {"tick_min_ms": TICK_SECONDS * 1_000},
        }
        job.write_text(yaml.safe_dump(document))
        stack.enter_context(working(job, structlog.stdlib.get_logger()))
        assert come(1, SECONDS_MAX)
        if mode == "log":
            log.append(1)
            log.sync()
            assert not come(2, 0.5)
            return
        for count in (2, 3, 4):
            log.append(1)
            log.sync()
            assert come(count, SECONDS_MAX)

"""A store that hangs: locked by another process for long, or late with its answers."""

import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
import structlog

from headrace.connector.foundation.job_file import RuntimeConfig
from headrace.connector.runtime.books.report import Report
from headrace.connector.stores import Commit, SplitState, StoreUnavailableError
from headrace.connector.stores.job import Job
from headrace.connector.stores.sqlite import file as sqlite_file
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins import Delivery, Encoding, HeadraceError, Settle
from headrace.plugins.testing.doubles import (
    ChaosConfig,
    ChaosSink,
    ChaosWriter,
    MemoryConfig,
    MemorySource,
    sample_records,
)
from helpers.jobs.children import SECONDS_MAX, next_line, until
from helpers.jobs.live_worker import LoneWorker

COUNT: Final = 4_000
LEASE_S: Final = 0.6
WINDOW_BYTES: Final = 4_000
BATCH_BYTES: Final = 500
OTHER: Final = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for line in sys.stdin:
    connection.execute(line)
    print(line, end="", flush=True)
"""


class TimedSink(ChaosSink):
    """Notes how much it was given; takes all but the first batch when `GO_ON` is set."""

    def __init__(self, config: ChaosConfig, given: object) -> None:
        """Begin empty."""
        super().__init__(config, given)  # type: ignore[arg-type]
        self.came: list[int] = []
        SINKS.append(self)

    def encoding(self) -> Encoding:
        """Ask for nothing."""
        return Encoding(codec="none")

    def open(self) -> ChaosWriter:
        """Return a writer."""
        return _TimedWriter(self)


class _TimedWriter(ChaosWriter):
    def submit(self, delivery: Delivery, settle: Settle) -> None:
        """Note it, and deliver."""
        assert isinstance(self._sink, TimedSink)
        if self._sink.came:
            assert GO_ON.wait(SECONDS_MAX)
        self._sink.came.append(delivery.batch.size_bytes)
        super().submit(delivery, settle)


SINKS: Final[list[TimedSink]] = []
GO_ON: Final = threading.Event()


class Running:
    """A job of one split that runs on a thread of its own."""

    def __init__(self, folder: Path) -> None:
        """Begin."""
        self.path = folder / "state.db"
        runtime = RuntimeConfig(
            tick_min_ms=5,
            commit_max_seconds=0.02,
            commit_max_bytes=WINDOW_BYTES,
            batch_bytes_max=BATCH_BYTES,
            lease_seconds=LEASE_S,
            retry_seconds_max=60,
        )
        job = Job(
            name="job",
            directory=folder,
            state=self.path,
            source=MemorySource,
            source_config=MemoryConfig(splits={"a": [[r] for r in sample_records(COUNT)]}),
            sink=TimedSink,
            sink_config=ChaosConfig(),
            runtime=runtime,
        )
        self.refusals: list[float] = []
        log = structlog.wrap_logger(structlog.ReturnLogger(), processors=[self._logged])
        self.worker = LoneWorker(job, log=log)
        self.reports: list[Report] = []
        self._thread = threading.Thread(target=self._run)

    def _logged(self, _: object, __: str, event: structlog.typing.EventDict) -> str:
        if event["event"] == "store_unavailable":
            self.refusals.append(time.monotonic())
        return ""

    def refused(self, more: int, *, after: float) -> None:
        """Wait until enough requests to the store have failed *after* a moment."""
        until(lambda: more <= sum(at > after for at in self.refusals), "the store is not asked")

    def _run(self) -> None:
        self.reports.append(self.worker.run_alone(until_idle=True))

    @property
    def sink(self) -> TimedSink:
        """Where the records go."""
        return SINKS[-1]

    def start(self, *, go_on: bool = True) -> None:
        """Run until something was delivered; without *go_on* no more is, until `GO_ON` is set."""
        SINKS.clear()
        GO_ON.clear()
        if go_on:
            GO_ON.set()
        self._thread.start()
        until(lambda: bool(SINKS and SINKS[-1].came), "nothing was delivered")

    def finish(self) -> Report:
        """Wait for the end."""
        self._thread.join(SECONDS_MAX)
        (report,) = self.reports
        return report


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    """Return a job whose store gives up waiting for a lock before its leases run out."""
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_MS", 200)
    return Running(tmp_path)


class Other:
    """Another process that can have the state file for itself."""

    def __init__(self, path: Path) -> None:
        """Begin, and lock nothing."""
        command = [sys.executable, "-c", OTHER, str(path)]
        self.child = subprocess.Popen(  # noqa: S603 (a script of ours)
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.execute("PRAGMA busy_timeout = 60000")

    def execute(self, statement: str) -> None:
        """Execute a statement, and wait until it is done."""
        assert self.child.stdin is not None
        self.child.stdin.write(f"{statement}\n".encode())
        self.child.stdin.flush()
        assert f"{statement}\n".encode() == next_line(self.child)


def test_a_state_file_that_is_locked_for_long_is_waited_for(running: Running) -> None:
    """At most a window is sent, however long it takes; then the split continues by itself (I7)."""
    sqlite_file.connect(running.path).close()
    other = Other(running.path)
    with other.child:
        running.start(go_on=False)
        other.execute("BEGIN EXCLUSIVE")
        locked, before = time.monotonic(), len(running.sink.came)
        GO_ON.set()
        running.refused(2, after=locked + LEASE_S)
        came = running.sink.came[before:]
        running.refused(2, after=time.monotonic())
        later = running.sink.came[before + len(came) :]
        other.execute("COMMIT")
        other.child.communicate()
    report = running.finish()

    assert 0 < sum(came) <= 2 * (WINDOW_BYTES + BATCH_BYTES)
    assert [] == later
    assert ((), COUNT) == (tuple(report.failures), report.changes)
    assert COUNT == report.books[0].counters["shop.orders"].delivered


def test_a_store_that_is_away_at_the_end_is_asked_again(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All was committed and given back before, so the run ends well."""
    left = [3]

    def dismissed(store: SqliteStore, worker: str) -> None:
        dismiss(store, worker)
        monkeypatch.setattr(SqliteStore, "states", away)

    def away(store: SqliteStore) -> Sequence[SplitState]:
        left[0] -= 1
        if left[0] >= 0:
            raise StoreUnavailableError("state.db: no answer")
        return states(store)

    dismiss, states = SqliteStore.dismiss, SqliteStore.states
    monkeypatch.setattr(SqliteStore, "dismiss", dismissed)
    running.start()
    report = running.finish()

    assert ((), COUNT, -1) == (tuple(report.failures), report.changes, left[0])


@pytest.mark.parametrize("applied", [True, False])
def test_a_commit_that_hangs_is_known_in_the_end(
    running: Running, monkeypatch: pytest.MonkeyPatch, *, applied: bool
) -> None:
    """Done or not, after longer than a lease, which is renewed, it is repeated and counts once."""
    real = SqliteStore.commit
    hung = threading.Event()

    def commit(store: SqliteStore, commits: Sequence[Commit]) -> Mapping[str, HeadraceError]:
        if hung.is_set():
            return real(store, commits)
        hung.set()
        if applied:
            real(store, commits)
        threading.Event().wait(2 * LEASE_S)
        raise StoreUnavailableError("answered too late")

    monkeypatch.setattr(SqliteStore, "commit", commit)
    running.start()
    report = running.finish()

    assert hung.is_set()
    assert ((), COUNT) == (tuple(report.failures), report.changes)
    assert COUNT == len(running.sink.written)
    assert COUNT == report.books[0].counters["shop.orders"].delivered

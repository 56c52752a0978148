"""When a run that is to take all there is may end with 0: not before everything was taken."""

import contextlib
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from headrace.connector.control.commands import Commands
from headrace.connector.foundation.job_file import RuntimeConfig
from headrace.connector.foundation.states import Desired
from headrace.connector.hosting.host import Host
from headrace.connector.language.statements import CreateSink
from headrace.connector.runtime.books.report import Report
from headrace.connector.runtime.failures.retry import RetriesExhaustedError
from headrace.connector.runtime.finishing import NotIdleError
from headrace.connector.stores import LeaseRow, StoreUnavailableError
from headrace.connector.stores.job import Job
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.connector.stores.target_state import TARGET_STATES, Route
from headrace.plugins import Batch, Demand, Done, Encoding, Idle
from headrace.plugins.testing.doubles import (
    ChaosConfig,
    ChaosSink,
    MemoryConfig,
    MemoryReader,
    MemorySource,
    Mutation,
    context,
    sample_records,
)
from helpers.jobs import toys
from helpers.jobs.children import RUN, SECONDS_MAX, lines_job, until
from helpers.jobs.live_worker import LoneWorker

ROWS = 10
RUNTIME = RuntimeConfig(tick_min_ms=5, commit_max_seconds=0.02, lease_seconds=6)
FILE_BLOCKS_MAX = 80  # Of 1024 bytes: enough to begin, too little to commit all.
TOY = """\
job: orders
state: state.db
source: {plugin: brook, path: in.jsonl}
"""
LIMITED = f'ulimit -f {FILE_BLOCKS_MAX}; exec "$0" "$@"'


class PlainSink(ChaosSink):
    """A sink that wants records, which need no codec."""

    def encoding(self) -> Encoding:
        """Ask for nothing."""
        return Encoding(codec="none")


class StuckReader(MemoryReader):
    """Has more to read, and cannot read it."""

    def read(self, demand: Demand) -> Batch | Idle | Done:
        """Say so when the first batch is gone."""
        found = super().read(demand)
        return found if isinstance(found, Batch) else Idle(more=True)


class StuckSource(MemorySource):
    """Its readers get stuck."""

    reader_class: ClassVar[type[MemoryReader]] = StuckReader


def job_of(folder: Path, source: type[MemorySource] = MemorySource, **runtime: Any) -> Job:  # noqa: ANN401 (each option has its type)
    """Return a job over two splits in memory."""
    splits: dict[str, list[Mutation]] = {
        name: [[record] for record in sample_records(ROWS)] for name in "ab"
    }
    return Job(
        name="job",
        directory=folder,
        state=folder / "state.db",
        source=source,
        source_config=MemoryConfig(splits=splits),
        sink=PlainSink,
        sink_config=ChaosConfig(),
        runtime=replace(RUNTIME, **runtime),
    )


def run(job: Job) -> Report:
    """Take all there is."""
    return LoneWorker(job, log=context().log).run_alone(until_idle=True)


def delivered(report: Report) -> list[int]:
    """Return how many changes of each split are in the books."""
    return [b.counters["shop.orders"].delivered if b.counters else 0 for b in report.books]


def failing(times: int, method: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let a method of the store be unavailable so many times; return how many are left."""
    left, real = [times], getattr(SqliteStore, method)

    def call(store: SqliteStore, *given: object, **named: object) -> object:
        if left[0]:
            left[0] -= 1
            raise StoreUnavailableError("disk I/O error", place="state.db")
        return real(store, *given, **named)

    monkeypatch.setattr(SqliteStore, method, call)
    return left


def test_a_state_file_that_cannot_grow_ends_with_1(tmp_path: Path) -> None:
    """Not all is delivered, and the run says why."""
    job = lines_job(tmp_path, files=4, lines=3_000)
    document = yaml.safe_load((job.path / "job.yaml").read_text())
    document["runtime"]["retry_seconds_max"] = 2
    (job.path / "job.yaml").write_text(yaml.safe_dump(document))
    command = [sys.executable, "-c", RUN, "run", str(job.path / "job.yaml"), "--until-idle"]
    done = subprocess.run(  # noqa: S603 (headrace itself)
        ["/bin/bash", "-c", LIMITED, *command],
        capture_output=True,
        check=False,
        text=True,
        timeout=SECONDS_MAX,
    )

    assert 1 == done.returncode
    assert "error [retries_exhausted]" in done.stderr
    assert "the state file cannot be used" in done.stderr
    assert 12_000 > sum(job.changes().values())


@pytest.mark.parametrize("method", ["claim", "workers", "see"])
def test_a_store_that_is_away_for_a_while_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """After any question everything is delivered when it is there again."""
    left = failing(3, method, monkeypatch)
    report = run(job_of(tmp_path))

    assert ((), [ROWS, ROWS]) == (tuple(report.failures), delivered(report))
    assert left[0] < 3


def test_a_store_that_stays_away_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for as long as other calls are repeated."""
    failing(1 << 30, "claim", monkeypatch)

    with pytest.raises(RetriesExhaustedError, match="disk I/O error"):
        run(job_of(tmp_path, retry_seconds_max=1.5))


def test_a_claim_that_was_carried_out_and_failed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that names this worker, which does not run the split, is not in good hands."""
    real, left = SqliteStore.claim, [1]

    def claim(
        store: SqliteStore, owner: str, rows: Sequence[LeaseRow], lease_ms: int
    ) -> Mapping[str, int]:
        done = real(store, owner, rows, lease_ms)
        if left[0]:
            left[0] -= 1
            raise StoreUnavailableError("the answer was lost", place="state.db")
        return done

    monkeypatch.setattr(SqliteStore, "claim", claim)
    report = run(job_of(tmp_path))

    assert (0, [ROWS, ROWS]) == (left[0], delivered(report))


def test_a_reader_that_is_stuck_is_not_idle(tmp_path: Path) -> None:
    """What is left cannot be read: the run waits, and then ends with the reason."""
    job = job_of(tmp_path, StuckSource, retry_seconds_max=0, settle_seconds_max=1)
    report = run(job)

    assert [ROWS, ROWS] == delivered(report)
    assert ["not_idle"] == [failure.code for failure in report.failures]
    reason = r"nothing has moved for \d+ s: split [ab]: nothing was read"  # Both are stuck.
    assert re.search(reason, str(report.failures[0]))


def test_a_run_that_is_stopped_has_not_finished(tmp_path: Path) -> None:
    """A run until idle that gets SIGTERM does not report that everything is delivered."""
    worker = LoneWorker(job_of(tmp_path, StuckSource), log=context().log)
    worker.stop()
    report = worker.run_alone(until_idle=True)

    assert ["not_idle"] == [failure.code for failure in report.failures]
    assert "it was asked to stop" in str(report.failures[0])


@pytest.mark.parametrize("command", ["stop", "pause"])
def test_a_job_that_is_not_to_run_has_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Of a job that a statement stopped or paused nothing is read, and the run says so."""
    toys.install(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(TOY)
    (tmp_path / "in.jsonl").write_text('{"n": 1}\n')
    with contextlib.closing(open_notes(tmp_path / "state.db")) as connection:
        commands = Commands(connection)
        commands.create_sink(CreateSink(name="k", uri=f"file://{tmp_path}/a.jsonl"))
        made = {"connector.class": "BrookBrookSource", "keyspace": "s", "table": "t"}
        commands.create_source({"name": "x", "sink": "k"} | made)
        getattr(commands, command)("x")

    with pytest.raises(NotIdleError, match="the job is paused or stopped"):
        Host(tmp_path / "job.yaml", log=context().log).run(until_idle=True)
    assert not (tmp_path / "a.jsonl").exists()


def test_a_job_that_is_paused_on_the_way_has_not_finished(tmp_path: Path) -> None:
    """The run ends at once and says so; what was delivered is committed."""
    worker = LoneWorker(job_of(tmp_path, StuckSource), log=context().log)
    reports: list[Report] = []
    thread = threading.Thread(target=lambda: reports.append(worker.run_alone(until_idle=True)))
    thread.start()
    until((tmp_path / "state.db").exists, "it never began")
    with contextlib.closing(open_notes(tmp_path / "state.db")) as connection:
        board = connection.board
        with connection.transaction():
            board.add_route(Route("x", "job", "k", Desired.RUNNING))
            board.want("x", Desired.PAUSED)
            # As if nothing had changed since it started.
            connection.put(TARGET_STATES, "job", None)
        thread.join(SECONDS_MAX)

    (report,) = reports
    assert "the job is paused" in str(report.failures[0])

"""The worker: threads, signals and bounds of one process, with real threads and short times."""

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.connector.foundation.job_file import RuntimeConfig
from headrace.connector.foundation.states import Observed
from headrace.connector.runtime.failures.hung import PluginHungError
from headrace.connector.runtime.splits.leases import LeaseHolder
from headrace.connector.runtime.splits.ownership import Changes
from headrace.connector.runtime.starting import limits_of
from headrace.connector.stores import Seen
from headrace.connector.stores.job import Job
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins import (
    Context,
    Delivery,
    Encoding,
    Locality,
    MissingRequirementError,
    Nearness,
    Settle,
    Split,
)
from headrace.plugins.testing.doubles import (
    ChaosConfig,
    ChaosResult,
    ChaosSink,
    ChaosWriter,
    MemoryConfig,
    MemorySource,
    Mutation,
    context,
    sample_records,
)
from helpers.jobs.children import SECONDS_MAX, until
from helpers.jobs.live_worker import LoneWorker

if TYPE_CHECKING:
    from headrace.connector.runtime.books.report import Report

LATE_S = 5  # Much longer than the time-outs that tests wait for.
RUNTIME = RuntimeConfig(tick_min_ms=5, commit_max_seconds=0.02, lease_seconds=60)


class JsonlessSink(ChaosSink):
    """A chaos sink that wants records, which need no codec of ours."""

    def encoding(self) -> Encoding:
        """Ask for nothing."""
        return Encoding(codec="none")


class HangingWriter(ChaosWriter):
    """Does not return from `submit` until the test ends."""

    over = threading.Event()

    def submit(self, delivery: Delivery, settle: Settle) -> None:
        """Hang."""
        self.over.wait()
        super().submit(delivery, settle)


class HangingSink(JsonlessSink):
    """Its writer hangs."""

    def open(self) -> HangingWriter:
        """Return it."""
        self.writers_open += 1
        return HangingWriter(self)


class StuckSink(HangingSink):
    """It is never opened."""

    def open(self) -> HangingWriter:
        """Wait for it to be over."""
        HangingWriter.over.wait(SECONDS_MAX)
        return super().open()


class UnmadeSink(JsonlessSink):
    """It is never made."""

    def __init__(self, config: ChaosConfig, context: Context) -> None:
        """Wait for it to be over."""
        HangingWriter.over.wait(SECONDS_MAX)
        super().__init__(config, context)


class UnmadeSource(MemorySource):
    """It is never made."""

    def __init__(self, config: MemoryConfig, context: Context) -> None:
        """Wait for it to be over."""
        HangingWriter.over.wait(SECONDS_MAX)
        super().__init__(config, context)


class PlanlessSource(MemorySource):
    """It does not plan, nor close."""

    def plan(self) -> Sequence[Split]:
        """Wait for it to be over."""
        HangingWriter.over.wait(SECONDS_MAX)
        return super().plan()

    def close(self) -> None:
        """Wait for it to be over."""
        HangingWriter.over.wait(SECONDS_MAX)


class DistantSource(MemorySource, Locality):
    """It does not find out which logs are near."""

    def nearness(self) -> Nearness:
        """Wait for it to be over."""
        HangingWriter.over.wait(SECONDS_MAX)
        return Nearness()


class ClosedSink(JsonlessSink):
    """Cannot be opened."""

    def open(self) -> ChaosWriter:
        """Refuse."""
        raise MissingRequirementError("nobody listens", place="localhost:1")


def job_of(folder: Path, sink: type[ChaosSink], *, records: int = 10) -> Job:
    """Return a job over two splits in memory."""
    splits: dict[str, list[Mutation]] = {
        name: [[record] for record in sample_records(records)] for name in "ab"
    }
    return Job(
        name="job",
        directory=folder,
        state=folder / "state.db",
        source=MemorySource,
        source_config=MemoryConfig(splits=splits),
        sink=sink,
        sink_config=ChaosConfig(),
        runtime=RUNTIME,
    )


def worker_of(job: Job) -> LoneWorker:
    """Return a worker that logs nothing."""
    return LoneWorker(job, log=context().log)


def test_reports_what_it_did(tmp_path: Path) -> None:
    """The report holds the committed books of all splits and what this run did."""
    report = worker_of(job_of(tmp_path, JsonlessSink)).run_alone(until_idle=True)

    assert ((), 20) == (tuple(report.failures), report.changes)
    assert ["a", "b"] == [books.split for books in report.books]
    assert [10, 10] == [books.counters["shop.orders"].delivered for books in report.books]


def test_stops_when_asked(tmp_path: Path) -> None:
    """A stop from any thread ends a run that tails, with everything committed and given back."""
    worker = worker_of(job_of(tmp_path, JsonlessSink))
    reports: list[Report] = []
    thread = threading.Thread(target=lambda: reports.append(worker.run_alone(until_idle=False)))
    thread.start()
    until((tmp_path / "state.db").exists, "it never began")
    store = SqliteStore.open(tmp_path / "state.db", "job")
    until(lambda: [10, 10] == _delivered(store), "it never delivered")
    worker.stop()
    thread.join(SECONDS_MAX)

    assert [20] == [report.changes for report in reports]
    assert [None, None] == [row.owner for row in store.leases()]
    assert [] == list(store.workers())
    store.close()


def test_bounds_of_the_file(tmp_path: Path) -> None:
    """Each bound that a job's file gives is the pipeline's, in its unit."""
    given = RuntimeConfig(
        tick_min_ms=1,
        commit_max_seconds=0.002,
        commit_max_bytes=3,
        outstanding_bytes_max=4,
        outstanding_records_max=5,
        batch_bytes_max=6,
        batch_records_max=7,
        retry_seconds_max=0.008,
        stop_seconds_max=0.009,
    )

    assert (1, 2, 3, 4, 5, 6, 7, 8, 9) == astuple(
        limits_of(replace(job_of(tmp_path, JsonlessSink), runtime=given))
    )


def _delivered(store: SqliteStore) -> list[int]:
    tables = [state.counters for state in store.states()]
    return [counters["shop.orders"].delivered for counters in tables if counters]


def test_bounded_source_ends(tmp_path: Path) -> None:
    """A source that will never have more ends the run by itself."""
    job = job_of(tmp_path, JsonlessSink)
    job = replace(job, source_config=replace(job.source_config, bounded=True))

    assert 20 == worker_of(job).run_alone(until_idle=False).changes


def test_sink_that_cannot_be_opened(tmp_path: Path) -> None:
    """What opening the sink raises ends the run, frees the leases and stays visible."""
    with pytest.raises(MissingRequirementError, match="nobody listens"):
        worker_of(job_of(tmp_path, ClosedSink)).run_alone(until_idle=True)
    store = SqliteStore.open(tmp_path / "state.db", "job")

    assert [None, None] == [row.owner for row in store.leases()]
    store.close()


@pytest.mark.parametrize(
    ("sink", "where", "method"),
    [(HangingSink, "split a", "submit"), (StuckSink, "opening the sink", "open")],
)
def test_hanging_plugin_ends_the_process(
    tmp_path: Path, sink: type[ChaosSink], where: str, method: str
) -> None:
    """A call that does not return is named with its line, and nothing waits for it (R8)."""
    HangingWriter.over.clear()
    job = job_of(tmp_path, sink)
    job = replace(job, runtime=replace(RUNTIME, call_seconds_max=0.5))
    late = threading.Timer(LATE_S, HangingWriter.over.set)
    late.start()
    said = rf"^{where}: a call has not returned for \S+ s, at .*test_worker.py:\d+ in {method}\n"
    with pytest.raises(PluginHungError, match=said):
        worker_of(job).run_alone(until_idle=True)

    late.cancel()
    HangingWriter.over.set()
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "data")
    thread.join(SECONDS_MAX)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("hangs", "where", "method"),
    [
        ({"source": UnmadeSource}, "making the source", "__init__"),
        ({"sink": UnmadeSink}, "making the sink", "__init__"),
        ({"source": PlanlessSource}, "planning the splits", "plan"),
        ({"source": DistantSource}, "looking for near logs", "nearness"),
    ],
)
def test_a_plugin_that_hangs_at_the_start_ends_the_process(
    tmp_path: Path, hangs: dict[str, Any], where: str, method: str
) -> None:
    """No call of a source or sink before the first split is read keeps the process (R8)."""
    HangingWriter.over.clear()
    runtime = replace(RUNTIME, call_seconds_max=0.5)
    job = replace(job_of(tmp_path, JsonlessSink), runtime=runtime, **hangs)
    late = threading.Timer(LATE_S, HangingWriter.over.set)
    late.start()
    said = rf"^{where}: a call has not returned for 0\.5 s, at .*test_worker.py:\d+ in {method}\n"
    with pytest.raises(PluginHungError, match=said):
        worker_of(job).run_alone(until_idle=True)

    assert late.is_alive()
    late.cancel()
    HangingWriter.over.set()


def test_a_long_tick_is_not_a_call_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass that waits for its tick is silent for longer than a call may take."""
    looks: list[LeaseHolder] = []
    real = LeaseHolder.step

    def step(lease_holder: LeaseHolder) -> Changes:
        looks.append(lease_holder)
        return real(lease_holder)

    monkeypatch.setattr(LeaseHolder, "step", step)
    runtime = replace(RUNTIME, tick_min_ms=60_000, call_seconds_max=0.05, lease_seconds=1)
    worker = worker_of(replace(job_of(tmp_path, JsonlessSink), runtime=runtime))
    reports: list[Report] = []
    thread = threading.Thread(target=lambda: reports.append(worker.run_alone(until_idle=False)))
    thread.start()
    # All but the first are made while the pass waits.
    until(lambda: len(looks) > 3 or not thread.is_alive(), "it never looked")
    worker.stop()
    thread.join(SECONDS_MAX)

    assert [20] == [report.changes for report in reports]


def test_plugins_are_lent_the_job_key(tmp_path: Path) -> None:
    """Source and sink get the job's name and its key, the same in every run."""
    lent: list[Context] = []

    class Curious(JsonlessSink):
        """Remembers its context."""

        def __init__(self, config: ChaosConfig, context: Context) -> None:
            super().__init__(config, context)
            lent.append(context)

    for _ in range(2):
        worker_of(job_of(tmp_path, Curious)).run_alone(until_idle=True)

    assert 16 == len(lent[0].job_key)
    assert lent[0].job_key == lent[1].job_key
    assert ["job", "job"] == [context.job for context in lent]


def scripted(folder: Path, *script: ChaosResult, **runtime: Any) -> LoneWorker:  # noqa: ANN401 (each option has its type)
    """Return a worker of a job whose sink errs as *script* says."""
    job = job_of(folder, ChaosSink)
    bounds = replace(RUNTIME, **runtime)
    return worker_of(replace(job, sink_config=ChaosConfig(script=deque(script)), runtime=bounds))


@contextmanager
def running(worker: LoneWorker, folder: Path) -> Iterator[SqliteStore]:
    """Let the worker tail; give its store."""
    thread = threading.Thread(target=lambda: worker.run_alone(until_idle=False))
    thread.start()
    until((folder / "state.db").exists, "it never began")
    store = SqliteStore.open(folder / "state.db", "job")
    try:
        yield store
    finally:
        worker.stop()
        thread.join()
        store.close()


def test_a_sink_without_a_verdict_fails_its_split(tmp_path: Path) -> None:
    """It has so long for one."""
    worker = scripted(tmp_path, ChaosResult.HOLD, settle_seconds_max=0.1, stop_seconds_max=0.1)
    late = threading.Timer(LATE_S, worker.stop)
    late.start()

    assert ["settle_timeout"] == [
        error.code for error in worker.run_alone(until_idle=True).failures
    ]
    late.cancel()


@pytest.mark.parametrize(("bytes_max", "failures"), [(10_000, 0), (0, 1)])
def test_quarantine_is_bounded(tmp_path: Path, bytes_max: int, failures: int) -> None:
    """A dead letter that does not fit in the quarantine stops its split."""
    worker = scripted(tmp_path, ChaosResult.REJECT_FIRST, quarantine_bytes_max=bytes_max)

    assert failures == len(worker.run_alone(until_idle=True).failures)


def test_restarts_are_counted(tmp_path: Path) -> None:
    """After the last of them a split that fails again stays so."""
    many = [ChaosResult.REFUSE] * 50
    own = {"retry_seconds_max": 0.0, "restarts_max": 1, "restart_pause_seconds": 0.01}
    with running(scripted(tmp_path, *many, **own), tmp_path) as store:
        until(lambda: Observed.FAILED in states(store), "it never failed for good")
        assert {1} == {seen.attempt for seen in rows(store) if seen.state is Observed.FAILED}


def test_a_restart_is_waited_for(tmp_path: Path) -> None:
    """The pause before the first is as long as it was given."""
    many = [ChaosResult.REFUSE] * 50
    own = {"retry_seconds_max": 0.0, "restart_pause_seconds": 500.0}
    with running(scripted(tmp_path, *many, **own), tmp_path) as store:
        until(lambda: Observed.RESTARTING in states(store), "it never failed")
        again_ms = min(s.next_attempt_ms for s in rows(store) if s.next_attempt_ms)

    assert 400 < again_ms / 1000 - time.time() <= 500


def test_a_lease_has_its_length(tmp_path: Path) -> None:
    """Others let its owner be silent for so long, but for what it takes to see it."""
    with running(scripted(tmp_path, lease_seconds=7.5), tmp_path) as store:
        until(lambda: any(row.owner for row in store.leases()), "no lease")
        assert {7_500 - 2 * 750} == {row.lease_ms for row in store.leases() if row.owner}


def rows(store: SqliteStore) -> list[Seen]:
    """Return what is seen of the splits."""
    return list(store.seen().values())


def states(store: SqliteStore) -> list[Observed]:
    """Return their states."""
    return [seen.state for seen in rows(store)]

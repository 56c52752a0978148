"""Lagging splits that are caught up without Spark, beside a worker and after a kill."""

import json
import pickle
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
import yaml

from headrace.connector.control.jobs import job_text, read_job
from headrace.connector.foundation.processes import this_process
from headrace.connector.replay.catching_up.lag_catch_up import Driver, Orders
from headrace.connector.replay.engine import NO_SPARK, Engine, Gatherer, engine, once_here
from headrace.connector.replay.errors import ShardFailedError, SplitBusyError
from headrace.connector.replay.framing.framed_shards import Framing
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.sources.cassandra.forge.segments import SEGMENT_ID
from headrace.sources.cassandra.source import CassandraSource
from helpers.jobs.children import RUN
from helpers.logs.gap_jobs import NODES, GapJob
from helpers.settings.leftovers import open_files

T = TypeVar("T")

SEGMENTS = 6
ROWS = 40  # Of a segment.
AMID = ",".join(f"{node}:{SEGMENT_ID + 3}:0" for node in NODES)  # A place in the backlog.


@pytest.fixture
def job(tmp_path: Path) -> GapJob:
    """Return a job that ran, and has a backlog of segments since; some copies arrived late."""
    made = GapJob(tmp_path, splits=2)
    made.log(1, range(10))
    assert 0 == made.run()
    backlog(made)
    return made


def backlog(job: GapJob) -> None:
    """Log the backlog: the copies of a row are in different segments of the nodes."""
    for number in range(2, 2 + SEGMENTS):
        first = 10 + (number * 30) % 200
        job.log(number, range(first, first + ROWS), nodes=("n1", "n2"))
        job.log(number, range(first - 5, first + ROWS - 9), nodes=("n3",))


def without_origin(document: Mapping[str, object]) -> str:
    """Return what does not depend on the process that read it."""
    varies = ("copies", "node", "segment", "position")
    return json.dumps({k: v for k, v in document.items() if k not in varies}, sort_keys=True)


def by_a_worker(job: GapJob) -> Counter[str]:
    """Return what a worker makes of the same logs, read from their start."""
    before = (job.folder / "out.jsonl").rename(job.folder / "before.jsonl")
    text = job.path.read_text()
    job.path.write_text(text.replace("job: orders", "job: others"))
    assert 0 == job.run()
    job.path.write_text(text)
    found = Counter(map(without_origin, job.documents()))
    before.rename(job.folder / "out.jsonl")
    return found


def catch_up(job: GapJob, *arguments: str) -> int:
    """Catch up in this process; return the exit status."""
    return job.replay("catch-up", "--master", "none", *arguments)


def owners(job: GapJob) -> list[str | None]:
    """Return the owners of the splits."""
    store = SqliteStore.open(job.folder / "state.db", "orders")
    try:
        return [row.owner for row in store.leases()]
    finally:
        store.close()


def test_what_a_worker_delivers(job: GapJob) -> None:
    """The sink gets the same as from a worker; the books balance, and a worker adds nothing."""
    assert 0 == catch_up(job, "--split", "1-of-2,2-of-2", "--chunk-bytes", "20000")

    assert by_a_worker(job) == Counter(map(without_origin, job.documents()))
    books = job.books()
    assert [None, None] == owners(job)
    count = len(job.documents())
    assert 0 == job.run()
    assert (books, count) == (job.books(), len(job.documents()))


@pytest.fixture
def inside(job: GapJob, monkeypatch: pytest.MonkeyPatch) -> GapJob:
    """Return the job, with its folder as the working folder."""
    monkeypatch.chdir(job.folder)
    return job


def driver(job: GapJob, *splits: str, chunk_bytes: int = 1 << 40) -> Driver:
    """Return a driver of the job."""
    orders = Orders(splits=splits, chunk_bytes=chunk_bytes)
    return Driver(job_text(job.path), read_job(job.path), orders)


def several(tasks: Sequence[Callable[[], T]]) -> Sequence[T]:
    """Run tasks as on other machines: each task and its result are pickled."""
    sent = pickle.loads(pickle.dumps(list(tasks)))  # noqa: S301 (our own)
    done: Sequence[T] = pickle.loads(pickle.dumps([task() for task in sent]))  # noqa: S301 (likewise)
    return done


def by_hand(width: int, gather: Gatherer = several) -> Engine:
    """Return an engine that reports *width* tasks at once, and runs them one after the other."""
    with engine(NO_SPARK) as here:
        return replace(here, gather=gather, once=partial(once_here, gather=gather), width=width)


@pytest.fixture
def framed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of how many parts of splits logs were read for, and 0 for each such part."""
    found: list[int] = []
    frame, read = Framing.frame, CassandraSource.read_framed

    def noted(self: Framing, parts: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
        found.append(len(self.splits))
        return frame(self, parts)

    def noted_part(self: CassandraSource, file: Path) -> None:
        found.append(0)
        read(self, file)

    monkeypatch.setattr(Framing, "frame", noted)
    monkeypatch.setattr(CassandraSource, "read_framed", noted_part)
    return found


@pytest.mark.parametrize(
    ("width", "chunk_bytes", "read"),
    [(6, 20_000, set()), (16, 20_000, {0, 8}), (16, 1 << 40, {0, 16})],
)
def test_parts_of_a_split(
    inside: GapJob, framed: list[int], width: int, chunk_bytes: int, read: set[int]
) -> None:
    """A split that several tasks read in parts is joined again, chunk by chunk.

    Many tasks read the logs of a chunk once for all that end there, wherever their splits are.
    """
    job = inside
    assert 0 == catch_up(job, "--split", "1-of-2", "--until", AMID)
    with closing(driver(job, "1-of-2", "2-of-2", chunk_bytes=chunk_bytes)) as made:
        came_to = made.run(["1-of-2", "2-of-2"], by_hand(width))

    assert read <= set(framed)
    assert read or not framed
    assert framed.count(0) == sum(framed)
    assert ["1-of-2", "2-of-2"] == sorted(came_to.done)
    assert came_to.chunks >= 2
    assert by_a_worker(job) == Counter(map(without_origin, job.documents()))
    books, count = job.books(), len(job.documents())
    assert 0 == job.run()
    assert (books, count) == (job.books(), len(job.documents()))


def test_one_split_beside_others(job: GapJob) -> None:
    """Only the named split is read; a worker reads the other one, and all later segments."""
    assert 0 == catch_up(job, "--split", "2-of-2")
    half = len(job.documents())
    job.log(20, range(100, 120))
    assert 0 == job.run()

    assert 10 < half < len(job.documents())
    assert by_a_worker(job) == Counter(map(without_origin, job.documents()))


def test_what_lags_less_is_left_alone(job: GapJob, capsys: pytest.CaptureFixture[str]) -> None:
    """Splits below the threshold are left to the worker; a plan lists lags and reads nothing."""
    assert 0 == catch_up(job, "--lag-bytes", str(1 << 30))
    assert "no split lags so much" in capsys.readouterr().out
    assert 0 == catch_up(job, "--lag-bytes", "0", "--plan")
    assert [2, 10] == [len(capsys.readouterr().out.splitlines()), len(job.documents())]
    assert 0 == catch_up(job, "--lag-bytes", "0")
    assert "caught up: 2 splits" in capsys.readouterr().out
    assert by_a_worker(job) == Counter(map(without_origin, job.documents()))


def test_up_to_a_place(job: GapJob) -> None:
    """What is logged behind the cut-off is left to the worker."""
    assert 0 == catch_up(job, "--lag-bytes", "0", "--until", AMID)
    before = len(job.documents())
    assert 0 == job.run()

    assert before < len(job.documents())
    assert by_a_worker(job) == Counter(map(without_origin, job.documents()))


def test_a_killed_driver_repeats_a_chunk_at_most(inside: GapJob) -> None:
    """Only what a killed driver had not committed is delivered again; nothing is lost."""
    job = inside
    calls: list[int] = []

    def dies(tasks: Sequence[Callable[[], T]]) -> Sequence[T]:
        calls.append(len(tasks))
        done = several(tasks)
        if len(calls) == 3:
            raise ShardFailedError("the driver is killed here")
        return done

    with closing(driver(job, "1-of-2", chunk_bytes=8_000)) as made:
        with pytest.raises(ShardFailedError):
            made.run(["1-of-2"], by_hand(2, dies))
        assert 2 == made.came_to.chunks
    delivered = Counter(map(without_origin, job.documents()))
    assert 0 == job.run()

    whole, wanted = Counter(map(without_origin, job.documents())), by_a_worker(job)
    assert set(wanted) == set(whole)
    repeated = whole - wanted
    assert 0 < repeated.total() < delivered.total()
    assert {1} == set(repeated.values())
    assert job.books()


def test_a_running_worker_hands_over_and_continues(job: GapJob) -> None:
    """The worker releases the requested split, and takes it back when the driver is done."""
    command = [sys.executable, "-c", RUN, "run", str(job.path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as worker:  # noqa: S603 (our own interpreter)
        assert worker.stderr is not None
        lines = iter(worker.stderr)
        wait_for_event(lines, "split_started", "1-of-2")
        assert 0 == catch_up(job, "--split", "1-of-2")
        wait_for_event(lines, "split_handed_over", "1-of-2")
        wait_for_event(lines, "split_started", "1-of-2")
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=180)
        assert 0 == worker.returncode

    assert 0 == job.run()
    assert by_a_worker(job) == Counter(map(without_origin, job.documents()))
    assert job.books()


def wait_for_event(lines: Iterator[str], event: str, split: str) -> None:
    """Read the worker's log up to a line with an event and a split."""
    assert any(event in line and split in line for line in lines)


def test_a_split_that_is_not_given_back(inside: GapJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the owner does not release the split for several leases, the driver names it and ends."""
    monkeypatch.setattr(Driver, "_wait_ms", lambda _: 0)
    store = SqliteStore.open(inside.folder / "state.db", "orders")
    owner = msgspec.structs.replace(this_process(), worker="other")
    store.enroll(owner)
    store.claim("other", store.leases(), 60_000)
    with closing(store), closing(driver(inside, "1-of-2")) as made:
        with pytest.raises(SplitBusyError, match="split 1-of-2: was not released"):
            made.run(["1-of-2"], by_hand(1))

        assert {"other"} == set(owners(inside))


def test_what_was_given_back_is_not_held(inside: GapJob) -> None:
    """A lease that was released is not renewed any more."""
    with closing(driver(inside, "1-of-2")) as made:
        made.run(["1-of-2"], by_hand(1))

        assert ["1-of-2"] == made.came_to.done
        assert {} == made._lease_holder.held  # noqa: SLF001 (a renewal of it changes nothing to see)


def test_tasks_that_fail(job: GapJob, capsys: pytest.CaptureFixture[str]) -> None:
    """Splits of failed tasks are released with the reason, and the status is 1; a retry works."""
    (job.folder / "out.jsonl").rename(job.folder / "kept.jsonl")
    (job.folder / "out.jsonl").mkdir()
    assert 1 == catch_up(job, "--lag-bytes", "0")
    said = capsys.readouterr()

    assert "2 splits were given back before their end" in said.err
    assert 0 == open_files(Path(tempfile.gettempdir()) / "headrace-part-")
    assert [None, None] == owners(job)
    with closing(SqliteStore.open(job.folder / "state.db", "orders")) as store:
        assert ["environment"] * 2 == [row.problem.partition(":")[0] for row in store.leases()]
    (job.folder / "out.jsonl").rmdir()
    (job.folder / "kept.jsonl").rename(job.folder / "out.jsonl")
    assert 0 == catch_up(job, "--lag-bytes", "0")
    assert by_a_worker(job) == Counter(map(without_origin, job.documents()))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--split", "3-of-2"), "--split: '3-of-2' is not a split of the job"),
        (("--chunk-bytes", "0"), "--chunk-bytes: must be at least 1, found '0'"),
        (("--chunk-bytes", "9" * 30), "--chunk-bytes: must be at most 9223372036854775807"),
        (("--lag-bytes", "-1"), "--lag-bytes: must be at least 0, found '-1'"),
        (("--split", "1-of-2", "--until", "noon"), "'noon' is not a position"),
    ],
)
def test_arguments(
    job: GapJob, capsys: pytest.CaptureFixture[str], arguments: Sequence[str], said: str
) -> None:
    """Invalid options are refused by name, and no worker loses a split."""
    assert 2 == catch_up(job, *arguments)
    assert said in capsys.readouterr().err
    assert 10 == len(job.documents())


@pytest.mark.parametrize(
    ("section", "options", "said"),
    [
        (
            "sink",
            {"plugin": "kafka", "path": None, "topic": "t", "bootstrap.servers": "h:1"}
            | {"exactly.once": True},
            "sink: splits that are written exactly once are not caught up",
        ),
        (
            "source",
            {"plugin": "files", "path": "*.cql", "nodes": None, "schema": None, "splits": None},
            "cannot be read in micro-batches",
        ),
    ],
)
def test_what_is_left_to_workers(
    job: GapJob,
    capsys: pytest.CaptureFixture[str],
    section: str,
    options: dict[str, object],
    said: str,
) -> None:
    """Jobs that only a worker can run are refused."""
    document = yaml.safe_load(job.path.read_text())
    changed = document[section] | options
    document[section] = {name: each for name, each in changed.items() if each is not None}
    job.path.write_text(yaml.safe_dump(document))

    assert 2 == catch_up(job, "--lag-bytes", "0")
    assert said in capsys.readouterr().err


def test_a_job_that_never_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job that never ran is reported to have no splits."""
    job = GapJob(tmp_path)
    SqliteStore.open(tmp_path / "state.db", "orders").close()

    assert 2 == catch_up(job)
    assert "job: has never run" in capsys.readouterr().err

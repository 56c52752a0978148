"""The driver of a stream, with queries by hand instead of Spark: it follows what is wanted."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
import yaml
from structlog.testing import capture_logs

from headrace.connector.control.commands import Commands
from headrace.connector.control.running import JobLag, Running
from headrace.connector.control.status import ConnectorStatus
from headrace.connector.foundation.states import Observed
from headrace.connector.hosting.host import Host
from headrace.connector.replay.errors import JobBusyError
from headrace.connector.replay.stream.checkpoint import checkpoint_of
from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import ConfigError, HeadraceError
from helpers.jobs.children import SECONDS_MAX, until
from helpers.logs.gap_jobs import GapJob
from helpers.servers.collector import attributes, collecting
from helpers.streams.by_hand import HandQuery, engine_by_hand, run_by_hand

T, OTHER = "forged.t", "forged.other"
SINK = "CREATE DATA_SINK k WITH 'file://out.jsonl';"
SOURCE = f"CREATE DATA_SOURCE cdc ON TABLE {T} WITH k AND job = 'orders';"
SECOND = f"CREATE DATA_SOURCE cdc ON TABLE {OTHER} WITH k AND job = 'orders';"


class Driven:
    """A job of statements, run by a driver on a thread."""

    def __init__(self, folder: Path) -> None:
        """Make sink and source."""
        self.job = GapJob(folder)
        self.job.from_statements()
        self.job.execute(SINK + SOURCE)
        self.queries: list[HandQuery] = []
        self.error: HeadraceError | None = None

    @contextlib.contextmanager
    def running(
        self, seen: Callable[[HandQuery], object] = id, *, by_source: bool = False
    ) -> Iterator[None]:
        """Run it during the block; on Spark, or *by_source* on what its source says."""

        def begun(query: HandQuery) -> None:
            self.queries.append(query)
            seen(query)

        engine = engine_by_hand(until_idle=False, seen=begun)
        log = structlog.stdlib.get_logger()
        host = Host(self.job.path, log=log, engine=None if by_source else engine, on_spark=engine)

        def run() -> None:
            try:
                host.run(until_idle=False)
            except HeadraceError as error:
                self.error = error

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            host.stop()
            thread.join(SECONDS_MAX)
            assert not thread.is_alive()

    def status(self, name: str = f"cdc.{T}") -> ConnectorStatus:
        """Return the status of a source."""
        with contextlib.closing(open_notes(self.job.folder / "state.db")) as notes:
            return Commands(notes).status(name)

    def is_seen(self, state: Observed, name: str = f"cdc.{T}") -> Callable[[], bool]:
        """Return whether a source is in *state*, to be asked again and again."""
        return lambda: self._lives() and self.status(name).state is state

    def has(self, *rows: int) -> Callable[[], bool]:
        """Return whether the sink has exactly these rows, to be asked again and again."""
        out = self.job.folder / "out.jsonl"
        return lambda: self._lives() and out.exists() and sorted(rows) == self.job.rows()

    def started(self, queries: int) -> Callable[[], bool]:
        """Return whether so many queries have started, to be asked again and again."""
        return lambda: self._lives() and queries == len(self.queries)

    def _lives(self) -> bool:
        if self.error is not None:
            raise self.error
        return True


@pytest.fixture
def driven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driven:
    """Return such a job."""
    monkeypatch.chdir(tmp_path)
    return Driven(tmp_path)


def test_status_and_stops(driven: Driven) -> None:
    """It is seen running; STOP ends the query and gives back the leases, RESUME continues."""
    driven.job.log(1, range(3))
    with driven.running():
        until(driven.has(*range(3)), "the first changes never came")
        until(driven.is_seen(Observed.RUNNING), "it was never seen to run")
        assert ["1-of-2", "2-of-2"] == [each.split for each in driven.status().splits]
        driven.job.execute(f"STOP DATA_SOURCE cdc ON TABLE {T}")
        until(driven.is_seen(Observed.STOPPED), "it never stopped")
        driven.job.log(2, range(3, 6))
        assert not driven.queries[-1].isActive
        driven.job.execute(f"RESUME DATA_SOURCE cdc ON TABLE {T}")
        until(driven.has(*range(6)), "it never went on")

    assert driven.error is None
    assert Observed.UNASSIGNED is driven.status().state


def test_it_is_traced(driven: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector gets a span of each micro-batch, and in the end the books as committed."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    driven.job.log(1, range(3))
    with collecting() as collector:
        driven.job.trace(collector.url)
        with driven.running():
            until(driven.has(*range(3)), "the first changes never came")
            driven.job.log(2, range(3, 6))
            until(driven.has(*range(6)), "the others never came")
        spans = collector.spans()
        metrics = collector.newest()

    reported = [attributes(span.attributes) for span in spans]
    assert 6 == sum(int(str(each["headrace.records"])) for each in reported)
    assert {("micro_batch", "orders")} == {
        (span.name, each["headrace.job"]) for span, each in zip(spans, reported, strict=True)
    }
    assert len(reported) == len({each["headrace.batch"] for each in reported}) >= 2
    times = {(span.start_time_unix_nano, span.end_time_unix_nano) for span in spans}
    assert {(1_795_944_495_129_000_000, 1_795_944_495_130_000_000)} == times
    (batches,) = metrics["headrace_micro_batches_total"].sum.data_points
    assert len(reported) == batches.as_int
    changes = metrics["headrace_changes_total"].sum.data_points
    delivered = [p for p in changes if attributes(p.attributes)["fate"] == "delivered"]
    assert 6 == sum(p.as_int or p.as_double for p in delivered)


def test_pause(driven: Driven) -> None:
    """PAUSE ends the query and keeps the leases."""
    driven.job.log(1, range(3))
    with driven.running():
        until(driven.has(*range(3)), "the first changes never came")
        driven.job.execute(f"PAUSE DATA_SOURCE cdc ON TABLE {T}")
        until(driven.is_seen(Observed.PAUSED), "it never paused")
        driven.job.log(2, range(3, 6))
        owners = {split.worker for split in driven.status().splits}
        assert 1 == len(owners)
        assert "" not in owners
        driven.job.execute(f"RESUME DATA_SOURCE cdc ON TABLE {T}")
        until(driven.has(*range(6)), "it never went on")


def test_the_engine_of_a_source(driven: Driven) -> None:
    """The option `engine` of a source says what runs its job; ALTER moves it to the other."""
    on = f"DATA_SOURCE cdc ON TABLE {T}"
    driven.job.log(1, range(3))
    with driven.running(by_source=True):
        until(driven.has(*range(3)), "the worker never delivered")
        until(driven.is_seen(Observed.RUNNING), "it was never seen to run")
        assert not driven.queries
        driven.job.execute(f"STOP {on}")
        until(driven.is_seen(Observed.STOPPED), "it never stopped")
        driven.job.execute(f"ALTER {on} WITH engine = 'spark'")
        driven.job.log(2, range(3, 6))
        driven.job.execute(f"RESUME {on}")
        until(driven.has(*range(6)), "Spark never delivered")
        until(driven.is_seen(Observed.RUNNING), "it was never seen to run on Spark")
        assert driven.queries
        driven.job.execute(f"ALTER {on} WITH engine = 'worker'")
        until(lambda: not driven.queries[-1].isActive, "the query never ended")
        driven.job.log(3, range(6, 9))
        until(driven.has(*range(9)), "the worker never continued")
    assert driven.error is None


def test_a_process_without_spark(driven: Driven) -> None:
    """Where a process starts no Spark, a job that is to run there is refused, and says so."""
    driven.job.execute(f"ALTER DATA_SOURCE cdc ON TABLE {T} WITH engine = 'spark'")
    with pytest.raises(ConfigError, match="are to run on Spark"):
        Host(driven.job.path, log=structlog.stdlib.get_logger()).run(until_idle=True)
    assert "are to run on Spark" in driven.status().reason


@pytest.mark.parametrize("verb", ["RESUME", "PAUSE"])
def test_leases_are_renewed(driven: Driven, verb: str) -> None:
    """Also while the source is paused: else another process could take over the splits."""
    document = yaml.safe_load(driven.job.path.read_text())
    driven.job.path.write_text(yaml.safe_dump({**document, "runtime": {"lease_seconds": 0.6}}))
    driven.job.execute(f"{verb} DATA_SOURCE cdc ON TABLE {T}")

    def beats() -> list[int]:
        with contextlib.closing(open_notes(driven.job.folder / "state.db")) as notes:
            return [row.beat for row in notes.store("orders").leases()]

    with driven.running():
        until(lambda: len(beats()) == 2 and min(beats()) > 2, "they were never renewed")
        assert 1 == len({split.worker for split in driven.status().splits} - {""})
    assert driven.error is None


def test_restart(driven: Driven) -> None:
    """RESTART ends the query and starts another one, where it was."""
    driven.job.log(1, range(3))
    with driven.running():
        until(driven.has(*range(3)), "the first changes never came")
        driven.job.execute(f"RESTART DATA_SOURCE cdc ON TABLE {T}")
        until(driven.started(2), "the query never started again")
        driven.job.log(2, range(3, 6))
        until(driven.has(*range(6)), "it never continued")
        assert 2 == len(driven.queries)
    assert driven.error is None


def test_a_source_that_is_created_while_it_runs(driven: Driven) -> None:
    """Changes of its table come from then on: the query starts again where it was."""
    driven.job.log(1, range(3), others=range(10, 12))
    with driven.running():
        until(driven.has(*range(3)), "the first changes never came")
        driven.job.execute(SECOND)
        until(driven.started(2), "the query never started again")
        driven.job.log(2, range(3, 6), others=range(12, 14))
        until(driven.has(*range(6), 12, 13), "the new source never delivered")
        driven.job.execute(f"DROP DATA_SOURCE cdc ON TABLE {OTHER}")
        until(driven.started(3), "the query never started again")
        driven.job.log(3, range(6, 9), others=range(14, 16))
        until(driven.has(*range(9), 12, 13), "the source that stays never delivered")

    assert driven.error is None


def test_leases_that_are_given_back_late(driven: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not answer when a query ends is asked again, and the next one starts."""
    dismiss, failures = Store.dismiss, iter([StoreUnavailableError("it is locked")])

    def late(store: Store, worker: str) -> None:
        for failure in failures:
            raise failure
        dismiss(store, worker)

    monkeypatch.setattr(Store, "dismiss", late)
    driven.job.log(1, range(3))
    with driven.running():
        until(driven.has(*range(3)), "the first changes never came")
        driven.job.execute(SECOND)
        until(driven.started(2), "the query never started again")

    assert driven.error is None
    assert None is next(failures, None)


def test_a_sink_that_is_altered_while_it_runs(driven: Driven) -> None:
    """What follows goes to the new place; nothing comes twice."""
    driven.job.log(1, range(3))
    with driven.running():
        until(driven.has(*range(3)), "the first changes never came")
        driven.job.execute("ALTER DATA_SINK k WITH 'file://new.jsonl'")
        driven.job.log(2, range(3, 6))
        new = driven.job.folder / "new.jsonl"
        until(lambda: new.exists() and 3 == len(new.read_text().splitlines()), "nothing moved")

    assert [*range(3)] == driven.job.rows()


def test_tasks_never_read_another_configuration(driven: Driven) -> None:
    """A statement between the start of a query and its tasks ends it before it reads."""

    def change(query: HandQuery) -> None:
        if len(driven.queries) == 1:
            driven.job.execute("ALTER DATA_SINK k WITH 'file://new.jsonl'")
            driven.job.log(1, range(3))
            assert query.batches == 0

    with driven.running(seen=change):
        new = driven.job.folder / "new.jsonl"
        until(lambda: new.exists() and 3 == len(new.read_text().splitlines()), "nothing came")

    assert driven.error is None
    assert [0, True] == [driven.queries[0].batches, driven.queries[1].batches > 0]
    assert not (driven.job.folder / "out.jsonl").exists()


def test_one_of_two_sources_stops(driven: Driven) -> None:
    """It gets a job of its own, which continues on Spark where it stopped."""
    driven.job.execute(SECOND)
    driven.job.log(1, range(3), others=range(10, 12))
    with driven.running():
        until(driven.has(*range(3), 10, 11), "the first changes never came")
        driven.job.execute(f"STOP DATA_SOURCE cdc ON TABLE {OTHER}")
        until(driven.is_seen(Observed.STOPPED, f"cdc.{OTHER}"), "it never stopped")
        driven.job.log(2, range(3, 6), others=range(12, 14))
        until(driven.has(*range(6), 10, 11), "the other never went on")
    fork = driven.status(f"cdc.{OTHER}").job
    driven.job.execute(f"RESUME DATA_SOURCE cdc ON TABLE {OTHER}")

    assert 2 == run_by_hand(driven.job.path, job=fork)
    assert [*range(6), 10, 11, 12, 13] == driven.job.rows()


def test_a_job_of_a_workers_file(driven: Driven) -> None:
    """A file without a job serves every job of the statements, by name."""
    driven.job.leave_name()
    driven.job.log(1, range(3))

    assert 3 == run_by_hand(driven.job.path, job="orders")


def _lag(notes: NoteCopy, commands: Commands) -> JobLag:
    found = Running(notes, commands).lags(["orders"], may_wait=False)["orders"]
    assert isinstance(found, JobLag)
    return found


def test_offsets_and_lag(driven: Driven) -> None:
    """OFFSETS and LAG show what Spark has committed."""
    driven.job.log(1, range(3))
    run_by_hand(driven.job.path)
    with contextlib.closing(open_notes(driven.job.folder / "state.db")) as notes:
        commands = Commands(notes)
        offsets = commands.offsets(f"cdc.{T}")
        idle = _lag(notes, commands)
        driven.job.log(2, range(3, 6))
        behind = _lag(notes, commands)

    committed = checkpoint_of(driven.job.folder / "state.db", "orders").committed()
    assert committed is not None
    parts = [(dict(part), dict(place)) for part, place in committed[1]["parts"]]
    assert [
        ({"split": s, **part}, place) for s in ("1-of-2", "2-of-2") for part, place in parts
    ] == [(dict(each.partition), dict(each.offset or {})) for each in offsets]
    assert {0} == {size_bytes for size_bytes, _ in idle.left.values()}
    assert all(size_bytes > 0 for size_bytes, _ in behind.left.values())


def test_a_position_that_is_set(driven: Driven) -> None:
    """SET POSITION of the stopped source moves the stream; of one split it is refused by name."""
    driven.job.log(1, range(3))
    run_by_hand(driven.job.path)
    driven.job.execute(f"STOP DATA_SOURCE cdc ON TABLE {T}")
    driven.job.execute(f"ALTER DATA_SOURCE cdc ON TABLE {T} SET POSITION = 'earliest'")
    driven.job.execute(f"RESUME DATA_SOURCE cdc ON TABLE {T}")
    driven.job.log(2, range(3, 6))

    assert 6 == run_by_hand(driven.job.path)
    assert sorted([*range(3), *range(6)]) == driven.job.rows()


def test_worker_and_spark_hand_over(driven: Driven) -> None:
    """Each continues where the other ended; nothing is lost or repeated, and the books balance."""
    driven.job.log(1, range(3))
    assert 0 == driven.job.run()
    driven.job.log(2, range(3, 6))
    assert 3 == run_by_hand(driven.job.path)
    driven.job.log(3, range(6, 9))
    assert 0 == driven.job.run()
    driven.job.log(4, range(9, 12))
    assert 3 == run_by_hand(driven.job.path)

    assert [*range(12)] == driven.job.rows()
    totals = driven.job.verified("--sink")["total"]["tables"]
    assert 12 == sum(each["delivered"] for each in totals.values())


def test_never_both_at_once(driven: Driven) -> None:
    """While one runs the job, the other is refused by name, and the status stays."""
    driven.job.log(1, range(3))
    with driven.running():
        until(driven.is_seen(Observed.RUNNING), "it was never seen to run")
        with pytest.raises(JobBusyError, match="Spark runs it"):
            Host(driven.job.path, log=structlog.stdlib.get_logger()).run(until_idle=True)
        assert Observed.RUNNING is driven.status().state
    worker = Host(driven.job.path, log=structlog.stdlib.get_logger())
    thread = threading.Thread(target=lambda: worker.run(until_idle=False))
    thread.start()
    try:
        until(driven.is_seen(Observed.RUNNING), "the worker was never seen to run")
        with pytest.raises(JobBusyError, match=r"process .+ runs it"):
            run_by_hand(driven.job.path)
        assert Observed.RUNNING is driven.status().state
    finally:
        worker.stop()
        thread.join(SECONDS_MAX)


def test_splits_at_different_places(driven: Driven) -> None:
    """A stream cannot begin there: it is refused by name, and nothing is read."""
    driven.job.log(1, range(3))
    run_by_hand(driven.job.path)
    driven.job.execute(f"STOP DATA_SOURCE cdc ON TABLE {T}")
    driven.job.execute(
        f"ALTER DATA_SOURCE cdc ON TABLE {T} SET POSITION = 'earliest' FOR SPLIT '1-of-2'"
    )
    driven.job.execute(f"RESUME DATA_SOURCE cdc ON TABLE {T}")

    with pytest.raises(ConfigError, match="1-of-2 and 2-of-2 are at different places"):
        run_by_hand(driven.job.path)
    assert [*range(3)] == driven.job.rows()


def test_what_is_left_after_each_batch(driven: Driven) -> None:
    """It is what all logs have together, however many splits read them.

    A position is up to a segment of one node behind: its copies came after the agreement.
    """
    for number in range(1, 4):
        driven.job.log(number, range(3 * number, 3 * number + 3))
    sizes = [path.stat().st_size for path in sorted(driven.job.folder.glob("n1/CommitLog-*.log"))]
    with capture_logs() as logged:
        assert 9 == run_by_hand(driven.job.path)

    batches = [each for each in logged if each["event"] == "micro_batch"]
    assert [3, 3, 3] == [each["records"] for each in batches]
    for number, each in enumerate(batches, start=1):
        at_least = 3 * sum(sizes[number:])
        assert at_least <= each["left_bytes"] <= at_least + max(sizes)

"""Replays and comparisons by statements, over forged logs and a broker in this process."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.control.errors import BadRunError, NotFoundError
from headrace.connector.control.jobs import JobText, read_job
from headrace.connector.control.runs.options import ReconcileOptions
from headrace.connector.control.service import ControlService
from headrace.connector.hosting.host import Host
from headrace.connector.hosting.run_taker import RunTaker
from headrace.connector.language.parser import parse_script
from headrace.connector.language.rendering import ResultTable
from headrace.connector.replay import delivery
from headrace.connector.replay.comparing.job_comparison import JobComparison
from headrace.connector.replay.comparing.reporting import write_report
from headrace.connector.replay.delivery import ShardReport, Target
from headrace.connector.replay.engine import Engine, gather_here, once_here, perform_here
from headrace.connector.replay.runs import RunTable
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard
from headrace.connector.stores.asked_runs import NAMES_MAX
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import ConfigError
from headrace.plugins.testing.doubles import context
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs.children import until
from helpers.jobs.deliveries import consume
from helpers.logs.forged import TABLE, insert
from helpers.logs.gap_jobs import GapJob
from helpers.servers.collector import attributes, collecting

Given = Any  # What a function is given that this test passes on.
ROWS = 40
SHARDS = 10  # So many that logs are read once for all.
T = "forged.t"
SOURCE = f"DATA_SOURCE cdc ON TABLE {T}"
REPLAY = f"REPLAY {SOURCE} WITH shards = {SHARDS}"
RECONCILE = f"RECONCILE {SOURCE} WITH no_table = true AND grace = 0"
_KILLED = """
import os, signal, sys
from headrace.connector.commands.cli import main
from headrace.connector.replay import delivery
deliver, done = delivery.deliver, []
def delivered(shard, target, **given):
    report = deliver(shard, target, **given)
    done.append(shard.number)
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return report
delivery.deliver = delivered
sys.exit(main(sys.argv[1:]))
"""


class Statements:
    """A job of statements over three forged logs, whose sink is topic `t` of a broker."""

    def __init__(self, folder: Path, broker: EmbeddedBroker) -> None:
        """Log some rows."""
        self.job = GapJob(folder)
        self.broker = broker
        self.log(1, range(ROWS))
        self.job.from_statements()
        servers = broker.bootstrap_servers
        self.execute(
            f"CREATE DATA_SINK k WITH 'kafka://{servers}?topic=t';"
            f"CREATE {SOURCE} WITH k AND job = 'orders';"
        )

    def log(self, number: int, rows: range) -> None:
        """Let all nodes log rows, each in a segment of its own."""
        self.job.spread(number, *(insert(b"k%d" % n, b"%c" % n, table=TABLE) for n in rows))

    def execute(self, text: str) -> ResultTable:
        """Execute statements; return the last answer."""
        with closing(open_notes(self.job.folder / "state.db")) as notes:
            service = ControlService(notes)
            return [service.execute(parsed.statement) for parsed in parse_script(text)][-1]

    def ask(self, text: str) -> str:
        """Ask for a run; return its name."""
        return str(self.execute(text).rows[0][0])

    def shown(self) -> Sequence[Mapping[str, str]]:
        """Return the rows of SHOW RUNS."""
        table = self.execute("SHOW RUNS")
        return [dict(zip(table.columns, row, strict=True)) for row in table.rows]

    def newest(self, *columns: str) -> tuple[str, ...]:
        """Return columns of the newest run."""
        return tuple(self.shown()[0][column] for column in columns)

    def sent(self, topic: str) -> int:
        """Return how many messages a topic has."""
        return len(consume(self.broker.bootstrap_servers, topic))


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Statements]:
    """Return a job with a broker of its own."""
    broker = EmbeddedBroker()
    yield Statements(tmp_path, broker)
    del broker


def test_a_replay(made: Statements) -> None:
    """All changes are sent again into topics of their own; SHOW RUNS shows the end, STATUS not."""
    name = made.ask(REPLAY)
    assert ("WAITING", "0/0") == made.newest("state", "shards")

    assert 0 == made.job.run()

    assert (ROWS, ROWS) == (made.sent("t"), made.sent("t.replay"))
    assert (name, "replay", "COMPLETED", f"{SHARDS}/{SHARDS}", str(ROWS), "0", "") == made.newest(
        "run", "kind", "state", "shards", "changes", "lost", "problem"
    )
    assert 0 < int(made.newest("size_bytes")[0])
    assert 0 < int(made.newest("rate")[0])
    assert name not in made.execute("SHOW STATUS").rows[0][-1]
    assert 0 == made.job.call("verify")


def test_options_of_a_replay(made: Statements, tmp_path: Path) -> None:
    """WITH says where to, what and how; a time before the logs has no changes, and says so."""
    made.execute(
        f"{REPLAY} AND into_live = true; {REPLAY} AND suffix = '.again' AND operations = 'DELETE';"
        f"{REPLAY} AND to_folder = 'files'; {REPLAY} AND token_range = '0:' AND suffix = '.part';"
        f"REPLAY {SOURCE} FROM NOW() - '1s' WITH suffix = '.late'"
    )
    assert 0 == made.job.run()

    assert f"{SHARDS}/{SHARDS}" == made.shown()[2]["shards"]
    assert {"COMPLETED"} == {each["state"] for each in made.shown()}
    assert 2 * ROWS == made.sent("t")
    assert 0 < made.sent("t.part") < ROWS
    assert [str(count) for count in (0, made.sent("t.part"), ROWS, 0, ROWS)] == [
        each["changes"] for each in made.shown()
    ]
    assert list((tmp_path / "files" / T).glob("*.parquet"))


def test_options_of_a_target(made: Statements, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, lakes, catalogs, formats and the rate are those of WITH."""
    found: list[tuple[object, ...]] = []

    def delivered(shard: Shard, target: Target, **_: object) -> ShardReport:
        found.append((target.path, target.lake, target.catalog, target.format, target.rate))
        return ShardReport(number=shard.number, problem="seen")

    monkeypatch.setattr(delivery, "deliver", delivered)
    lake = "to_folder = 'lake' AND lake = 'iceberg' AND catalog = 'c'"
    made.execute(
        f"REPLAY {SOURCE} WITH shards = 1 AND {lake} AND rate = 7;"
        f"REPLAY {SOURCE} WITH shards = 1 AND to_folder = 'lake' AND format = 'json';"
    )
    assert 1 == made.job.run()
    assert [("lake", "iceberg", "c", "avro", 7), ("lake", "", "", "json", 0)] == found


def test_positions_of_a_replay(made: Statements) -> None:
    """After the end and up to the beginning of the logs there is nothing."""
    made.execute(f"{REPLAY} AND after = 'latest'; {REPLAY} AND until = 'earliest'; {REPLAY}")
    made.job.run()
    assert [str(ROWS), "0", "0"] == [each["changes"] for each in made.shown()]


def test_gaps_of_a_replay(made: Statements) -> None:
    """With segments that two logs have a replay needs `accept_gaps`."""
    made.job.log(2, range(3))
    made.execute(f"{REPLAY}; {REPLAY} AND accept_gaps = true")
    assert 1 == made.job.run()
    assert ["COMPLETED", "FAILED"] == [each["state"] for each in made.shown()]
    assert "archive_gap" in made.shown()[1]["problem"]


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("REPLAY DATA_SOURCE cdc ON TABLE forged.u", NotFoundError, "does not exist"),
        (f"{REPLAY} AND sufix = 'x'", ConfigError, "did you mean suffix"),
        (f"{REPLAY} AND suffix = 'x' AND into_live = true", ConfigError, "contradicts into_live"),
        (f"{REPLAY} AND format = 'json'", ConfigError, "is of files in a folder"),
        (f"REPLAY {SOURCE} FROM 'never'", BadRunError, "expected a time, found 'never'"),
        (f"REPLAY {SOURCE} FROM '2026-02-01' TO '2026-01-01'", BadRunError, "is not after FROM"),
        (f"RECONCILE {SOURCE} FROM '9000-01-01'", BadRunError, "nothing was written after now"),
        (f"RECONCILE {SOURCE} WITH buckets = 0", ConfigError, "must be at least 1"),
        ("PAUSE RUN 'x'", NotFoundError, "run 'x' does not exist"),
    ],
)
def test_refused(made: Statements, text: str, error: type[ConfigError], said: str) -> None:
    """What can be known to be wrong is an error of the statement, which asks for nothing."""
    with pytest.raises(error) as raised:
        made.execute(text)
    problem = raised.value.problems[0]
    assert said in f"{problem.message} {problem.hint}"
    assert [] == made.shown()


def test_a_sink_without_topics(made: Statements) -> None:
    """Topics of a run's own are refused by a sink that has none, when the statement comes."""
    made.execute(f"CREATE DATA_SINK f WITH 'file://out.jsonl';ALTER {SOURCE} WITH f;")
    with pytest.raises(BadRunError, match="f has no topics, so none that end in"):
        made.execute(REPLAY)
    made.ask(f"{REPLAY} AND into_live = true")


def test_a_time_before_the_logs(made: Statements, capsys: pytest.CaptureFixture[str]) -> None:
    """A range of time that no log holds is an error of the run, which says where the logs begin."""
    made.ask(f"REPLAY {SOURCE} FROM '2000-01-01' TO '2000-01-02'")

    assert 1 == made.job.run()
    state, problem = made.newest("state", "problem")
    assert "FAILED" == state
    assert "archive_gap" in problem
    assert "behind all that is asked for" in problem
    assert "archive_gap" in capsys.readouterr().err


def test_killed(made: Statements) -> None:
    """After SIGKILL another process continues: what was done is not sent again, the rest is."""
    made.ask(REPLAY)
    folder = made.job.folder
    command = [sys.executable, "-c", _KILLED, "run", str(made.job.path), "--until-idle"]
    with subprocess.Popen(  # noqa: S603 (ours)
        command,
        env=os.environ | {"TMPDIR": str(folder)},  # What it cannot remove goes with the test.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as child:
        assert -signal.SIGKILL == child.wait()
    assert ("RUNNING", f"2/{SHARDS}") == made.newest("state", "shards")
    before = made.sent("t.replay")

    assert 0 == made.job.run()
    assert ("COMPLETED", f"{SHARDS}/{SHARDS}", str(ROWS)) == made.newest(
        "state", "shards", "changes"
    )
    keys = [message.key() for message in consume(made.broker.bootstrap_servers, "t.replay")]
    assert ROWS == len(set(keys))
    assert len(keys) - ROWS <= before  # At most what the third shard had sent.
    assert ROWS > len(keys) - ROWS


def test_paused_and_resumed(made: Statements, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay ends amid its shards when it is paused, and continues with what is left."""
    reached, go_on = threading.Event(), threading.Event()
    deliver, numbers = delivery.deliver, []

    def delivered(shard: Shard, target: Target, **given: Given) -> ShardReport:
        numbers.append(shard.number)
        if len(numbers) == 3:
            reached.set()
            assert go_on.wait(30)
        return deliver(shard, target, **given)

    monkeypatch.setattr(delivery, "deliver", delivered)
    name = made.ask(REPLAY)
    host = Host(made.job.path, log=context().log)
    thread = threading.Thread(target=lambda: host.run(until_idle=False))
    thread.start()
    try:
        assert reached.wait(30)
        assert ("RUNNING", f"2/{SHARDS}") == made.newest("state", "shards")
        made.execute(f"PAUSE RUN '{name}'")
        go_on.set()
        assert "PAUSED" == made.newest("state")[0]
        until(lambda: "WAITING" == _seen(made), "it never halted")
        assert len(numbers) < SHARDS
        made.execute(f"RESUME RUN '{name}'")
        until(lambda: made.newest("state") == ("COMPLETED",), "it never ended")
    finally:
        go_on.set()
        host.stop()
        thread.join()

    assert len(numbers) <= SHARDS + 1  # None that was done is delivered again.
    assert (f"{SHARDS}/{SHARDS}", str(ROWS)) == made.newest("shards", "changes")


def _seen(made: Statements) -> str:
    with closing(open_notes(made.job.folder / "state.db")) as notes:
        ((_, seen),) = ControlService(notes).commands.runs()
    return seen.state.value


def test_two_processes(made: Statements) -> None:
    """Of two that take a run at the same time one delivers it, and it is delivered once."""
    made.ask(REPLAY)
    job = read_job(made.job.path)
    takers = [RunTaker(job, context().log) for _ in range(2)]
    with closing(open_notes(made.job.folder / "state.db")) as notes:
        name = made.shown()[0]["run"]
        with closing(RunTable(job.notes)) as table, table.executing(f"plan-{name}"):
            takers[0]._look(notes)  # noqa: SLF001 (the thread calls it each second)
            assert "WAITING" == made.newest("state")[0]
        with closing(RunTable(job.notes)) as table, table.executing(name):
            takers[0]._look(notes)  # noqa: SLF001 (the thread calls it each second)
            assert ("0/10", "0") == made.newest("shards", "changes")
        threads = [threading.Thread(target=_look, args=(each, job.notes)) for each in takers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        takers[0]._look(notes)  # noqa: SLF001 (the thread calls it each second)

    assert ("COMPLETED", str(ROWS)) == made.newest("state", "changes")
    assert ROWS == made.sent("t.replay")


def _look(taker: RunTaker, place: Path) -> None:
    with closing(open_notes(place)) as notes:
        taker._look(notes)  # noqa: SLF001 (the thread calls it each second)


def test_a_source_that_is_dropped(made: Statements, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for goes with its source, also amid a run; its shards are forgotten, too."""
    deliver = delivery.deliver

    def dropped(shard: Shard, target: Target, **given: Given) -> ShardReport:
        if not numbers:
            made.execute(f"DROP {SOURCE}")
        numbers.append(shard.number)
        return deliver(shard, target, **given)

    numbers: list[int] = []
    made.ask(REPLAY)
    monkeypatch.setattr(delivery, "deliver", dropped)
    job = read_job(made.job.path)
    _look(RunTaker(job, context().log), job.notes)
    assert [] == made.shown()
    assert len(numbers) < SHARDS

    made.execute(f"CREATE {SOURCE} WITH k AND job = 'orders'")
    kept = made.ask(REPLAY)
    _look(RunTaker(job, context().log), job.notes)
    with closing(RunTable(job.notes)) as table:
        assert [kept] == [run.run for run in table.runs()]


def test_a_sink_that_fails(made: Statements, capsys: pytest.CaptureFixture[str]) -> None:
    """The reason is in SHOW RUNS, in STATUS and in `status`; RESUME sends what is left."""
    (made.job.folder / "files").write_text("no folder")
    name = made.ask(f"{REPLAY} AND to_folder = 'files'")
    assert 0 != made.job.run()
    state, problem = made.newest("state", "problem")
    assert "FAILED" == state
    assert "files" in problem
    capsys.readouterr()
    assert f"{name}: FAILED" in made.execute("SHOW STATUS").rows[0][-1]
    assert 1 == made.job.call("status")
    assert f"run {name} is FAILED" in capsys.readouterr().out
    (made.job.folder / "files").unlink()
    made.execute(f"RESUME RUN '{name}'")

    assert 0 == made.job.run()
    assert ("COMPLETED", str(ROWS), "") == made.newest("state", "changes", "problem")


def test_a_folder_elsewhere(made: Statements, tmp_path: Path) -> None:
    """Files are written below the folders that the worker's file allows, and nowhere else."""
    made.ask(f"{REPLAY} AND to_folder = '{tmp_path.parent / 'elsewhere'}'")
    assert 2 == made.job.run()
    state, problem = made.newest("state", "problem")
    assert ("FAILED", True) == (state, "to_folder: " in problem)
    assert "outside the folders for files" in problem
    assert not (tmp_path.parent / "elsewhere").exists()


def test_dropped_runs(made: Statements) -> None:
    """DROP RUN forgets what is over, and nothing that may still be taken."""
    name = made.ask(REPLAY)
    with pytest.raises(BadRunError, match=f"{name} is WAITING"):
        made.execute(f"DROP RUN '{name}'")
    made.execute(f"STOP RUN '{name}'; DROP RUN '{name}'")
    assert [] == made.shown()


def test_runs_that_are_over_are_bounded(made: Statements) -> None:
    """Of a source so many are kept; of those that went no shards are kept, either."""
    first = made.ask(REPLAY)
    assert 0 == made.job.run()
    for _ in range(NAMES_MAX):
        made.execute(f"STOP RUN '{made.ask(REPLAY)}'")
    last = made.ask(REPLAY)
    assert NAMES_MAX == len(made.shown())
    assert 0 == made.job.run()

    assert first not in {each["run"] for each in made.shown()}
    with closing(RunTable(made.job.folder / "state.db")) as table:
        assert [last] == [run.run for run in table.runs()]
        assert not table.shards(first)


def test_a_comparison_is_traced(made: Statements, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector gets a span of each part that RECONCILE reads."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert 0 == made.job.run()
    name = made.ask(RECONCILE)
    with collecting() as collector:
        made.job.trace(collector.url)
        assert 0 == made.job.run()
        reported = [attributes(s.attributes) for s in collector.spans() if s.name == "compare"]

    assert {name} == {each["headrace.run"] for each in reported}
    for side in ("logs", "topic"):
        found = [each["headrace.records"] for each in reported if each["headrace.side"] == side]
        assert ROWS == sum(int(str(each)) for each in found)


def test_a_comparison(made: Statements) -> None:
    """RECONCILE finds that all is there, and then a change that is missing; a report says which."""
    assert 0 == made.job.run()
    name = made.ask(RECONCILE)
    assert 0 == made.job.run()
    kind, state, changes, result = made.newest("kind", "state", "changes", "result")
    assert ("reconcile", "COMPLETED", str(ROWS)) == (kind, state, changes)
    assert f"{ROWS} changes in the logs, {ROWS} in the topic; no difference" in result
    done, _, shards = made.newest("shards")[0].partition("/")
    assert done == shards != "0"
    assert (made.job.folder / "reconcile" / name / "report.json").exists()

    made.log(2, range(ROWS, ROWS + 1))
    made.ask(RECONCILE)
    job = read_job(made.job.path)
    with closing(open_notes(job.notes)) as notes:  # No worker sends the change before.
        assert not RunTaker(job, context().log).finish(notes)
        ((_, seen), *_) = ControlService(notes).commands.runs()
    assert (1, f"{ROWS + 1} changes in the logs") == (seen.differences, seen.result[:22])
    assert "1 missing" in seen.result


def test_a_repair(made: Statements, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `repair` what is missing is sent into the live topic, and the next run finds all there.

    An attempt that ends amid the repair is followed by one that sends only what is left.
    """
    assert 0 == made.job.run()
    made.log(2, range(ROWS, ROWS + 3))
    made.ask(f"{RECONCILE} AND repair = true")
    job, deliver = read_job(made.job.path), delivery.deliver

    def once(shard: Shard, target: Target, **given: Given) -> ShardReport:
        report = deliver(shard, target, **given)
        if report.delivered:
            monkeypatch.setattr(delivery, "deliver", deliver)
            report.problem = "sink_failed: after it was sent"
        return report

    monkeypatch.setattr(delivery, "deliver", once)
    with closing(open_notes(job.notes)) as notes:  # No worker sends the changes before.
        (failure,) = RunTaker(job, context().log).finish(notes)
        assert "shards failed" in str(failure)
        sent = made.sent("t") - ROWS
        assert 0 < sent <= 3
        made.execute(f"RESUME RUN '{made.newest('run')[0]}'")
        assert not RunTaker(job, context().log).finish(notes)
        made.ask(f"{RECONCILE} AND repair = true")
        assert not RunTaker(job, context().log).finish(notes)
        (_, again), (_, repaired) = ControlService(notes).commands.runs()

    assert ROWS + 3 == made.sent("t")
    left = f"repaired by {3 - sent} changes; " if sent < 3 else ""
    assert repaired.result.startswith(f"{left}{ROWS + 3} changes in the logs")
    assert (3 - sent, 0) == (repaired.differences, repaired.lost)
    assert "no difference" in again.result


@pytest.mark.parametrize("asked", [REPLAY, RECONCILE, f"{RECONCILE} AND repair = true"])
@pytest.mark.parametrize("sayer", ["run", "source"])
def test_the_engine_of_a_run(
    made: Statements, monkeypatch: pytest.MonkeyPatch, asked: str, sayer: str
) -> None:
    """A run is on Spark if it or its source says so, at the process's master; it can be halted."""
    masters: list[str | None] = []

    @contextmanager
    def here(master: str | None, go_on: Callable[[], bool]) -> Iterator[Engine]:
        assert go_on()
        masters.append(master)
        yield Engine(perform_here, gather_here, once_here, width=2)

    monkeypatch.setattr("headrace.connector.hosting.taking.engine", here)
    assert 0 == made.job.run()
    if sayer == "source":
        made.execute(f"ALTER {SOURCE} WITH engine = 'spark'")
        made.ask(asked)
    else:
        made.ask(f"{asked} AND engine = 'spark'")
    made.ask(f"{REPLAY} AND engine = 'worker'")
    job = read_job(made.job.path)
    with closing(open_notes(job.notes)) as notes:
        assert not RunTaker(job, context().log, master="m").finish(notes)

    assert ["m"] == masters
    assert [("COMPLETED", str(ROWS))] * 2 == [
        (each["state"], each["changes"]) for each in made.shown()
    ]
    for each in made.shown():
        done, _, shards = each["shards"].partition("/")
        assert done == shards != "0"


def test_options_of_a_comparison(made: Statements, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compared, and how it is reported, is as WITH says."""
    found: list[object] = []
    planned = JobComparison.planned

    def compared(
        text: JobText,
        given: ReconcileOptions,
        selection: Selection,
        *,
        called: Callable[[str], str],
    ) -> JobComparison:
        found.extend((given.buckets, given.grace, given.table_shards))
        return planned(text, given, selection, called=called)

    def reported(*given: Given, plain_keys: bool, title: str) -> object:
        found.append(plain_keys)
        return write_report(*given, plain_keys=plain_keys, title=title)

    monkeypatch.setattr(JobComparison, "planned", compared)
    monkeypatch.setattr("headrace.connector.hosting.run_comparing.write_report", reported)
    options = "buckets = 7 AND table_shards = 3 AND plain_keys = true AND grace = 1"
    made.ask(f"RECONCILE {SOURCE} WITH no_table = true AND {options}")
    assert 0 == made.job.run()
    assert [7, 1, 3, True] == found
    assert "tables were not compared: no_table" in made.newest("result")[0]


def test_a_comparison_without_its_packages(
    made: Statements, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the extra for its report is missing, the problem says what to install."""
    monkeypatch.setitem(sys.modules, "headrace.connector.hosting.run_comparing", None)
    made.ask(RECONCILE)
    assert 3 == made.job.run()
    state, problem = made.newest("state", "problem")
    assert ("FAILED", "spark_missing") == (state, problem.partition(":")[0])
    assert "pip install" in problem

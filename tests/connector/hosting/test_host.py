"""A job follows what is wanted of it while data flows, and loses nothing on the way."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.connector.control.commands import Commands
from headrace.connector.foundation.states import Desired, Observed
from headrace.connector.hosting.host import Host
from headrace.connector.language.statements import AlterSink, CreateSink
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import ConfigError, HeadraceError, MissingRequirementError
from headrace.plugins.testing.doubles import context
from helpers.jobs import toys
from helpers.jobs.children import SECONDS_MAX, until

if TYPE_CHECKING:
    from headrace.connector.runtime.books.report import Report

JOB = """\
job: orders
state: state.db
source: {plugin: brook, path: in.jsonl}
runtime: {tick_min_ms: 5, commit_max_seconds: 0.02, lease_seconds: 0.6, restart_pause_seconds: 0.1}
"""


@pytest.fixture(autouse=True)
def _toys(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    toys.install(tmp_path_factory.mktemp("toys"), monkeypatch)


class Stream:
    """A job over one growing file; what is asked of it goes through the command service."""

    def __init__(self, folder: Path) -> None:
        """Make sink `k`, sources `x` and `y`, and the job file."""
        self.folder = folder
        self.connection = open_notes(folder / "state.db")
        self.commands = Commands(self.connection)
        self.commands.create_sink(CreateSink(name="k", uri=f"file://{folder}/a.jsonl"))
        for name, table in (("x", "t"), ("y", "u")):
            made = {"connector.class": "BrookBrookSource", "keyspace": "s", "table": table}
            self.commands.create_source({"name": name, "sink": "k"} | made)
        (folder / "job.yaml").write_text(JOB)
        (folder / "in.jsonl").touch()
        self.written = 0
        self.report: Report | None = None
        self.error: HeadraceError | None = None

    def write(self, count: int = 10) -> None:
        """Append lines that count on."""
        with (self.folder / "in.jsonl").open("a") as file:
            for _ in range(count):
                file.write(json.dumps({"n": self.written}) + "\n")
                self.written += 1

    def read(self, *names: str) -> list[int]:
        """Return the numbers that came out, file by file."""
        lines: list[str] = []
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                lines += (self.folder / name).read_text().splitlines()
        return [json.loads(line)["n"] for line in lines]

    def state(self, name: str = "x") -> Observed:
        """Return what is seen of a source."""
        return self.commands.status(name).state

    def arrived(self, *names: str) -> Callable[[], bool]:
        """Return whether everything that was written arrived, to be asked again and again."""
        return lambda: len(self.read(*names)) >= self.written

    @contextlib.contextmanager
    def running(self, job: str | None = None) -> Iterator[Host]:
        """Run the job on a thread while the block runs."""
        host = Host(self.folder / "job.yaml", log=context().log, job=job)
        thread = threading.Thread(target=self._run, args=(host,))
        thread.start()
        try:
            yield host
        finally:
            host.stop()
            thread.join(SECONDS_MAX)
        assert not thread.is_alive()

    def _run(self, host: Host) -> None:
        try:
            _, self.report = host.run(until_idle=False)
        except HeadraceError as error:
            self.error = error


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    """Return a stream in a folder of its own, to which the process comes back from."""
    monkeypatch.chdir(tmp_path)
    made = Stream(tmp_path)
    yield made
    made.connection.close()


def both(ask: Callable[[str], None]) -> None:
    """Ask the same of both sources."""
    for name in "xy":
        ask(name)


def test_sink_moves_without_loss(stream: Stream) -> None:
    """O10: a live change of where a sink writes drains and continues there; no loss, no repeat."""
    with stream.running():
        for number in range(4):
            stream.write()
            if number:
                stream.commands.alter_sink(
                    AlterSink(name="k", uri=f"file://{stream.folder}/{number}.jsonl")
                )
            stream.write()
            wanted = stream.commands.status("x").generation
            until(
                lambda: {wanted} == {s.generation for s in stream.commands.status("x").splits},  # noqa: B023 (asked at once)
                "the change never arrived",
            )
        stream.write()
        until(stream.arrived("a.jsonl", "1.jsonl", "2.jsonl", "3.jsonl"), "it never arrived")

    assert list(range(stream.written)) == stream.read("a.jsonl", "1.jsonl", "2.jsonl", "3.jsonl")
    assert stream.read("3.jsonl")
    assert stream.report
    assert stream.written == stream.report.changes


def test_pause_and_resume(stream: Stream) -> None:
    """Paused, a job reads nothing and keeps its splits; resumed, it continues where it was."""
    with stream.running():
        stream.write()
        until(stream.arrived("a.jsonl"), "it never arrived")
        both(stream.commands.pause)
        until(lambda: stream.state() is Observed.PAUSED, "it never paused")
        stream.write()
        assert [0] == [split.task for split in stream.commands.status("x").splits if split.worker]
        assert 10 == len(stream.read("a.jsonl"))
        both(stream.commands.resume)
        until(stream.arrived("a.jsonl"), "it never went on")
        until(lambda: stream.state() is Observed.RUNNING, "it never ran")

    assert list(range(20)) == stream.read("a.jsonl")


def test_stop_and_resume(stream: Stream) -> None:
    """Stopped, a job owns nothing; its positions may be moved; resumed, it begins there."""
    with stream.running():
        stream.write()
        until(stream.arrived("a.jsonl"), "it never arrived")
        both(stream.commands.stop)
        until(lambda: stream.state() is Observed.STOPPED, "it never stopped")
        stream.commands.reset_offsets("x")
        both(stream.commands.resume)
        until(lambda: len(stream.read("a.jsonl")) >= 20, "it never began again")

    assert [*range(10), *range(10)] == stream.read("a.jsonl")


def test_one_of_two_pauses(stream: Stream) -> None:
    """Pausing one source of a shared job does not pause the others, and loses nothing."""
    with stream.running():
        stream.write()
        until(stream.arrived("a.jsonl"), "it never arrived")
        stream.commands.pause("x")
        until(lambda: stream.commands.status("x").job == "orders~x", "they never parted")
        stream.write()
        until(stream.arrived("a.jsonl"), "the other one stood still")
        assert Observed.UNASSIGNED is stream.state("x")
        assert Desired.RUNNING is stream.commands.status("y").desired
        stream.commands.resume("x")
        with stream.running("orders~x"):
            until(lambda: len(stream.read("a.jsonl")) >= 30, "it never caught up")

    assert [*range(10), *range(10, 20), *range(10, 20)] == stream.read("a.jsonl")


def test_restart(stream: Stream) -> None:
    """A restart of the job, or of one of its splits, repeats nothing."""
    with stream.running():
        stream.write()
        until(stream.arrived("a.jsonl"), "it never arrived")
        stream.commands.restart("x")
        stream.commands.restart_split("x", 0)
        stream.write()
        until(stream.arrived("a.jsonl"), "it never went on")

    assert list(range(20)) == stream.read("a.jsonl")


def test_failed_split_is_tried_again(stream: Stream) -> None:
    """An unavailable sink holds a split up; when it is back, the split continues by itself."""
    stream.write()
    with stream.running():
        until(stream.arrived("a.jsonl"), "it never arrived")
        (stream.folder / "a.jsonl").rename(stream.folder / "b.jsonl")
        (stream.folder / "a.jsonl").mkdir()
        stream.write()
        split = stream.commands.status("x").splits[0]
        assert Observed.RUNNING is split.state
        (stream.folder / "a.jsonl").rmdir()
        until(stream.arrived("b.jsonl", "a.jsonl"), "it never went on")

    assert list(range(20)) == stream.read("b.jsonl", "a.jsonl")


def test_only_what_a_job_wrote_is_cut_off(stream: Stream) -> None:
    """Half a line at the end of its own file is cut off, of any other file it is refused."""
    stream.write()
    host = Host(stream.folder / "job.yaml", log=context().log)
    host.run(until_idle=True)
    with (stream.folder / "a.jsonl").open("a") as file:
        file.write('{"n": 1')
    stream.write()
    host.run(until_idle=True)
    assert list(range(20)) == stream.read("a.jsonl")

    (stream.folder / "mine.txt").write_text("my notes")
    stream.commands.alter_sink(AlterSink(name="k", uri=f"file://{stream.folder}/mine.txt"))
    for _ in range(2):
        with pytest.raises(MissingRequirementError, match="expected whole lines"):
            host.run(until_idle=True)
    assert "my notes" == (stream.folder / "mine.txt").read_text()


@pytest.mark.parametrize("name", ["state.db", "link", "state.db-wal"])
def test_a_state_file_is_no_sink(stream: Stream, name: str) -> None:
    """A job does not write into what keeps it, under any name; nothing is written."""
    (stream.folder / "link").symlink_to("state.db")
    stream.write()
    stream.commands.alter_sink(AlterSink(name="k", uri=f"file://{name}"))

    with pytest.raises(ConfigError, match=r"sink\.path: is the job's own state file"):
        Host(stream.folder / "job.yaml", log=context().log).run(until_idle=True)

    assert Observed.FAILED is stream.state()


def test_a_table_that_lacks_stops_no_other(stream: Stream) -> None:
    """A source whose table does not exist fails alone, says why, and runs when it exists."""
    with stream.running():
        stream.write()
        until(stream.arrived("a.jsonl"), "it never arrived")
        (stream.folder / "s.late").touch()
        config = {"connector.class": "BrookBrookSource", "keyspace": "s", "table": "late"}
        stream.commands.create_source({"name": "z", "sink": "k"} | config)
        until(lambda: stream.state("z") is Observed.FAILED, "nothing was reported")
        assert stream.commands.status("z").reason == "config: s.late is not there; make it"
        assert Observed.FAILED is stream.commands.sink_status("k").state
        assert Observed.RUNNING is stream.state("x")
        stream.write()
        until(stream.arrived("a.jsonl"), "the others stood still")
        (stream.folder / "s.late").unlink()
        until(lambda: stream.state("z") is Observed.RUNNING, "it never ran")

    assert list(range(20)) == stream.read("a.jsonl")
    assert stream.error is None


def test_a_run_that_takes_all_there_is_fails_for_a_table_that_lacks(stream: Stream) -> None:
    """Until idle the others are taken, and the table is what the run fails with."""
    stream.write()
    (stream.folder / "s.u").touch()

    _, report = Host(stream.folder / "job.yaml", log=context().log).run(until_idle=True)

    assert list(range(10)) == stream.read("a.jsonl")
    assert report is not None
    assert ["tables: s.u is not there"] == [failure.message for failure in report.failures]


def test_job_that_cannot_be_read_says_why(stream: Stream) -> None:
    """A sink whose secret is gone fails the job, and its status says so."""
    stream.commands.alter_sink(AlterSink(name="k", uri="bus://a?password=${env:NO_SUCH}"))
    with stream.running():
        until(lambda: stream.error is not None, "it never failed")

    assert Observed.FAILED is stream.state()
    assert "NO_SUCH" in stream.commands.status("x").reason

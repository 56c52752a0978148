"""The worker as a process: it runs jobs, serves HTTP, restarts processes, and stops cleanly."""

import contextlib
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connector.commands.cli import main
from headrace.connector.commands.worker import worker_main
from headrace.connector.control.commands import Commands
from headrace.connector.foundation.states import Observed
from headrace.connector.language.statements import CreateSink
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import ConfigError, MissingRequirementError
from helpers.jobs.children import RUN, SECONDS_MAX, until
from helpers.recordings.corpora import recording
from helpers.servers.ports import free_port
from helpers.servers.rest_server import Client

WORKER = """\
state: state.db
source:
  plugin: cassandra
  nodes: {{n1: {folder}/segments}}
  schema: {folder}/schema.cql
  consistency: ONE
  splits: {splits}
runtime: {{tick_min_ms: 5, lease_seconds: 0.6, restart_pause_seconds: 0.1}}
rest: {{hosts: changes.example, metrics.connect.names: true}}
"""
CONFIG = {
    "connector.class": "CassandraCdcSource",
    "keyspace": "ember_zephyr",
    "table": "onyx_ledger",
    "sink": "k",
}


class Process:
    """A worker in a process of its own."""

    def __init__(self, folder: Path, *more: str, splits: int = 1) -> None:
        """Start it, with *more* arguments."""
        self.port = free_port()
        self.client = Client(self.port)
        self.log = folder / "log"
        (folder / "worker.yaml").write_text(
            WORKER.format(folder=recording("5.0-ops"), splits=splits)
        )
        self._notes = open_notes(folder / "state.db")
        self.commands = Commands(self._notes)
        self.commands.create_sink(CreateSink(name="k", uri=f"file://{folder}/out.jsonl"))
        with self.log.open("wb") as log:
            self.child = subprocess.Popen(  # noqa: S603 (headrace itself)
                [
                    *(sys.executable, "-c", RUN, "worker", str(folder / "worker.yaml")),
                    *("--rest", f"127.0.0.1:{self.port}", *more),
                ],
                stderr=log,
            )
        until(self.client.answers, "it never answered")

    def state(self) -> Observed:
        """Return the status of the connector."""
        return self.commands.status("o").state

    def metrics(self) -> bytes:
        """Return its metrics of its jobs."""
        return self.client("GET", "/metrics").body

    def job_pid(self) -> int:
        """Return the process of the job; 0 without one."""
        return int(self.commands.status("o").worker.partition(":")[2] or 0)

    def sharers(self, *, without: int = 0) -> list[int]:
        """Wait until two processes, none of them *without*, own all splits; return them.

        Both are read from one answer: between two answers a split may move from one to the other.
        """
        found: list[int] = []

        def are_two() -> bool:
            workers = [split.worker for split in self.commands.status("o").splits]
            found[:] = sorted({int(worker.partition(":")[2] or 0) for worker in workers})
            return 2 == len(found) and not {0, without} & {*found}

        until(are_two, "they never shared the splits")
        return found

    def end(self) -> None:
        """Kill it, if it still runs."""
        self.child.kill()
        self.child.wait(SECONDS_MAX)
        self._notes.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """Return a worker that is killed after the test."""
    made = Process(tmp_path)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def pumps(tmp_path: Path) -> Iterator[Process]:
    """Return a worker with two pumps, which is killed after the test."""
    made = Process(tmp_path, "--pumps", "2", splits=4)
    try:
        yield made
    finally:
        made.end()


def test_life_of_a_worker(process: Process, tmp_path: Path) -> None:
    """The worker runs a new job, replaces a killed process, reports it, and stops cleanly."""
    made = process.client("POST", "/connectors", {"name": "o", "config": CONFIG})
    assert 201 == made.status
    assert process.client("GET", "/", None, Host="changes.example").status == 200
    assert process.client("GET", "/", None, Host="other.example").status == 421
    until(lambda: process.state() is Observed.RUNNING, "the job never ran")
    before = process.job_pid()
    assert before not in (0, process.child.pid)
    os.kill(before, signal.SIGKILL)
    until(lambda: process.job_pid() not in (0, before), "it was never replaced")
    until(lambda: process.state() is Observed.RUNNING, "it never ran again")
    until(lambda: b"headrace_split_state{" in process.metrics(), "its job tells nothing")
    assert b"kafka_connect_connector_metrics{" in process.metrics()
    assert process.client("PUT", "/connectors/o/pause").status == 202
    until(lambda: process.state() is Observed.PAUSED, "it never paused")
    job = process.job_pid()
    process.child.send_signal(signal.SIGTERM)

    assert 0 == process.child.wait(SECONDS_MAX)
    until(lambda: not Path(f"/proc/{job}").exists(), "the job outlived its worker")
    assert Observed.UNASSIGNED is process.state()
    assert (tmp_path / "out.jsonl").exists()


@pytest.mark.long
def test_pumps_share_the_splits_of_a_job(pumps: Process) -> None:
    """The other pump takes over the splits of a killed one, and gives some back when it returns.

    A second SIGTERM ends all processes at once, also one that handles no signals.
    """
    pumps.client("POST", "/connectors", {"name": "o", "config": CONFIG})

    killed, other = pumps.sharers()
    os.kill(killed, signal.SIGKILL)
    pids = pumps.sharers(without=killed)
    assert other in pids
    until(lambda: b'pump="2"' in pumps.metrics(), "a pump tells nothing")
    os.kill(other, signal.SIGSTOP)

    def has_ended() -> bool:
        pumps.child.send_signal(signal.SIGTERM)  # Two signals that arrive together would be one.
        return pumps.child.poll() is not None

    until(has_ended, "it did not hear the second one")
    assert 1 == pumps.child.returncode
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "a pump lives on")


def test_a_spoilt_state_ends_a_worker(process: Process, tmp_path: Path) -> None:
    """A worker that can no longer read its jobs from the state file ends, and says what is lost."""
    with contextlib.closing(sqlite3.connect(tmp_path / "state.db")) as raw:
        raw.execute("DROP TABLE rows")

    assert 1 == process.child.wait(SECONDS_MAX)
    # Either error may come first: from a statement on an open file, or from opening the file.
    (line,) = re.findall(r"^error \[state_lost\]: .*", process.log.read_text(), re.MULTILINE)
    assert f"{tmp_path}/state.db: " in line
    assert "no such table" in line
    assert "rows" in line


def test_killed_worker_takes_its_jobs_along(process: Process) -> None:
    """A worker that dies at once leaves no running job behind."""
    process.client("POST", "/connectors", {"name": "o", "config": CONFIG})
    until(lambda: process.job_pid() != 0, "the job never ran")
    job = process.job_pid()
    process.child.kill()

    until(lambda: not Path(f"/proc/{job}").exists(), "the job outlived its worker")
    assert -signal.SIGKILL == process.child.wait(SECONDS_MAX)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job: x\n", "cannot be given to a worker"),
        ("sink: {plugin: 'null'}\n", "cannot be given to a worker"),
        ("rest: {listn: 'x:1'}\n", "did you mean listen"),
        ("rest: {listen: '0.0.0.0:1'}\n", "TLS and authentication are needed"),
    ],
)
def test_refused(tmp_path: Path, text: str, message: str) -> None:
    """A worker does not start with an invalid file."""
    file = tmp_path / "worker.yaml"
    file.write_text("state: state.db\nsource: {plugin: files, path: x}\n" + text)
    with pytest.raises(ConfigError, match=message):
        worker_main([str(file)])


def test_one_driver_for_each_job(tmp_path: Path) -> None:
    """On Spark several pumps are refused: they would be drivers of the same stream."""
    file = tmp_path / "worker.yaml"
    file.write_text("state: state.db\nsource: {plugin: files, path: x}\n")
    with pytest.raises(ConfigError, match="--pumps: on Spark a job has one driver, found 2"):
        worker_main([str(file), "--engine", "spark", "--pumps", "2"])


def test_a_worker_of_a_state_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a file it makes a state and serves; its jobs say that a source is missing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_STATE", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(MissingRequirementError, match="in use"):
            worker_main(["--rest", address])
    made = "CREATE DATA_SINK k WITH 'null://'; CREATE DATA_SOURCE cdc ON TABLE a.b WITH k"
    assert 0 == main(["exec", "-e", made])
    assert ["headrace.db"] == [path.name for path in tmp_path.glob("*.db")]
    assert 2 == main(["run", "headrace.db", "--job", "k"])
    said = capsys.readouterr().err
    assert "a state file alone does not say what to read" in said
    assert (
        "hint: write a file, such as worker.yaml, with `state: headrace.db` and `source: {" in said
    )


def test_taken_address(tmp_path: Path) -> None:
    """A port that is in use ends the worker with its status and a message."""
    (tmp_path / "worker.yaml").write_text(WORKER.format(folder=recording("5.0-ops"), splits=1))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = subprocess.run(  # noqa: S603 (headrace itself)
            [
                *(sys.executable, "-c", RUN, "worker", str(tmp_path / "worker.yaml")),
                *("--rest", f"127.0.0.1:{taken.getsockname()[1]}"),
            ],
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    assert 3 == ended.returncode
    assert b"error [cannot_listen]: 127.0.0.1:" in ended.stderr


def test_a_worker_whose_state_file_goes_ends(process: Process, tmp_path: Path) -> None:
    """A worker and its job end when the state file is deleted, and do not create an empty one."""
    assert 201 == process.client("POST", "/connectors", {"name": "o", "config": CONFIG}).status
    until(lambda: process.state() is Observed.RUNNING, "the job never ran")
    job = process.job_pid()
    (tmp_path / "state.db").rename(tmp_path / "moved.db")

    assert 1 == process.child.wait(SECONDS_MAX)
    until(lambda: not Path(f"/proc/{job}").exists(), "the job outlived its worker")
    assert "error [state_lost]: " in process.log.read_text()
    assert not (tmp_path / "state.db").exists()

"""The worker as a process: it runs jobs, serves, mends what dies, and ends cleanly."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from children import RUN, until
from corpora import recording
from headrace.connector.control.commands import Commands
from headrace.connector.rest.command import worker_main
from headrace.connector.shell.statements import CreateSink
from headrace.connector.states import Observed
from headrace.plugins import ConfigError
from rest_server import Client, free_port

WORKER = """\
state: state.db
source:
  plugin: cassandra
  nodes: {{n1: {folder}/segments}}
  schema: {folder}/schema.cql
  consistency: ONE
  splits: 1
runtime: {{tick_min_ms: 5, lease_seconds: 0.6, restart_pause_seconds: 0.1}}
rest: {{hosts: changes.example}}
"""
CONFIG = {
    "connector.class": "CassandraCdcSource",
    "keyspace": "ember_zephyr",
    "table": "onyx_ledger",
    "sink": "k",
}


class Process:
    """A worker in a process of its own."""

    def __init__(self, folder: Path) -> None:
        """Start it."""
        self.port = free_port()
        self.client = Client(self.port)
        self.log = folder / "log"
        (folder / "worker.yaml").write_text(WORKER.format(folder=recording("5.0-ops")))
        self.commands = Commands.open(folder / "state.db")
        self.commands.create_sink(CreateSink(name="k", uri=f"file://{folder}/out.jsonl"))
        with self.log.open("wb") as log:
            self.child = subprocess.Popen(  # noqa: S603 (headrace itself)
                [
                    *(sys.executable, "-c", RUN, "worker", str(folder / "worker.yaml")),
                    *("--rest", f"127.0.0.1:{self.port}"),
                ],
                stderr=log,
            )
        until(self.client.answers, "it never answered")

    def state(self) -> Observed:
        """Return what is seen of the connector."""
        return self.commands.status("o").state

    def metrics(self) -> bytes:
        """Return what it tells of its jobs."""
        return self.client("GET", "/metrics").body

    def job_pid(self) -> int:
        """Return the process of the job; 0 without one."""
        return int(self.commands.status("o").worker.partition(":")[2] or 0)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """Return a worker that is ended when the test is over."""
    made = Process(tmp_path)
    try:
        yield made
    finally:
        made.child.kill()
        made.child.wait(30)
        made.commands.close()


def test_life_of_a_worker(process: Process, tmp_path: Path) -> None:
    """It runs what is created, replaces what is killed, tells of it, and settles all at the end."""
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
    until(lambda: b"headrace_split_token{" in process.metrics(), "its job tells nothing")
    assert process.client("PUT", "/connectors/o/pause").status == 202
    until(lambda: process.state() is Observed.PAUSED, "it never paused")
    job = process.job_pid()
    process.child.send_signal(signal.SIGTERM)

    assert 0 == process.child.wait(30)
    until(lambda: not Path(f"/proc/{job}").exists(), "the job outlived its worker")
    assert Observed.UNASSIGNED is process.state()
    assert (tmp_path / "out.jsonl").exists()


def test_killed_worker_takes_its_jobs_along(process: Process) -> None:
    """A worker that dies at once leaves no job running behind."""
    process.client("POST", "/connectors", {"name": "o", "config": CONFIG})
    until(lambda: process.job_pid() != 0, "the job never ran")
    job = process.job_pid()
    process.child.kill()

    until(lambda: not Path(f"/proc/{job}").exists(), "the job outlived its worker")
    assert -signal.SIGKILL == process.child.wait(30)


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
    """A worker's file that is wrong starts nothing."""
    file = tmp_path / "worker.yaml"
    file.write_text("state: state.db\nsource: {plugin: files, path: x}\n" + text)
    with pytest.raises(ConfigError, match=message):
        worker_main([str(file)])


def test_taken_address(tmp_path: Path) -> None:
    """An address that is taken ends the worker with its status, and a line that says so."""
    (tmp_path / "worker.yaml").write_text(WORKER.format(folder=recording("5.0-ops")))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = subprocess.run(  # noqa: S603 (headrace itself)
            [
                *(sys.executable, "-c", RUN, "worker", str(tmp_path / "worker.yaml")),
                *("--rest", f"127.0.0.1:{taken.getsockname()[1]}"),
            ],
            capture_output=True,
            timeout=60,
            check=False,
        )

    assert 3 == ended.returncode
    assert b"error [cannot_listen]: 127.0.0.1:" in ended.stderr

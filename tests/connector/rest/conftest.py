"""A worker in this process: a state file, a server, and jobs that run on threads."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import toys
from headrace.connector.control.commands import Commands
from headrace.connector.rest.server import RestServer
from headrace.connector.shell.statements import CreateSink
from headrace.connector.stores.sqlite_file import connect
from headrace.plugins.testing.doubles import context
from rest_server import Client, RestWorker, serving, supervised

WORKER = """\
state: state.db
source: {plugin: brook, path: in.jsonl}
runtime: {tick_min_ms: 5, commit_max_seconds: 0.02, lease_seconds: 0.6, restart_pause_seconds: 0.1}
"""


@pytest.fixture
def state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return a state file with a data sink `k`, in a folder with a worker's file."""
    toys.install(tmp_path_factory.mktemp("toys"), monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "worker.yaml").write_text(WORKER)
    (tmp_path / "in.jsonl").write_text('{"n": 123456}\n')
    with contextlib.closing(connect(tmp_path / "state.db")) as connection:
        Commands(connection).create_sink(
            CreateSink(name="k", uri=f"pond://{tmp_path}/out.jsonl?topic=lines")
        )
    return tmp_path / "state.db"


@pytest.fixture
def served(state: Path) -> Iterator[RestWorker]:
    """Return a worker that serves, and runs nothing."""
    server = RestServer(state, log=context().log)
    with contextlib.closing(connect(state)) as connection, serving(server) as address:
        yield RestWorker(state.parent, Client(address.port), Commands(connection))


@pytest.fixture
def worker(served: RestWorker) -> Iterator[RestWorker]:
    """Return a worker that serves and runs the jobs."""
    with supervised(served.folder / "worker.yaml", served.folder / "state.db"):
        yield served

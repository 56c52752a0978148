"""A worker in this process: a state file, a server, and jobs that run on threads."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connector.control.commands import Commands
from headrace.connector.language.statements import CreateSink
from headrace.connector.rest.server import RestServer
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.testing.doubles import context
from helpers.jobs import toys
from helpers.servers.rest_server import Client, RestWorker, serving, supervised

WORKER = """\
state: state.db
source: {plugin: brook, path: in.jsonl}
runtime: {tick_min_ms: 5, commit_max_seconds: 0.02, lease_seconds: 0.6, restart_pause_seconds: 0.1}
"""


def a_state(folder: Path, toys_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a state file with a data sink `k`, in *folder*, which has a worker's file."""
    toys.install(toys_folder, monkeypatch)
    monkeypatch.chdir(folder)
    (folder / "worker.yaml").write_text(WORKER)
    (folder / "in.jsonl").write_text('{"n": 123456}\n')
    with contextlib.closing(open_notes(folder / "state.db")) as connection:
        Commands(connection).create_sink(
            CreateSink(name="k", uri=f"pond://{folder}/out.jsonl?topic=lines")
        )
    return folder / "state.db"


@contextlib.contextmanager
def a_worker(state: Path) -> Iterator[RestWorker]:
    """Serve, and run nothing."""
    server = RestServer(state, log=context().log)
    with contextlib.closing(open_notes(state)) as connection, serving(server) as address:
        yield RestWorker(state.parent, Client(address.port), Commands(connection))


@pytest.fixture
def state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return a state file of this test's own."""
    return a_state(tmp_path, tmp_path_factory.mktemp("toys"), monkeypatch)


@pytest.fixture
def served(state: Path) -> Iterator[RestWorker]:
    """Return a worker that serves, and runs nothing."""
    with a_worker(state) as worker:
        yield worker


@pytest.fixture(scope="module")
def shared_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a state file that no test of the module changes."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder, toys_folder = (tmp_path_factory.mktemp(name) for name in ("shared", "toys"))
        yield a_state(folder, toys_folder, monkeypatch)


@pytest.fixture(scope="module")
def shared(shared_state: Path) -> Iterator[RestWorker]:
    """Return a worker whose state no test of the module changes."""
    with a_worker(shared_state) as worker:
        yield worker


@pytest.fixture
def worker(served: RestWorker) -> Iterator[RestWorker]:
    """Return a worker that serves and runs the jobs."""
    with supervised(served.folder / "worker.yaml", served.folder / "state.db"):
        yield served

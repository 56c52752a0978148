"""What the state file knows of a source's job is what DESCRIBE shows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connector.control.status import UNASSIGNED, Status, statuses
from headrace.connector.stores import Owner
from headrace.connector.stores.sqlite import SqliteStore
from headrace.connector.stores.sqlite_file import connect

OWNER = Owner(worker="w1", host="h", boot="b", pid_space="p", pid=1, started=2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """Return the store of a job named orders with one split that w1 owns."""
    store = SqliteStore.open(tmp_path / "state.db", "orders")
    store.job_key()
    store.register(["0"])
    store.enroll(OWNER)
    store.claim("w1", store.leases(), 10_000)
    yield store
    store.close()


def shown(tmp_path: Path, job: str) -> Status:
    """Return the status of a source that names *job*, beside one that names another job."""
    connection = connect(tmp_path / "state.db")
    try:
        return statuses(connection, {"cdc.ks.t": job, "cdc.ks.u": "other"})["cdc.ks.t"]
    finally:
        connection.close()


@pytest.mark.parametrize("job", ["orders", ""])
def test_running(store: SqliteStore, tmp_path: Path, job: str) -> None:
    """A source runs while its job, or the job that no source names, owns a split."""
    assert store.leases()
    assert Status("RUNNING") == shown(tmp_path, job)


@pytest.mark.parametrize("job", ["orders", ""])
def test_problem(store: SqliteStore, tmp_path: Path, job: str) -> None:
    """An unreachable broker shows with its named error, without its hint."""
    store.report("kafka_unreachable: h:9092: no answer\nhint: is it running?")

    assert Status("FAILED", "kafka_unreachable: h:9092: no answer") == shown(tmp_path, job)


def test_split_problem(store: SqliteStore, tmp_path: Path) -> None:
    """A split that stopped shows though nothing stopped the job."""
    store.release("w1", "0", store.leases()[0].token, "segment: byte 7")

    assert Status("FAILED", "segment: byte 7") == shown(tmp_path, "orders")


def test_stopped(store: SqliteStore, tmp_path: Path) -> None:
    """A job whose splits nobody owns has stopped; one that never ran is unassigned."""
    store.release("w1", "0", store.leases()[0].token)

    assert Status("STOPPED") == shown(tmp_path, "orders")
    assert UNASSIGNED == shown(tmp_path, "never")

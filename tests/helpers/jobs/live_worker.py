"""A worker of this process that goes on while a test does something else."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from headrace.connector.control.jobs import read_job
from headrace.connector.runtime.worker import Worker
from headrace.connector.stores.sqlite.store import SqliteStore

SECONDS_MAX = 60  # To end in.


@contextmanager
def working(job: Path, log: structlog.stdlib.BoundLogger) -> Iterator[None]:
    """Run the worker of a job file on a thread while the block runs."""
    worker = Worker(read_job(job), log=log)
    thread = threading.Thread(target=worker.run, kwargs={"until_idle": False})
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(SECONDS_MAX)
    assert not thread.is_alive()


def delivered(state: Path, job: str) -> int:
    """Return how many records are delivered, by the committed books; 0 if nothing ever ran."""
    if not state.exists():
        return 0
    store = SqliteStore.open(state, job)
    try:
        return sum(c.delivered for s in store.states() for c in s.counters.values())
    finally:
        store.close()

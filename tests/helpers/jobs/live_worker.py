"""A worker in this process that runs while a test does something else."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import structlog

from headrace.connector.control.jobs import read_job
from headrace.connector.hosting.host import Host
from headrace.connector.runtime.books.report import Report
from headrace.connector.runtime.worker import Worker
from headrace.connector.stores.job import Job
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.sqlite.store import SqliteStore

SECONDS_MAX = 180  # Within which it must end.


class LoneWorker(Worker):
    """A worker without a host: it opens the control store itself."""

    def __init__(self, job: Job, *, log: structlog.stdlib.BoundLogger) -> None:
        """Open nothing yet."""
        super().__init__(job, log=log)
        self._place = job.notes

    def run_alone(self, *, until_idle: bool) -> Report:
        """Do what `run` does."""
        with closing(open_notes(self._place)) as notes:
            return self.run(notes, until_idle=until_idle)


@contextmanager
def working(job: Path, log: structlog.stdlib.BoundLogger) -> Iterator[None]:
    """Run the worker of a job file on a thread while the block runs."""
    worker = LoneWorker(read_job(job), log=log)
    with _meanwhile(worker.run_alone, worker.stop):
        yield


@contextmanager
def running(job: Path) -> Iterator[None]:
    """Run a job file as `headrace run` does while the block runs; its log is structlog's."""
    host = Host(job, log=structlog.stdlib.get_logger())
    with _meanwhile(host.run, host.stop):
        yield


@contextmanager
def _meanwhile(run: Callable[..., object], stop: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=run, kwargs={"until_idle": False})
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join(SECONDS_MAX)
    assert not thread.is_alive()


def delivered(state: Path, job: str) -> int:
    """Return the number of delivered records, by the committed books; 0 before the first run."""
    if not state.exists():
        return 0
    store = SqliteStore.open(state, job)
    try:
        return sum(c.delivered for s in store.states() for c in s.counters.values())
    finally:
        store.close()

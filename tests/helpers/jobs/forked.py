"""A job over two tables, one of which is forked into a job of its own over the same logs."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Final

from headrace.connector.control.status import connector_statuses
from headrace.connector.hosting.host import Host
from headrace.connector.stores.job import state_of
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.testing.doubles import context
from helpers.jobs.children import JobFolder
from helpers.jobs.kill_server import KillServer
from helpers.logs.gap_jobs import GapJob

T, OTHER = "forged.t", "forged.other"
ALONE: Final = ("n1",)
OTHERS: Final = ("n2", "n3")


def fork_of(job: GapJob) -> str:
    """Return the name of the fork of a job for the other table."""
    return f"{job.name}~cdc.{OTHER}"


def begun(job: GapJob) -> None:
    """Run the job, with a sink and tables of statements; three rows of each table stay pending."""
    job.log(0, range(3), others=range(10, 13))
    job.log(1, range(3, 6), nodes=ALONE, others=range(13, 16))
    job.from_statements()
    job.execute(
        f"CREATE DATA_SINK k WITH 'file://{job.folder}/out.jsonl';"
        f"CREATE DATA_SOURCE cdc ON TABLE {T} WITH k AND job = '{job.name}';"
        f"CREATE DATA_SOURCE cdc ON TABLE {OTHER} WITH k AND job = '{job.name}'"
    )
    assert 0 == job.run()


def forked(job: GapJob) -> None:
    """Fork the other table, set both jobs to RUNNING, and log more for both."""
    begun(job)
    job.execute(f"PAUSE DATA_SOURCE cdc ON TABLE {OTHER}")
    assert 0 == job.run()
    job.log(2, range(6, 9), others=range(16, 19))
    assert 0 == job.run()
    assert not set(range(16, 19)) & set(job.rows())
    job.execute(f"RESUME DATA_SOURCE cdc ON TABLE {OTHER}")
    job.log(3, range(20, 23), others=range(30, 33))


def fork_after_a_death(job: GapJob, where: str, *, crash_at: str) -> None:
    """Kill a worker at a step of its first commit; then stop one table alone, and continue."""
    job.log(0, range(3), others=range(10, 13))
    job.from_statements()
    job.execute(
        f"CREATE DATA_SINK k WITH '{where}';"
        f"CREATE DATA_SOURCE cdc ON TABLE {T} WITH k AND job = '{job.name}';"
        f"CREATE DATA_SOURCE cdc ON TABLE {OTHER} WITH k AND job = '{job.name}'"
    )
    child = JobFolder(job.folder, str)
    assert -signal.SIGKILL == child.finish(crash_at=crash_at), child.log()
    job.execute(f"STOP DATA_SOURCE cdc ON TABLE {OTHER}")
    assert 0 == job.run()
    job.execute(f"RESUME DATA_SOURCE cdc ON TABLE {OTHER}")
    assert 0 == job.run("--job", fork_of(job))


def kill_at_each_step(job: GapJob, server: KillServer) -> list[int]:
    """Kill the process that forks the other table, at each step in turn; return the statuses.

    The other table is stopped, and more is logged for both.
    """
    job.execute(f"STOP DATA_SOURCE cdc ON TABLE {OTHER}")
    job.log(2, range(6, 9), others=range(16, 19))
    job.log(3, range(20, 23), others=range(30, 33))
    found = []
    for step in ("fork_copied", "fork_made"):
        found.append(server.run(job.folder, f"{step}:1"))
        assert {job.name} | ({fork_of(job)} if step == "fork_made" else set()) == jobs(job)
    job.execute(f"RESUME DATA_SOURCE cdc ON TABLE {OTHER}")
    return found


def check_forked(job: GapJob) -> None:
    """Check that two jobs exist, and have delivered each change once, and all pending rows."""
    taken = [*range(3), *range(6, 9), *range(20, 23)]
    others = [*range(10, 13), *range(16, 19), *range(30, 33)]
    for _ in range(2):
        assert 0 == job.run()
        assert 0 == job.run("--job", fork_of(job))
        assert sorted(taken + others) == job.rows()
        assert {job.name, fork_of(job)} == jobs(job)
    assert [3, 3] == _pending(job)

    job.log(4, range(3, 6), nodes=OTHERS, others=range(13, 16))
    assert 0 == job.run()
    assert sorted([*taken, *range(3, 6), *others]) == job.rows()
    assert 0 == job.run("--job", fork_of(job))
    assert sorted([*taken, *range(3, 6), *others, *range(13, 16)]) == job.rows()
    assert [0, 0] == _pending(job)


def _pending(job: GapJob) -> list[int]:
    """Return the pending counts in the books of the job and of its fork."""
    both = job.books(), job.books("--job", fork_of(job))
    return [books["mutations.pending"] for books in both]


def jobs(job: GapJob) -> set[str]:
    """Return the names of the jobs."""
    with contextlib.closing(open_notes(state_of(job.path)[0])) as connection:
        return {status.job for status in connector_statuses(connection)}


@contextlib.contextmanager
def running(job: GapJob, *names: str) -> Iterator[None]:
    """Run jobs on threads while the block runs; all are opened before the first one starts."""
    hosts = [Host(job.path, log=context().log, job=name) for name in names]
    threads = [threading.Thread(target=h.run, kwargs={"until_idle": False}) for h in hosts]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for host in hosts:
            host.stop()
        for thread in threads:
            thread.join(180)
    assert not any(thread.is_alive() for thread in threads)

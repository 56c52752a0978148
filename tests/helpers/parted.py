"""Two jobs over the same logs, one of which parted from the other, that want the same again."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Final

from children import JobFolder
from gap_jobs import GapJob
from headrace.connector.control.status import connector_statuses
from headrace.connector.job import state_of
from headrace.connector.notes import open_notes
from headrace.connector.runtime.crash import JOIN_STEPS
from headrace.connector.runtime.hosting import Host
from headrace.plugins.testing.doubles import context
from kill_server import KillServer

T, OTHER = "forged.t", "forged.other"
ALONE: Final = ("n1",)
OTHERS: Final = ("n2", "n3")


def fork_of(job: GapJob) -> str:
    """Return the name of the job that the other table has when it parts."""
    return f"{job.name}~cdc.{OTHER}"


def begun(job: GapJob) -> None:
    """Let the job run, with sink and tables of statements; three of each table wait."""
    job.log(0, range(3), others=range(10, 13))
    job.log(1, range(3, 6), nodes=ALONE, others=range(13, 16))
    job.from_statements()
    job.execute(
        f"CREATE DATA_SINK k WITH 'file://{job.folder}/out.jsonl';"
        f"CREATE DATA_SOURCE cdc ON TABLE {T} WITH k AND job = '{job.name}';"
        f"CREATE DATA_SOURCE cdc ON TABLE {OTHER} WITH k AND job = '{job.name}'"
    )
    assert 0 == job.run()


def parted(job: GapJob) -> None:
    """Let the two stand at different places, with more to read, and want the same again."""
    begun(job)
    job.execute(f"STOP DATA_SOURCE cdc ON TABLE {OTHER}")
    assert 0 == job.run()
    job.log(2, range(6, 9), others=range(16, 19))
    assert 0 == job.run()
    assert not set(range(16, 19)) & set(job.rows())
    job.execute(f"RESUME DATA_SOURCE cdc ON TABLE {OTHER}")
    job.log(3, range(20, 23), others=range(30, 33))
    assert 0 == job.run("--job", fork_of(job))
    assert not set(range(20, 23)) & set(job.rows())


def part_after_a_death(job: GapJob, where: str, *, crash_at: str) -> None:
    """Let a worker die at a step of its first commit; then one table stops alone, and goes on."""
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
    """Kill whoever makes the two one, at one step after the other; return the exit statuses."""
    found = []
    for step in JOIN_STEPS:
        found.append(server.run(job.folder, f"{step}:1"))
        both = {job.name} | ({fork_of(job)} if step == "join_frozen" else set())
        assert both == jobs(job)
    return found


def check_one(job: GapJob) -> None:
    """See that one job has all that both had: what came, and what waits."""
    taken = {*range(3), *range(6, 9), *range(10, 13), *range(16, 19), *range(20, 23)}
    assert {job.name} == jobs(job)
    assert sorted(taken | set(range(30, 33))) == job.rows()
    assert 6 == job.books()["mutations.pending"]
    assert 0 == job.run("--job", fork_of(job))  # There is no such job any more.
    assert [] == list((job.folder / "n1" / ".headrace").glob("*~*"))

    job.log(4, range(3, 6), nodes=OTHERS, others=range(13, 16))
    assert 0 == job.run()
    assert sorted(taken | {*range(3, 6), *range(13, 16), *range(30, 33)}) == job.rows()
    assert 0 == job.books()["mutations.pending"]


def jobs(job: GapJob) -> set[str]:
    """Return which jobs there are."""
    with contextlib.closing(open_notes(state_of(job.path)[0])) as connection:
        return {status.job for status in connector_statuses(connection)}


@contextlib.contextmanager
def running(job: GapJob, *names: str) -> Iterator[None]:
    """Run jobs, each on a thread, while the block runs; all are there before the first begins."""
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
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads)

"""Jobs that parted become one again in a store in Cassandra, whoever dies meanwhile."""

import signal
import uuid
from pathlib import Path

import pytest
from ring_jobs import store_on
from servers.cassandra import Cassandra

from children import until
from gap_jobs import GapJob
from kill_server import KillServer
from parted import begun, check_one, fork_of, jobs, kill_at_each_step, parted, running

pytestmark = pytest.mark.real


@pytest.fixture
def job(tmp_path: Path, node: Cassandra, monkeypatch: pytest.MonkeyPatch) -> GapJob:
    """Return a job in a store that knows nothing yet."""
    monkeypatch.chdir(tmp_path)
    made = GapJob(tmp_path)
    made.keep_states_in(store_on(node, f"joined_{uuid.uuid4().hex}"))
    return made


def test_kill_at_each_step(job: GapJob) -> None:
    """One after the other takes it up again; each change comes once."""
    parted(job)
    with KillServer() as server:
        assert [-signal.SIGKILL] * 4 == kill_at_each_step(job, server)
        assert 0 == server.run(job.folder)

    check_one(job)


def test_jobs_that_run_become_one(job: GapJob) -> None:
    """While data comes, both stop for a moment, and one goes on for both: all of it comes once."""
    begun(job)
    stop = "STOP DATA_SOURCE cdc ON TABLE forged.other"
    job.execute(stop)
    assert 0 == job.run()
    job.execute(stop.replace("STOP", "RESUME"))
    with running(job, job.name, fork_of(job)):
        job.log(2, range(20, 23), others=range(30, 33))
        until(lambda: jobs(job) == {job.name}, "they never became one")
        job.log(3, range(23, 26), others=range(33, 36))
        everything = [*range(3), *range(10, 13), *range(20, 26), *range(30, 36)]
        until(lambda: everything == job.rows(), "something is missing")

    assert everything == job.rows()
    assert 6 == job.books()["mutations.pending"]

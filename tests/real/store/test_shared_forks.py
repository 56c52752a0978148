"""A source gets a job of its own in a store in Cassandra, whichever process dies meanwhile."""

import signal
import uuid
from pathlib import Path

import pytest

from helpers.jobs.children import until
from helpers.jobs.forked import (
    OTHER,
    begun,
    check_forked,
    fork_of,
    jobs,
    kill_at_each_step,
    running,
)
from helpers.jobs.kill_server import KillServer
from helpers.logs.gap_jobs import GapJob
from real.ring_jobs import store_on
from real.servers.cassandra import Cassandra

pytestmark = pytest.mark.real


@pytest.fixture
def job(tmp_path: Path, node: Cassandra, monkeypatch: pytest.MonkeyPatch) -> GapJob:
    """Return a job in a store that knows nothing yet, when it has run."""
    monkeypatch.chdir(tmp_path)
    made = GapJob(tmp_path)
    made.keep_states_in(store_on(node, f"forked_{uuid.uuid4().hex}"))
    begun(made)
    return made


def test_kill_at_each_step(job: GapJob) -> None:
    """The next run takes it up again; each change comes once."""
    with KillServer() as server:
        assert [-signal.SIGKILL] * 2 == kill_at_each_step(job, server)
        assert 0 == server.run(job.folder)

    check_forked(job)


def test_a_source_that_is_paused_while_both_run(job: GapJob) -> None:
    """While data comes it gets a job of its own, and keeps it; all of it comes once."""
    with running(job, job.name):
        job.log(2, range(20, 23), others=range(30, 33))
        job.execute(f"PAUSE DATA_SOURCE cdc ON TABLE {OTHER}")
        until(lambda: jobs(job) == {job.name, fork_of(job)}, "it got no job of its own")
        job.log(3, range(23, 26), others=range(33, 36))
        job.execute(f"RESUME DATA_SOURCE cdc ON TABLE {OTHER}")
        everything = [*range(3), *range(10, 13), *range(20, 26), *range(30, 36)]
        with running(job, fork_of(job)):
            until(lambda: everything == job.rows(), "something is missing")

    assert everything == job.rows()
    assert {job.name, fork_of(job)} == jobs(job)

"""A source gets a job of its own while processes die: nothing is lost, nothing comes twice."""

import signal
from pathlib import Path

import pytest

from helpers.jobs.forked import begun, check_forked, kill_at_each_step
from helpers.jobs.kill_server import KillServer
from helpers.logs.gap_jobs import GapJob


def test_kill_at_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: KillServer
) -> None:
    """Before it is done the source is of its former job, and after it of its own."""
    monkeypatch.chdir(tmp_path)
    job = GapJob(tmp_path)
    begun(job)
    assert [-signal.SIGKILL] * 2 == kill_at_each_step(job, server)
    assert 0 == server.run(tmp_path)

    check_forked(job)

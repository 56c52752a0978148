"""Two jobs become one while processes die: nothing is lost, and nothing comes twice."""

import signal
from pathlib import Path

import pytest

from gap_jobs import GapJob
from kill_server import KillServer
from parted import check_one, kill_at_each_step, parted


def test_kill_at_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: KillServer
) -> None:
    """Before it is decided there are two jobs, and one ever after; it is taken up again."""
    monkeypatch.chdir(tmp_path)
    job = GapJob(tmp_path)
    parted(job)
    assert [-signal.SIGKILL] * 4 == kill_at_each_step(job, server)
    assert 0 == server.run(tmp_path)

    check_one(job)

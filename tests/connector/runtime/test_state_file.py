"""What becomes of a job whose state file is locked, or goes, while it runs: real processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.connector.stores.sqlite.file import connect
from helpers.jobs.children import RUN, SECONDS_MAX, JobFolder, lines_job, next_line, until
from helpers.stores.file_rows import heads

SOON_S = 30  # Each second a worker looks at the file; the machine may be busy.
FILES, LINES = 2, 50
HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
input()
"""


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    """Return a job that has not run."""
    return lines_job(tmp_path, files=FILES, lines=LINES)


def is_delivered(job: JobFolder) -> bool:
    """Say whether all lines came out, and were committed."""
    if FILES * LINES > sum(job.changes().values()):
        return False
    return all(head.seq > 0 for head in heads(job.path / "state.db").values())


@pytest.mark.parametrize("how", ["unlink", "move", "replace"])
def test_a_job_whose_state_file_goes_ends_soon(job: JobFolder, how: str) -> None:
    """Its commits would be lost; the file is not created again either."""
    path, other = job.path / "state.db", job.path / "other.db"
    connect(other).close()
    with job.running() as child:
        until(lambda: path.exists() and is_delivered(job), "it never delivered")
        match how:
            case "unlink":
                path.unlink()
            case "move":
                path.rename(job.path / "moved.db")
            case _:
                other.replace(path)
        assert 1 == child.wait(SOON_S)

    assert f"error [state_lost]: {path}: the state file was removed, moved or replaced" in job.log()
    assert (how == "replace") == path.exists()


def test_a_write_ahead_log_that_was_removed_is_missed(job: JobFolder) -> None:
    """The next run names the loss and the command to continue, which repeats deliveries."""
    path = job.path / "state.db"
    with job.running() as child:
        until(lambda: path.exists() and is_delivered(job), "it never delivered")
        child.kill()
        child.wait()
    Path(f"{path}-wal").unlink()

    assert 1 == job.finish(), job.log()
    log = job.log()
    assert f"error [state_lost]: {path}: the state file's write-ahead log, {path}-wal, was" in log
    assert "the last commits were in it" in log
    assert f"run `rm {path}-shm` and start again" in log
    assert FILES * LINES == sum(job.changes().values())
    Path(f"{path}-shm").unlink()
    assert 0 == job.finish(), job.log()
    assert {2} == set(job.changes().values())


def test_a_worker_waits_for_whoever_locks_the_state_file(job: JobFolder) -> None:
    """A process stopped during a write keeps it locked: the worker reports that, and waits."""
    path = job.path / "state.db"
    connect(path).close()
    with subprocess.Popen(  # noqa: S603 (a script of ours)
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert b"locked\n" == next_line(holder)
        holder.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED)
        child = job.start("--until-idle")
        until(lambda: '"event":"state_locked"' in job.log(), "it did not wait")
        assert child.poll() is None
        holder.kill()

    assert 0 == child.wait(SECONDS_MAX)
    assert FILES * LINES == sum(job.changes().values())


def test_a_child_makes_no_state_file(job: JobFolder) -> None:
    """The worker that starts it has made one: a missing file was removed."""
    command = [sys.executable, "-c", RUN, "run", str(job.path / "job.yaml"), "--with-parent"]
    done = subprocess.run(  # noqa: S603 (headrace itself)
        command, capture_output=True, check=False, text=True, timeout=SECONDS_MAX
    )

    assert 1 == done.returncode
    assert "error [state_lost]" in done.stderr
    assert not (job.path / "state.db").exists()

"""Killed many times, at steps and at any moment: nothing is lost, little repeated (I7).

HEADRACE_KILLS asks for more kills, as `make soak` does.
"""

import os
import signal
from pathlib import Path
from typing import Final

import pytest

from headrace.connector.stores.sqlite.store import SqliteStore
from helpers.jobs.children import (
    WINDOW_BYTES,
    JobFolder,
    forged_job,
    lines_job,
    write_lines,
    write_ring,
)
from helpers.jobs.kill_server import STEPS, KillServer, moments

pytestmark = pytest.mark.soak

KILLS: Final = int(os.environ.get("HEADRACE_KILLS", "60")) // 2  # Of each of the two jobs.
TRIES: Final = 8  # At most, for each kill: where a run is short, most moments come too late.
FILES: Final = 8
FIRST: Final = 40  # Lines of each file, or rows, when the job begins.
MORE: Final = 10  # And so many more come after each kill.
SEGMENT_ID: Final = 1_700_000_000_000


def uncommitted(job: JobFolder) -> int:
    """Return how many distinct changes came out that no commit covers; committed ones are out."""
    if not (job.path / "state.db").exists():
        return len(job.changes())
    store = SqliteStore.open(job.path / "state.db", "crash")
    try:
        committed = sum(c.delivered for s in store.states() for c in s.counters.values())
    finally:
        store.close()
    out = len(job.changes())
    assert committed <= out, "what was acknowledged is not there"
    return out - committed


def check_kills(job: JobFolder, server: KillServer, seed: int, splits: int, smallest: int) -> int:
    """Kill *job* again and again, each time with more to read; return how often that was.

    A moment may come too late: it is tried again at another one until it has died so often.
    """
    window = splits * (WINDOW_BYTES // smallest + 1)
    kills = repeats_max = runs = 0
    for die in moments(seed, STEPS, TRIES * KILLS):
        runs += 1
        kills += -signal.SIGKILL == server.run(job.path, die)
        left = uncommitted(job)
        assert left <= window, f"{left} changes came out after the last commit ({die})"
        repeats_max += left
        written = job.changes()
        repeated = written.total() - len(written)
        assert repeated <= repeats_max, f"{repeated} changes came again ({die})"
        if isinstance(job, GrowingJob):
            job.grow(runs)
        if kills == KILLS:
            break
    assert (KILLS, 0) == (kills, server.run(job.path)), job.log()
    return runs


class GrowingJob(JobFolder):
    """A job that gets more to read."""

    def grow(self, times: int) -> None:
        """Write what comes after so many kills."""
        raise NotImplementedError


class Lines(GrowingJob):
    """Files."""

    def grow(self, times: int) -> None:
        """Append to each."""
        first = FIRST + (times - 1) * MORE
        write_lines(self.path, FILES, range(first, first + MORE))


class Ring(GrowingJob):
    """Three nodes' logs."""

    def grow(self, times: int) -> None:
        """Write a segment of each."""
        first = FIRST + (times - 1) * MORE
        write_ring(self.path, SEGMENT_ID + times, range(first, first + MORE))


def test_lines_survive_many_kills(tmp_path: Path, server: KillServer) -> None:
    """K03: every line of every file comes out; repeats are what no commit covered."""
    made = lines_job(tmp_path, files=FILES, lines=FIRST)
    job = Lines(made.path, made.identity)

    runs = check_kills(job, server, 1, FILES, len('{"file": 0, "n": 0}\n'))

    numbers = range(FIRST + runs * MORE)
    assert {(name, n) for name in range(FILES) for n in numbers} == set(job.changes())


def test_agreement_survives_many_kills(tmp_path: Path, server: KillServer) -> None:
    """K03: every mutation that two of three nodes logged comes out, counted once by the books."""
    made = forged_job(tmp_path)
    write_ring(tmp_path, SEGMENT_ID, range(FIRST))
    job = Ring(made.path, made.identity)

    runs = check_kills(job, server, 2, 2, 50)

    rows = FIRST + runs * MORE
    assert rows == len(job.changes())
    assert 0 == uncommitted(job)

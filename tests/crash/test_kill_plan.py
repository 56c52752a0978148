"""The number of splits changes while processes die, and while others run: nothing is lost."""

import signal
from pathlib import Path

import pytest

from headrace.connector.commands.cli import main
from headrace.sources.cassandra.forge.segments import SEGMENT_ID
from helpers.jobs.children import WINDOW_BYTES, JobFolder, forged_job, stop, until, write_ring
from helpers.jobs.kill_server import KillServer

ROWS = 90
SMALLEST_BYTES = 50  # Of a change.
TAKEN_OVER = '"split_taken_over"'


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobFolder:
    """Return a job of two splits over three replicas' logs."""
    monkeypatch.chdir(tmp_path)
    return forged_job(tmp_path)


def splits(job: JobFolder) -> set[str]:
    """Return the splits that have leases."""
    return set(job.leases())


@pytest.mark.parametrize("step", ["plan_announced", "plan_made", "plan_changed"])
def test_kill_at_each_step_of_a_change(ring: JobFolder, server: KillServer, step: str) -> None:
    """After SIGKILL at any step the change is taken up again, and all comes once.

    Also what was uncommitted when the process before it was killed.
    """
    write_ring(ring.path, SEGMENT_ID, range(ROWS))
    assert -signal.SIGKILL == server.run(ring.path, "commit_heads:2"), ring.log()
    ring.cut_into(5)
    assert -signal.SIGKILL == server.run(ring.path, f"{step}:1"), ring.log()
    write_ring(ring.path, SEGMENT_ID + 1, range(ROWS, 2 * ROWS))
    assert 0 == server.run(ring.path), ring.log()

    changes = ring.changes()
    assert 2 * ROWS == len(changes)
    assert {f"{number}-of-5" for number in range(1, 6)} == splits(ring)
    assert 0 == main(["verify", str(ring.path / "job.yaml")])


def test_a_worker_that_runs_follows_one_with_another_number(ring: JobFolder) -> None:
    """It settles, commits and gives its splits back; then both share the new ones.

    Of what both read nothing comes twice, and none takes the plan back.
    """
    write_ring(ring.path, SEGMENT_ID, range(ROWS))
    with ring.running() as first:
        until(lambda: len(ring.changes()) == ROWS, "it never began")
        ring.cut_into(4)
        with ring.running() as second:
            until(lambda: ring.is_shared(owners=2, splits=4), "they never shared the new splits")
            write_ring(ring.path, SEGMENT_ID + 1, range(ROWS, 2 * ROWS))
            until(lambda: len(ring.changes()) == 2 * ROWS, "something is missing")
            assert 0 == stop(second), ring.log()
        assert 0 == stop(first), ring.log()

    assert {1} == set(ring.changes().values())
    assert {f"{number}-of-4" for number in range(1, 5)} == splits(ring)
    assert 0 == main(["verify", str(ring.path / "job.yaml")])


def test_a_worker_that_slept_through_a_change_is_silent(ring: JobFolder) -> None:
    """Stopped until its plan has ended, it wakes and submits nothing of that (I2); it follows.

    On a busy machine the other may be late with its leases too: then a window comes again.
    """
    ring.lease(seconds=2)
    write_ring(ring.path, SEGMENT_ID, range(ROWS))
    with ring.running() as first:
        until(lambda: len(ring.changes()) == ROWS, "it never began")
        before = set(ring.changes())
        until(lambda: ring.pause(first), "it never ceased to write")
        ring.cut_into(4)
        with ring.running() as second:
            until(lambda: ring.is_shared(owners=1, splits=4), "nobody made new splits")
            taken_before = ring.log().count(TAKEN_OVER)
            write_ring(ring.path, SEGMENT_ID + 1, range(ROWS, 2 * ROWS))
            first.send_signal(signal.SIGCONT)
            until(lambda: len(ring.changes()) == 2 * ROWS, "something is missing")
            until(lambda: ring.is_shared(owners=2, splits=4), "the first never came back")
            assert 0 == stop(second), ring.log()
        assert 0 == stop(first), ring.log()

    late = ring.log().count(TAKEN_OVER) - taken_before
    again = [c for c, count in ring.changes().items() if count > 1 and c not in before]
    assert len(again) <= late * (WINDOW_BYTES // SMALLEST_BYTES + 1)
    assert {f"{number}-of-4" for number in range(1, 5)} == splits(ring)
    assert 0 == main(["verify", str(ring.path / "job.yaml")])


@pytest.mark.long
def test_a_job_has_more_splits_when_it_has_more_workers(ring: JobFolder) -> None:
    """No one gives a number: three workers share sixteen, of the eight that they started with.

    Nothing is lost or comes twice.
    """
    ring.leave_open(resplit_seconds=0.5)
    write_ring(ring.path, SEGMENT_ID, range(ROWS))
    with ring.running() as first, ring.running() as second, ring.running() as third:
        until(lambda: len(ring.changes()) == ROWS, "it never began")
        until(lambda: ring.is_shared(owners=3, splits=16), "they never shared more splits")
        write_ring(ring.path, SEGMENT_ID + 1, range(ROWS, 2 * ROWS))
        until(lambda: len(ring.changes()) == 2 * ROWS, "something is missing")
        assert [0, 0, 0] == [stop(child) for child in (first, second, third)], ring.log()

    assert {1} == set(ring.changes().values())
    assert {f"{number}-of-16" for number in range(1, 17)} == splits(ring)
    assert 1 == ring.log().count('"plan_announced"')
    assert 0 == main(["verify", str(ring.path / "job.yaml")])

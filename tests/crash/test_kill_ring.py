"""A ring of three replicas, read by processes that die: agreement survives, nothing is doubled."""

import random
import signal
import time
from pathlib import Path

import pytest

from children import RING_WINDOW_BYTES, JobFolder, ring_job, stop, until

SPLITS, SMALLEST_BYTES = 8, 50  # No mutation of the recording is smaller.
TURN = 10
STEPS = ("read", "submitted", "commit_chunks", "committed")


@pytest.fixture
def ring(tmp_path: Path) -> JobFolder:
    """Return a job over three replicas' logs."""
    return ring_job(tmp_path, "5.0-ring")


@pytest.fixture(scope="session")
def ring_changes(tmp_path_factory: pytest.TempPathFactory) -> set[object]:
    """Return what comes out of the ring when nobody dies."""
    job = ring_job(tmp_path_factory.mktemp("undisturbed"), "5.0-ring")
    assert 0 == job.finish()
    changes = job.changes()
    assert set(changes.values()) == {1}
    return set(changes)


@pytest.mark.parametrize("step", STEPS)
def test_kill_amid_agreement(ring: JobFolder, ring_changes: set[object], step: str) -> None:
    """Copies that were counted before the kill count once after it."""
    assert -signal.SIGKILL == ring.finish(crash_at=f"{step}:{TURN}"), ring.log()
    assert 0 == ring.finish(), ring.log()
    changes = ring.changes()

    assert ring_changes == set(changes)
    repeated = changes.total() - len(changes)
    assert repeated <= SPLITS * (RING_WINDOW_BYTES // SMALLEST_BYTES + 1)


def test_kill_amid_agreement_at_random_moments(ring: JobFolder, ring_changes: set[object]) -> None:
    """Killed again and again, the job still gives every agreed change and no other."""
    moment = random.Random(7)  # noqa: S311 (a test's dice)
    for _ in range(5):
        child = ring.start("--until-idle")
        time.sleep(moment.uniform(0.6, 1.4))  # The moment is the test.
        child.kill()
        child.wait()
    assert 0 == ring.finish(), ring.log()

    assert ring_changes == set(ring.changes())


def test_two_processes_share_a_ring(ring: JobFolder, ring_changes: set[object]) -> None:
    """Two owners of one ring, each with its splits, give together what one alone gives, once."""
    with ring.running() as first, ring.running() as second:
        until(lambda: ring.is_shared(owners=2, splits=SPLITS), "they never shared")
        until(lambda: ring_changes == set(ring.changes()), "something is missing")
        assert (0, 0) == (stop(first), stop(second)), ring.log()

    assert {1} == set(ring.changes().values())

"""A ring of three replicas, read by processes that die: agreement survives, nothing is doubled."""

import signal
from pathlib import Path

import pytest

from helpers.jobs.children import RING_WINDOW_BYTES, JobFolder, ring_job, stop, until
from helpers.jobs.kill_server import KillServer

SPLITS, SMALLEST_BYTES = 8, 50  # No mutation of the recording is smaller.
TURN = 10
STEPS = ("read", "submitted", "commit_chunks", "committed")


@pytest.fixture
def ring(tmp_path: Path) -> JobFolder:
    """Return a job over three replicas' logs."""
    return ring_job(tmp_path, "5.0-ring")


@pytest.fixture(scope="session")
def ring_changes(tmp_path_factory: pytest.TempPathFactory, server: KillServer) -> set[object]:
    """Return what comes out of the ring when no one dies."""
    job = ring_job(tmp_path_factory.mktemp("undisturbed"), "5.0-ring")
    assert 0 == server.run(job.path)
    changes = job.changes()
    assert set(changes.values()) == {1}
    return set(changes)


@pytest.mark.parametrize("step", STEPS)
def test_kill_amid_agreement(
    ring: JobFolder, ring_changes: set[object], server: KillServer, step: str
) -> None:
    """Copies that were counted before the kill count once after it."""
    assert -signal.SIGKILL == server.run(ring.path, f"{step}:{TURN}"), ring.log()
    assert 0 == server.run(ring.path), ring.log()
    changes = ring.changes()

    assert ring_changes == set(changes)
    repeated = changes.total() - len(changes)
    assert repeated <= SPLITS * (RING_WINDOW_BYTES // SMALLEST_BYTES + 1)


def test_two_processes_share_a_ring(ring: JobFolder, ring_changes: set[object]) -> None:
    """Two owners of one ring, each with its splits, give together what one alone gives, once."""
    with ring.running() as first, ring.running() as second:
        until(lambda: ring.is_shared(owners=2, splits=SPLITS), "they never shared")
        until(lambda: ring_changes == set(ring.changes()), "something is missing")
        assert (0, 0) == (stop(first), stop(second)), ring.log()

    assert {1} == set(ring.changes().values())

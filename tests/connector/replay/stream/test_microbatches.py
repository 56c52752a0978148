"""Time in micro-batches: it passes in steps that offsets contain, and mutations expire by it."""

from pathlib import Path

import pytest

from headrace.connector.control.jobs import job_text, read_job
from headrace.connector.replay.shards import SourceSpec
from headrace.connector.replay.stream.checkpoint import Checkpoint, Offset, checkpoint_of
from headrace.connector.replay.stream.microbatches import STEP_MS, Course, Part, Reading
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.logs.gap_jobs import GapJob

EXPIRY_STEPS = 3


class Driver:
    """Plans batches by a clock that the test drives, and executes them in this process."""

    def __init__(self, job: GapJob) -> None:
        """Start before the first record."""
        text, store = job_text(job.path, None), read_job(job.path).open_store()
        try:
            key = store.job_key()
        finally:
            store.close()
        spec = SourceSpec(given=dict(text.source), directory=str(job.folder), job=text.name)
        self.clock = DrivenClock()
        self.checkpoint: Checkpoint = checkpoint_of(text.state, text.name)
        self.course = Course(spec, self.checkpoint, start="earliest", job_key=key, clock=self.clock)
        self.at: Offset = self.course.initial()

    def look(self) -> bool:
        """Take a batch, if there is one; return whether there was one."""
        end = self.course.ahead(self.at)
        if end == self.at:
            return False
        for part in self.course.parts(self.at, end):
            self.work(part)
        self.at = end
        return True

    def work(self, part: Part) -> bytes:
        """Execute a part; return the split's state after it."""
        reading = Reading(part, self.checkpoint)
        for _ in reading.batches():
            pass
        known = self.checkpoint.states.load(part.end, part.shard.split).position
        assert known is not None
        return known.head + b"".join(known.chunks.values())

    def state(self) -> CdcState:
        """Return the current state of the split."""
        known = self.checkpoint.states.load(self.at, "1-of-1").position
        assert known is not None
        return CdcState.decode(known)


@pytest.fixture
def job(tmp_path: Path) -> GapJob:
    """Return a job with a mutation that waits for a second copy, and will expire soon."""
    seconds = EXPIRY_STEPS * STEP_MS // 1000
    made = GapJob(tmp_path, splits=1, expiry_seconds=seconds, dedup_window_seconds=seconds)
    made.log(1, range(3))
    made.log(2, range(3, 4), nodes=("n1",))
    made.log(2, range(3), nodes=("n2", "n3"))
    return made


def test_what_waits_too_long_expires(job: GapJob) -> None:
    """While nothing is logged each step of time is a batch; mutations expire by these steps."""
    driver = Driver(job)
    assert driver.look()
    pending = []
    for _ in range(4 * EXPIRY_STEPS):
        driver.clock.advance(STEP_MS // 3 + 1)
        if driver.look():
            pending.append(driver.state().books()["mutations.pending"])

    assert [1] * (EXPIRY_STEPS - 1) + [0] == pending[:EXPIRY_STEPS]
    assert 1 == driver.state().books()["mutations.expired"]
    assert driver.state().split_time_ms == STEP_MS * len(pending)


def test_a_batch_that_comes_again_is_as_old(job: GapJob) -> None:
    """The offsets have the time that passes in a batch; a repeated batch has the same time."""
    driver = Driver(job)
    driver.look()
    driver.clock.advance(STEP_MS)
    end = driver.course.ahead(driver.at)
    (part,) = driver.course.parts(driver.at, end)

    first = driver.work(part)
    driver.clock.advance(1_000_000)
    assert first == driver.work(part)


def test_split_time_stops_while_logs_are_not_read_to_their_ends(job: GapJob) -> None:
    """While there is something to read, or while no driver runs, split time stops."""
    driver = Driver(job)
    driver.clock.advance(STEP_MS)
    driver.look()
    first = driver.state().split_time_ms
    job.log(3, range(5, 6))
    driver.clock.advance(100 * STEP_MS)
    driver.look()

    assert (0, STEP_MS) == (first, driver.state().split_time_ms)


def test_no_time_passes_for_what_ends(job: GapJob) -> None:
    """With `--until-idle` no time passes and nothing expires."""
    driver = Driver(job)
    driver.course.end_here()
    driver.look()
    driver.clock.advance(STEP_MS)

    assert not driver.look()

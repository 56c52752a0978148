"""How long the stages of a change take, how late a split is, and what it has committed."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headrace.connector.runtime.pipeline import REST_MS
from headrace.plugins.testing.doubles import ChaosResult
from helpers.jobs.rig import TICK_MS
from helpers.logs.forged import NOW_US, SCHEMA
from helpers.logs.live_log import LiveLog
from helpers.logs.realtime_rig import RealtimeRig

CHANGES = 10
BUFFER_BYTES = 1 << 20  # A pass reads all changes.
STEPS = ("written_to_durable", "durable_to_framed", "framed_to_agreed", "agreed_to_acknowledged")


@pytest.fixture(params=["realtime", "log"])
def rig(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RealtimeRig]:
    """Return a rig in each mode whose table has three replicas, at QUORUM."""
    schema = tmp_path / "three.cql"
    schema.write_text(SCHEMA)
    nodes = {name: str(tmp_path / name) for name in ("node", "second", "third")}
    for name in ("second", "third"):
        LiveLog(tmp_path / name)
    options = {"realtime.buffer_bytes": BUFFER_BYTES, "nodes": nodes, "schema": str(schema)}
    made = RealtimeRig(tmp_path, mode=request.param, consistency="QUORUM", **options)
    made.passes(5)
    yield made
    made.crash()
    made.store.close()


def write(log: LiveLog, *, written_ms: int, durable_ms: int) -> None:
    """Let a node write changes and sync them, at these times in ms since 1970."""
    log.append(CHANGES, from_us=written_ms * 1000 - NOW_US)
    log.sync()
    for index in log.folder.glob("*.idx"):
        os.utime(index, ns=(0, durable_ms * 1_000_000))


def read(rig: RealtimeRig) -> int:
    """Let passes come until logs were read further; return when that pass started."""
    pump = rig.cassandra._parts.built().pump  # noqa: SLF001 (there is no other sign)
    before = pump.moves
    while True:
        now_ms = rig.clock.wall_ms()
        rig.passes(1)
        if pump.moves != before:
            return now_ms


def lags(rig: RealtimeRig) -> Sequence[float]:
    """Return the lag of each split, in ms."""
    found = [rig.pipeline.lag_ms(run) for run in rig.pipeline.runs]
    return [lag for lag in found if lag is not None]


def test_each_stage_is_measured(rig: RealtimeRig, tmp_path: Path) -> None:
    """From the write to the sync, the first copy, the one that agrees, and the sink's result."""
    begun_ms = rig.clock.wall_ms()
    write(rig.log, written_ms=begun_ms - 40, durable_ms=begun_ms - 10)
    framed_ms = read(rig)
    rig.clock.advance(300)
    write(LiveLog(tmp_path / "second"), written_ms=begun_ms - 40, durable_ms=begun_ms)
    rig.hold()
    agreed_ms = read(rig)
    rig.clock.advance(70)
    rig.let_go()
    acknowledged_ms = rig.clock.wall_ms()
    rig.passes(1)

    stages = rig.pipeline.stats.stages
    took = {step: 1000 * timing.sum / CHANGES for step, timing in stages.timings.items()}
    durable_ms = begun_ms - 10
    expected = (30, framed_ms - durable_ms, agreed_ms - framed_ms, acknowledged_ms - agreed_ms)
    assert took == pytest.approx(dict(zip(STEPS, expected, strict=True)), abs=0.01)
    assert [CHANGES] * len(STEPS) == [sum(each.counts) for each in stages.timings.values()]
    assert agreed_ms - framed_ms >= 300
    assert acknowledged_ms - agreed_ms >= 70
    assert not stages.negative


def test_clocks_that_differ(rig: RealtimeRig, tmp_path: Path) -> None:
    """What was written after it was durable took no time, and is counted."""
    later_ms = rig.clock.wall_ms() + 5_000
    write(rig.log, written_ms=later_ms, durable_ms=later_ms - 5_000)
    write(LiveLog(tmp_path / "second"), written_ms=later_ms, durable_ms=later_ms)
    rig.until(lambda: CHANGES == len(rig.numbers))
    rig.passes(2)

    stages = rig.pipeline.stats.stages
    assert {"written_to_durable": CHANGES} == stages.negative
    timing = stages.timings["written_to_durable"]
    assert (CHANGES, 0) == (timing.counts[0], timing.sum)


def test_a_batch_that_is_sent_again_counts_once(rig: RealtimeRig, tmp_path: Path) -> None:
    """Its changes are acknowledged when the sink has all of them."""
    now_ms = rig.clock.wall_ms()
    rig.script.append(ChaosResult.RETRY_LAST)
    write(rig.log, written_ms=now_ms, durable_ms=now_ms)
    write(LiveLog(tmp_path / "second"), written_ms=now_ms, durable_ms=now_ms)
    rig.until(lambda: set(range(CHANGES)) == rig.committed_numbers())

    timings = rig.pipeline.stats.stages.timings.values()
    assert [CHANGES] * len(STEPS) == [sum(each.counts) for each in timings]


def test_the_lag_is_of_what_is_not_acknowledged(rig: RealtimeRig, tmp_path: Path) -> None:
    """At rest it is since the last look; else since the oldest of it was durable."""
    rest_ms = max(REST_MS, TICK_MS)
    rig.clock.advance(3_600_000)
    rig.passes(5)
    assert all(0 <= lag <= rest_ms for lag in lags(rig))

    now_ms = rig.clock.wall_ms()
    rig.hold()
    write(rig.log, written_ms=now_ms, durable_ms=now_ms)
    write(LiveLog(tmp_path / "second"), written_ms=now_ms, durable_ms=now_ms)
    read(rig)
    rig.clock.advance(2_000)
    rig.passes(1)
    assert [rig.clock.wall_ms() - now_ms] * 2 == lags(rig)

    rig.let_go()
    rig.passes(10)
    assert all(0 <= lag <= rest_ms for lag in lags(rig))

"""The mode of logs: read as they are written, a buffer that is bounded, fall and return."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.connector.runtime.modes import LOOK_MS, STEADY_MS
from headrace.connector.runtime.pipeline import QUIET_PART, REST_MS, UNTOLD_MS, WRITTEN_MS
from headrace.plugins import Delivery
from headrace.plugins.testing.doubles import ChaosResult, ChaosWriter
from headrace.sources.cassandra.agent import server as agent_server
from helpers.jobs.rig import TICK_MS
from helpers.logs.forged import SCHEMA
from helpers.logs.live_log import LiveLog
from helpers.logs.realtime_rig import BUFFER_BYTES, MORE, RETURN_SECONDS, RealtimeRig, rigs
from helpers.servers.agents import TOKEN, serving


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., RealtimeRig]]:
    """Return what makes a rig with options of the source."""
    with rigs(tmp_path) as made:
        yield made


@pytest.fixture
def rig(make: Callable[..., RealtimeRig]) -> RealtimeRig:
    """Return a rig that has nothing to read."""
    return make()


@pytest.mark.parametrize(("level", "copies"), [("ONE", 1), ("QUORUM", 2)])
def test_a_slow_replica_delays_nothing(
    make: Callable[..., RealtimeRig], tmp_path: Path, level: str, copies: int
) -> None:
    """A change leaves with the copy that meets its level, in the next pass."""
    names = ("node", "second", "third")
    schema = tmp_path / "three.cql"
    schema.write_text(SCHEMA)
    others = [LiveLog(tmp_path / name) for name in names[1:]]
    nodes = {name: str(tmp_path / name) for name in names}
    rig = make(nodes=nodes, schema=str(schema), consistency=level)
    logs = [rig.log, *others][:copies]
    for log in logs[:-1]:
        log.append(3)
        log.sync()
        rig.passes(5)
    assert [] == rig.numbers

    logs[-1].append(3)
    logs[-1].sync()
    rig.passes(1)

    assert [0, 1, 2] == sorted(rig.numbers)
    assert set(names) == rig.modes.realtime


def test_a_write_ends_the_wait(rig: RealtimeRig) -> None:
    """What is durable is delivered by the next pass, which no tick is waited for."""
    written_ms: list[int] = []
    delivered_ms: list[int] = []
    wait, deliver = rig.wake.wait, rig.sink.deliver

    def write(timeout_ms: int, readable: int | None = None) -> None:
        if readable is None or written_ms:
            wait(timeout_ms)
            return
        rig.write(1)  # Meanwhile: the descriptor is readable, so the wait ends.
        written_ms.append(rig.clock.monotonic_ms())

    def noted(delivery: Delivery, *, leave_out: int | None = None) -> list[int]:
        delivered_ms.append(rig.clock.monotonic_ms())
        return deliver(delivery, leave_out=leave_out)

    rig.wake.wait, rig.sink.deliver = write, noted  # type: ignore[method-assign]
    rig.until(lambda: [0] == rig.numbers)

    assert delivered_ms[0] - written_ms[0] <= WRITTEN_MS < TICK_MS


def test_nothing_to_read_is_no_work(rig: RealtimeRig) -> None:
    """A pass without news is followed by a long wait for the descriptor."""
    rig.clock.advance(1)
    rig.settle()
    del rig.wake.waits[:]
    rig.passes(4)

    assert REST_MS in rig.wake.waits
    assert len(rig.wake.waits) <= 4


def test_a_log_without_events_is_looked_at(
    rig: RealtimeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is written to each 2 ms; the longer it is quiet, the less often."""
    monkeypatch.setattr(rig.cassandra, "descriptor", lambda: None)
    wait = rig.wake.wait

    def write(timeout_ms: int, readable: int | None = None) -> None:
        monkeypatch.setattr(rig.wake, "wait", wait)
        rig.write(1)  # While it waits.
        wait(timeout_ms, readable)

    rig.settle()
    monkeypatch.setattr(rig.wake, "wait", write)
    rig.until(lambda: [0] == rig.numbers)
    assert 0 < rig.pipeline._written_ms  # noqa: SLF001 (that it was noted)
    rig.settle()

    def looked_after_ms(quiet_ms: int) -> int:
        rig.pipeline._written_ms = rig.clock.monotonic_ms() - quiet_ms  # noqa: SLF001 (else commits are in between)
        del rig.wake.waits[:]
        rig.passes(1)
        return rig.wake.waits[0]

    least, most = UNTOLD_MS
    assert least == looked_after_ms(0) == looked_after_ms(QUIET_PART * least)
    assert least < looked_after_ms(QUIET_PART * (most - 1)) < most
    assert most == looked_after_ms(QUIET_PART * 100 * most)


def test_mode_log_is_paced_by_the_tick(make: Callable[..., RealtimeRig]) -> None:
    """Without the option a pipeline has no modes."""
    rig = make(mode="log")
    rig.write(3)
    rig.until(lambda: 3 == len(rig.numbers))

    assert rig.pipeline._modes is None  # noqa: SLF001 (what is tested)


def test_a_full_buffer_is_latched(rig: RealtimeRig) -> None:
    """Once it is full nothing is read until all is acknowledged and committed."""
    rig.hold()
    while not rig.modes.is_full:
        rig.write(3)
        rig.passes(1)
    written = rig.log.synced
    rig.write(MORE)
    read = rig.pipeline.stats.records_read
    assert BUFFER_BYTES <= rig.modes.buffered_bytes <= BUFFER_BYTES + rig.log.section_bytes_max
    assert 0 < read <= written

    delivery, settle = rig.sink.held.popleft()
    settle(rig.sink.deliver(delivery))  # There is room again.
    rig.passes(20)
    assert (True, read) == (rig.modes.is_full, rig.pipeline.stats.records_read)

    rig.let_go()
    rig.settle()
    assert not rig.modes.is_full
    assert list(range(written + MORE)) == sorted(rig.numbers)


def test_a_sink_that_takes_no_more_makes_the_buffer_full(rig: RealtimeRig) -> None:
    """Its own queue is full before the buffer is; a refusal while there is little in it is none."""
    rig.script.append(ChaosResult.REFUSE)
    rig.write(1)
    rig.until(lambda: 1 == len(rig.numbers))
    assert 0 == rig.modes.overflows

    rig.hold(2)
    rig.script.extend([ChaosResult.REFUSE] * 3)
    rig.write(20, value_bytes=20)
    rig.until(lambda: rig.modes.is_full)
    assert rig.modes.buffered_bytes < BUFFER_BYTES
    rig.let_go()
    rig.settle()
    assert list(range(21)) == sorted(rig.numbers)


def test_the_sink_hurries(rig: RealtimeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked to send at once, until the mode is log."""
    asked: list[bool] = []
    monkeypatch.setattr(ChaosWriter, "hurry", lambda _, *, hurries: asked.append(hurries))
    rig.fall()
    assert [False] == asked

    rig.returned_after_ms()
    rig.passes(1)
    assert [False, True] == asked


def test_fallback(rig: RealtimeRig) -> None:
    """The mode is log, with a reason; what was acknowledged before is not delivered again."""
    rig.fall()

    assert frozenset() == rig.modes.realtime
    assert 1 == rig.modes.switches["realtime", "log", "buffer_full"] == rig.modes.overflows
    assert list(range(MORE)) == sorted(rig.numbers)


def test_it_returns_when_the_backlog_was_small_for_long_enough(rig: RealtimeRig) -> None:
    """Not earlier, nor while what is unread or not acknowledged is more than a quarter."""
    rig.fall()
    assert 0 <= rig.returned_after_ms() - RETURN_SECONDS * 1_000 <= 3 * LOOK_MS
    assert 1 == rig.modes.switches["log", "realtime", "backlog_is_small"]

    rig.fall()
    rig.hold()
    rig.write(MORE // 2)
    rig.passes(20 * 2 * RETURN_SECONDS)
    assert frozenset() == rig.modes.realtime
    rig.let_go()
    rig.settle()


def test_the_wait_is_an_option(make: Callable[..., RealtimeRig]) -> None:
    """`realtime.return_after_seconds` is the wait before the first return."""
    rig = make(**{"realtime.return_after_seconds": 7})
    rig.fall()

    assert 0 <= rig.returned_after_ms() - 7_000 <= 3 * LOOK_MS


def test_a_return_that_fails_doubles_the_wait(rig: RealtimeRig) -> None:
    """Up to half an hour; an hour in realtime resets it."""
    least_ms = RETURN_SECONDS * 1_000
    rig.fall()
    for wait_ms in (least_ms, 2 * least_ms, 4 * least_ms):
        assert 0 <= rig.returned_after_ms() - wait_ms <= 3 * LOOK_MS
        rig.fall()
    rig.returned_after_ms()
    rig.clock.advance(STEADY_MS)
    rig.fall()
    assert 0 <= rig.returned_after_ms() - least_ms <= 3 * LOOK_MS


def test_the_wait_is_half_an_hour_at_most(rig: RealtimeRig) -> None:
    """However many returns failed."""
    for _ in range(10):
        rig.fall()
        rig.modes._small_since_ms = 0  # noqa: SLF001 (so that it need not be waited for)
        rig.clock.advance(30 * 60_000)
        rig.passes(3)
        assert rig.modes.realtime


def test_block(make: Callable[..., RealtimeRig]) -> None:
    """With `block` it reads on in the same mode, when the buffer is empty."""
    rig = make(**{"realtime.on_overflow": "block"})
    rig.fall()

    assert {"node"} == rig.modes.realtime
    assert list(range(MORE)) == sorted(rig.numbers)
    assert rig.modes.overflows > 0 == rig.modes.switches["realtime", "log", "buffer_full"]


def test_fail(make: Callable[..., RealtimeRig]) -> None:
    """With `fail` every split stops with an error that names the option."""
    rig = make(**{"realtime.on_overflow": "fail"})
    rig.hold()
    rig.write(MORE)
    rig.until(lambda: rig.modes.overflows > 0)
    rig.let_go()
    rig.until(lambda: 2 == len(rig.closed()))

    errors = [closed.error for closed in rig.closed()]
    assert {"realtime_buffer_full"} == {error.code for error in errors if error}
    assert all("realtime.on_overflow" in str(error) for error in errors)


def test_a_restart_with_a_small_backlog(make: Callable[..., RealtimeRig]) -> None:
    """The mode is realtime at once, and a log line says how many records were read again."""
    rig = make()
    rig.crash()
    rig.write(7)
    rig.start()
    with pytest.MonkeyPatch.context() as patched:
        reported: list[int] = []
        patched.setattr(rig.modes, "caught_up", reported.append)
        rig.passes(1)
        assert {"node"} == rig.modes.realtime
        rig.passes(3)

    assert 7 == reported[0]


def test_a_restart_with_a_large_backlog(make: Callable[..., RealtimeRig]) -> None:
    """The mode is log until it is small for long enough."""
    rig = make()
    rig.crash()
    rig.write(MORE)
    rig.start()
    rig.settle()
    assert 1 == rig.modes.switches["realtime", "log", "restart_backlog"]

    assert 0 < rig.returned_after_ms()


def test_measures(rig: RealtimeRig) -> None:
    """The mode, the buffer and the changes of the mode are metrics."""
    rig.fall()
    found = {
        (measure.name, *sorted(labels.values())): value
        for measure in rig.modes.measures()
        for labels, value in measure.samples
    }

    assert 1 == found["headrace_mode", "log", "node"]
    assert 1 == found["headrace_mode_changes_total", "buffer_full", "log", "realtime"]
    assert BUFFER_BYTES == found["headrace_realtime_buffer_capacity_bytes",]
    assert 0 == found["headrace_realtime_buffer_bytes",]
    assert 1 == found["headrace_realtime_overflows_total",]


def test_a_log_that_an_agent_serves_is_followed(
    make: Callable[..., RealtimeRig], tmp_path: Path
) -> None:
    """In mode realtime a request waits at the agent, and in mode log none does."""
    (tmp_path / "node").mkdir()
    with serving(tmp_path / "node") as served:
        rig = make(nodes={"node": {"url": served.url}}, agent_token=TOKEN)
        rig.write(3)
        rig.until(lambda: [0, 1, 2] == sorted(rig.numbers))
        assert {"node"} == rig.modes.realtime
        assert isinstance(rig.cassandra.descriptor(), int)
        (log,) = rig.cassandra._parts.logs.values()  # noqa: SLF001 (what it asks)
        rig.settle()
        rig.until(log.is_still)

        request = rig.ask("log")
        rig.passes(2)
        assert {"node": "succeeded"} == rig.outcomes(request)
        assert not log.is_still()
        rig.write(1)
        rig.settle()

        request = rig.ask("realtime")
        rig.until(lambda: {"node": "succeeded"} == rig.outcomes(request))
        rig.until(log.is_still)


def test_a_log_of_an_older_agent_is_read_at_the_tick(
    make: Callable[..., RealtimeRig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its log is in no other mode, and realtime is refused for it."""
    monkeypatch.setattr(agent_server, "MARK_HEADER", "Server-Timing")  # It gives no marks.
    (tmp_path / "node").mkdir()
    with serving(tmp_path / "node") as served:
        rig = make(nodes={"node": {"url": served.url}}, agent_token=TOKEN)
        rig.write(3)
        rig.until(lambda: [0, 1, 2] == sorted(rig.numbers))
        assert frozenset() == rig.modes.realtime
        request = rig.ask("realtime")
        rig.passes(3)

        assert {"node": "refused tells_nothing"} == rig.outcomes(request)

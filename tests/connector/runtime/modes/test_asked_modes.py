"""Modes that are asked for while a job runs: what is done, what is answered, and what is kept."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.connector.control.modes import NodeMode
from headrace.connector.runtime.messages import Pause
from headrace.connector.runtime.modes import LOOK_MS
from headrace.plugins.config.realtime_options import LOG, REALTIME
from helpers.logs.forged import SCHEMA
from helpers.logs.live_log import LiveLog
from helpers.logs.realtime_rig import MORE, RETURN_SECONDS, RealtimeRig, rigs

NAMES = ("node", "second")


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., RealtimeRig]]:
    """Return what makes a rig with options of the source."""
    with rigs(tmp_path) as made:
        yield made


@pytest.fixture
def rig(make: Callable[..., RealtimeRig]) -> RealtimeRig:
    """Return a rig that is configured for mode log, and has nothing to read."""
    return make(mode="log")


@pytest.fixture
def pair(make: Callable[..., RealtimeRig], tmp_path: Path) -> tuple[RealtimeRig, LiveLog]:
    """Return a rig of two logs, in mode log, and the other log."""
    schema = tmp_path / "two.cql"
    schema.write_text(SCHEMA.replace("'3'", "'2'"))
    other = LiveLog(tmp_path / NAMES[1])
    nodes = {name: str(tmp_path / name) for name in NAMES}
    return make(mode="log", nodes=nodes, schema=str(schema)), other


def shown(rig: RealtimeRig) -> list[NodeMode]:
    """Return the modes as the store has them."""
    return list(rig.job_modes.modes("job"))


def stored(rig: RealtimeRig) -> dict[str, str]:
    """Return the stored mode of each log; that of all splits is one."""
    found = shown(rig)
    assert all(each.splits == each.of_splits for each in found)
    return {each.node: each.mode for each in found}


def test_on(rig: RealtimeRig) -> None:
    """It has succeeded once what was unread is read, and is kept with the position."""
    rig.write(3)
    rig.settle()
    assert {"": LOG} == stored(rig)
    request = rig.ask(REALTIME)
    assert {"": "pending"} == rig.outcomes(request)

    rig.passes(2)
    assert {"node": "succeeded"} == rig.outcomes(request)
    assert {"node": REALTIME} == stored(rig)
    assert {"node"} == rig.modes.realtime
    (change,) = rig.job_modes.changes("job")
    assert dict(zip(("segment_id", "position"), rig.markers()[0], strict=True)) == change.end
    assert 1 == rig.modes.switches[LOG, REALTIME, "asked"]


def test_what_is_unread_is_read_before_success(rig: RealtimeRig) -> None:
    """While nothing is read, the request is pending."""
    rig.pipeline.command(Pause(paused=True))
    rig.write(3)
    request = rig.ask(REALTIME)
    rig.passes(20)
    assert {"node": "pending"} == rig.outcomes(request)

    rig.pipeline.command(Pause(paused=False))
    rig.passes(2)
    assert {"node": "succeeded"} == rig.outcomes(request)


def test_off(make: Callable[..., RealtimeRig]) -> None:
    """It succeeds in the next pass; nothing is read again."""
    rig = make()
    rig.write(5)
    rig.passes(1)
    request = rig.ask(LOG)
    rig.passes(1)

    assert {"node": "succeeded"} == rig.outcomes(request)
    assert {"node": LOG} == stored(rig)
    assert 1 == rig.modes.switches[REALTIME, LOG, "asked"]
    rig.write(5)
    rig.settle()
    assert list(range(10)) == sorted(rig.numbers)


def test_off_is_answered_while_the_buffer_is_full(make: Callable[..., RealtimeRig]) -> None:
    """The buffer stays latched until it is empty."""
    rig = make(**{"realtime.on_overflow": "block"})
    rig.hold()
    rig.write(MORE)
    rig.until(lambda: rig.modes.is_full)
    request = rig.ask(LOG)
    rig.passes(3)

    assert {"node": "succeeded"} == rig.outcomes(request)
    assert rig.modes.is_full
    rig.let_go()
    rig.settle()
    assert list(range(MORE)) == sorted(rig.numbers)
    assert not rig.modes.is_full


def test_a_backlog_without_room(rig: RealtimeRig) -> None:
    """The request falls back; the mode returns by itself later, which does not change that."""
    rig.hold()
    rig.write(MORE)
    request = rig.ask(REALTIME)
    rig.passes(2)
    assert {"node": "fell_back backlog"} == rig.outcomes(request)
    assert {"node": LOG} == stored(rig)

    rig.let_go()
    rig.settle()
    rig.until(lambda: bool(rig.modes.realtime), passes_max=100_000)
    rig.passes(1)
    assert {"node": REALTIME} == stored(rig)
    assert {"node": "fell_back backlog"} == rig.outcomes(request)


def test_a_backlog_without_room_after_a_restart(rig: RealtimeRig) -> None:
    """The same for a request of which a worker hears when it starts."""
    rig.crash()
    request = rig.job_modes.ask("job", REALTIME, node="", places={}, now_ms=0)
    rig.write(MORE)
    rig.start()
    rig.passes(2)

    assert {"node": "fell_back restart_backlog"} == rig.outcomes(request)


@pytest.mark.parametrize(
    ("overflow", "then", "last"),
    [
        ("fallback", "fell_back buffer_full", "fell_back buffer_full"),
        ("block", "pending", "succeeded"),
        ("fail", "failed realtime_buffer_full", "failed realtime_buffer_full"),
    ],
)
def test_a_buffer_that_is_full_before_success(
    make: Callable[..., RealtimeRig], overflow: str, then: str, last: str
) -> None:
    """What becomes of the request is what the job is configured to do."""
    rig = make(mode="log", **{"realtime.on_overflow": overflow})
    rig.hold()
    rig.write(MORE // 4)  # It fits unread, and not as records.
    request = rig.ask(REALTIME)
    rig.passes(1)
    rig.until(lambda: rig.modes.overflows > 0)
    rig.passes(1)
    assert {"node": then} == rig.outcomes(request)

    rig.let_go()
    rig.passes(20)
    assert {"node": last} == rig.outcomes(request)


def test_a_manual_off_disarms_the_return(make: Callable[..., RealtimeRig]) -> None:
    """It stays off, however small the backlog is, until it is asked for again."""
    rig = make()
    rig.fall()
    off = rig.ask(LOG)
    rig.passes(1)
    rig.clock.advance(100 * RETURN_SECONDS * 1_000)
    rig.passes(200)
    assert frozenset() == rig.modes.realtime
    assert {"node": "succeeded"} == rig.outcomes(off)

    on = rig.ask(REALTIME)
    rig.passes(2)
    assert {"node": "succeeded"} == rig.outcomes(on)
    rig.fall()
    assert 0 <= rig.returned_after_ms() - RETURN_SECONDS * 1_000 <= 3 * LOOK_MS


def test_a_node_alone(pair: tuple[RealtimeRig, LiveLog]) -> None:
    """The other log stays at its tick, and is read."""
    rig, other = pair
    request = rig.ask(REALTIME, "second")
    rig.passes(2)
    assert {"second": "succeeded"} == rig.outcomes(request)
    assert {"node": LOG, "second": REALTIME} == stored(rig)
    assert not rig.modes.is_whole

    rig.write(2)
    other.count = 100
    other.append(2)
    other.sync()
    rig.until(lambda: 4 == len(rig.numbers))
    every = rig.ask(REALTIME)
    rig.passes(2)
    assert {"node": "succeeded", "second": "succeeded"} == rig.outcomes(every)
    assert rig.modes.is_whole
    rig.ask(LOG, "node")
    rig.passes(1)
    assert {"node": LOG, "second": REALTIME} == stored(rig)


def test_a_log_that_is_not_read(rig: RealtimeRig) -> None:
    """A request about it is refused, and changes nothing."""
    request = rig.ask(REALTIME, "elsewhere")
    rig.passes(2)

    assert {"elsewhere": "refused no_such_log"} == rig.outcomes(request)
    assert {"node": LOG} == stored(rig)


def test_a_request_that_comes_too_early(rig: RealtimeRig) -> None:
    """It is superseded by the next one about the log, and by no other."""
    rig.pipeline.command(Pause(paused=True))  # So the first request is pending.
    rig.write(1)
    first = rig.ask(REALTIME)
    rig.passes(2)
    other = rig.ask(REALTIME, "elsewhere")
    rig.passes(2)
    assert {"node": "pending"} == rig.outcomes(first)
    second = rig.ask(LOG)
    assert {"node": f"superseded request {second}"} == rig.outcomes(first)
    rig.passes(2)

    assert {"node": "succeeded"} == rig.outcomes(second)
    assert {"node": f"superseded request {second}"} == rig.outcomes(first)
    assert {"elsewhere": "refused no_such_log"} == rig.outcomes(other)
    assert [second, other, first] == [each.request for each in rig.job_modes.changes("job")]


@pytest.mark.parametrize(("configured", "asked"), [(LOG, REALTIME), (REALTIME, LOG)])
def test_a_restart(make: Callable[..., RealtimeRig], configured: str, asked: str) -> None:
    """The mode that was asked for takes the place of the configured one."""
    rig = make(mode=configured)
    request = rig.ask(asked)
    rig.passes(2)
    rig.crash()
    rig.start()
    rig.passes(2)

    assert ({"node"} if asked == REALTIME else frozenset()) == rig.modes.realtime
    assert {"node": asked} == stored(rig)
    assert {"node": "succeeded"} == rig.outcomes(request)


def test_the_mode_is_kept_with_the_position(rig: RealtimeRig) -> None:
    """A worker that sees no note, as after a fork of the job, has it from there."""
    rig.ask(REALTIME)
    rig.passes(2)
    rig.crash()
    rig.heed = lambda: None  # type: ignore[method-assign]
    rig.start()
    rig.passes(2)

    assert {"node"} == rig.modes.realtime


def test_a_job_in_which_nothing_runs(rig: RealtimeRig) -> None:
    """A request is pending until a worker has done it."""
    rig.crash()
    request = rig.job_modes.ask("job", REALTIME, node="", places={}, now_ms=0)
    assert {"": "pending"} == rig.outcomes(request)
    rig.start()
    rig.passes(2)

    assert {"node": "succeeded"} == rig.outcomes(request)


def test_each_owner_answers(rig: RealtimeRig) -> None:
    """A request is pending while the owner of one split has not done it."""
    tokens = rig.store.claim("w2", rig.store.leases()[:1], 60_000)
    request = rig.ask(REALTIME)
    rig.passes(5)
    assert {"node": "pending"} == rig.outcomes(request)
    assert ["1/2", "1/2"] == [f"{each.splits}/{each.of_splits}" for each in shown(rig)]

    kept = rig.modes.kept
    assert kept is not None
    assert {} == rig.store.keep_modes("w2", tokens, dict.fromkeys(tokens, kept))
    assert {"node": "succeeded"} == rig.outcomes(request)


def test_a_former_owner_keeps_no_mode(rig: RealtimeRig) -> None:
    """What a worker writes under a token that was replaced is refused (I2)."""
    rig.take("w2")
    request = rig.ask(REALTIME)
    rig.passes(5)

    assert {"": "pending"} == rig.outcomes(request)
    assert [None, None] == list(rig.store.modes().values())


def test_the_list_is_bounded(rig: RealtimeRig) -> None:
    """The last hundred requests are kept, with their outcomes."""
    first = rig.ask(REALTIME)
    rig.passes(2)
    for _ in range(100):
        rig.ask(LOG)
        rig.ask(REALTIME)
    rig.passes(2)

    changes = rig.job_modes.changes("job")
    assert [*range(first + 200, first + 100, -1)] == [each.request for each in changes]
    assert ["succeeded"] + ["superseded"] * 99 == [each.outcome.value for each in changes]

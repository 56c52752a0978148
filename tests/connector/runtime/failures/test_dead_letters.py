"""Dead letters follow the stream; they never stop it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.connector.runtime.failures.tolerance import ErrorPolicy
from headrace.plugins import Delivery, Settle
from headrace.plugins.testing.doubles import ChaosResult as Fate
from helpers.jobs.rig import Rig, expected


class Listener:
    """Sees deliveries on their way into a sink."""

    def __init__(self, rig: Rig) -> None:
        """Stand before the writer of *rig*, which is open."""
        self.dead: list[Delivery] = []
        writer = rig.pipeline._around.writers.shared  # noqa: SLF001 (where all deliveries pass)
        self._submit = writer.submit
        writer.submit = self.submit  # type: ignore[method-assign]  # Listening, not changing.

    def submit(self, delivery: Delivery, settle: Settle) -> None:
        """Note dead letters, and pass everything on."""
        if delivery.encoded.topics:
            self.dead.append(delivery)
        self._submit(delivery, settle)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Return a rig whose dead letters go to a topic."""
    made = Rig(tmp_path / "state.db")
    made.errors = ErrorPolicy(retry_ms_max=0, topic="dead")
    yield made
    made.pipeline.close()
    made.store.close()


def all_sent(rig: Rig) -> bool:
    """Say whether there are dead letters and the topic has all of them."""
    kept = [each.sent for each in rig.store.losses()]
    return bool(kept) and all(kept)


def test_a_rejected_record_goes_to_the_topic_with_its_story(rig: Rig) -> None:
    """Key, bytes and headers are those that were rejected; what happened stands in more headers."""
    rig.open({"a": 10})
    rig.script.append(Fate.REJECT_FIRST)
    listener = Listener(rig)
    rig.gain()
    rig.until(lambda: all_sent(rig))

    (dead,) = listener.dead
    (kept,) = rig.store.losses()
    assert (["dead"], [b'{"id":0}'], list(expected(1))) == (
        dead.encoded.topics,
        list(dead.encoded.keys),
        list(dead.encoded.values),
    )
    headers = {name: content.decode() for name, content in dead.encoded.headers[0]}
    assert headers == {
        "__connect.errors.connector.name": "job",
        "__connect.errors.task.id": "a",
        "__connect.errors.stage": "KAFKA_PRODUCE",
        "__connect.errors.exception.class.name": "chaos",
        "__connect.errors.exception.message": "as the script says",
        "__headrace.errors.kind": "dead_letter",
        "__headrace.errors.code": "chaos",
        "__headrace.errors.place": "split a, batch 1, record 0",
        "__headrace.errors.table": "shop.orders",
        "__headrace.errors.time": str(kept.lost_ms),
        "__headrace.errors.number": str(kept.number),
    }
    assert [*expected(10, 1), *expected(1)] == rig.written()


def test_its_story_can_be_left_out(rig: Rig) -> None:
    """Then a dead letter has the headers it had, and no more."""
    rig.errors = replace(rig.errors, context=False)
    rig.open({"a": 10})
    rig.script.append(Fate.REJECT_FIRST)
    listener = Listener(rig)
    rig.gain()
    rig.until(lambda: all_sent(rig))

    assert [()] == list(listener.dead[0].encoded.headers)


@pytest.mark.parametrize("fate", [Fate.RETRY_LAST, Fate.REFUSE, Fate.MISCOUNT, Fate.CONFUSE])
def test_a_topic_that_takes_nothing_gets_it_later(rig: Rig, fate: Fate) -> None:
    """The stream continues meanwhile, and what the topic accepted is not sent twice."""
    rig.errors = replace(rig.errors, retry_ms_max=60_000)
    rig.limits = replace(rig.limits, retry_ms_max=60_000)
    rig.open({"a": 10})
    rig.script.extend([Fate.REJECT_FIRST, fate])
    rig.gain()
    rig.until(lambda: all_sent(rig))

    assert 10 == rig.committed()
    assert expected(1)[0] in rig.written()


@pytest.mark.parametrize("fate", [Fate.BREAK, Fate.FATAL_FIRST])
def test_a_topic_that_is_forbidden_stops_nothing(rig: Rig, fate: Fate) -> None:
    """Dead letters stay in the quarantine, unsent; the splits continue."""
    rig.open({"a": 10})
    rig.script.extend([Fate.REJECT_FIRST, fate])
    rig.gain()
    rig.until(lambda: 10 == rig.committed())
    rig.passes(50)

    assert [False] == [kept.sent for kept in rig.store.losses()]
    assert [] == rig.closed()


def test_what_the_topic_refuses_for_good_is_not_sent_again(rig: Rig) -> None:
    """It stays in the quarantine, which has it in any case."""
    rig.open({"a": 10})
    rig.script.extend([Fate.REJECT_FIRST, Fate.REJECT_FIRST])
    rig.gain()
    rig.until(lambda: all_sent(rig))

    assert expected(1)[0] not in rig.written()


@pytest.mark.parametrize("reported", [True, False])
def test_what_the_topic_refuses_is_reported_without_its_value(rig: Rig, *, reported: bool) -> None:
    """Where it was to go, its size and the reason, also where no headers were asked for."""
    rig.errors = replace(rig.errors, context=reported)
    rig.open({"a": 10})
    rig.script.extend([Fate.REJECT_FIRST, Fate.REJECT_FIRST])
    listener = Listener(rig)
    rig.gain()
    rig.until(lambda: all_sent(rig))

    whole, bare = (each.encoded for each in listener.dead)
    assert (list(expected(1)), [b""]) == (list(whole.values), list(bare.values))
    assert whole.keys == bare.keys
    headers = dict(bare.headers[0])
    assert {
        "__headrace.errors.topic": b"shop.orders",
        "__headrace.errors.value.bytes": b"%d" % len(expected(1)[0]),
        "__headrace.errors.value.refused": b"chaos",
        "__headrace.errors.place": b"split a, batch 1, record 0",
    }.items() <= headers.items()


def test_what_is_refused_without_its_value_too_is_left(rig: Rig) -> None:
    """It is not sent for ever."""
    rig.open({"a": 10})
    rig.script.extend([Fate.REJECT_FIRST] * 3)
    listener = Listener(rig)
    rig.gain()
    rig.until(lambda: all_sent(rig))
    rig.passes(50)

    assert 2 == len(listener.dead)


def test_what_was_left_unsent_is_sent_after_a_restart(rig: Rig) -> None:
    """It waits in the state file."""
    rig.errors = replace(rig.errors, topic="")
    rig.open({"a": 10})
    rig.script.append(Fate.REJECT_FIRST)
    rig.gain()
    rig.until(lambda: 10 == rig.committed())
    rig.pipeline.close()

    rig.errors = replace(rig.errors, topic="dead")
    rig.open({"a": 0})
    rig.gain("w2")
    rig.until(lambda: all_sent(rig))

    assert list(expected(1)) == rig.written()


def test_intolerance_stops_before_the_record(rig: Rig) -> None:
    """A rejected record stops the split, and nothing behind it is committed."""
    rig.errors = replace(rig.errors, tolerant=False)
    rig.open({"a": 10})
    rig.script.append(Fate.REJECT_FIRST)
    rig.gain()
    rig.until(lambda: bool(rig.closed()))

    (closed,) = rig.closed()
    assert closed.error is not None
    assert "delivery_failed" == closed.error.code
    assert (0, []) == (rig.committed(), list(rig.store.losses()))


def test_a_spent_budget_stops_the_split(rig: Rig) -> None:
    """Dead letters until then are kept with the commit that covers them."""
    rig.errors = replace(rig.errors, budget_records=1, topic="")
    rig.limits = replace(rig.limits, commit_ms_max=0)
    rig.open({"a": 30})
    rig.script.extend([Fate.REJECT_FIRST, Fate.DELIVER, Fate.REJECT_FIRST])
    rig.gain()
    rig.until(lambda: bool(rig.closed()))

    (closed,) = rig.closed()
    assert closed.error is not None
    assert "error_budget_spent" == closed.error.code
    assert (30, 2) == (rig.committed(), len(list(rig.store.losses())))

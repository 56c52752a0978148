"""A pipeline into a transactional sink: after any failure, what is committed is seen once."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.connector.runtime.messages import Lose
from headrace.connector.stores import Commit
from headrace.connector.stores.transactional import TransactionalStore
from headrace.plugins import FencedError, HeadraceError, NumberPosition
from headrace.plugins.testing.doubles import ChaosResult
from helpers.jobs.rig import TICK_MS, Rig, expected
from helpers.jobs.transactions import MemoryTransactions, Outcome, TransactionalSink

COUNT = 100


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Return a rig whose sink is transactional."""
    made = Rig(tmp_path / "state.db", sink_class=TransactionalSink)
    yield made
    made.pipeline.close()
    made.store.close()


def sink_of(rig: Rig) -> TransactionalSink:
    """Return the rig's sink."""
    assert isinstance(rig.sink, TransactionalSink)
    return rig.sink


def seen(rig: Rig) -> list[bytes]:
    """Return what a consumer of what is committed sees."""
    return [value for _, value in sink_of(rig).seen]


def finished(rig: Rig) -> None:
    """Run until all is committed."""
    rig.until(lambda: rig.committed() == COUNT)


def test_nothing_is_seen_before_its_commit(rig: Rig) -> None:
    """Records are delivered long before; they are seen with the position that covers them."""
    rig.open({"a": COUNT})
    rig.gain()
    rig.until(lambda: rig.store.states()[0].seq > 0)

    assert rig.committed() == len(seen(rig)) > 0
    finished(rig)
    assert list(expected(COUNT)) == seen(rig)


def test_large_ends_wait_for_what_was_sent(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large a position is, a transaction has all that was sent, and ends when it is due."""
    monkeypatch.setattr(NumberPosition, "size_bytes", 1 << 30, raising=False)
    rig.open({"a": COUNT})
    rig.gain()
    rig.passes(2)
    assert 0 == rig.committed()
    finished(rig)

    assert list(expected(COUNT)) == seen(rig)


def test_a_commit_waits_for_what_was_sent(rig: Rig) -> None:
    """What is in the transaction and not settled would be committed without its position."""
    rig.open({"a": COUNT})
    rig.script.extend([ChaosResult.DELIVER, ChaosResult.HOLD, ChaosResult.DELIVER])
    rig.gain()
    rig.until(lambda: any(run.commit_due for run in rig.pipeline.runs))
    for _ in range(20):
        rig.passes(1)
        assert rig.committed() == len(seen(rig)) == 0
    sink_of(rig).let_go()
    finished(rig)

    assert list(expected(COUNT)) == seen(rig)


def test_commits_come_in_half_of_a_transactions_time(tmp_path: Path) -> None:
    """The other half is for a commit that takes long: brokers abort what stays open too long."""
    window_ms = MemoryTransactions.window_ms
    rig = Rig(tmp_path / "state.db", sink_class=TransactionalSink, commit_ms_max=10 * window_ms)
    rig.open({"a": COUNT})
    rig.gain()
    began_ms = rig.clock.monotonic_ms()
    rig.until(lambda: bool(seen(rig)))
    rig.pipeline.close()
    rig.store.close()

    assert window_ms // 2 <= rig.clock.monotonic_ms() - began_ms <= window_ms // 2 + TICK_MS


@pytest.mark.parametrize(
    "script",
    [
        [ChaosResult.RETRY_LAST],
        [ChaosResult.DELIVER, ChaosResult.RETRY_LAST, ChaosResult.DELIVER, ChaosResult.RETRY_LAST],
    ],
)
def test_a_record_that_fails_ends_its_transaction(rig: Rig, script: list[ChaosResult]) -> None:
    """All since the last commit is read and sent again, and seen once, in order."""
    rig.open({"a": COUNT})
    rig.script.extend(script)
    rig.gain()
    finished(rig)

    assert list(expected(COUNT)) == seen(rig)


@pytest.mark.parametrize("outcome", [Outcome.LATE, Outcome.ABORTED])
@pytest.mark.parametrize("turn", range(3))
def test_a_commit_that_fails_is_repeated(rig: Rig, outcome: Outcome, turn: int) -> None:
    """Late: nothing is submitted before it is known. Aborted: all of it comes again."""
    rig.open({"a": COUNT})
    sink_of(rig).outcomes.extend([Outcome.DONE] * turn + [outcome])
    rig.gain()
    finished(rig)

    assert list(expected(COUNT)) == seen(rig)


def test_a_writer_that_was_replaced_asks_for_a_new_claim(rig: Rig) -> None:
    """Its open transaction is never seen; the next owner continues from the last commit."""
    rig.open({"a": COUNT})
    sink_of(rig).outcomes.append(Outcome.DEAD)
    rig.gain()
    rig.until(lambda: bool(rig.closed()))
    (closed,) = rig.closed()
    assert isinstance(closed.error, FencedError)
    assert closed.error.restartable
    rig.gain()
    finished(rig)

    assert list(expected(COUNT)) == seen(rig)


def begins_again_after_a_fence(patch: pytest.MonkeyPatch) -> None:
    """Give a producer that was fenced another life under the claim that it had."""
    real = TransactionalStore._commit  # noqa: SLF001 (what is broken is inside)

    def commit(self: TransactionalStore, commit: Commit) -> HeadraceError | None:
        try:
            return real(self, commit)
        except FencedError:
            writers = self._writer_of.__self__  # type: ignore[attr-defined]
            writers.leave(commit.split)
            self.load(commit.split, commit.token)
            return real(self, commit)

    patch.setattr(TransactionalStore, "_commit", commit)


@pytest.mark.parametrize("sabotage", [None, begins_again_after_a_fence])
def test_only_a_new_claim_begins_after_a_fence(
    rig: Rig,
    monkeypatch: pytest.MonkeyPatch,
    sabotage: Callable[[pytest.MonkeyPatch], None] | None,
) -> None:
    """A fenced producer that is initialised again would fence the owner that replaced it."""
    if sabotage is not None:
        sabotage(monkeypatch)
    rig.open({"a": COUNT})
    sink = sink_of(rig)
    sink.token_of = lambda split: {row.split: row.token for row in rig.store.leases()}[split]
    sink.outcomes.append(Outcome.DEAD)
    rig.gain()
    rig.until(lambda: bool(rig.closed() or sink.reused))

    assert sink.reused == ([] if sabotage is None else ["a"])


def test_a_rejected_record_is_set_aside_once(rig: Rig) -> None:
    """What it was in is aborted afterwards: its loss is kept with the commit that counts."""
    rig.open({"a": COUNT})
    rig.script.append(ChaosResult.REJECT_FIRST)
    rig.gain()
    finished(rig)

    assert list(expected(COUNT, first=1)) == seen(rig)
    (kept,) = rig.store.losses()
    assert expected(1)[0] == kept.loss.content


def test_a_fatal_error_stops_the_split_with_its_reason(rig: Rig) -> None:
    """What was committed before stays; nothing of the broken transaction is seen."""
    rig.open({"a": COUNT})
    rig.script.append(ChaosResult.FATAL_FIRST)
    rig.gain()
    rig.until(lambda: bool(rig.closed()))

    assert "delivery_failed" == rig.closed()[0].error.code  # type: ignore[union-attr]
    assert [] == seen(rig)


def test_splits_do_not_wait_for_each_other(rig: Rig) -> None:
    """Each is a transaction of its own: one whose commits fail does not delay the others."""
    rig.open({"a": COUNT, "b": COUNT})
    rig.gain()
    sink_of(rig).outcomes.extend([Outcome.ABORTED, Outcome.DONE] * 3)
    rig.until(lambda: rig.committed("a") == rig.committed("b") == COUNT)

    assert Counter([*expected(COUNT), *expected(COUNT)]) == Counter(seen(rig))


@pytest.mark.parametrize("seed", range(20))
def test_any_mixture(rig: Rig, seed: int) -> None:
    """Failures of records and of commits, crashes and take-overs in any order."""
    dice = random.Random(seed)  # noqa: S311 (a test's dice)
    rig.open({"a": COUNT, "b": COUNT})
    deliveries = [ChaosResult.DELIVER, ChaosResult.DELIVER, ChaosResult.RETRY_LAST]
    rig.script.extend(dice.choices(deliveries, k=30))
    sink_of(rig).outcomes.extend(dice.choices(list(Outcome), weights=[4, 1, 1, 1], k=12))
    rig.gain()
    for _ in range(100):
        rig.passes(dice.randrange(1, 60))
        if rig.committed("a") == rig.committed("b") == COUNT:
            break
        rig.pipeline.command(Lose("a"))
        rig.pipeline.command(Lose("b"))
        rig.gain()

    assert Counter([*expected(COUNT), *expected(COUNT)]) == Counter(seen(rig))

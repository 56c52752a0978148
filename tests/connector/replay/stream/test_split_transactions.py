"""Exactly once without Spark: tasks and drivers die, overtake each other, and change the engine."""

import contextlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from headrace.connector.replay.errors import DeliveryRefusedError
from headrace.connector.replay.stream.checkpoint import checkpoint_of
from headrace.connector.stores import StateLostError
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import AbortedError, ConfigError, FencedError
from helpers.jobs import toys
from helpers.jobs.transactions import VAULTS, MemoryTransactions, Outcome
from helpers.logs.gap_jobs import GapJob
from helpers.settings.seeds import soaked
from helpers.streams.by_hand import ByHand, Death, HandQuery, dying, overtake_once, run_by_hand

if TYPE_CHECKING:
    from collections.abc import Callable

FAILING = {"transforms": "t", "transforms.t.type": "ValueToKey", "transforms.t.fields": "nobody"}


class Once:
    """A job in two splits over three segments of each node, into a vault."""

    def __init__(self, folder: Path) -> None:
        """Write the logs."""
        self.job = GapJob(folder)
        self.number = uuid4().hex
        self.deliver()
        for number in range(1, 4):
            self.job.log(number, range(3 * number, 3 * number + 3))

    def deliver(self, **options: object) -> None:
        """Deliver with more options."""
        self.job.deliver({"plugin": "vault", "number": self.number, **options}, {})

    @property
    def checkpoint(self) -> Path:
        """The folder of the checkpoint."""
        return self.job.folder / "state.db.spark" / "orders"

    def rows(self) -> list[int]:
        """Return the rows that a consumer sees."""
        found = [json.loads(value) for _, value in VAULTS[self.number].seen]
        return sorted(int(each["columns"]["v"]["value"], 16) for each in found)


@pytest.fixture
def once(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Once:
    """Return a job that has not run yet."""
    toys.install(tmp_path_factory.mktemp("toys"), monkeypatch)
    monkeypatch.chdir(tmp_path)
    return Once(tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("time", [1, 4, *soaked(2, 3)])
@pytest.mark.parametrize("step", ["part_sent", "part_committed", "stream_committed"])
def test_deaths(once: Once, monkeypatch: pytest.MonkeyPatch, step: str, time: int) -> None:
    """Before a transaction ends, after it, and before the driver copies it."""
    with monkeypatch.context() as patch:
        dying(patch, step, time)
        with contextlib.suppress(Death):
            run_by_hand(once.job.path)
    run_by_hand(once.job.path)

    assert [*range(3, 12)] == once.rows()
    assert 9 == once.job.delivered()


@pytest.mark.parametrize("time", [1, 2])
def test_dead_letters_after_a_death(once: Once, monkeypatch: pytest.MonkeyPatch, time: int) -> None:
    """They are in the store once, though a task died; no worker goes before that."""
    once.deliver(**FAILING)
    with monkeypatch.context() as patch:
        dying(patch, "part_committed", time)
        with pytest.raises(Death):
            run_by_hand(once.job.path, batch_bytes=1 << 40)
    assert 2 == once.job.run()  # A worker: Spark is ahead.
    run_by_hand(once.job.path)

    with contextlib.closing(open_notes(once.job.folder / "state.db")) as notes:
        assert 9 == len(list(notes.store("orders").losses()))
    totals = once.job.verified()["total"]["tables"]
    assert 9 == sum(each["quarantined"] for each in totals.values())
    assert not checkpoint_of(once.job.folder / "state.db", "orders").has_losses()


def test_a_worker_continues_what_tasks_left(once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    """One split has its batch, the other has not; then Spark continues from the worker."""
    with monkeypatch.context() as patch:
        dying(patch, "part_committed", 1)
        with pytest.raises(Death):
            run_by_hand(once.job.path, batch_bytes=1 << 40)
    assert 0 < len(once.rows()) < 9
    assert 0 == once.job.run()
    assert [*range(3, 12)] == once.rows()
    once.job.log(4, range(12, 15))
    assert 3 == run_by_hand(once.job.path)
    once.job.log(5, range(15, 18))
    assert 0 == once.job.run()

    assert [*range(3, 18)] == once.rows()
    assert 15 == once.job.delivered()


def test_a_checkpoint_that_is_removed(once: Once) -> None:
    """The stream continues from what the sink has."""
    run_by_hand(once.job.path)
    shutil.rmtree(once.checkpoint)
    once.job.log(4, range(12, 15))
    assert 3 == run_by_hand(once.job.path)

    assert [*range(3, 15)] == once.rows()
    assert 12 == once.job.delivered()


def test_an_attempt_that_is_overtaken(once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails by name, what it sent is not seen, and the next one finds the batch."""
    overtake_once(monkeypatch)
    with pytest.raises(Exception, match=r"fenced: .*a later attempt, or another engine, has it"):
        run_by_hand(once.job.path, batch_bytes=1 << 40)
    assert [*range(3, 12)] == once.rows()
    run_by_hand(once.job.path)

    assert [*range(3, 12)] == once.rows()
    assert 9 == once.job.delivered()


@pytest.mark.parametrize("outcomes", [[Outcome.ABORTED], [Outcome.LATE], [Outcome.LATE] * 3])
def test_commits_that_fail_or_are_late(
    once: Once, monkeypatch: pytest.MonkeyPatch, outcomes: list[Outcome]
) -> None:
    """A transaction that was aborted is sent again as a whole; one that is late is asked again."""
    left, commit = list(outcomes), MemoryTransactions.commit
    outcome_of: dict[Outcome, Callable[..., bool]] = {
        Outcome.ABORTED: lambda *_: aborted(),
        Outcome.LATE: lambda *_: False,
    }

    def aborted() -> bool:
        raise AbortedError("as the test says")

    monkeypatch.setattr(
        MemoryTransactions,
        "commit",
        lambda *given: outcome_of[left.pop(0)](*given) if left else commit(*given),
    )
    run_by_hand(once.job.path)

    assert [] == left
    assert [*range(3, 12)] == once.rows()
    assert 9 == once.job.delivered()


def test_a_transaction_that_takes_too_long(once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails with what to do: it would take as long again."""
    monkeypatch.setattr(MemoryTransactions, "window_ms", 0)

    def fenced(*_: object) -> bool:
        raise FencedError("expired")

    monkeypatch.setattr(MemoryTransactions, "commit", fenced)
    with pytest.raises(Exception, match=f"{DeliveryRefusedError.code}.*a transaction ends after 0"):
        run_by_hand(once.job.path)


def test_a_state_that_was_lost(once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that does not find what its batch continues stops: it would send again."""
    original = HandQuery.step

    def step(query: HandQuery) -> bool:
        if query.batches == 2:
            VAULTS[once.number].kept["orders"][0].clear()
        return original(query)

    monkeypatch.setattr(HandQuery, "step", step)
    with pytest.raises(Exception, match=f"{StateLostError.code}: .*found nothing, expected commit"):
        run_by_hand(once.job.path)


def test_a_stream_without_a_driver(once: Once) -> None:
    """A program that uses Spark's API has no leases: it is refused, and nothing is sent."""
    stream = ByHand(once.job.path, once.checkpoint)
    with pytest.raises(ConfigError, match="delivers exactly once"):
        stream.run()
    assert [] == once.rows()

"""Dead letters are sent again in groups; each that was delivered leaves the quarantine."""

from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from headrace.connector.foundation.job_file import RuntimeConfig
from headrace.connector.runtime.failures import redrive
from headrace.connector.runtime.failures.redrive import Redrive
from headrace.connector.stores.job import Job
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins import Delivery, Encoding, FatalError, RetriableError, Settle
from headrace.plugins.testing.doubles import (
    ChaosConfig,
    ChaosSink,
    ChaosWriter,
    MemoryConfig,
    MemorySource,
)
from headrace.plugins.testing.doubles import ChaosResult as Fate
from helpers.stores.store_driver import LOSS, claim, commit, commit_of

LETTERS: Final = 10
TEXTS: Final = [b"text%d" % number for number in range(LETTERS)]


class LateWriter(ChaosWriter):
    """Settles what it holds only when it is waited for, as a producer that lingers does."""

    drains: Final[list[int]] = []
    """How many deliveries were held each time."""
    room = LETTERS

    def submit(self, delivery: Delivery, settle: Settle) -> None:
        """Refuse what is too much to hold."""
        if len(self._sink.held) >= self.room:
            raise RetriableError("full")
        super().submit(delivery, settle)

    def drain(self, deadline_ms: int) -> bool:
        """Count, and settle."""
        self.drains.append(len(self._sink.held))
        self._sink.let_go()
        return super().drain(deadline_ms)


class LateSink(ChaosSink):
    """See its writer."""

    sent: Final[list[bytes]] = []

    def deliver(self, delivery: Delivery, *, leave_out: int | None = None) -> list[int]:
        """Note what was delivered, too."""
        indexes = super().deliver(delivery, leave_out=leave_out)
        self.sent.extend(delivery.encoded.values[index] for index in indexes)
        return indexes

    def encoding(self) -> Encoding:
        """Ask for nothing."""
        return Encoding(codec="none")

    def open(self) -> LateWriter:
        """Return the writer."""
        self.writers_open += 1
        return LateWriter(self)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[tuple[Job, SqliteStore, deque[Fate]]]:
    """Return a job with dead letters, its store, and what its sink does with the next ones."""
    LateWriter.drains.clear()
    LateSink.sent.clear()
    script = deque[Fate]()
    made = Job(
        name="job",
        directory=tmp_path,
        state=tmp_path / "state.db",
        source=MemorySource,
        source_config=MemoryConfig(splits={}),
        sink=LateSink,
        sink_config=ChaosConfig(script=script),
        runtime=RuntimeConfig(),
    )
    with closing(SqliteStore.open(made.state, made.name)) as store:
        store.register(["a"])
        letters = [replace(LOSS, content=text, origin={}) for text in TEXTS]
        commit(store, commit_of(claim(store), losses=letters))
        yield made, store, script


def redriven(job: Job, store: SqliteStore) -> list[str]:
    """Send all again; return of each why it was not delivered, or nothing."""
    chosen = list(store.losses())
    groups = Redrive(job, store).groups(chosen, dry=False)
    found = [each for group in groups for each in group]
    assert [kept.number for kept in chosen] == [number for number, _ in found]
    return [problem for _, problem in found]


def left(store: SqliteStore) -> list[bytes]:
    """Return what the quarantine still has."""
    return [kept.loss.content for kept in store.losses()]


def test_a_group_is_waited_for_once(job: tuple[Job, SqliteStore, deque[Fate]]) -> None:
    """All are submitted, in their order, before the sink is waited for."""
    made, store, script = job
    script.extend([Fate.HOLD] * LETTERS)

    assert [""] * LETTERS == redriven(made, store)
    assert ([LETTERS], TEXTS, []) == (LateWriter.drains, LateSink.sent, left(store))


@pytest.mark.parametrize(
    ("bound", "most", "groups"),
    [("GROUP_RECORDS_MAX", 4, [4, 4, 2]), ("GROUP_BYTES_MAX", 15, [3, 3, 3, 1])],
)
def test_a_group_has_bounds(
    job: tuple[Job, SqliteStore, deque[Fate]],
    monkeypatch: pytest.MonkeyPatch,
    bound: str,
    most: int,
    groups: list[int],
) -> None:
    """It ends with the record that reaches the number or the bytes."""
    made, store, script = job
    monkeypatch.setattr(redrive, bound, most)
    script.extend([Fate.HOLD] * LETTERS)

    redriven(made, store)

    assert groups == LateWriter.drains


def test_each_has_its_own_result(job: tuple[Job, SqliteStore, deque[Fate]]) -> None:
    """What the sink rejects stays in the quarantine, and nothing else does."""
    made, store, script = job
    script.extend([Fate.HOLD, Fate.REJECT_FIRST, Fate.HOLD, Fate.MISCOUNT])

    problems = redriven(made, store)

    assert "chaos: as the script says" == problems[1]
    assert "1 missing" in problems[3]
    assert [""] * (LETTERS - 2) == [problem for problem in problems if not problem]
    assert [TEXTS[1], TEXTS[3]] == left(store)


def test_a_sink_that_is_full_is_waited_for(
    job: tuple[Job, SqliteStore, deque[Fate]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the record when what it holds is settled."""
    made, store, script = job
    monkeypatch.setattr(LateWriter, "room", 7)
    script.extend([Fate.HOLD] * LETTERS)

    assert [""] * LETTERS == redriven(made, store)
    assert ([7, 3], TEXTS, []) == (LateWriter.drains, LateSink.sent, left(store))


def test_a_sink_that_breaks_ends_it(job: tuple[Job, SqliteStore, deque[Fate]]) -> None:
    """What was delivered before has gone; the rest stays, and the error is raised."""
    made, store, script = job
    script.extend([Fate.HOLD, Fate.HOLD, Fate.BREAK])
    groups = Redrive(made, store).groups(list(store.losses()), dry=False)

    assert ["", "", "fatal: as the script says"] == [problem for _, problem in next(groups)]
    with pytest.raises(FatalError, match="as the script says"):
        next(groups)
    assert TEXTS[2:] == left(store)

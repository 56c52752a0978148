"""Batches that wait for something their source fetches: others continue, nothing is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connector.runtime.messages import Idled
from headrace.connector.runtime.pipeline import SINK_WAIT_MS
from headrace.plugins import RecordBatch, RetriableError
from headrace.plugins.testing import doubles
from helpers.jobs.rig import TICK_MS, Rig, expected

answers: dict[str, Iterator[object]] = {}


class Fetched(RecordBatch):
    """A batch of which each split's answers say when it is there."""

    def ready(self) -> bool:
        """Return the next answer, or raise it; without one it is there."""
        answer = next(answers.get(self.split, iter(())), True)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """Return a rig whose source makes such batches."""
    monkeypatch.setattr(doubles, "RecordBatch", Fetched)
    made = Rig(tmp_path / "state.db")
    yield made
    made.store.close()
    answers.clear()


def test_other_splits_do_not_wait(rig: Rig) -> None:
    """While one split's batch is fetched the others are delivered, at the pace of a sink."""
    answers["a"] = iter([False] * 500)
    rig.open({"a": 5, "b": 25})
    rig.gain()
    rig.until(lambda: 25 == rig.committed("b"))

    assert 0 == rig.committed("a")
    assert {SINK_WAIT_MS} == set(rig.wake.waits)
    rig.until(lambda: 5 == rig.committed("a"))
    assert 30 == len(rig.written())


def test_a_run_until_idle_waits_for_it(rig: Rig) -> None:
    """Nothing is idle before what was read is delivered."""
    answers["a"] = iter([False] * 20)
    rig.open({"a": 5}, until_idle=True)
    rig.gain()
    rig.until(lambda: any(isinstance(reported, Idled) for reported in rig.reported))

    assert expected(5) == rig.written()
    assert 5 == rig.committed("a")


def test_a_failure_is_repeated_with_what_was_read(rig: Rig) -> None:
    """What cannot be fetched now is asked for again after a pause; it is not read again."""
    answers["a"] = iter([False, RetriableError("away"), RetriableError("away"), False])
    rig.open({"a": 5})
    rig.gain()
    rig.until(lambda: 5 == rig.committed("a"))

    assert expected(5) == rig.written()
    assert TICK_MS in rig.wake.waits
    assert [] == rig.closed()


@pytest.mark.usefixtures("rig")
def test_what_waits_counts_as_memory(tmp_path: Path) -> None:
    """While a batch is fetched its bytes are outstanding, and no split reads above the bound."""
    answers["a"] = iter([False] * 10)
    small = Rig(tmp_path / "small.db", outstanding_bytes_max=600)
    small.open({"a": 25, "b": 25})
    small.gain()
    small.passes(3)
    waiting = small.pipeline._runs["a"].read_bytes  # noqa: SLF001 (what is in memory)

    assert 0 < waiting <= 600
    assert waiting + sum(map(len, small.written())) <= 600 + 10 * len(expected(1)[0])
    small.until(lambda: 25 == small.committed("a") == small.committed("b"))
    small.store.close()

"""Lakes and histories without Spark: processes die amid commits, and the engine changes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from headrace import history
from headrace.connector.replay.errors import SinkElsewhereError
from headrace.connector.replay.stream.sink_states import SinkStates
from headrace.connector.replay.stream.terms import Term
from helpers.histories.lakes import KINDS, LakeBox
from helpers.logs.gap_jobs import GapJob
from helpers.settings.pairs import pairs
from helpers.streams.by_hand import Death, dying, overtake_once, run_by_hand

TABLE = "forged.t"
MODES = ("append", "upsert")
STEPS_OF_TASKS = ("part_sent", "lake_staged", "lake_added", "part_committed")
STEPS = (*STEPS_OF_TASKS, "stream_committed")


class LakeJob:
    """A job in two splits over three segments of each node, into a lake."""

    def __init__(self, folder: Path, kind: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Write the logs."""
        self.box = LakeBox(kind, folder / "box", mode, monkeypatch)
        self.job = GapJob(folder)
        self.job.deliver({"plugin": kind, **self.box.options()}, {})
        for number in range(1, 4):
            self.job.log(number, range(3 * number, 3 * number + 3))

    def rows(self) -> list[int]:
        """Return the rows that readers of the table see."""
        rows = self.box.rows(TABLE)
        values = (row["v"] if "v" in row else row["change"]["v"] for row in rows)
        return sorted(int.from_bytes(value, "big") for value in values)


@pytest.mark.parametrize(("kind", "mode", "step", "time"), pairs(KINDS, MODES, STEPS, (1, 2)))
def test_deaths(  # noqa: PLR0913, PLR0917 (a job, and where it dies)
    kind: str, mode: str, step: str, time: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before rows are staged, amid the tables, and before the driver copies: each change once."""
    lake = LakeJob(tmp_path, kind, mode, monkeypatch)
    with monkeypatch.context() as patch:
        dying(patch, step, time)
        with pytest.raises(Death):
            run_by_hand(lake.job.path)
    run_by_hand(lake.job.path)

    assert [*range(3, 12)] == lake.rows()
    assert 9 == lake.job.delivered()


@pytest.mark.parametrize(("kind", "mode", "step"), pairs(KINDS, MODES, STEPS_OF_TASKS))
def test_a_worker_continues_what_tasks_left(
    kind: str, mode: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It adds what a task had staged, and sends nothing again; then Spark continues from it."""
    lake = LakeJob(tmp_path, kind, mode, monkeypatch)
    with monkeypatch.context() as patch:
        dying(patch, step, 1)
        with pytest.raises(Death):
            run_by_hand(lake.job.path, batch_bytes=1 << 40)
    assert 0 == lake.job.run()
    assert [*range(3, 12)] == lake.rows()
    lake.job.log(4, range(12, 15))
    assert 3 == run_by_hand(lake.job.path)
    lake.job.log(5, range(15, 18))
    assert 0 == lake.job.run()

    assert [*range(3, 18)] == lake.rows()
    assert 15 == lake.job.delivered()


@pytest.mark.parametrize(("kind", "mode"), [("delta", "upsert"), ("iceberg", "append")])
def test_an_attempt_that_is_overtaken(
    kind: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails by name, what it sent is not seen, and the next one finds the batch."""
    lake = LakeJob(tmp_path, kind, mode, monkeypatch)
    overtake_once(monkeypatch)
    with pytest.raises(Exception, match=r"fenced: .*a later attempt, or another engine, has it"):
        run_by_hand(lake.job.path, batch_bytes=1 << 40)
    run_by_hand(lake.job.path)

    assert [*range(3, 12)] == lake.rows()
    assert 9 == lake.job.delivered()


def test_a_task_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that has another file of positions than the driver delivers nothing, and says why."""
    lake = LakeJob(tmp_path, "delta", "append", monkeypatch)
    terms = SinkStates.terms

    def elsewhere(states: SinkStates, *given: Any) -> Mapping[str, Term]:  # noqa: ANN401 (passed on)
        return {
            split: structs.replace(term, home="another machine")
            for split, term in terms(states, *given).items()
        }

    monkeypatch.setattr(SinkStates, "terms", elsewhere)
    with pytest.raises(Exception, match=f"{SinkElsewhereError.code}: .*the file of positions"):
        run_by_hand(lake.job.path)
    assert [] == lake.rows()


@pytest.mark.parametrize(("files", "step"), [(1, "part_sent"), (2, "part_committed")])
def test_a_history(files: int, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history has each change once, too, though a task dies and the engine changes."""
    job, place = GapJob(tmp_path), str(tmp_path / "h.db")
    job.deliver({"plugin": "history", "path": place, "table": TABLE, "files": files}, {})
    job.log(1, range(3, 9))
    with monkeypatch.context() as patch:
        dying(patch, step, 1)
        with pytest.raises(Death):
            run_by_hand(job.path)
    run_by_hand(job.path)
    job.log(2, range(9, 12))
    assert 0 == job.run()
    job.log(3, range(12, 15))
    assert 3 == run_by_hand(job.path)

    with history.connect(place) as client:
        kept = client.select(0).arrow().num_rows
    assert 12 == kept
    assert 12 == job.delivered()

"""The run table."""

import time
from contextlib import closing
from pathlib import Path

from headrace.connector.replay.delivery import ShardReport, Target
from headrace.connector.replay.runs import Run, RunTable, ShardState, run_documents
from headrace.connector.replay.shards import Shard, SourceSpec


def test_a_run_has_the_time_when_it_was_planned() -> None:
    """In milliseconds since 1970, by which the newest run is found."""
    before_s = time.time()
    run = Run.new("replay", Target(directory=""), {})

    assert before_s <= run.made_ms / 1000 + 0.001
    assert run.made_ms / 1000 <= time.time()


def test_runs_as_documents(tmp_path: Path) -> None:
    """They say how far each run is; where nothing ran there are none, and nothing is written."""
    place = tmp_path / "state.db"
    assert () == run_documents(place)
    assert [] == list(tmp_path.iterdir())
    source = SourceSpec(given={"plugin": "files"}, directory="")
    shards = [Shard(number=n, split=name, source=source) for n, name in enumerate("abc")]
    with closing(RunTable(place)) as table:
        run = Run.new("replay", Target(directory="", path="out"), {})
        table.add(run, shards)
        table.begin(run.run, 0, 1)
        report = ShardReport(number=1, delivered=7)
        table.end(run.run, report, ShardState.PASS)
    (found,) = run_documents(place)

    assert (run.run, "replay", 7) == (found["run"], found["kind"], found["changes"])
    assert {"STARTED": 1, "PASS": 1, "NOT_STARTED": 1} == found["states"]
    assert ["STARTED", "PASS", "NOT_STARTED"] == [shard["state"] for shard in found["shards"]]

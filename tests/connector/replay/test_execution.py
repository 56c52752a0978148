"""How a run is executed: how tasks share its rate, and how progress is printed."""

import io
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from headrace.connector.replay.delivery import ShardReport, Work
from headrace.connector.replay.errors import ShardFailedError
from headrace.connector.replay.execution import Begun, Ended, Progress, execute
from headrace.connector.replay.runs import RunTable, ShardState
from helpers.logs.gap_jobs import GapJob

SHARDS = 6


class Terminal(io.StringIO):
    """A text stream that is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@pytest.mark.parametrize(("width", "rate"), [(1, 12.0), (3, 4.0), (100, 2.0)])
def test_tasks_share_the_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], width: int, rate: float
) -> None:
    """The rate is divided by the number of concurrent tasks, not by the number of shards."""
    job = GapJob(tmp_path)
    job.log(1, range(3))
    options = ("--json", "--accept-gaps", "--shards", str(SHARDS), "--rate", "12")
    assert 0 == job.replay("plan", *options, "--to-folder", "out")
    name = json.loads(capsys.readouterr().out)["run"]
    found: list[float] = []

    def perform(works: Sequence[Work], *, begun: Begun, ended: Ended) -> None:
        for work in works:
            begun(work)
            found.append(work.target.rate)
            ended(work, ShardReport(number=work.shard.number))

    with closing(RunTable(tmp_path / "state.db")) as table:
        states = execute(table, table.run(name), perform, width=width)

    assert ([rate] * SHARDS, SHARDS) == (found, states[ShardState.PASS])


def test_a_shard_that_fails_for_ever(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A shard that fails is tried once in each run, which names the error; the others run once."""
    job = GapJob(tmp_path)
    job.log(1, range(3))
    options = ("--json", "--accept-gaps", "--shards", str(SHARDS), "--to-folder", "out")
    assert 0 == job.replay("plan", *options)
    name = json.loads(capsys.readouterr().out)["run"]
    poison, tried = "corrupt_segment: poisoned", Counter[int]()

    def perform(works: Sequence[Work], *, begun: Begun, ended: Ended) -> None:
        for work in works:
            begun(work)
            tried[work.shard.number] += 1
            problem = poison if work.shard.number == 2 else ""
            ended(work, ShardReport(number=work.shard.number, problem=problem))

    with closing(RunTable(tmp_path / "state.db")) as table:
        for _ in range(12):
            with pytest.raises(ShardFailedError, match=f"1 of {SHARDS} shards .*{poison}"):
                execute(table, table.run(name), perform)
        poison = ""
        states = execute(table, table.run(name), perform)

    assert {number: 13 if number == 2 else 1 for number in range(1, SHARDS + 1)} == tried
    assert {ShardState.PASS: SHARDS} == states


def test_an_index_is_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Completed segments are indexed once; the second time there is nothing to do."""
    job = GapJob(tmp_path)
    job.log(1, range(3))
    job.log(2, range(3, 5))
    printed = []
    for _ in range(2):
        assert 0 == job.replay("index", "--master", "none")
        printed.append(capsys.readouterr().out.split())

    assert 0 < int(printed[0][0])
    assert ["0", "bytes"] == printed[1][:2]
    assert [*(tmp_path / "state.db.index").glob("*/*.index")]


@pytest.mark.parametrize(
    ("rate", "message"),
    [("-1", "must be at least 0"), ("nan", "expected a number"), ("inf", "expected a number")],
)
def test_no_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rate: str, message: str
) -> None:
    """A rate that is not a number is refused."""
    job = GapJob(tmp_path)
    job.log(1, range(3))

    assert 2 == job.replay("plan", "--accept-gaps", "--rate", rate)
    assert f"--rate: {message}" in capsys.readouterr().err


def test_progress_on_a_terminal_and_elsewhere() -> None:
    """A terminal shows one line that grows; a log gets lines, and always the last one."""
    bar, log = Progress(2, Terminal()), Progress(2, io.StringIO())
    for shown in (bar, log):
        shown.step(ShardReport(number=1, delivered=5))
        shown.step(ShardReport(number=2, delivered=6, problem="lost"))

    printed = bar.stream.getvalue() if isinstance(bar.stream, io.StringIO) else ""
    assert ["", f"[{'#' * 15:<30}] 1 of 2 shards, 5 changes, 0 failed"] == printed.split("\r")[:2]
    assert printed.endswith(f"[{'#' * 30}] 2 of 2 shards, 11 changes, 1 failed\n")
    lines = log.stream.getvalue() if isinstance(log.stream, io.StringIO) else ""
    assert "2 of 2 shards, 11 changes, 1 failed" == lines.splitlines()[-1]

"""What jobs noted beside the logs: it says that a job has run before, and keeps segments for it."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.logs.pins import FOLDER
from helpers.logs.gap_jobs import NODES, GapJob
from helpers.logs.holding import DELETE, Node, hold, past, retention_of
from helpers.servers.agents import TOKEN, serving

DAY_S = 86_400
N2 = NODES[1]


@pytest.fixture
def job(tmp_path: Path) -> GapJob:
    """Return a job that has delivered three rows, and lost its state file."""
    made = GapJob(tmp_path)
    made.log(0, range(3))
    assert 0 == made.run()
    (tmp_path / "state.db").unlink()
    return made


def notes(job: GapJob) -> Sequence[int]:
    """Return how many notes lie beside each log."""
    return [len(list((job.folder / node / FOLDER).glob("[!.]*"))) for node in NODES]


def test_a_job_that_has_run_before_is_not_new(
    job: GapJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its state is gone: it delivers nothing again, however often it is started."""
    for _ in range(2):
        assert 1 == job.run()
        assert (
            f"[state_lost]: {job.folder}/state.db: holds nothing of job" in capsys.readouterr().err
        )

    assert [0, 1, 2] == job.rows()


def test_a_job_may_begin_anew_when_somebody_says_so(job: GapJob) -> None:
    """With --new-state it does, once for all."""
    assert 0 == job.run("--new-state")
    assert 0 == job.run()

    assert sorted([0, 1, 2] * 2) == job.rows()


def test_a_job_that_never_committed_is_new(tmp_path: Path) -> None:
    """Its notes say that it needs everything: nothing was delivered yet."""
    job = GapJob(tmp_path)
    assert 0 == job.run()
    assert [2, 2, 2] == notes(job)
    (tmp_path / "state.db").unlink()
    job.log(0, range(3))

    assert 0 == job.run()
    assert [0, 1, 2] == job.rows()


def test_another_job_is_new(job: GapJob) -> None:
    """Notes of others say nothing of it, also where its name begins as theirs does."""
    assert 0 == job.run("--job", "orders.2")


def test_an_agent_tells_that_a_job_has_run_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a node that is elsewhere its agent has the notes; who forgets must reach it."""
    job = GapJob(tmp_path)
    job.log(0, range(3))
    with serving(tmp_path / N2) as served:
        (tmp_path / "token").write_text(TOKEN)
        token = f"${{file:{tmp_path}/token}}"
        job.change(nodes={N2: {"url": served.url}}, consistency="ONE", agent_token=token)
        assert 0 == job.run()
        (tmp_path / "state.db").unlink()

        assert 1 == job.run()
        assert 0 == job.call("forget")
        assert 0 == notes(job)[1]
        assert 0 == job.run()
    (tmp_path / "state.db").unlink()
    assert 1 == job.call("forget")
    assert f"error [agent_unavailable]: {served.url}" in capsys.readouterr().err


def test_notes_of_a_job_that_is_gone_are_forgotten(
    job: GapJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are listed, then removed; those of other jobs stay. The job is a new one then."""
    assert 0 == job.run("--job", "orders.2")
    capsys.readouterr()
    (job.folder / "state.db").unlink()
    assert 0 == job.call("forget", "--dry-run")
    assert "6 notes found\n" in capsys.readouterr().out
    assert [4, 4, 4] == notes(job)

    assert 0 == job.call("forget")
    out = capsys.readouterr().out
    assert "6 notes removed\n" in out
    assert "a former one\t2 splits\t" in out
    assert [2, 2, 2] == notes(job)
    assert 0 == job.run()


def test_a_job_that_can_go_on_is_not_forgotten(
    job: GapJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a former state of it left may go, by the mark that is printed; its own notes stay."""
    assert 0 == job.run("--new-state")
    assert 1 == job.call("forget")
    assert "error [job_in_use]: " in capsys.readouterr().err
    assert [4, 4, 4] == notes(job)

    assert 0 == job.call("forget", "--dry-run")
    lines = capsys.readouterr().out.splitlines()
    (mark,) = {line.split()[2].rstrip(",") for line in lines if "a former one" in line}
    assert 0 == job.call("forget", "--state", mark)
    assert [2, 2, 2] == notes(job)


def test_an_old_note_that_keeps_segments_is_reported(tmp_path: Path) -> None:
    """The process that manages the files says whose it is, how old, and what is kept for it."""
    node, clock = Node(tmp_path / "n1"), DrivenClock()
    for number in (1, 2, 3):
        node.write(number, [b"a"])
    hold(node).register("0", past(1), {})
    retention = retention_of(node.log, DELETE, clock)
    retention.check()
    retention.take()
    (note,) = (node.raw / FOLDER).glob("orders.0.*")
    written_s = clock.wall_ms() / 1000
    os.utime(note, (written_s, written_s))
    with capture_logs() as events:
        for wait_s in (DAY_S - 1, 1, 60, 3_600):
            clock.advance(wait_s * 1_000)
            retention.dispose()

    reported = [each for each in events if each["event"] == "segments_pinned"]
    assert [DAY_S, DAY_S + 3_660] == [each["age_seconds"] for each in reported]
    assert {("orders", 1, 1)} == {(e["job"], e["splits"], e["segments"]) for e in reported}

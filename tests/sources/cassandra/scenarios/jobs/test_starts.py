"""Where a job without a committed position starts: earliest, latest, a time, a position."""

import os
from pathlib import Path

import pytest

from headrace.connector.control.jobs import read_job
from headrace.connector.foundation import crash
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.forge.segments import SEGMENT_ID
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.logs.gap_jobs import NODES, GapJob, place

OLD_S, NEW_S = 1_700_000_000, 1_700_100_000


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GapJob:
    """Return a job that has not run, over logs of two segments."""
    monkeypatch.chdir(tmp_path)
    made = GapJob(tmp_path)
    made.log(0, range(3))
    made.log(1, range(3, 6))
    for node in NODES:
        for number, when in ((0, OLD_S), (1, NEW_S)):
            path = tmp_path / node / f"CommitLog-7-{SEGMENT_ID + number}.log"
            os.utime(path, (when, when))
    return made


def begin(job: GapJob, start: str) -> list[int]:
    """Run the job from *start*, then again after one more segment; return its rows."""
    job.begin_at(start)
    assert 0 == job.run()
    job.log(2, range(6, 9))
    assert 0 == job.run()
    return job.rows()


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 0),
        ("latest", 6),
        ("2023-11-15T00:00:00Z", 3),
        ("2020-01-01", 0),
        ("2030-01-01T00:00:00+01:00", 6),
        (",".join(f"{node}:{SEGMENT_ID + 1}:0" for node in NODES), 3),
    ],
)
def test_a_new_job_starts_at_its_start(job: GapJob, start: str, first: int) -> None:
    """What lies before the start is not published, what follows is; a second run continues."""
    assert list(range(first, 9)) == begin(job, start)


def test_times_of_files_that_were_lost_skip_nothing(job: GapJob) -> None:
    """A segment is read if its id has a time after the start, also if its file is older."""
    for path in job.folder.glob("n?/*.log"):
        os.utime(path, (0, 0))

    assert list(range(9)) == begin(job, "2020-01-01")


def test_a_start_counts_once(job: GapJob) -> None:
    """When a job has a position, its start does not matter any more."""
    assert list(range(6, 9)) == begin(job, "latest")
    job.begin_at("earliest")

    assert 0 == job.run()
    assert list(range(6, 9)) == job.rows()


def test_a_start_is_committed_before_anything_is_read(
    job: GapJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that, `latest` would be later after a crash, and changes between would be lost."""
    job.begin_at("latest")

    def die(step: str) -> None:
        if step == "read":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(crash, "reached", die)
        job.run()
    job.log(2, range(6, 9))

    assert 0 == job.run()
    assert list(range(6, 9)) == job.rows()


def test_the_state_says_where_reading_began(
    job: GapJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """`verify` prints the span of each log, beginning with the start."""
    job.begin_at("latest")
    assert 0 == job.run()
    read = read_job(job.path)
    store = SqliteStore.open(read.state, read.name)
    (state, _) = store.states()
    store.close()
    assert state.position is not None
    began = CdcState.decode(state.position).began()
    assert [({"node": n}, place(1, END_OFFSET)) for n in NODES] == began

    capsys.readouterr()
    assert 0 == job.call("verify", "--books")
    end = f"{SEGMENT_ID + 1}:{END_OFFSET}"
    assert f"n1 from {end} to {end}: all splits\n" in capsys.readouterr().out


def test_there_is_no_such_start(job: GapJob, capsys: pytest.CaptureFixture[str]) -> None:
    """A position that no log has is a configuration error."""
    job.begin_at("yesterday")

    assert 2 == job.run()
    assert "'yesterday' is not a position" in capsys.readouterr().err

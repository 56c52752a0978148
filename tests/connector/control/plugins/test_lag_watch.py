"""A watch that is kept answers as a new one does, and reads only what changed."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from headrace.connector.control.plugins import lag_watch
from headrace.connector.control.plugins.lag_watch import LagWatch
from headrace.connector.hosting.host import Host
from headrace.connector.stores import StateLostError
from headrace.plugins import Context, EncodedPosition, Position, Reader, Split
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.source import CassandraSource
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.jobs.children import forged_job, write_ring

ROWS = 30


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a job that has read its first segments."""
    monkeypatch.chdir(tmp_path)  # A look sets the working folder.
    forged_job(tmp_path)
    write_ring(tmp_path, 1, range(ROWS))
    run(tmp_path / "job.yaml")
    return tmp_path / "job.yaml"


@pytest.fixture
def kept(job: Path) -> Iterator[LagWatch]:
    """Return a watch that is kept."""
    with contextlib.closing(LagWatch(job, "crash")) as watch:
        yield watch


def run(job: Path) -> None:
    """Run a job until it has read everything."""
    Host(job, log=structlog.stdlib.get_logger()).run(until_idle=True)


def look(watch: LagWatch) -> Any:  # noqa: ANN401 (JSON)
    """Return what a watch sees, but what other programs change: free space, and growth."""
    found = watch.look()
    for space in found["spaces"]:
        del space["free_bytes"], space["growth"]
    return found


def of_a_new_one(job: Path) -> object:
    """Return what a new watch sees."""
    with contextlib.closing(LagWatch(job, "crash")) as watch:
        return look(watch)


def noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list in which is noted when a source is made, or opens a split."""
    done: list[str] = []
    made, opened = CassandraSource.__init__, CassandraSource.open

    def make(source: CassandraSource, config: CassandraConfig, context: Context) -> None:
        done.append("made")
        made(source, config, context)

    def open_it(source: CassandraSource, split: Split, resume: Position | None) -> Reader:
        done.append("opened")
        return opened(source, split, resume)

    monkeypatch.setattr(CassandraSource, "__init__", make)
    monkeypatch.setattr(CassandraSource, "open", open_it)
    return done


def test_as_a_new_one(job: Path, kept: LagWatch) -> None:
    """What comes, is read, or is configured is in the next look."""
    seen = []
    for number in (2, 3):
        seen.append(look(kept))
        assert of_a_new_one(job) == seen[-1]
        write_ring(job.parent, number, range(number * ROWS, (number + 1) * ROWS))
        seen.append(look(kept))
        assert of_a_new_one(job) == seen[-1]
        assert of_a_new_one(job) == look(kept)
        if number == 2:
            run(job)
    job.write_text(job.read_text().replace("node2: node2", "node2: other"))
    (job.parent / "node2").rename(job.parent / "other")
    assert of_a_new_one(job) == look(kept)

    assert [None, True, None, True] == [each["oldest_us"] and True for each in seen]
    assert [0, True, 0, True] == [sum(p[1] for p in each["parts"]) and True for each in seen]


def test_only_what_changed_is_read(
    job: Path, kept: LagWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what did not change no position is decoded, no source made, and no change read."""
    write_ring(job.parent, 2, range(ROWS, 2 * ROWS))
    look(kept)
    look(kept)
    decoded: list[EncodedPosition] = []
    done = noted(monkeypatch)

    def decode(_: type[CassandraSource], encoded: EncodedPosition) -> Position:
        decoded.append(encoded)
        return CdcState.decode(encoded)

    monkeypatch.setattr(CassandraSource, "decode_position", classmethod(decode))
    first = look(kept)
    assert ([], []) == (done, decoded)
    write_ring(job.parent, 3, range(2 * ROWS, 3 * ROWS))
    second = look(kept)

    assert (["opened"], []) == (done, decoded)  # One split had no change at once before.
    assert second["oldest_us"] == first["oldest_us"]
    assert sum(part[1] for part in second["parts"]) > sum(part[1] for part in first["parts"])
    run(job)
    write_ring(job.parent, 4, range(3 * ROWS, 4 * ROWS))
    done.clear()
    decoded.clear()
    look(kept)  # Both splits have moved; a source that has read is not used again.
    assert (["made", "opened", "opened"], 2) == (done, len(decoded))


def test_what_a_source_read_when_it_was_made_grows_old(
    kept: LagWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source is made again after a minute: schema and ring may be others."""
    look(kept)
    done = noted(monkeypatch)
    look(kept)
    assert [] == done
    monkeypatch.setattr(lag_watch, "SOURCE_SECONDS_MAX", 0.0)
    look(kept)
    assert ["made"] == done


def test_after_an_error_nothing_is_kept(job: Path, kept: LagWatch) -> None:
    """A state file that was removed is an error; when it is there again the next look is whole."""
    before, state = look(kept), job.parent / "state.db"
    state.rename(job.parent / "away")
    with pytest.raises(StateLostError):
        look(kept)
    (job.parent / "away").rename(state)

    assert before == look(kept)

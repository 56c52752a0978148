"""A job file that is opened once: what is read again, and what is not."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connector.control.commands import Commands
from headrace.connector.hosting import opened_job
from headrace.connector.hosting.opened_job import OpenedJob
from headrace.connector.language.statements import CreateSink
from headrace.connector.stores import open_control_store
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import ConfigError
from helpers.jobs import toys

JOB = "job: j\nstate: state.db\nsource: {plugin: files, path: '*.jsonl'}\n"
SINK = "sink: {plugin: files, path: out.jsonl}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a job file that names its sink."""
    (tmp_path / "job.yaml").write_text(JOB + SINK)
    return tmp_path / "job.yaml"


@pytest.fixture
def opened(path: Path) -> Iterator[OpenedJob]:
    """Return its job."""
    with contextlib.closing(OpenedJob(path, None)) as made:
        yield made


def test_a_state_file_is_made_only_when_asked_for(opened: OpenedJob) -> None:
    """Reading a job that has not run makes no state file."""
    assert "j" == opened.read().name
    assert opened.look() is None
    assert not opened.state.exists()
    opened.notes()
    assert opened.state.exists()


def test_the_control_store_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that ask get the same connection, and the job of statements is read over it."""
    toys.install(tmp_path, monkeypatch)
    path = tmp_path / "job.yaml"
    path.write_text("job: j\nstate: state.db\nsource: {plugin: brook, path: in.jsonl}\n")
    with contextlib.closing(open_notes(tmp_path / "state.db")) as notes:
        commands = Commands(notes)
        commands.create_sink(CreateSink(name="k", uri=f"file://{tmp_path}/out.jsonl"))
        made = {"connector.class": "BrookBrookSource", "keyspace": "s", "table": "t"}
        commands.create_source({"name": "x", "sink": "k", "job": "j"} | made)
    with contextlib.closing(OpenedJob(path, None)) as opened:
        first = opened.look()
        for module in (open_control_store, opened_job):  # To open it again fails.
            monkeypatch.setattr(module, "open_notes", None)

        assert str(tmp_path / "out.jsonl") == opened.read().sink_config.path
        assert first is opened.look() is opened.notes()


def test_the_file_is_read_again_for_the_next_run(opened: OpenedJob) -> None:
    """The first run has what the opening read; the next one what the file says then."""
    opened.path.write_text(JOB + SINK.replace("out", "other"))

    assert "out.jsonl" == opened.read().sink_config.path
    assert "other.jsonl" == opened.read().sink_config.path


def test_the_file_is_read_again_after_a_wait(opened: OpenedJob) -> None:
    """A job that waited before its first run has what the file says after the wait."""
    opened.path.write_text(JOB + SINK.replace("out", "other"))
    opened.forget_file()

    assert "other.jsonl" == opened.read().sink_config.path


def test_the_status_shows_why_a_job_cannot_be_read(opened: OpenedJob) -> None:
    """Its store has the error, where others see it."""
    opened.path.write_text(JOB + "sink: {plugin: none}\n")
    opened.forget_file()
    notes = opened.notes()

    with pytest.raises(ConfigError):
        opened.read()
    assert "none" in notes.store("j").problem()

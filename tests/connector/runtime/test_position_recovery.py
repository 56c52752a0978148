"""Exactly once: readers of the state file's copy of positions get the newest after any crash."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from headrace.connector.control.commands import Commands
from headrace.connector.control.errors import NotStoppedError
from headrace.connector.control.offsets import Offset
from headrace.connector.hosting.host import Host
from headrace.connector.language.statements import AlterSink, CreateSink
from headrace.connector.runtime.finishing import NotIdleError
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import MissingRequirementError
from headrace.plugins.testing.doubles import context
from helpers.jobs import toys
from helpers.jobs.transactions import VAULTS
from helpers.stores.file_rows import heads, replace_heads

JOB = """\
job: orders
state: state.db
source: {plugin: brook, path: in*.jsonl}
runtime: {tick_min_ms: 5, commit_max_seconds: 0.02}
"""
FORK = "orders~y"
SPLITS = ("in0.jsonl", "in1.jsonl")


class Died:
    """A job of two sources whose worker died between a commit and the copy of it."""

    def __init__(self, folder: Path) -> None:
        """Let it commit two lines of each file; of the second ones the state file knows nothing."""
        self.vault = uuid4().hex
        self.shut = folder / "shut"
        self._folder = folder
        self.connection = open_notes(folder / "state.db")
        self.commands = Commands(self.connection)
        uri = f"vault://{self.vault}?shut={self.shut}"
        self.commands.create_sink(CreateSink(name="k", uri=uri))
        for name, table in (("x", "t"), ("y", "u")):
            made = {"connector.class": "BrookBrookSource", "keyspace": "s", "table": table}
            self.commands.create_source({"name": name, "sink": "k"} | made)
        (folder / "job.yaml").write_text(JOB)
        self.lines(0)
        self.run()
        before = heads(folder / "state.db")
        self.lines(1)
        self.run()
        kept = ("seq", "position", "chunks", "counters")
        replace_heads(
            folder / "state.db",
            lambda of: {"behind": True, **{name: getattr(before[of], name) for name in kept}},
        )

    def lines(self, number: int) -> None:
        """Append one to each file."""
        for split in SPLITS:
            with (self._folder / split).open("a") as file:
                file.write(json.dumps({"n": number}) + "\n")

    def run(self, job: str | None = None) -> None:
        """Run a job until it has taken all there is."""
        Host(self._folder / "job.yaml", log=context().log, job=job).run(until_idle=True)

    def seen(self) -> Sequence[int]:
        """Return what a consumer sees of both files, the fewest first."""
        return sorted(json.loads(value)["n"] for _, value in VAULTS[self.vault].seen)

    def known(self, name: str) -> set[object]:
        """Return where the state file has the splits of a source."""
        return {tuple(part.offset.values()) for part in self.commands.offsets(name) if part.offset}


@pytest.fixture
def died(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Died]:
    """Return a job that died, in a folder to which the process comes back from."""
    toys.install(tmp_path_factory.mktemp("toys"), monkeypatch)
    monkeypatch.chdir(tmp_path)
    made = Died(tmp_path)
    assert [0, 0, 1, 1] == made.seen()
    yield made
    made.connection.close()


def test_a_part_begins_where_the_sink_is(died: Died) -> None:
    """A source that is stopped alone begins behind what was committed, and not copied."""
    died.commands.stop("y")
    died.run()
    assert FORK == died.commands.status("y").job
    died.lines(2)
    died.commands.resume("y")
    died.run(FORK)

    assert [0, 0, 1, 1, 2, 2] == died.seen()


def move_one(died: Died) -> None:
    """Set one of the splits to its beginning."""
    died.commands.alter_offsets("x", [Offset({"split": SPLITS[0]}, {"offset": 0})])


def move_the_part(died: Died) -> None:
    """Do so where another source runs on, so that the job parts."""
    died.commands.resume("y")
    move_one(died)


@pytest.mark.parametrize("move", [move_one, move_the_part])
def test_positions_are_not_set_from_an_old_copy(died: Died, move: Callable[[Died], None]) -> None:
    """They can be set as soon as a worker has run the job, which stays stopped."""
    for name in "xy":
        died.commands.stop(name)
    with pytest.raises(NotStoppedError, match="the sink may have a newer position"):
        move(died)
    for name in "xy":
        died.commands.stop(name)
    with pytest.raises(NotIdleError, match="the job is paused or stopped"):
        died.run()
    move(died)
    job = died.commands.status("x").job
    died.commands.resume("x")
    died.run(job)

    assert [0, 0, 0, 1, 1, 1] == died.seen()


def test_all_can_begin_anew_at_any_time(died: Died) -> None:
    """That reads no copy."""
    for name in "xy":
        died.commands.stop(name)
    died.commands.reset_offsets("x")
    for name in "xy":
        died.commands.resume(name)
    died.run()

    assert [0, 0, 0, 0, 1, 1, 1, 1] == died.seen()


def test_a_sink_that_cannot_be_asked(died: Died) -> None:
    """Nothing parts before it answers."""
    died.shut.touch()
    died.commands.stop("y")
    with pytest.raises(MissingRequirementError, match="the vault is shut"):
        died.run()
    assert "orders" == died.commands.status("y").job

    died.shut.unlink()
    died.run()
    assert FORK == died.commands.status("y").job


def test_a_sink_that_keeps_no_positions_any_more(died: Died) -> None:
    """The state file alone counts then, as for any job that delivers at least once."""
    died.commands.alter_sink(AlterSink(name="k", uri=f"file://{died.shut}.jsonl"))
    died.commands.stop("y")
    died.run()

    assert FORK == died.commands.status("y").job

"""`headrace seed` over a node that answers by ranges of tokens: states of rows, never changes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.connector.commands.exec import main as exec_main
from headrace.connector.history.config import SCOPES
from headrace.connector.history.query import Event
from headrace.connector.history.store.file import HistoryFile
from headrace.history import connect
from helpers.histories.places import FILE, table_places
from helpers.jobs.children import until
from helpers.jobs.filled_tables import KILLED, RANGES, ROWS, Filled, T, answering

SHARDS = ("--shards", str(RANGES))
NAME = "orders_hist"


class Seeded(Filled):
    """A job that feeds a history, in a file or by statements."""

    def of_file(self, **sink: str) -> None:
        """Name the history in the job file."""
        given = {"plugin": "history", "path": "h.db", "table": T, "include": ",".join(SCOPES)}
        self.job.deliver(given | {"seed": "snapshot"} | sink, {})
        self.job.change(tables=[T])

    @property
    def file(self) -> Path:
        """The file of the history."""
        return self.job.folder / "h.db"

    def seed(self, *more: str) -> int:
        """Call the command; return the exit status."""
        return self.job.call("seed", *more, *SHARDS)

    def events(self) -> dict[str, Event]:
        """Return the last change of each row."""
        with connect(self.file) as history:
            return {str(e.key["k"]): e for e in history.select(0, include=SCOPES)}

    def states(self) -> list[tuple[bytes, bytes, bytes]]:  # type: ignore[override]  # Of rows.
        """Return all states."""
        with closing(HistoryFile.opened(self.file)) as file:
            return file.run("SELECT * FROM states").fetchall()


@pytest.fixture
def seeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Seeded]:
    """Return a job whose node tells the schema that the job's file has."""
    with answering(tmp_path, monkeypatch) as node:
        made = Seeded(tmp_path, node)
        made.hold(T, ROWS)
        yield made


def name(number: int) -> str:
    """Return the key of a row."""
    return f"0x{(b'k%d' % number).hex()}"


def test_rows_that_were_there_are_states(
    seeded: Seeded, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their images are whole from then on, and there is no change of them; once is enough."""
    seeded.of_file()
    assert 0 == seeded.job.run()
    assert 0 == seeded.seed()
    assert {} == seeded.events()
    assert RANGES == seeded.asked()[T]

    seeded.job.log(1, range(ROWS - 1, ROWS + 1))
    assert 0 == seeded.job.run()
    old, new = seeded.events()[name(ROWS - 1)], seeded.events()[name(ROWS)]
    # The snapshot had what the log has of the first; of the second, which was written before the
    # history, it had nothing: it may be deleted.
    assert ({"v": "0x04"}, {"v": "0x04"}, False) == (old.pre, old.post, old.partial)
    assert ({}, {"v": "0x05"}, True) == (new.pre, new.post, new.partial)
    before = seeded.states()
    assert 0 == seeded.seed()
    assert not seeded.asked()
    assert before == seeded.states()
    assert f"all rows of {T} are known: {ROWS} were read" in capsys.readouterr().out


def test_a_history_in_tables_is_seeded(seeded: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one in a file: its rows are states of the store, and what is read is not read again."""
    with table_places() as node:
        monkeypatch.chdir(seeded.job.folder)
        node.begin(seeded.job.folder)
        seeded.of_file(path=f"{FILE}#h", buckets="2")
        assert 0 == seeded.job.run()
        for asked in (RANGES, 0):
            assert 0 == seeded.seed()
            assert asked == seeded.asked()[T]
            assert ROWS == node.tables.count("history_states")
            assert 0 == node.tables.count("history_changes")
        seeded.job.log(1, range(ROWS - 1, ROWS))
        assert 0 == seeded.job.run()
        with connect(f"{FILE}#h") as history:
            (old,) = history.select(0, include=SCOPES)
    assert ({"v": "0x04"}, {"v": "0x04"}, False) == (old.pre, old.post, old.partial)


def test_it_waits_for_the_logs(seeded: Seeded, capsys: pytest.CaptureFixture[str]) -> None:
    """Before all splits have positions nothing is read: a change could be in neither."""
    seeded.of_file()
    assert 3 == seeded.seed()
    assert "[history_missing]" in capsys.readouterr().err
    seeded.job.begin_at("latest")
    HistoryFile.made(seeded.file, T, 8).close()
    assert 3 == seeded.seed()
    assert "[history_seed]" in capsys.readouterr().err
    assert 0 == seeded.job.run()
    assert not seeded.asked()
    assert 0 == seeded.seed()


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ({"seed": "none"}, "config]: seed: expected snapshot, found none"),
        ({"include": "change"}, "history_seed]"),
    ],
)
def test_what_is_not_to_be_seeded(
    seeded: Seeded, capsys: pytest.CaptureFixture[str], sink: dict[str, str], said: str
) -> None:
    """A history that does not ask for it, or keeps no images, is refused, and no table is read."""
    seeded.of_file(**sink)
    assert 0 == seeded.job.run()
    assert 0 != seeded.seed()
    assert said in capsys.readouterr().err
    assert not seeded.asked()


def test_another_sink(seeded: Seeded, capsys: pytest.CaptureFixture[str]) -> None:
    """The job must feed a history."""
    assert 2 == seeded.seed()
    assert "the sink of job orders is not a history" in capsys.readouterr().err


def test_interrupted(seeded: Seeded) -> None:
    """Killed within a range, and again before its end is noted, it continues: as if never."""
    seeded.of_file()
    seeded.job.log(1, range(2))
    assert 0 == seeded.job.run()
    seeded.node.slow = seeded.statement(T, 1)
    folder = seeded.job.folder
    with subprocess.Popen(  # noqa: S603 (ours)
        [sys.executable, "-c", KILLED, str(folder), "seed", str(seeded.job.path), *SHARDS],
        env=os.environ | {"TMPDIR": str(folder)},  # What it cannot remove goes with the test.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as child:
        until(lambda: seeded.node.slow in seeded.node.levels, "nothing was asked", child=child)
        child.send_signal(signal.SIGKILL)
    seeded.node.slow = "nothing"
    seeded.asked()
    assert 0 == seeded.seed()
    assert RANGES - 1 == seeded.asked()[T]
    whole = seeded.states()
    with closing(HistoryFile.opened(seeded.file)) as file:
        file.run("UPDATE seeds SET done = NULL")
    assert 0 == seeded.seed()
    assert not seeded.asked()
    with closing(HistoryFile.opened(seeded.file)) as file:
        file.run("DELETE FROM seeds")
    assert 0 == seeded.seed()
    assert RANGES == seeded.asked()[T]
    assert whole == seeded.states()
    assert ROWS == len(whole)


def test_a_range_that_is_refused(seeded: Seeded, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named, and the history does not claim to know all rows; later it does."""
    seeded.of_file()
    seeded.hold(T, ROWS, refused=1)
    assert 0 == seeded.job.run()
    assert 1 == seeded.seed()
    assert "[shard_failed]" in capsys.readouterr().err
    seeded.job.log(1, range(ROWS))
    assert 0 == seeded.job.run()
    partial = {k for k, event in seeded.events().items() if event.partial}
    assert {name(1), name(4)} == partial
    seeded.hold(T, ROWS)
    assert 0 == seeded.seed()
    with connect(seeded.file) as history:
        found = list(history.select(0, include=["latest"]))
    assert not any(event.partial for event in found)
    assert ROWS == len(found)


def test_by_statements(
    seeded: Seeded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history of CREATE CDC is seeded by its name; DESCRIBE says how far it is; PURGE forgets."""
    seeded.job.from_statements()
    seeded.job.change(tables=None)
    monkeypatch.chdir(seeded.job.folder)

    def execute(statement: str) -> str:
        capsys.readouterr()
        assert 0 == exec_main(["--state", "state.db", "-e", statement])
        return "".join(capsys.readouterr())

    options = "seed = 'snapshot' AND job = 'orders'"
    create = f"CREATE CDC {NAME} ON {T} INCLUDE (CHANGE, POST) WITH {options}"
    for _ in range(2):
        assert "warning [not_seeded]" in execute(create)
        assert 0 == seeded.job.run()
        assert f"not started: run `headrace seed WORKER.yaml {NAME}`" in execute(
            f"DESCRIBE CDC {NAME}"
        )
        assert 2 == seeded.seed("other")
        assert f"there are: {NAME}" in capsys.readouterr().err
        assert 0 == seeded.seed(NAME)
        assert RANGES == seeded.asked()[T]
        assert f"done: {ROWS} rows read, all known since 20" in execute(f"DESCRIBE CDC {NAME}")
        execute(f"DROP CDC {NAME} PURGE")

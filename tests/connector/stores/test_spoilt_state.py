"""A state file that somebody spoilt: a named error, or exactly what was to come; never a guess."""

import contextlib
import json
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import yaml

from corpora import recording
from headrace.connector.cli import main
from headrace.connector.runtime.processes import this_process
from headrace.connector.stores.sqlite import SqliteStore
from headrace.connector.stores.sqlite_file import connect
from headrace.plugins import HeadraceError
from headrace.sources.cassandra.source import CassandraSource
from spoilt import spoil

JOB: Final = {
    "job": "job",
    "state": "state.db",
    "source": {
        "plugin": "cassandra",
        "schema": "schema.cql",
        "nodes": {"n1": "n1"},
        "consistency": "ONE",
        "splits": 2,
    },
    "sink": {"plugin": "files", "path": "out.jsonl"},
    "runtime": {"tick_min_ms": 5, "commit_max_seconds": 0.02, "lease_seconds": 1},
}
FIRST: Final = 0.95  # So much of the segment is durable when the job runs first.
TABLES: Final = (
    *("jobs", "workers", "leases", "heads", "chunks", "quarantine", "schemas", "plans", "seen"),
    "publications",
)
OTHER_KINDS: Final = {"TEXT": "x'00'", "INTEGER": "'x'", "BLOB": "'x'"}
NONSENSE: Final = {"TEXT": "'x'", "INTEGER": "-7", "BLOB": "x'00'"}
# What else is in the file nobody reads back, or only shows.
READ: Final = frozenset(
    (
        *("job", "split", "name", "job_key", "plan", "splits", "places", "heirs", "wants", "owner"),
        *("token", "beat", "lease_ms", "seq", "head", "chunks", "counters", "content", "headers"),
        *("origin", "key", "value", "books", "state", "moved", "schema_id", "started"),
    )
)
# Rows of tables that a single run leaves empty.
ROWS: Final = """
INSERT INTO plans VALUES ('job', 0, '["old"]', '{}', '{}');
INSERT INTO publications VALUES ('job', 's', x'01', 'key', '{}', 'PUBLISHED', 1, NULL, '');
INSERT INTO quarantine (job, split, kind, tbl, place, code, message, size_bytes, content, sent)
VALUES ('job', '1-of-2', 'dead_letter', 'ks.t', 'here', 'too_large', 'is too large', 1, x'01', 1);
"""
RUN: Final = ("run", "--until-idle")
COMMANDS: Final = (("verify",), ("splits",), ("gaps",), ("dlq", "list"), RUN)
NAMED: Final = {("state_lost", 1), ("state", 1), ("state_file", 3)}


class Ran:
    """A job that ran once, and can be put back to where it was then."""

    def __init__(self, folder: Path) -> None:
        """Run it once over most of a recording, and then, elsewhere, over the rest."""
        self._whole, self._work = folder / "whole", folder / "work"
        made = recording("5.0-ops")
        (self._whole / "n1").mkdir(parents=True)
        (self._whole / "job.yaml").write_text(yaml.safe_dump(JOB))
        shutil.copy(made / "schema.cql", self._whole)
        (index,) = (made / "segments").glob("*_cdc.idx")
        shutil.copy(index.with_name(index.name.replace("_cdc.idx", ".log")), self._whole / "n1")
        self._index, self._durable = index.name, index.read_text()
        first = self._whole / "n1" / self._index
        first.write_text(f"{int(int(self._durable.split()[0]) * FIRST)}\n")
        assert 0 == self._call(self._whole, *RUN)
        self._fill()
        self.before = self._changes(self._whole)
        self.put_back()
        assert 0 == self.call(*RUN)
        self.after = self._changes(self._work)

    @property
    def state(self) -> Path:
        """The state file to spoil."""
        return self._work / "state.db"

    def put_back(self) -> None:
        """Go back to after the first run; now all of the recording is durable."""
        shutil.rmtree(self._work, ignore_errors=True)
        shutil.copytree(self._whole, self._work)
        (self._work / "n1" / self._index).write_text(self._durable)

    def call(self, *command: str) -> int:
        """Call a command on the job; return its exit status."""
        return self._call(self._work, *command)

    def came(self) -> Counter[str]:
        """Return how often each change came."""
        return self._changes(self._work)

    def _fill(self) -> None:
        with contextlib.closing(SqliteStore.open(self._whole / "state.db", "job")) as store:
            store.enroll(replace(this_process(), worker="dead", started=1))
        with contextlib.closing(sqlite3.connect(self._whole / "state.db")) as raw:
            raw.executescript(ROWS)
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @staticmethod
    def _call(folder: Path, *command: str) -> int:
        with contextlib.chdir("/"):  # Commands stay in the job's folder, which will go.
            return main(["--log-level", "error", *command, str(folder / "job.yaml")])

    @staticmethod
    def _changes(folder: Path) -> Counter[str]:
        return Counter((folder / "out.jsonl").read_text().splitlines())


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Return a job that ran once."""
    return Ran(tmp_path_factory.mktemp("spoilt"))


def test_all_tables_are_spoilt(ran: Ran) -> None:
    """Each table has a row, and there is something left to come."""
    ran.put_back()
    with contextlib.closing(connect(ran.state)) as connection:
        counts = [connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in TABLES]  # noqa: S608 (constants)

    assert all(counts)
    assert ran.before < ran.after


def columns(path: Path, table: str) -> list[tuple[str, str]]:
    """Return the names and kinds of a table's columns."""
    with contextlib.closing(sqlite3.connect(path)) as raw:
        return [(row[1], row[2]) for row in raw.execute(f"PRAGMA table_info({table})")]


def scripts(path: Path, table: str) -> Iterator[str]:
    """Yield all that is done to a table."""
    yield f"DELETE FROM {table}"  # noqa: S608 (constants)
    yield f"DELETE FROM {table} WHERE rowid = (SELECT max(rowid) FROM {table})"  # noqa: S608 (constants)
    for column, kind in columns(path, table):
        if column == "id":  # SQLite has no place for anything but a number there.
            continue
        if column == "plan":
            yield f"UPDATE {table} SET plan = -plan"  # noqa: S608 (constants)
        values = [OTHER_KINDS[kind], "NULL", *([NONSENSE[kind]] if column in READ else [])]
        for value in values:
            yield f"UPDATE OR REPLACE {table} SET {column} = {value}"  # noqa: S608 (constants)


@pytest.mark.parametrize("table", TABLES)
def test_what_was_spoilt_is_named(ran: Ran, table: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is done to a table, the job goes on exactly, or ends at once with a named error."""
    wrong = []
    ran.put_back()
    for script in list(scripts(ran.state, table)):
        ran.put_back()
        spoil(ran.state, table, script)
        capsys.readouterr()
        ends = [outcome(ran.call(*command), capsys.readouterr().err) for command in COMMANDS]
        came = ran.came()
        # Splits of which nothing is lost go on.
        is_exact = came == ran.after if ends[-1] is None else ran.before <= came <= ran.after
        if not (is_exact and all(end is None or end in NAMED for end in ends)):
            wrong.append((script, ends, sum((came - ran.after).values())))

    assert [] == wrong


def outcome(status: int, err: str) -> tuple[str, int] | None:
    """Return the error's code and the exit status; None is success."""
    code = re.search(r"^error \[(\w+)\]", err, re.MULTILINE)
    return (code[1] if code else "", status) if status or code else None


def test_a_spoilt_page_is_named(ran: Ran) -> None:
    """With any page gone, or all from there on, states are as they were or are named as lost."""
    ran.put_back()
    whole = ran.state.read_bytes()
    size = int.from_bytes(whole[16:18], "big")
    expected = states(ran.state)
    wrong = []
    for place in range(0, len(whole), size):
        zeros = whole[:place] + bytes(size) + whole[place + size :]
        for content in (zeros, whole[:place] if place else zeros):
            ran.put_back()
            ran.state.write_bytes(content)
            try:
                found = states(ran.state)
            except HeadraceError as error:
                if (error.code, error.exit_status) not in NAMED:
                    wrong.append((place, error.code))
            else:
                if found != expected:
                    wrong.append((place, "other states"))

    assert [] == wrong


def states(path: Path) -> list[tuple[str, int, str]]:
    """Return what the file has of each split, as far as it is read when a job begins."""
    with contextlib.closing(SqliteStore.open(path, "job")) as store:
        store.job_key()
        store.leases()
        found = store.states()
    return [
        (
            state.split,
            state.seq,
            json.dumps(dict(CassandraSource.decode_position(state.position).books())),
        )
        for state in found
        if state.position is not None
    ]

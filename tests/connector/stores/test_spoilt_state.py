"""A damaged state file: a named error, or exactly the expected records; never a guess."""

import contextlib
import json
import re
import shutil
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
import yaml
from msgspec.structs import replace

from headrace.connector.commands.cli import main
from headrace.connector.foundation.processes import this_process
from headrace.connector.stores import Commit, Loss, Publication
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.sqlite.file import connect
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins import HeadraceError
from headrace.sources.cassandra.source import CassandraSource
from helpers.recordings.corpora import recording
from helpers.settings.seeds import is_soak
from helpers.stores.damaged import spoil

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
KINDS: Final = (
    *("job", "workers", "leases", "head", "chunks", "losses", "content", "schemas", "seen"),
    *("publications", "numbers", "notes"),
)
RUN: Final = ("run", "--until-idle")
READING: Final = (("verify",), ("splits",), ("gaps",), ("dlq", "list"))
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
        with contextlib.closing(open_notes(self._whole / "state.db")) as notes:
            notes.board.changed("job")
        with contextlib.closing(SqliteStore.open(self._whole / "state.db", "job")) as store:
            store.enroll(replace(this_process(), worker="dead", started=1))
            publication = Publication(subject="s", schema_id=b"\1", part="key", text="{}")
            store.publications().enqueue([publication])
            (row, *_) = store.leases()
            (token,) = store.claim("w", [row], 0).values()
            state = store.load(row.split, token)
            assert state.position is not None
            loss = Loss(
                kind="dead_letter",
                table="ks.t",
                place="here",
                code="too_large",
                message="is too large",
                content=b"1",
            )
            commit = Commit(
                split=row.split,
                plan=state.plan,
                token=token,
                owner="w",
                previous=state.seq,
                seq=state.seq + 1,
                position=state.position,
                counters=state.counters,
                losses=[loss],
            )
            assert {} == store.commit([commit])
            store.mark_losses_sent([kept.number for kept in store.losses()])
            store.release("w", row.split, token)
        with contextlib.closing(sqlite3.connect(self._whole / "state.db")) as raw:
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


def test_all_kinds_are_spoilt(ran: Ran) -> None:
    """There are rows of each kind, and there is something left to come."""
    ran.put_back()
    with contextlib.closing(connect(ran.state)) as connection:
        found = {json.loads(text)[0] for (text,) in connection.execute(_PARTITIONS)}

    assert set(KINDS) == found
    assert ran.before < ran.after


_PARTITIONS: Final = "SELECT DISTINCT partition FROM rows"
_SPOILT: Final = (
    "DELETE FROM rows WHERE {of}",
    "DELETE FROM rows WHERE rowid = (SELECT max(rowid) FROM rows WHERE {of})",
    "UPDATE rows SET stamp = 'x' WHERE {of}",
    "UPDATE rows SET stamp = stamp + 1 WHERE {of}",
    "UPDATE rows SET value = NULL WHERE {of}",
    "UPDATE rows SET value = x'' WHERE {of}",
    "UPDATE rows SET value = substr(value, 2) WHERE {of}",
    "UPDATE rows SET name = name || 'x' WHERE {of}",
    "UPDATE rows SET partition = '[\"lost\"]' || rowid WHERE {of}",
)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_spoilt_is_named(ran: Ran, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """After any damage to rows of a kind the job continues exactly, or ends with a named error.

    Commands that read meet each kind and each way to spoil, in `make soak` in every pair.
    """
    wrong = []
    of = f"partition LIKE '[\"{kind}\"%'"
    for number, script in enumerate((each.format(of=of) for each in _SPOILT), KINDS.index(kind)):
        reading = READING if is_soak() else (READING[number % len(READING)],)
        ran.put_back()
        spoil(ran.state, "rows", script)
        capsys.readouterr()
        ends = [outcome(ran.call(*command), capsys.readouterr().err) for command in (*reading, RUN)]
        came = ran.came()
        # Splits of which nothing is lost continue.
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

"""The run table: every run of bulk work, its shards, and what became of them; in a file of its own.

Beside the job's state, which bulk work never touches. One process executes a run at a time.
"""

import base64
import contextlib
import datetime as dt
import fcntl
import json
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from headrace.connector.replay.delivery import ShardReport, Target
from headrace.connector.replay.errors import RunBusyError, bad_option
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, SourceSpec
from headrace.plugins import EncodedPosition

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS runs (
    run TEXT PRIMARY KEY, kind TEXT NOT NULL, made_ms INTEGER NOT NULL, plan TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS shards (
    run TEXT NOT NULL, number INTEGER NOT NULL, work TEXT NOT NULL, state TEXT NOT NULL,
    attempt INTEGER NOT NULL, report TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (run, number)
) STRICT;
"""
SUFFIX: Final = ".runs"


class ShardState(StrEnum):
    """Where a shard of a run stands."""

    NOT_STARTED = "NOT_STARTED"
    STARTED = "STARTED"
    PASS = "PASS"  # noqa: S105 (no password)
    FAIL = "FAIL"
    DIFF = "DIFF"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as planned. `facts` are what was known when it was: bytes, rows, findings."""

    run: str
    kind: str
    made_ms: int
    target: Target
    facts: Mapping[str, Any]

    @classmethod
    def new(cls, kind: str, target: Target, facts: Mapping[str, Any]) -> Self:
        """Return a run that is planned now."""
        made_ms = time.time_ns() // 1_000_000
        return cls(run=new_run(kind), kind=kind, made_ms=made_ms, target=target, facts=facts)


@dataclass(frozen=True, slots=True)
class ShardRow:
    """A shard of a run, and what it came to last."""

    shard: Shard
    state: ShardState
    attempt: int
    report: Mapping[str, Any]


def new_run(kind: str) -> str:
    """Return a name for a run that no other has."""
    return f"{kind}-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


class RunTable:
    """See the module. For one thread."""

    def __init__(self, state: Path) -> None:
        """Open the runs beside the state file *state*; make them when there are none."""
        self._path = state.with_name(state.name + SUFFIX)
        self._connection = sqlite3.connect(self._path, isolation_level=None)
        self._connection.executescript(_TABLES)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def add(self, run: Run, shards: Sequence[Shard]) -> None:
        """Keep a plan."""
        plan = json.dumps({"target": asdict(run.target), "facts": dict(run.facts)})
        with self._transaction():
            self._connection.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?)", (run.run, run.kind, run.made_ms, plan)
            )
            self._connection.executemany(
                "INSERT INTO shards (run, number, work, state, attempt) VALUES (?, ?, ?, ?, 0)",
                [
                    (run.run, s.number, json.dumps(_to_json(s)), ShardState.NOT_STARTED)
                    for s in shards
                ],
            )

    def runs(self) -> Sequence[Run]:
        """Return all runs, the newest first."""
        rows = self._connection.execute(
            "SELECT run, kind, made_ms, plan FROM runs ORDER BY made_ms DESC"
        )
        return [_run(*row) for row in rows]

    def run(self, name: str) -> Run:
        """Return a run.

        Raises:
            ConfigError: there is none of that name.

        """
        found = [run for run in self.runs() if run.run == name]
        if not found:
            names = ", ".join(run.run for run in self.runs()[:5])
            raise bad_option("RUN", f"there is no run {name!r}", f"there are {names or 'none'}")
        return found[0]

    def shards(self, run: str) -> Sequence[ShardRow]:
        """Return the shards of a run, by number."""
        rows = self._connection.execute(
            "SELECT work, state, attempt, report FROM shards WHERE run = ? ORDER BY number", (run,)
        )
        return [
            ShardRow(_of_json(json.loads(work)), ShardState(state), attempt, json.loads(report))
            for work, state, attempt, report in rows
        ]

    def begin(self, run: str, number: int, attempt: int) -> None:
        """Note that a shard is worked on."""
        self._connection.execute(
            "UPDATE shards SET state = ?, attempt = ? WHERE run = ? AND number = ?",
            (ShardState.STARTED, attempt, run, number),
        )

    def end(self, run: str, report: ShardReport, state: ShardState) -> None:
        """Note what a shard came to."""
        told = {k: v for k, v in report.to_json().items() if k != "schemas"}
        self._connection.execute(
            "UPDATE shards SET state = ?, report = ? WHERE run = ? AND number = ?",
            (state, json.dumps(told), run, report.number),
        )

    @contextlib.contextmanager
    def executing(self, run: str) -> Iterator[None]:
        """Keep other processes from executing *run* meanwhile.

        Raises:
            RunBusyError: one does.

        """
        lock = self._path.with_name(f"{self._path.name}.{run}.lock")
        with lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                hint = "wait for it; `headrace replay status` shows how far it is"
                message = "another process executes this run"
                raise RunBusyError(message, place=f"run {run}", hint=hint) from error
            yield

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


def _run(name: str, kind: str, made_ms: int, plan: str) -> Run:
    known = json.loads(plan)
    return Run(
        run=name,
        kind=kind,
        made_ms=made_ms,
        target=Target(**known["target"]),
        facts=known["facts"],
    )


def _to_json(shard: Shard) -> dict[str, Any]:
    """Return a shard as plain data; a job's key is never written down here."""
    return {
        "number": shard.number,
        "split": shard.split,
        "splits": shard.splits,
        "source": asdict(shard.source),
        "selection": shard.selection.to_json(),
        "resume": _position(shard.resume),
        "until": _position(shard.until),
    }


def _of_json(given: Mapping[str, Any]) -> Shard:
    return Shard(
        number=given["number"],
        split=given["split"],
        splits=given["splits"],
        source=SourceSpec(**given["source"]),
        selection=Selection.of_json(given["selection"]),
        resume=_of_position(given["resume"]),
        until=_of_position(given["until"]),
    )


def _position(position: EncodedPosition | None) -> dict[str, Any] | None:
    if position is None:
        return None
    chunks = {name: _text(content) for name, content in position.chunks.items()}
    return {"head": _text(position.head), "chunks": chunks}


def _of_position(given: Mapping[str, Any] | None) -> EncodedPosition | None:
    if given is None:
        return None
    chunks = {name: base64.b64decode(content) for name, content in given["chunks"].items()}
    return EncodedPosition(base64.b64decode(given["head"]), chunks)


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()

"""The run table: every run of bulk work, its shards, and what became of them.

Apart from the job's state, which bulk work never touches: in a file beside it, or in the store that
machines share. One process executes a run at a time.
"""

import base64
import datetime as dt
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any, Final, Self

from headrace.connector.notes import open_space
from headrace.connector.replay.claims import TABLES as CLAIMS
from headrace.connector.replay.claims import Claims, Opened, write
from headrace.connector.replay.delivery import ShardReport, Target
from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, SourceSpec
from headrace.plugins import EncodedPosition

TABLES: Final = f"""
CREATE TABLE IF NOT EXISTS runs (
    run TEXT PRIMARY KEY, kind TEXT NOT NULL, made_ms INTEGER NOT NULL, plan TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS shards (
    run TEXT NOT NULL, number INTEGER NOT NULL, work TEXT NOT NULL, state TEXT NOT NULL,
    attempt INTEGER NOT NULL, report TEXT NOT NULL DEFAULT '{{}}',
    PRIMARY KEY (run, number)
) STRICT;
{CLAIMS}
"""
SPACE: Final = "runs"
SHARDS_EACH: Final = 100  # Of a plan, kept with one write.


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

    def __init__(
        self, place: Path, *, opened: Opened | None = None, pause: Callable[[float], None] = sleep
    ) -> None:
        """Open the runs that belong to the notes at *place*; make them if there are none.

        *opened* opens a connection to them instead, and *pause* waits so many seconds.
        """
        opened = opened or partial(open_space, place, SPACE, TABLES)
        self._connection = opened()
        self._claims = Claims(opened, pause)

    def close(self) -> None:
        """Give back the connection."""
        self._connection.close()

    def add(self, run: Run, shards: Sequence[Shard]) -> None:
        """Keep a plan; it is seen when all of it is there."""
        plan = json.dumps({"target": asdict(run.target), "facts": dict(run.facts)})
        rows = [
            (run.run, s.number, json.dumps(_to_json(s)), ShardState.NOT_STARTED) for s in shards
        ]
        put = "INSERT OR REPLACE INTO shards (run, number, work, state, attempt) "
        for first in range(0, len(rows), SHARDS_EACH):
            part = rows[first : first + SHARDS_EACH]
            write(self._connection, f"{put} VALUES (?, ?, ?, ?, 0)", *part)
        made = run.run, run.kind, run.made_ms, plan
        write(self._connection, "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)", made)

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
        """Note that a shard is worked on.

        Raises:
            RunBusyError: another process took the run over, since this one was taken for dead.

        """
        self._claims.check(run)
        write(
            self._connection,
            "UPDATE shards SET state = ?, attempt = ? WHERE run = ? AND number = ?",
            (ShardState.STARTED, attempt, run, number),
        )

    def end(self, run: str, report: ShardReport, state: ShardState) -> None:
        """Note what a shard came to."""
        told = {k: v for k, v in report.to_json().items() if k != "schemas"}
        write(
            self._connection,
            "UPDATE shards SET state = ?, report = ? WHERE run = ? AND number = ?",
            (state, json.dumps(told), run, report.number),
        )

    def executing(self, run: str) -> AbstractContextManager[None]:
        """Keep other processes from executing *run* meanwhile; see `Claims.held`."""
        return self._claims.held(run)


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

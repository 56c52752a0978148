"""The run table: every run of bulk work, its shards, and their results.

It is separate from the job's state, which bulk work never changes: in a file beside it, or in the
store that machines share. One process executes a run at a time.
"""

import contextlib
import datetime as dt
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any, Final, Self

from headrace.connector.replay.claims import Claims, Opened, write
from headrace.connector.replay.delivery import ShardReport, Target
from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.shards import Shard
from headrace.connector.stores import StateFileError
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.open_control_store import open_notes

RUNS: Final = "runs"  # The kinds of notes. Shards are of the kind `shards`, then `/` and the run.
SPACE: Final = "runs"
SHARDS_EACH: Final = 100  # Shards of a plan that one write stores.


class ShardState(StrEnum):
    """The state of a shard of a run."""

    NOT_STARTED = "NOT_STARTED"
    STARTED = "STARTED"
    PASS = "PASS"  # noqa: S105 (no password)
    FAIL = "FAIL"
    DIFF = "DIFF"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as planned. `facts` has the facts known at that time: bytes, rows, findings."""

    run: str
    kind: str
    made_ms: int
    target: Target
    facts: Mapping[str, Any]

    @classmethod
    def new(cls, kind: str, target: Target, facts: Mapping[str, Any]) -> Self:
        """Return a new run."""
        made_ms = time.time_ns() // 1_000_000
        return cls(run=new_run(kind), kind=kind, made_ms=made_ms, target=target, facts=facts)


@dataclass(frozen=True, slots=True)
class ShardRow:
    """A shard of a run, and its last result."""

    shard: Shard
    state: ShardState
    attempt: int
    report: Mapping[str, Any]


def new_run(kind: str) -> str:
    """Return a unique name for a run."""
    return f"{kind}-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


class RunTable:
    """See the module. For one thread."""

    def __init__(
        self, place: Path, *, opened: Opened | None = None, pause: Callable[[float], None] = sleep
    ) -> None:
        """Open the runs that belong to the notes at *place*; create them if there are none.

        *opened* opens a connection to them instead, and *pause* waits for a number of seconds.
        """
        opened = opened or partial(open_notes, place, space=SPACE)
        self._notes = opened()
        self._claims = Claims(opened, pause)

    def close(self) -> None:
        """Close the connection."""
        self._notes.close()

    def add(self, run: Run, shards: Sequence[Shard]) -> None:
        """Store a plan; others see it when it is complete."""
        for first in range(0, len(shards), SHARDS_EACH):
            rows = [
                ShardRow(shard, ShardState.NOT_STARTED, 0, {})
                for shard in shards[first : first + SHARDS_EACH]
            ]
            write(self._notes, partial(_put_shards, run.run, rows))
        write(self._notes, lambda notes: notes.put_document(RUNS, run.run, run))

    def forget(self, run: str) -> None:
        """Remove a run and its shards; safe to repeat."""
        write(self._notes, lambda notes: notes.put(RUNS, run, None))
        kind = _shards(run)
        while names := list(self._notes.all(kind))[:SHARDS_EACH]:
            write(self._notes, partial(_put_none, kind, names))

    def keep_asked(self, names: Callable[[], Collection[str]]) -> None:
        """Forget the runs that statements requested, except those in *names*, which is called once.

        It is called after the runs are listed, because a run that is added meanwhile was requested
        before.
        """
        found = [run.run for run in self.runs() if run.facts.get("is_asked")]
        kept = names() if found else ()
        for run in found:
            if run not in kept:
                self.forget(run)

    def runs(self) -> Sequence[Run]:
        """Return all runs, the newest first."""
        found = self._notes.documents(RUNS, Run).values()
        return sorted(found, key=lambda run: run.made_ms, reverse=True)

    def run(self, name: str) -> Run:
        """Return a run.

        Raises:
            ConfigError: a run of that name does not exist.

        """
        found = [run for run in self.runs() if run.run == name]
        if not found:
            names = ", ".join(run.run for run in self.runs()[:5])
            raise bad_option("RUN", f"run {name!r} does not exist", f"there are {names or 'none'}")
        return found[0]

    def shards(self, run: str) -> Sequence[ShardRow]:
        """Return the shards of a run, by number."""
        found = self._notes.documents(_shards(run), ShardRow)
        return [found[name] for name in sorted(found, key=int)]

    def begin(self, run: str, number: int, attempt: int) -> None:
        """Store that a shard is running.

        Raises:
            RunBusyError: another process has taken over the run.

        """
        self._replace(run, number, state=ShardState.STARTED, attempt=attempt)

    def end(self, run: str, report: ShardReport, state: ShardState) -> None:
        """Store the result of a shard. Raises as `begin`."""
        self._replace(run, report.number, state=state, report=asdict(report))

    def _replace(self, run: str, number: int, **fields: Any) -> None:  # noqa: ANN401 (of a ShardRow)
        def replaced(notes: NoteCopy) -> None:
            self._claims.fence(notes, run)
            row = notes.document(_shards(run), str(number), ShardRow)
            if row is not None:
                _put_shards(run, [replace(row, **fields)], notes)

        write(self._notes, replaced)

    def executing(self, run: str) -> AbstractContextManager[None]:
        """Prevent other processes from executing *run* during the block; see `Claims.held`."""
        return self._claims.held(run)


def run_documents(place: Path) -> Sequence[Mapping[str, Any]]:  # Any: JSON.
    """Return all runs and the states of their shards as JSON objects, newest first.

    Writes nothing: returns none if nothing ran.
    """
    try:
        opened = partial(open_notes, place, create=False, space=SPACE)
        table = RunTable(place, opened=opened)
    except StateFileError:
        return ()
    with contextlib.closing(table):
        return [_document(run, table.shards(run.run)) for run in table.runs()]


def _document(run: Run, rows: Sequence[ShardRow]) -> Mapping[str, Any]:  # Any: JSON.
    states = Counter(row.state.value for row in rows)
    made = dt.datetime.fromtimestamp(run.made_ms / 1000, dt.UTC)
    return {
        "run": run.run,
        "kind": run.kind,
        "made": f"{made:%Y-%m-%dT%H:%M:%SZ}",
        "target": run.target.describe(),
        "states": dict(states),
        "changes": sum(row.report.get("delivered", 0) for row in rows),
        "shards": [
            {
                "number": row.shard.number,
                "split": row.shard.split,
                "state": row.state.value,
                "attempt": row.attempt,
                "changes": row.report.get("delivered", 0),
                "problem": str(row.report.get("problem") or ""),
            }
            for row in rows
        ],
    }


def _shards(run: str) -> str:
    return f"shards/{run}"


def _put_none(kind: str, names: Sequence[str], notes: NoteCopy) -> None:
    for name in names:
        notes.put(kind, name, None)


def _put_shards(run: str, rows: Sequence[ShardRow], notes: NoteCopy) -> None:
    for row in rows:
        kept = replace(row.shard, job_key=b"")  # It is never stored here.
        notes.put_document(_shards(run), str(kept.number), replace(row, shard=kept))

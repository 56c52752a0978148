"""The default store: one SQLite file, shared by the worker processes of one machine.

The statements that replace a split's state are in `sqlite_state`, the file itself in `sqlite_file`.
"""

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from headrace.connector.runtime import crash
from headrace.connector.stores import (
    ALL_JOBS,
    QUARANTINE_BYTES_MAX,
    Commit,
    Counters,
    KeptLoss,
    LeaseRow,
    Owner,
    PlanChangedError,
    Plans,
    Publications,
    Seen,
    SplitState,
    Succeed,
    WorkerRow,
)
from headrace.connector.stores.sqlite_file import (
    check_file,
    connect,
    named_errors,
    transaction,
)
from headrace.connector.stores.sqlite_jobs import (
    add_splits,
    heads,
    job_key,
    leases,
    splits_of,
    workers,
)
from headrace.connector.stores.sqlite_losses import Losses
from headrace.connector.stores.sqlite_notes import SqlitePublications, see, seen
from headrace.connector.stores.sqlite_plans import SqlitePlans
from headrace.connector.stores.sqlite_state import (
    StateWriter,
    freeze,
    is_frozen,
    load,
    replace_positions,
    thaw,
)
from headrace.connector.stores.state_copies import CopyingStore, StateCopies
from headrace.connector.stores.stored import PARTED, PLAN, document
from headrace.plugins import EncodedPosition, HeadraceError, LeaseLostError, RecordSchema, option

__all__ = ["COPIED", "SqliteStore", "connect", "transaction"]

# What a job is made of that goes on from another.
COPIED: Final = {
    "jobs": "job_key, plan, splits",
    "leases": "split, token, beat, lease_ms",
    "heads": "split, plan, token, seq, head, chunks, counters",
    "chunks": "split, name, content",
}
_PROBLEM: Final = "SELECT problem FROM jobs WHERE job = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteConfig:
    """The options of the store `sqlite`."""

    path: str = option("The SQLite file.")


class SqliteStore(CopyingStore):
    """The state of one job in a SQLite file; see `Store`."""

    config_class = SqliteConfig

    def __init__(
        self,
        connection: sqlite3.Connection,
        job: str,
        *,
        quarantine_bytes_max: int = QUARANTINE_BYTES_MAX,
    ) -> None:
        """Own *connection*, which `connect` made on this thread."""
        self._connection = connection
        self._job = job
        self._heads = StateWriter(connection, job, quarantine_bytes_max=quarantine_bytes_max)
        self._kept = Losses(connection, job)
        self._plans = SqlitePlans(connection, job)
        self._schemas_known: set[bytes] = set()

    @classmethod
    def open(
        cls,
        path: str | Path,
        job: str,
        *,
        create: bool = True,
        quarantine_bytes_max: int = QUARANTINE_BYTES_MAX,
    ) -> Self:
        """Connect to the file at *path*. Raises StateFileError."""
        connection = connect(path, create=create)
        return cls(connection, job, quarantine_bytes_max=quarantine_bytes_max)

    @classmethod
    def open_job(
        cls,
        config: SqliteConfig,
        job: str,
        *,
        create: bool = True,
        quarantine_bytes_max: int = QUARANTINE_BYTES_MAX,
    ) -> Self:
        """See `Store.open_job`."""
        return cls.open(config.path, job, create=create, quarantine_bytes_max=quarantine_bytes_max)

    @classmethod
    def open_notes(
        cls, config: SqliteConfig, *, create: bool = True, space: str = ALL_JOBS
    ) -> None:
        """See `Store.open_notes`: they are tables of the file, or in a file beside it."""
        del config, create, space

    def job_key(self) -> bytes:
        """See `Store.job_key`."""
        return job_key(self._connection, self._job)

    def register(self, splits: Sequence[str]) -> int:
        """See `Store.register`."""
        self.job_key()
        with transaction(self._connection):
            plan, known = splits_of(self._connection, self._job)
            gone = sorted(set(known) - set(splits))
            if gone:
                raise PlanChangedError(
                    f"the source plans {len(splits)} splits, without {gone[0]!r}, which has state",
                    place=f"job {self._job}",
                    hint="restore the option that decides the splits, or give the job a new name",
                )
            new = [split for split in splits if split not in known]
            add_splits(self._connection, self._job, new)
        return plan

    def plans(self) -> Plans:
        """See `Store.plans`."""
        return self._plans.all()

    def announce(self, splits: Sequence[str], *, after: int) -> None:
        """See `Store.announce`."""
        self._plans.announce(splits, after=after)
        crash.reached("plan_announced")

    def replan(self, owner: str, tokens: Mapping[str, int], succeed: Succeed) -> None:
        """See `Store.replan`."""
        splits = self.plans().in_force.splits
        if set(splits) != set(tokens):
            raise LeaseLostError("the plan is another one by now", place=f"job {self._job}")
        states = [self.load(split, tokens[split]) for split in splits]
        self._plans.replace(owner, states, succeed(states))
        crash.reached("plan_changed")

    def enroll(self, owner: Owner, places: Sequence[str] = ()) -> None:
        """See `Store.enroll`."""
        identity = (owner.host, owner.boot, owner.pid_space, owner.pid, owner.started)
        with transaction(self._connection):
            self._connection.execute(
                "INSERT INTO workers VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, '[]', '[]')",
                (self._job, owner.worker, *identity, json.dumps(list(places))),
            )

    def dismiss(self, worker: str) -> None:
        """See `Store.dismiss`."""
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE leases SET owner = NULL WHERE job = ? AND owner = ?", (self._job, worker)
            )
            self._connection.execute(
                "DELETE FROM workers WHERE job = ? AND worker = ?", (self._job, worker)
            )

    def workers(self) -> Sequence[WorkerRow]:
        """See `Store.workers`; whoever keeps leases learns here that the file has gone."""
        check_file(self._connection)
        return workers(self._connection, self._job)

    def leases(self) -> Sequence[LeaseRow]:
        """See `Store.leases`."""
        return leases(self._connection, self._job)

    def claim(self, owner: str, rows: Sequence[LeaseRow], lease_ms: int) -> Mapping[str, int]:
        """See `Store.claim`."""
        claimed: dict[str, int] = {}
        with transaction(self._connection):
            self._beat(owner)
            for row in rows:
                place = (self._job, row.split)
                token = self._next_token(row)
                taken = self._connection.execute(
                    "UPDATE leases SET owner = ?, token = ?, beat = beat + 1, lease_ms = ?, "
                    "problem = '' WHERE job = ? AND split = ? AND token = ? AND beat = ? "
                    "AND owner IS ?",
                    (owner, token, lease_ms, *place, row.token, row.beat, row.owner),
                )
                if taken.rowcount:
                    self._connection.execute(  # I2: the former owner's commits end here.
                        "UPDATE heads SET token = ?, owner = ? WHERE job = ? AND split = ?",
                        (token, owner, *place),
                    )
                    claimed[row.split] = token
        return claimed

    def renew(
        self, owner: str, tokens: Mapping[str, int], rates: Mapping[str, int] | None = None
    ) -> frozenset[str]:
        """See `Store.renew`."""
        known = rates or {}
        with transaction(self._connection):
            self._beat(owner)
            return frozenset(
                split
                for split, token in tokens.items()
                if not self._connection.execute(
                    "UPDATE leases SET beat = beat + 1, rate = coalesce(?, rate) "
                    "WHERE job = ? AND split = ? AND owner = ? AND token = ?",
                    (known.get(split), self._job, split, owner, token),
                ).rowcount
            )

    def offer(self, worker: str, heirs: Sequence[str]) -> None:
        """See `Store.offer`."""
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE workers SET heirs = ? WHERE job = ? AND worker = ?",
                (json.dumps(list(heirs)), self._job, worker),
            )

    def want(self, worker: str, splits: Sequence[str]) -> None:
        """See `Store.want`."""
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE workers SET wants = ? WHERE job = ? AND worker = ?",
                (json.dumps(list(splits)), self._job, worker),
            )

    def _beat(self, worker: str) -> None:
        self._connection.execute(
            "UPDATE workers SET beat = beat + 1 WHERE job = ? AND worker = ?", (self._job, worker)
        )

    def release(self, owner: str, split: str, token: int, problem: str = "") -> None:
        """See `Store.release`."""
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE leases SET owner = NULL, problem = ? "
                "WHERE job = ? AND split = ? AND owner = ? AND token = ?",
                (problem, self._job, split, owner, token),
            )

    def report(self, problem: str) -> None:
        """See `Store.report`."""
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE jobs SET problem = ? WHERE job = ?", (problem, self._job)
            )

    def problem(self) -> str:
        """See `Store.problem`."""
        return next((str(text) for (text,) in self._rows(_PROBLEM)), "")

    def see(self, rows: Sequence[Seen]) -> None:
        """See `Store.see`."""
        see(self._connection, self._job, rows)

    def seen(self) -> Mapping[str, Seen]:
        """See `Store.seen`."""
        return seen(self._connection, self._job)

    def reposition(
        self, positions: Mapping[str, EncodedPosition | None], *, busy: Collection[str] = ()
    ) -> None:
        """See `Store.reposition`."""
        with transaction(self._connection):
            if is_frozen(self._connection, self._job):
                raise LeaseLostError("becomes one with another", place=f"job {self._job}")
            for row in self.leases():
                if row.split in positions and row.owner in busy:
                    raise LeaseLostError("a worker owns it", place=f"split {row.split}")
            replace_positions(self._connection, self._job, positions)

    def become_copy(self, of: str, *, busy: Collection[str]) -> bool:
        """See `Store.become_copy`."""
        other = SqliteStore(self._connection, of).state_copies()
        with transaction(self._connection):
            owners = self._connection.execute("SELECT owner FROM leases WHERE job = ?", (of,))
            if {owner for (owner,) in owners} & set(busy) or other.behind():
                return False
            self._forget()
            for table, columns in COPIED.items():
                self._connection.execute(
                    f"INSERT INTO {table} (job, {columns}) SELECT ?, {columns} "  # noqa: S608 (constants)
                    f"FROM {table} WHERE job = ?",
                    (self._job, of),
                )
            # I3: what the other job did before is in its own books.
            self._connection.execute(
                "UPDATE heads SET counters = '{}', kept_in = ? WHERE job = ?", (PARTED, self._job)
            )
        return True

    def state_copies(self) -> StateCopies:
        """See `CopyingStore.state_copies`."""
        return self._heads

    def begin_beside(self, job: str) -> None:
        """See `Store.begin_beside`."""
        key = SqliteStore(self._connection, job).job_key()
        with transaction(self._connection):
            self._forget()
            self._connection.execute(
                "INSERT INTO jobs (job, job_key, plan, splits) VALUES (?, ?, ?, '[]')",
                (self._job, key, PLAN),
            )

    def freeze(self, owner: str, tokens: Mapping[str, int]) -> Sequence[SplitState]:
        """See `Store.freeze`."""
        return freeze(self._connection, self._job, owner, tokens)

    def thaw(
        self,
        owner: str,
        tokens: Mapping[str, int],
        states: Mapping[str, tuple[EncodedPosition, Counters]],
    ) -> None:
        """See `Store.thaw`."""
        thaw(self._connection, self._job, owner, tokens, states)

    def inherit(self, of: str) -> None:
        """See `Store.inherit`."""
        with transaction(self._connection):
            of_it = self._connection.execute("SELECT plan FROM heads WHERE job = ?", (of,))
            if any(plan > 0 for (plan,) in of_it):
                raise LeaseLostError("is not frozen", place=f"job {of}")
            self._connection.execute("UPDATE quarantine SET job = ? WHERE job = ?", (self._job, of))
            for table in (*COPIED, "plans", "workers", "seen"):
                self._connection.execute(f"DELETE FROM {table} WHERE job = ?", (of,))  # noqa: S608 (constants)

    def _forget(self) -> None:
        for table in (*COPIED, "plans"):
            self._connection.execute(f"DELETE FROM {table} WHERE job = ?", (self._job,))  # noqa: S608 (constants)

    def load(self, split: str, token: int) -> SplitState:
        """See `Store.load`."""
        return self._heads.load(split, token)

    def states(self) -> Sequence[SplitState]:
        """See `Store.states`."""
        known = heads(self._connection, self._job)
        return [load(self._connection, self._job, split) for split in known]

    def commit(self, commits: Sequence[Commit]) -> Mapping[str, HeadraceError]:
        """See `Store.commit`."""
        return self._heads.commit(commits)

    def put_schemas(self, schemas: Sequence[RecordSchema]) -> None:
        """See `Store.put_schemas`."""
        new = [schema for schema in schemas if schema.schema_id not in self._schemas_known]
        if not new:
            return
        with transaction(self._connection):
            self._connection.executemany(
                "INSERT OR IGNORE INTO schemas VALUES (?, ?, ?, ?, ?)",
                [
                    (x.schema_id, x.table, x.text, json.dumps(x.key), json.dumps(x.value))
                    for x in new
                ],
            )
        self._schemas_known.update(schema.schema_id for schema in new)

    def schema(self, schema_id: bytes) -> RecordSchema | None:
        """See `Store.schema`."""
        query = "SELECT tbl, text, key, value FROM schemas WHERE schema_id = ?"
        with named_errors(self._connection):
            row = self._connection.execute(query, (schema_id,)).fetchone()
            return None if row is None else _schema(schema_id, *row)

    def schemas(self) -> Sequence[RecordSchema]:
        """See `Store.schemas`."""
        query = "SELECT schema_id, tbl, text, key, value FROM schemas"
        with named_errors(self._connection):
            return [_schema(*row) for row in self._connection.execute(query)]

    def publications(self) -> Publications:
        """See `Store.publications`."""
        return SqlitePublications(self._connection, self._job)

    def losses(self, numbers: Sequence[int] | None = None) -> Iterator[KeptLoss]:
        """See `Store.losses`."""
        return self._kept.all() if numbers is None else iter(self._kept.numbered(numbers))

    def unsent_losses(self, splits: Sequence[str], *, bytes_max: int) -> Sequence[KeptLoss]:
        """See `Store.unsent_losses`."""
        return self._kept.unsent(splits, bytes_max=bytes_max)

    def mark_losses_sent(self, numbers: Sequence[int]) -> None:
        """See `Store.mark_losses_sent`."""
        self._kept.mark_sent(numbers)

    def remove_losses(self, numbers: Sequence[int]) -> None:
        """See `Store.remove_losses`."""
        self._kept.remove(numbers)

    def close(self) -> None:
        """See `Store.close`."""
        self._connection.close()

    def _rows(self, query: str) -> list[tuple[Any, ...]]:  # Any: SQLite's rows have no types.
        with named_errors(self._connection):
            return self._connection.execute(query, (self._job,)).fetchall()

    def _next_token(self, row: LeaseRow) -> int:
        (token,) = self._connection.execute(
            "SELECT token FROM heads WHERE job = ? AND split = ?", (self._job, row.split)
        ).fetchone() or (0,)
        return 1 + max(row.token, int(token))


def _schema(schema_id: bytes, table: str, text: str, key: str, value: str) -> RecordSchema:
    what = f"table schemas, {table}, column"
    return RecordSchema(
        table, text, schema_id, document(key, f"{what} key"), document(value, f"{what} value")
    )

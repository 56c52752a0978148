"""The store for many machines: tables in Cassandra, fenced by lightweight transactions."""

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Self

from headrace.connector.runtime import crash
from headrace.connector.stores import (
    ALL_JOBS,
    QUARANTINE_BYTES_MAX,
    Commit,
    Counters,
    KeptLoss,
    LeaseRow,
    Notes,
    Owner,
    PlanChangedError,
    Plans,
    Publications,
    Seen,
    SplitState,
    StateLostError,
    Store,
    StoreUnavailableError,
    Succeed,
    WorkerRow,
)
from headrace.connector.stores.board import FORK_MARK
from headrace.connector.stores.cassandra_copies import CassandraCopies
from headrace.connector.stores.cassandra_losses import CassandraLosses
from headrace.connector.stores.cassandra_notes import (
    CassandraNotes,
    CassandraPublications,
    problem_of,
    report,
    see,
    seen,
)
from headrace.connector.stores.cassandra_parting import CassandraParting
from headrace.connector.stores.cassandra_plans import CassandraPlans
from headrace.connector.stores.cassandra_session import (
    RESTORE,
    CassandraSession,
    CassandraStoreConfig,
)
from headrace.connector.stores.cassandra_state import BUCKETS, NEW_LEASE, CassandraHeads, lease_key
from headrace.connector.stores.cdc_state import PublishedStates
from headrace.connector.stores.state_copies import CopyingStore
from headrace.connector.stores.stored import BEGINS_ANEW, PARTED, document
from headrace.plugins import EncodedPosition, HeadraceError, LeaseLostError, RecordSchema

WORKER_SECONDS: Final = 24 * 3600  # After which a worker that vanished is no more listed.
_TAKE: Final = (
    "UPDATE leases SET owner = ?, fence = ?, beat = ?, lease_ms = ?, problem = '' "
    "WHERE job = ? AND bucket = ? AND split = ? "
    "IF fence = ? AND beat = ? AND owner = ?"
)
_RENEW: Final = (
    "UPDATE leases SET beat = ?, rate = ? WHERE job = ? AND bucket = ? AND split = ? "
    "IF owner = ? AND fence = ?"
)
_NEW_HEAD: Final = (
    "INSERT INTO heads (job, split, plan, fence, seq, chunks, counters, kept_in) "
    "VALUES (?, ?, ?, 0, 0, ?, '{}', ?) IF NOT EXISTS"
)
_BEAT: Final = (
    "INSERT INTO workers "
    "(job, worker, host, boot, pid_space, pid, started, places, beat, heirs, wants) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TTL ?"
)


class CassandraStore(PublishedStates, CopyingStore):
    """The state of one job in a keyspace; see `Store`."""

    config_class = CassandraStoreConfig

    def __init__(self, session: CassandraSession, job: str, *, quarantine_bytes_max: int) -> None:
        """Own *session*, which belongs to this thread."""
        self._session = session
        self._job = job
        self._losses = CassandraLosses(session, job, bytes_max=quarantine_bytes_max)
        self._heads = CassandraHeads(session, job, self._losses)
        self._schemas_known: set[bytes] = set()
        self._plans = CassandraPlans(session, job, self._heads, self._losses)
        self._parting = CassandraParting(session, job, self._heads, self._plans)
        self._in_force: frozenset[str] = frozenset()  # The splits, as of when somebody looked.
        self._splits: Sequence[str] = ()  # Of all plans.
        self._mine: dict[str, WorkerRow] = {}  # Workers enrolled here, as last written.
        self._held: dict[str, tuple[int, int]] = {}  # Beat and rate of leases, as last written.

    @classmethod
    def open_job(
        cls,
        config: CassandraStoreConfig,
        job: str,
        *,
        create: bool = True,
        quarantine_bytes_max: int = QUARANTINE_BYTES_MAX,
    ) -> Self:
        """See `Store.open_job`."""
        session = CassandraSession(config, create=create)
        return cls(session, job, quarantine_bytes_max=quarantine_bytes_max)

    @classmethod
    def open_notes(
        cls, config: CassandraStoreConfig, *, create: bool = True, space: str = ALL_JOBS
    ) -> Notes:
        """See `Store.open_notes`."""

        def store(session: CassandraSession, job: str) -> Store:
            return cls(session, job, quarantine_bytes_max=QUARANTINE_BYTES_MAX)

        return CassandraNotes(config, store, create=create, space=space)

    def job_key(self) -> bytes:
        """See `Store.job_key`."""
        return self._plans.job_key()

    def register(self, splits: Sequence[str]) -> int:
        """See `Store.register`."""
        self.job_key()
        while True:
            in_force = self._plans.in_force()
            plan, known = in_force.number, list(in_force.splits)
            gone = sorted(set(known) - set(splits))
            if gone:
                raise PlanChangedError(
                    f"the source plans {len(splits)} splits, without {gone[0]!r}, which has state",
                    place=f"job {self._job}",
                    hint="restore the option that decides the splits, or give the job a new name",
                )
            self._check_known(known)
            new = [split for split in splits if split not in known]
            self._make(new, plan)
            whole = [*known, *new]
            changed = self._session.apply(
                "UPDATE jobs SET splits = ? WHERE job = ? IF splits = ? AND plan = ?",
                *(json.dumps(whole), self._job, json.dumps(known), plan),
            )
            if changed["[applied]"]:  # Else another process added some at the same time.
                self._in_force = frozenset(whole)
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
        for split, token in tokens.items():
            if self._heads.state(split).plan > 0:  # Else who began with it has done so.
                self.load(split, token)  # Exactly once, the sink may have a newer state.
        self._plans.replan(owner, tokens, succeed, self._lease)
        crash.reached("plan_changed")
        self.leases()
        for split in tokens.keys() - self._in_force:
            self._session.apply(
                "DELETE FROM leases WHERE job = ? AND bucket = ? AND split = ? IF EXISTS",
                *self._lease(split),
            )

    def reposition(
        self, positions: Mapping[str, EncodedPosition | None], *, busy: Collection[str] = ()
    ) -> None:
        """See `Store.reposition`."""
        for row in self.leases():
            if row.split in positions and row.owner in busy:
                raise LeaseLostError("a worker owns it", place=f"split {row.split}")
        self._parting.reposition(positions)

    def become_copy(self, of: str, *, busy: Collection[str]) -> bool:
        """See `Store.become_copy`."""
        other = CassandraStore(self._session, of, quarantine_bytes_max=0)
        owners = {row.owner for row in other.leases()}
        if owners & set(busy) or other.state_copies().behind():
            return False
        other.job_key()
        self._parting.become_copy(of)
        return True

    def state_copies(self) -> CassandraCopies:
        """See `CopyingStore.state_copies`."""
        return CassandraCopies(self._session, self._job, self._heads, self._losses, self._plans)

    def begin_beside(self, job: str) -> None:
        """See `Store.begin_beside`."""
        CassandraStore(self._session, job, quarantine_bytes_max=0).job_key()
        self._parting.begin_beside(job)

    def freeze(self, owner: str, tokens: Mapping[str, int]) -> Sequence[SplitState]:
        """See `Store.freeze`."""
        return self._plans.closed(owner, tokens)

    def thaw(
        self,
        owner: str,
        tokens: Mapping[str, int],
        states: Mapping[str, tuple[EncodedPosition, Counters]],
    ) -> None:
        """See `Store.thaw`."""
        del owner  # Nobody else has its tokens.
        self._parting.thaw(tokens, states)

    def inherit(self, of: str) -> None:
        """See `Store.inherit`."""
        self._parting.inherit(of)

    def see(self, rows: Sequence[Seen]) -> None:
        """See `Store.see`."""
        see(self._session, self._job, rows)

    def seen(self) -> Mapping[str, Seen]:
        """See `Store.seen`."""
        return seen(self._session, self._job)

    def report(self, problem: str) -> None:
        """See `Store.report`."""
        report(self._session, self._job, problem)

    def problem(self) -> str:
        """See `Store.problem`."""
        return problem_of(self._session, self._job)

    def publications(self) -> Publications:
        """See `Store.publications`."""
        return CassandraPublications(self._session, self._job)

    def enroll(self, owner: Owner, places: Sequence[str] = ()) -> None:
        """See `Store.enroll`."""
        self._mine[owner.worker] = WorkerRow(owner, -1, tuple(places))
        self._beat(owner.worker)

    def dismiss(self, worker: str) -> None:
        """See `Store.dismiss`."""
        self._mine.pop(worker, None)
        for row in self.leases():
            if row.owner == worker:
                self.release(worker, row.split, row.token, row.problem)
        self._session.write(
            [("DELETE FROM workers WHERE job = ? AND worker = ?", (self._job, worker))]
        )

    def workers(self) -> Sequence[WorkerRow]:
        """See `Store.workers`."""
        now_ms = time.time_ns() // 1_000_000
        rows = self._session.rows(
            "SELECT worker, host, boot, pid_space, pid, started, beat, places, heirs, wants, "
            "WRITETIME(beat) AS beat_us FROM workers WHERE job = ?",
            self._job,
        )
        return [
            WorkerRow(
                beat=row.pop("beat"),
                places=tuple(json.loads(row.pop("places") or "[]")),
                heirs=tuple(json.loads(row.pop("heirs") or "[]")),
                wants=tuple(json.loads(row.pop("wants") or "[]")),
                silent_ms=max(0, now_ms - row.pop("beat_us") // 1_000),
                owner=Owner(**row),
            )
            for row in rows
        ]

    def leases(self) -> Sequence[LeaseRow]:
        """See `Store.leases`."""
        rows = self._session.rows_of(
            "SELECT split, owner, fence, beat, lease_ms, problem, rate FROM leases "
            "WHERE job = ? AND bucket = ?",
            [(self._job, bucket) for bucket in range(BUCKETS)],
        )
        if not {row["split"] for row in rows} <= self._in_force:  # Or those of another plan.
            self._in_force = frozenset(self._plans.in_force().splits)
        found = [
            LeaseRow(token=row.pop("fence"), rate=row.pop("rate") or 0, **row)
            for row in rows
            if row["split"] in self._in_force
        ]
        return sorted(found, key=lambda row: row.split)

    def claim(self, owner: str, rows: Sequence[LeaseRow], lease_ms: int) -> Mapping[str, int]:
        """See `Store.claim`."""
        self._beat(owner)
        heads = self._session.rows_of(
            "SELECT split, fence FROM heads WHERE job = ? AND split = ?",
            [(self._job, row.split) for row in rows],
        )
        known = {head["split"]: head["fence"] or 0 for head in heads}
        tokens = {row.split: 1 + max(row.token, known.get(row.split, 0)) for row in rows}
        outcomes = self._session.apply_all(
            [
                (
                    _TAKE,
                    (
                        *(owner, tokens[row.split], row.beat + 1, lease_ms),
                        *(*self._lease(row.split), row.token, row.beat, row.owner),
                    ),
                )
                for row in rows
            ]
        )
        taken = [
            row.split
            for row, outcome in zip(rows, outcomes, strict=True)
            if (
                outcome["[applied]"]
                if outcome is not None
                else self._is_mine(owner, row.split, tokens[row.split])
            )
        ]
        self._held |= {row.split: (row.beat + 1, row.rate) for row in rows if row.split in taken}
        return {split: tokens[split] for split in taken if self._fence(owner, split, tokens[split])}

    def renew(
        self, owner: str, tokens: Mapping[str, int], rates: Mapping[str, int] | None = None
    ) -> frozenset[str]:
        """See `Store.renew`."""
        self._beat(owner)
        if not tokens.keys() <= self._held.keys():  # They were claimed by another connection.
            self._held = {row.split: (row.beat, row.rate) for row in self.leases()} | self._held
        known = rates or {}
        for split in tokens:
            beat, rate = self._held.get(split, (0, 0))
            self._held[split] = beat + 1, known.get(split, rate)
        outcomes = self._session.apply_all(
            [
                (_RENEW, (*self._held[split], *self._lease(split), owner, token))
                for split, token in tokens.items()
            ]
        )
        if None in outcomes:  # Were it taken for renewed, another could have it already.
            raise StoreUnavailableError("whether leases were renewed is not known")
        return frozenset(
            split
            for split, outcome in zip(tokens, outcomes, strict=True)
            if outcome and not outcome["[applied]"]
        )

    def offer(self, worker: str, heirs: Sequence[str]) -> None:
        """See `Store.offer`."""
        if worker in self._mine:
            self._mine[worker] = replace(self._mine[worker], heirs=tuple(heirs))
        self._beat(worker)

    def want(self, worker: str, splits: Sequence[str]) -> None:
        """See `Store.want`."""
        if worker in self._mine:
            self._mine[worker] = replace(self._mine[worker], wants=tuple(splits))
        self._beat(worker)

    def release(self, owner: str, split: str, token: int, problem: str = "") -> None:
        """See `Store.release`."""
        self._heads.publish_last(split)
        self._session.apply(
            "UPDATE leases SET owner = null, problem = ? "
            "WHERE job = ? AND bucket = ? AND split = ? IF owner = ? AND fence = ?",
            *(problem, *self._lease(split), owner, token),
        )

    def load(self, split: str, token: int) -> SplitState:
        """See `Store.load`."""
        return self._heads.load(split, token)

    def states(self) -> Sequence[SplitState]:
        """See `Store.states`."""
        return [self._heads.state(split) for split in sorted(self._plans.in_force().splits)]

    def commit(self, commits: Sequence[Commit]) -> Mapping[str, HeadraceError]:
        """See `Store.commit`."""
        if not self._splits and any(commit.losses for commit in commits):
            self._splits = list(self._plans.committed())
        return self._heads.commit(commits, self._splits)

    def put_schemas(self, schemas: Sequence[RecordSchema]) -> None:
        """See `Store.put_schemas`."""
        new = [schema for schema in schemas if schema.schema_id not in self._schemas_known]
        self._session.write(
            [
                (
                    "INSERT INTO schemas (schema_id, tbl, text, key, value) VALUES (?, ?, ?, ?, ?)",
                    (x.schema_id, x.table, x.text, json.dumps(x.key), json.dumps(x.value)),
                )
                for x in new
            ]
        )
        self._schemas_known.update(schema.schema_id for schema in new)

    def schema(self, schema_id: bytes) -> RecordSchema | None:
        """See `Store.schema`."""
        rows = self._session.rows(
            "SELECT tbl, text, key, value FROM schemas WHERE schema_id = ?", schema_id
        )
        if not rows:
            return None
        with self._session.named_errors():
            return _schema({"schema_id": schema_id, **rows[0]})

    def schemas(self) -> Sequence[RecordSchema]:
        """See `Store.schemas`."""
        rows = self._session.rows("SELECT schema_id, tbl, text, key, value FROM schemas")
        with self._session.named_errors():
            return [_schema(row) for row in rows]

    def losses(self, numbers: Sequence[int] | None = None) -> Iterator[KeptLoss]:
        """See `Store.losses`."""
        return self._losses.all(self._plans.committed(), numbers)

    def unsent_losses(self, splits: Sequence[str], *, bytes_max: int) -> Sequence[KeptLoss]:
        """See `Store.unsent_losses`."""
        committed = self._plans.committed()
        in_force = sorted(self._plans.in_force().splits)
        # Of splits that are no more, whoever has the first one sends it.
        gone = set(committed) - set(in_force) if in_force[:1] == sorted(splits)[:1] else set()
        chosen = {split: seq for split, seq in committed.items() if split in {*splits, *gone}}
        return self._losses.unsent(chosen, bytes_max=bytes_max)

    def mark_losses_sent(self, numbers: Sequence[int]) -> None:
        """See `Store.mark_losses_sent`."""
        self._losses.mark_sent(self._plans.committed(), numbers)

    def remove_losses(self, numbers: Sequence[int]) -> None:
        """See `Store.remove_losses`."""
        self._losses.remove(self._plans.committed(), numbers)

    def close(self) -> None:
        """See `Store.close`."""
        self._session.close()

    def _check_known(self, known: Sequence[str]) -> None:
        heads = self._session.rows_of(
            "SELECT split, fence FROM heads WHERE job = ? AND split = ?",
            [(self._job, split) for split in known],
        )
        found = {
            "leases": {row.split for row in self.leases()},
            "heads": {row["split"] for row in heads if row["fence"] is not None},
        }
        for table, splits in found.items():
            missing = [split for split in known if split not in splits]
            if missing:
                raise StateLostError(
                    f"the split is known, but not in {table}",
                    place=f"job {self._job}, split {missing[0]}",
                    hint=RESTORE,
                )

    def _make(self, splits: Sequence[str], plan: int) -> None:
        """Make leases and heads that are not there yet."""
        leases = [(NEW_LEASE, (*self._lease(split), 0)) for split in splits]
        kept_in = PARTED if FORK_MARK in self._job else ""
        heads = [(_NEW_HEAD, (self._job, split, plan, BEGINS_ANEW, kept_in)) for split in splits]
        if None in self._session.apply_all([*leases, *heads]):
            raise StoreUnavailableError("whether splits were registered is not known")

    def _fence(self, owner: str, split: str, token: int) -> bool:
        """Write a claim's token into the head (I2); say whether the split may be taken."""
        row = self._session.apply(
            "UPDATE heads SET fence = ?, owner = ? WHERE job = ? AND split = ? IF fence < ?",
            *(token, owner, self._job, split, token),
        )
        if row["[applied]"]:
            return True
        # Without a head, loading says what is wrong. One with a higher token is another claim's.
        found = row.get("fence")
        return found is None or (found == token and self._heads.owner(split) == owner)

    def _is_mine(self, owner: str, split: str, token: int) -> bool:
        """Learn whether a claim that was not answered was applied all the same."""
        rows = self._session.rows(
            "SELECT owner, fence FROM leases WHERE job = ? AND bucket = ? AND split = ?",
            *self._lease(split),
            serial=True,
        )
        return bool(rows) and (rows[0]["owner"], rows[0]["fence"]) == (owner, token)

    def _beat(self, worker: str) -> None:
        """Write a worker's row anew; one that was not enrolled here has none."""
        if worker not in self._mine:
            return
        mine = self._mine[worker] = replace(self._mine[worker], beat=self._mine[worker].beat + 1)
        owner = mine.owner
        identity = (owner.host, owner.boot, owner.pid_space, owner.pid, owner.started)
        facts = (json.dumps(mine.places), mine.beat, json.dumps(mine.heirs), json.dumps(mine.wants))
        self._session.write([(_BEAT, (self._job, worker, *identity, *facts, WORKER_SECONDS))])

    def _lease(self, split: str) -> tuple[str, int, str]:
        return lease_key(self._job, split)


def _schema(row: Mapping[str, Any]) -> RecordSchema:  # Any: the driver's rows have no types.
    what = f"table schemas, {row['tbl']}, column"
    key, value = (document(row[part], f"{what} {part}") for part in ("key", "value"))
    return RecordSchema(row["tbl"], row["text"], row["schema_id"], key, value)

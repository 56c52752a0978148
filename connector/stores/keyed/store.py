"""The domain store: the state of one job, written once over a key-value backend.

The decided state of a split is one row, its head. An operation on several rows goes step by step,
and only the last step makes it visible: a lease is written before the head that it fences, chunks
before the head that lists them, the rows of a plan before the job's row that puts it in force. Each
step can be repeated after a crash.
"""

import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import msgspec

from headrace.connector.foundation import crash
from headrace.connector.stores import (
    ALL_JOBS,
    QUARANTINE_BYTES_MAX,
    Commit,
    KeptLoss,
    LeaseRow,
    Owner,
    Plan,
    PlanChangedError,
    Plans,
    Seen,
    SplitState,
    StateLostError,
    StoreUnavailableError,
    Succeed,
    Successor,
    WorkerRow,
)
from headrace.connector.stores.keyed.heads import Heads, Known
from headrace.connector.stores.keyed.losses import Losses
from headrace.connector.stores.keyed.mode_requests import ModeRequests
from headrace.connector.stores.keyed.publications import Publications
from headrace.connector.stores.keyed.rows import (
    JOB,
    PROBLEM,
    SCHEMAS,
    SINK,
    SPLIT,
    Head,
    JobRow,
    JobRows,
    PlanRow,
    Worker,
    counters_in,
    counts_of,
    named,
    pack,
)
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.stored import FORKED, JOB_KEY_BYTES, PLAN
from headrace.connector.stores.target_state import FORK_MARK
from headrace.plugins import EncodedPosition, HeadraceError, LeaseLostError, RecordSchema
from headrace.plugins.stores.kept_modes import KeptModes, last_kept
from headrace.plugins.stores.key_values import Change, Entry, Key, KeyValues

TRIES_MAX: Final = 10  # For rows that another process replaces meanwhile.
WORKER_MS: Final = 24 * 3_600_000  # How long a vanished worker is listed.


class Store:
    """The durable state of one job. A subclass names its backend.

    It belongs to one thread; a second thread opens a second store. Every write of a split's state
    is conditional on the fencing token (R7): nothing is accepted from an owner that was replaced.
    Any call may raise StoreUnavailableError: then nothing was done as far as known, and the call
    can be repeated.
    """

    config_class: ClassVar[type]
    values_class: ClassVar[type[KeyValues]]

    def __init__(
        self,
        values: KeyValues,
        job: str,
        *,
        quarantine_bytes_max: int = QUARANTINE_BYTES_MAX,
    ) -> None:
        """Own *values*, which belong to this thread."""
        self._values = values
        self._job = job
        self._rows = JobRows(values, job)
        self._losses = Losses(self._rows, bytes_max=quarantine_bytes_max)
        self._heads = Heads(self._rows, self._losses, self._in_force)
        self._heads.splits_of_all_plans = self._splits_of_all_plans
        self._leases: dict[str, tuple[int, LeaseRow]] = {}  # With stamps, as last read.
        self._enrolled: dict[str, WorkerRow] = {}  # Only this store writes their rows.
        self._splits: frozenset[str] = frozenset()  # In force, as last read.
        self._schemas_known: set[bytes] = set()

    @classmethod
    def open_job(
        cls,
        config: Any,  # noqa: ANN401 (a config_class)
        job: str,
        *,
        create: bool = True,
        quarantine_bytes_max: int = QUARANTINE_BYTES_MAX,
    ) -> Self:
        """Connect, and make the store if it is missing, unless *create* is False.

        Raises:
            MissingRequirementError: the store cannot be used from here.

        """
        values = cls.values_class.open(config, create=create)
        return cls(values, job, quarantine_bytes_max=quarantine_bytes_max)

    @classmethod
    def open_notes(
        cls,
        config: Any,  # noqa: ANN401 (a config_class)
        *,
        beside: Path,
        file: Path | None = None,
        create: bool = True,
        space: str = ALL_JOBS,
    ) -> NoteCopy:
        """Open the notes of all jobs, as `open_job`. Another thread may close them.

        For *beside* and *file* see `NoteCopy`. Each *space* has notes of its own.
        """
        values = cls.values_class.open(config, create=create)
        return NoteCopy(values, space, partial(cls, values), beside=beside, file=file)

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        self._values.close()

    # The job and its plans.

    def job_key(self) -> bytes:
        """Return the job's 16 secret random bytes, made once."""
        return self._made_job()[1].key

    def begin_run(self, file: str) -> bytes:
        """Return the job's key, and store the job *file* that it runs with: its absolute path."""
        for _ in range(TRIES_MAX):
            stamp, row = self._made_job(file)
            now = msgspec.structs.replace(row, file=file)
            if now == row or self._change_job(stamp, {JOB: pack(now)}):
                return row.key
        raise self._replaced()

    def job_file(self) -> str:
        """Return the last job file given to `begin_run`; empty if there was none."""
        found = self._found_job()
        return found[1].file if found else ""

    def _made_job(self, file: str = "") -> tuple[int, JobRow]:
        """Return the job's row with its stamp; if it is missing it is made, with *file*."""
        for _ in range(TRIES_MAX):
            if found := self._found_job():
                self._check_key(found[1])
                return found
            if (there := self._traces()) and not self._found_job():
                raise self._rows.lost(f"the job's row is missing, but it has {there}")
            made = JobRow(secrets.token_bytes(JOB_KEY_BYTES), plan=PLAN, splits=[], file=file)
            if stamp := self._change_job(None, {JOB: pack(made)}):
                return stamp, made
        raise self._replaced()

    def _replaced(self) -> StoreUnavailableError:
        return StoreUnavailableError("its row is replaced all the time", place=f"job {self._job}")

    def take_key(self, key: bytes) -> None:
        """Take the secret key of another job, by which its states identify mutations."""
        # It may have a row: a process read the job, or stored why it cannot run.
        stamp, row = self._found_job() or (None, JobRow(key=key, plan=PLAN, splits=[]))
        self._change_job(stamp, {JOB: pack(msgspec.structs.replace(row, key=key))})

    def _traces(self) -> str:
        """Describe the data of a job without a row; empty for a new job."""
        found = self._values.scan([*self._rows.buckets, self._rows.seen])
        if any(key.partition != self._rows.seen for key in found):
            return "leases"
        is_seen = any(key.name.startswith(SPLIT) and key.name != SPLIT for key in found)
        return "rows of what was seen of its splits" if is_seen else ""

    def _check_key(self, row: JobRow) -> None:
        if len(row.key) != JOB_KEY_BYTES:
            what = f"the job's key has {len(row.key)} bytes, expected {JOB_KEY_BYTES}"
            raise self._rows.lost(what)

    def register(self, splits: Sequence[str]) -> int:
        """Register the job's splits and return the plan generation.

        Raises:
            PlanChangedError: a registered split is missing from *splits*.
            StateLostError: a registered split has no lease or no head.

        """
        for _ in range(TRIES_MAX):
            stamp, row = self._made_job()
            gone = sorted(set(row.splits) - set(splits))
            if gone:
                raise PlanChangedError(
                    f"the source plans {len(splits)} splits, without {gone[0]!r}, which has state",
                    place=f"job {self._job}",
                    hint="restore the option that decides the splits, or give the job a new name",
                )
            if row.splits:
                leases = self._with_leases()
                self._check_registered(row, leases)
                self._clean(leases.difference(row.splits))
            new = [split for split in splits if split not in row.splits]
            whole = msgspec.structs.replace(row, splits=[*row.splits, *new])
            if not new or self._add_splits(stamp, whole, new):
                self._splits = frozenset(whole.splits)
                return row.plan
        raise StoreUnavailableError("others register splits all the time", place=self._job)

    def _add_splits(self, stamp: int, whole: JobRow, new: Sequence[str]) -> int:
        """Make *new* splits, then put them in force; return the job's stamp, 0 as `_change_job`."""
        with self._values.grouped():  # A start waits for each disk write.
            self._make(new, whole.plan)
            return self._change_job(stamp, {JOB: pack(whole)})

    def _with_leases(self) -> set[str]:
        """Return the splits that have a lease, of all plans."""
        return {key.name for key in self._values.scan(self._rows.buckets)}

    def _check_registered(self, row: JobRow, leases: Collection[str]) -> None:
        heads = self._heads.read(row.splits)
        for split in row.splits:
            for kind, found in (("lease", leases), ("head", heads)):
                if split not in found:
                    raise self._rows.lost(f"the split is known, but has no {kind}", split)
            plan = heads[split].head.plan
            if abs(plan) != row.plan:
                raise self._rows.lost(f"head: found plan {plan}, expected {row.plan}", split)

    def _make(self, splits: Sequence[str], plan: int) -> None:
        """Make leases and heads that do not exist yet."""
        kept_in = FORKED if FORK_MARK in self._job else ""
        head = Head(plan=plan, token=0, owner=None, seq=0, kept_in=kept_in)
        heads = [self._rows.head_change(split, None, head) for split in splits]
        leases = self._free_leases(splits)
        if None in self._values.change([*leases, *heads]):
            raise StoreUnavailableError("whether splits were registered is not known")

    def plans(self) -> Plans:
        """Return the job's plans; for an unregistered job a plan without splits."""
        rows = self._values.scan([self._rows.job])
        key = Key(self._rows.job, JOB)
        in_force = JobRow(key=b"", plan=PLAN, splits=[])
        if key in rows:
            in_force = self._rows.unpack(JobRow, key, rows[key])
        kept = [self._plan(key, entry) for key, entry in rows.items() if key.name != JOB]
        kept.sort(key=lambda plan: plan.number)
        return Plans.of(Plan(number=in_force.plan, splits=tuple(in_force.splits)), kept)

    def _plan(self, key: Key, entry: Entry) -> Plan:
        row = self._rows.unpack(PlanRow, key, entry)
        return Plan(
            number=named(key, int, self._values),
            splits=tuple(row.splits),
            books=row.books,
            counters=counters_in(row.counters),
        )

    def announce(self, splits: Sequence[str], *, after: int) -> None:
        """Announce that *splits* will replace plan *after*, if it is in force.

        An earlier announcement stays: of two concurrent ones, one wins.
        """
        name = str(after + 1)
        found = self._found_job()
        if found and found[1].plan == after:
            change = Change(
                partition=self._rows.job,
                expected={JOB: found[0], name: None},
                rows={name: pack(PlanRow(splits=list(splits)))},
            )
            if self._values.change([change])[0] is None:
                raise StoreUnavailableError("whether the plan was announced is not known")
        crash.reached("plan_announced")

    def replan(self, owner: str, tokens: Mapping[str, int], succeed: Succeed) -> None:
        """Put the announced plan in force, atomically, even if the process is killed.

        *tokens* are those of all splits in force, which *owner* has claimed. *succeed* is given
        their states, which no worker can change any more. Heads and leases of the new splits carry
        a token above all of those. Losses of the old ones are kept; the worker with the first new
        split sends them.

        First the heads of the old plan are closed: no worker commits to them any more, so a repeat
        after a crash gives the same result. The heads of the new plan are replaced on condition
        that they are as read while the old plan was in force, so a late worker changes nothing.

        Raises:
            LeaseLostError: another worker claimed a split, or put a plan in force. Read again.

        """
        for split, token in tokens.items():
            there = self._heads.read([split]).get(split)
            if there and there.head.plan > 0:  # Else the worker that started with it did so.
                self.load(split, token)  # Exactly once, the sink may have a newer state.
        states = self._close(owner, tokens)
        successor = succeed(states)
        plans = self.plans()
        before, plan = plans.in_force, plans.announced
        known = self._heads.read((plan and plan.splits) or ())
        stamp, row = self._job_row()
        if plan is None or row.plan != before.number or set(row.splits) != set(tokens):
            raise self._another_plan()
        self._put_plan(plan, successor, known, states)
        ended = PlanRow(
            splits=row.splits,
            books=dict(successor.books),
            counters=counts_of(successor.counters),
        )
        now = msgspec.structs.replace(row, plan=plan.number, splits=list(plan.splits))
        crash.reached("plan_made")
        if not self._change_job(stamp, {JOB: pack(now), str(row.plan): pack(ended)}):
            raise self._another_plan()
        crash.reached("plan_changed")
        self._splits = frozenset(plan.splits)
        self._clean(self._with_leases())

    def _close(self, owner: str, tokens: Mapping[str, int]) -> Sequence[SplitState]:
        """Prevent any load or commit of these splits; return their states."""
        if set(self._names_in_force()) != set(tokens):
            raise self._another_plan()
        for split, token in tokens.items():

            def closed(head: Head, split: str = split, token: int = token) -> Mapping[str, int]:
                if (head.token, head.owner) != (token, owner):
                    raise LeaseLostError("another worker claimed it", place=f"split {split}")
                return {"plan": -abs(head.plan)}

            self._heads.update(split, closed)
        try:
            states = [self._heads.state(split) for split in tokens]
        except StateLostError as error:
            if set(self._names_in_force()) != set(tokens):  # Another worker was faster.
                raise self._another_plan() from error
            raise
        for state in states:
            self._losses.forget_after(state.split, state.seq, state.token)
        return states

    def _clean(self, splits: Collection[str]) -> None:
        """Remove leases and chunks of splits whose plans ended: a lease after the chunks.

        Splits without a plan stay: another process may be making them.
        """
        if not splits:
            return
        plans = self.plans()
        announced = plans.announced.splits if plans.announced else ()
        ended = {split for plan in plans.ended for split in plan.splits}
        for split in ended.intersection(splits).difference(plans.in_force.splits, announced):
            self._heads.drop_chunks(split)
            self._remove_lease(split)

    def _put_plan(
        self,
        plan: Plan,
        successor: Successor,
        known: Mapping[str, Known],
        states: Sequence[SplitState],
    ) -> None:
        """Write heads and leases of a plan that is not in force yet, with tokens above all."""
        moved = 1 + max(self._heads.copied(state.split).moved for state in states)
        modes = last_kept(state.modes for state in states)
        tokens = [state.token for state in states] + [each.head.token for each in known.values()]
        changes = []
        for split in plan.splits:
            there = known.get(split)
            # A reused name continues its numbers, because losses under them are kept.
            seq = there.head.seq if there else 0
            head = Head(
                plan=plan.number,
                token=1 + max(tokens),
                owner=None,
                seq=seq,
                moved=moved,
                modes=modes,
            )
            changes.append(self._heads.restart(split, there, head, successor.positions[split]))
        if not self._all_applied(changes):
            raise self._another_plan()
        self._all_applied(self._free_leases(plan.splits, token=1 + max(tokens)))

    def _another_plan(self) -> LeaseLostError:
        return LeaseLostError("the plan is another one by now", place=f"job {self._job}")

    def _all_applied(self, changes: Sequence[Change]) -> bool:
        """Apply changes; return whether all were. Raises StoreUnavailableError if unknown."""
        outcomes = self._values.change(changes)
        if None in outcomes:
            raise StoreUnavailableError("what was written is not known: repeat it")
        return all(outcomes)

    def _in_force(self) -> tuple[int, Sequence[str]] | None:
        found = self._found_job()
        return (found[1].plan, found[1].splits) if found else None

    def _names_in_force(self) -> Sequence[str]:
        plan = self._in_force()
        return plan[1] if plan else ()

    def _splits_of_all_plans(self) -> Sequence[str]:
        plans = self.plans()
        return sorted({s for plan in (plans.in_force, *plans.ended) for s in plan.splits})

    def _job_row(self) -> tuple[int, JobRow]:
        found = self._found_job()
        if found is None:
            raise self._rows.lost("the job's row is missing")
        return found

    def _found_job(self) -> tuple[int, JobRow] | None:
        """Return the stamp of the job's row, and the row; None if the job does not exist."""
        return self._rows.row(JobRow, Key(self._rows.job, JOB))

    def _change_job(self, stamp: int | None, rows: Mapping[str, bytes | None]) -> int:
        """Replace rows of the job; return the new stamp, or 0 if its row has changed."""
        change = Change(partition=self._rows.job, expected={JOB: stamp}, rows=rows)
        return change.stamp if self._all_applied([change]) else 0

    # Workers and leases.

    def enroll(self, owner: Owner, places: Sequence[str] = ()) -> None:
        """Add a worker; *places* are local to it."""
        row = WorkerRow(owner, beat=0, places=tuple(places))
        self._enrolled[owner.worker] = row
        worker = Worker(row, _now_ms())
        self._values.put({Key(self._rows.workers, owner.worker): pack(worker)})

    def dismiss(self, worker: str) -> None:
        """Remove a worker and free the leases it still holds."""
        for row in self.leases():
            if row.owner == worker:
                self.release(worker, row.split, row.token, row.problem)
        self._enrolled.pop(worker, None)
        self._values.put({Key(self._rows.workers, worker): None})

    def workers(self) -> Sequence[WorkerRow]:
        """Return all workers of the job. Here a worker detects that its store is gone."""
        self._values.check()
        now_ms, found = _now_ms(), []
        for _, worker in self._rows.scan(Worker, [self._rows.workers]).values():
            silent_ms = max(0, now_ms - worker.beat_ms)
            if silent_ms < WORKER_MS:
                found.append(replace(worker.row, silent_ms=silent_ms))
        return found

    def offer(self, worker: str, handover_targets: Sequence[str]) -> None:
        """Publish that splits are being handed over to *handover_targets* only."""
        self._values.put(self._beat(worker, handover_targets=tuple(handover_targets)))

    def want(self, worker: str, splits: Sequence[str]) -> None:
        """Publish that *worker*, which is enrolled, asks for *splits*."""
        self._values.put(self._beat(worker, wants=tuple(splits)))

    def _beat(self, worker: str, **fields: Any) -> dict[Key, bytes]:  # noqa: ANN401 (of a WorkerRow)
        """Return the row that increases a worker's beat and replaces *fields*, if enrolled."""
        row = self._enrolled.get(worker)
        if row is None:
            return {}
        self._enrolled[worker] = row = replace(row, beat=row.beat + 1, **fields)
        return {Key(self._rows.workers, worker): pack(Worker(row, _now_ms()))}

    def leases(self) -> Sequence[LeaseRow]:
        """Return the leases of all registered splits, by name.

        Raises:
            StateLostError: a split of the plan in force has none.

        """
        for _ in range(TRIES_MAX):
            rows = self._rows.scan(LeaseRow, self._rows.buckets)
            self._leases = {key.name: each for key, each in rows.items()}
            if self._leases.keys() == self._splits:
                break
            before, self._splits = self._splits, frozenset(self._names_in_force())
            missing = self._splits - self._leases.keys()
            if not missing:
                break
            if before == self._splits:  # Leases exist before their plan is in force.
                raise self._rows.lost("the split is known, but has no lease", min(missing))
        return [self._leases[split][1] for split in sorted(self._splits)]

    def claim(self, owner: str, rows: Sequence[LeaseRow], lease_ms: int) -> Mapping[str, int]:
        """Claim the leases that still equal *rows*; return the new tokens.

        A new token is greater than that of the lease and of the head, and is written to both before
        this returns: from then on the former owner cannot commit. The beat of the worker *owner*
        increases first: if it does not change for a lease time, all its leases have expired.
        """
        beat = self._beat(owner)
        heads = self._heads.read([row.split for row in rows])
        seen = ((row, self._leases.get(row.split)) for row in rows)
        # The stamp of a row that was read here is known, and decides.
        there = {row.split: known for row, known in seen if known and known[1] == row}
        if len(there) < len(rows):
            there |= self._leases_of({row.split for row in rows} - there.keys())
        tokens: dict[str, int] = {}
        changes: dict[str, tuple[Change, LeaseRow]] = {}
        for row in rows:
            stamp, lease = there.get(row.split, (0, None))
            if lease is None or lease != row:
                continue
            known = heads.get(row.split)
            tokens[row.split] = 1 + max(row.token, known.head.token if known else 0)
            taken = msgspec.structs.replace(
                lease,
                owner=owner,
                token=tokens[row.split],
                beat=row.beat + 1,
                lease_ms=lease_ms,
                problem="",
            )
            changes[row.split] = self._rows.lease_change(row.split, stamp, taken), taken
        with self._values.grouped():  # One disk write; other backends write leases first.
            mine = self._apply_leases(changes, beat)
            fenced = self._heads.claim(owner, {split: tokens[split] for split in mine}, heads)
        return {split: tokens[split] for split in mine if split in fenced}

    def renew(
        self, owner: str, tokens: Mapping[str, int], rates: Mapping[str, int] | None = None
    ) -> frozenset[str]:
        """Renew the worker and its leases; return the splits whose lease another worker took.

        *rates* are the bytes a second of splits; other splits keep their rates.
        """
        known = rates or {}

        def renewed(lease: LeaseRow) -> LeaseRow | None:
            if (lease.owner, lease.token) != (owner, tokens[lease.split]):
                return None
            rate = known.get(lease.split, lease.rate)
            return msgspec.structs.replace(lease, beat=lease.beat + 1, rate=rate)

        return frozenset(tokens) - self._update_leases(tokens, renewed, self._beat(owner))

    def release(self, owner: str, split: str, token: int, problem: str = "") -> None:
        """Free a lease; *problem* stays visible until the next claim."""

        def freed(lease: LeaseRow) -> LeaseRow | None:
            if (lease.owner, lease.token) != (owner, token):
                return None
            return msgspec.structs.replace(lease, owner=None, problem=problem)

        self._update_leases([split], freed)

    def _update_leases(
        self,
        splits: Collection[str],
        updated: Callable[[LeaseRow], LeaseRow | None],
        beat: Mapping[Key, bytes] | None = None,
    ) -> frozenset[str]:
        """Replace leases; return the splits of those replaced. None: a lease stays as it is.

        *beat* is the row of the calling worker.
        """
        done = set[str]()
        there = {split: self._leases[split] for split in splits if split in self._leases}
        waiting = set(splits)
        for _ in range(TRIES_MAX):
            there |= self._leases_of(waiting - there.keys())
            changes: dict[str, tuple[Change, LeaseRow]] = {}
            stale = set[str]()
            for split in waiting & there.keys():
                stamp, lease = there[split]
                new = updated(lease)
                if new is not None:
                    changes[split] = self._rows.lease_change(split, stamp, new), new
                elif self._leases.get(split) == (stamp, lease):
                    stale.add(split)  # It may have changed.
            done.update(self._apply_leases(changes, beat or {}))
            beat = None
            waiting = (changes.keys() - done) | stale
            if not waiting:
                return frozenset(done)
            for split in waiting:
                there.pop(split, None)
                self._leases.pop(split, None)
        raise StoreUnavailableError("leases are replaced all the time", place=min(waiting))

    def _leases_of(self, splits: Collection[str]) -> dict[str, tuple[int, LeaseRow]]:
        """Return the newest leases of *splits*, with their stamps."""
        rows = self._rows.read(LeaseRow, [self._rows.lease(split) for split in splits])
        return {key.name: each for key, each in rows.items()}

    def _apply_leases(
        self, changes: Mapping[str, tuple[Change, LeaseRow]], beat: Mapping[Key, bytes]
    ) -> Collection[str]:
        """Replace leases, and *beat* first; return the splits of the replaced ones."""
        outcomes = self._values.change([change for change, _ in changes.values()], beat)
        if None in outcomes:  # Another worker may have the lease already.
            raise StoreUnavailableError("whether leases were written is not known")
        done = [split for split, each in zip(changes, outcomes, strict=True) if each]
        self._leases |= {s: (changes[s][0].stamp, changes[s][1]) for s in done}
        return done

    def _free_leases(self, splits: Sequence[str], token: int = 0) -> list[Change]:
        """Return the changes that make leases that do not exist yet."""
        free = LeaseRow(split="", owner=None, token=token, beat=0, lease_ms=0)
        rows = [msgspec.structs.replace(free, split=split) for split in splits]
        return [self._rows.lease_change(row.split, None, row) for row in rows]

    def _remove_lease(self, split: str) -> None:
        there = self._leases_of([split]).get(split)
        if there:
            self._all_applied([self._rows.lease_change(split, there[0], None)])
        self._leases.pop(split, None)

    # States.

    def load(self, split: str, token: int) -> SplitState:
        """Return the state of a claimed split.

        Raises:
            LeaseLostError: the head carries a higher token.
            StateLostError: the head or one of its chunks is missing.

        """
        return self._heads.load(split, token, forgets=True)

    def states(self) -> Sequence[SplitState]:
        """Return the committed state of every split, without claiming anything."""
        return [self._heads.state(split) for split in sorted(self._names_in_force())]

    def changed_states(
        self, stamps: Mapping[str, int]
    ) -> tuple[dict[str, int], Sequence[SplitState]]:
        """Return the stamp of every split's state, and the states whose stamp is not in *stamps*.

        Each commit changes the stamp.
        """
        return self._heads.changed(sorted(self._names_in_force()), stamps)

    def commit(self, commits: Sequence[Commit]) -> Mapping[str, HeadraceError]:
        """Replace the states of several splits, each atomically; return why some were not replaced.

        Raises:
            StoreUnavailableError: their outcome is unknown. Repeat all: a commit that was applied
                after all is recognised.

        """
        return self._heads.commit(commits)

    def state_copies(self) -> Heads:
        """Return the heads of the job."""
        return self._heads

    def reposition(
        self, positions: Mapping[str, EncodedPosition | None], *, busy: Collection[str] = ()
    ) -> None:
        """Set the positions of splits, each atomically; None: the split starts over.

        Their former owners can no longer commit (I2).

        Raises:
            LeaseLostError: one of the workers *busy* owns one of the splits, or claimed it
                meanwhile; or other splits replace it.

        """
        for row in self.leases():
            if row.split in positions and row.owner in busy:
                raise LeaseLostError("a worker owns it", place=f"split {row.split}")
        changes = []
        for split, position in positions.items():
            known = self._heads.head(split)
            if known.head.plan < 0:
                raise LeaseLostError("other splits are made of it", place=f"split {split}")
            head = msgspec.structs.replace(
                _set_by_command(known.head), counters=known.head.counters if position else {}
            )
            changes.append(self._heads.restart(split, known, head, position))
        self._put_heads(changes)

    def _put_heads(self, changes: Sequence[Change]) -> None:
        if not self._all_applied(changes):
            raise LeaseLostError("another worker claimed a split", place=f"job {self._job}")

    def become_copy(self, of: str, *, busy: Collection[str]) -> bool:
        """Continue from a copy of the committed state of job *of*; forget this job's own.

        The counters of this job start over (I3). Returns False and changes nothing while one of the
        workers *busy* owns a split of the other.
        """
        other = self._other(of)
        if {row.owner for row in other.leases()} & set(busy) or other.state_copies().behind():
            return False
        _, theirs = other._made_job()  # noqa: SLF001 (of the same class)
        states = [other._fence_off(split) for split in theirs.splits]  # noqa: SLF001 (likewise)
        known = self._heads.read(theirs.splits)
        self._forget(set(self._splits_of_all_plans()) - set(theirs.splits))
        changes = []
        for state in states:
            there = known.get(state.split)
            head = Head(  # I3: the other job's own books have its past.
                plan=state.plan,
                token=1 + max(state.token, there.head.token if there else 0),
                owner=None,
                seq=state.seq,
                kept_in=FORKED,
                modes=state.modes,
            )
            changes.append(self._heads.restart(state.split, there, head, state.position))
        self._put_heads(changes)
        self._all_applied(self._free_leases(theirs.splits))
        self._become(theirs)
        return True

    def begin_beside(self, job: str) -> None:
        """Start over with the secret key of *job*; forget this job's own state."""
        key = self._other(job).job_key()
        self._forget(self._splits_of_all_plans())
        self._become(JobRow(key=key, plan=PLAN, splits=[]))

    def _fence_off(self, split: str) -> SplitState:
        """Fence the owner of a split (I2), and return its state."""
        self._heads.update(split, lambda head: {"token": head.token + 1, "owner": None})
        return self._heads.state(split)

    def _become(self, row: JobRow) -> None:
        """Give the job a key and a plan, which replace its old ones."""
        there = self._values.scan([self._rows.job])
        gone: dict[str, bytes | None] = {key.name: None for key in there}
        entry = there.get(Key(self._rows.job, JOB))
        if not self._change_job(entry.stamp if entry else None, {**gone, JOB: pack(row)}):
            raise StoreUnavailableError("another process wrote to it", place=f"job {self._job}")
        self._splits = frozenset(row.splits)

    def _forget(self, splits: Collection[str]) -> None:
        """Remove the data of *splits*."""
        for split in splits:
            self._heads.forget(split)
            self._remove_lease(split)

    def _other(self, job: str) -> "Store":
        return Store(self._values, job, quarantine_bytes_max=0)

    # Modes.

    def keep_modes(
        self, owner: str, tokens: Mapping[str, int], modes: Mapping[str, KeptModes]
    ) -> Mapping[str, HeadraceError]:
        """Store the *modes* in which *owner* reads, by split; return why some were not stored.

        They are fenced like positions (I2).
        """
        refused: dict[str, HeadraceError] = {}
        with self._values.grouped():
            for split, kept in modes.items():
                try:
                    self._heads.keep_modes(split, tokens[split], owner, kept)
                except (LeaseLostError, StateLostError) as error:
                    refused[split] = error
        return refused

    def modes(self) -> Mapping[str, KeptModes | None]:
        """Return the modes that the owner of each split stored last."""
        return self._heads.modes(self._names_in_force())

    def mode_requests(self) -> ModeRequests:
        """Return the requests for modes, over the same connection."""
        return ModeRequests(self._rows)

    # Data beside the states.

    def put_schemas(self, schemas: Sequence[RecordSchema]) -> None:
        """Store schemas under their ids; a known id is unchanged."""
        new = {
            Key(SCHEMAS, schema.schema_id.hex()): pack(schema)
            for schema in schemas
            if schema.schema_id not in self._schemas_known
        }
        if new:
            self._values.put(new)
        self._schemas_known.update(schema.schema_id for schema in schemas)

    def schema(self, schema_id: bytes) -> RecordSchema | None:
        """Return a schema, or None when the id is unknown."""
        found = self._rows.row(RecordSchema, Key(SCHEMAS, schema_id.hex()))
        return found and found[1]

    def schemas(self) -> Sequence[RecordSchema]:
        """Return all schemas, of all jobs."""
        return [schema for _, schema in self._rows.scan(RecordSchema, [SCHEMAS]).values()]

    def publications(self) -> Publications:
        """Return the queue of the job's schemas, over the same connection."""
        return Publications(self._rows)

    def losses(self, numbers: Sequence[int] | None = None) -> Iterator[KeptLoss]:
        """Return all quarantined and dead-lettered items, or only *numbers*, oldest first."""
        return self._losses.all(self._committed(), numbers)

    def unsent_losses(self, splits: Sequence[str], *, bytes_max: int) -> Sequence[KeptLoss]:
        """Return the oldest losses of *splits* that are not in the topic for dead letters yet.

        At least one, if there is any, then as many as fit in *bytes_max*.
        """
        committed = self._committed()
        in_force = sorted(self._names_in_force())
        # The worker that owns the first split sends those of splits that no longer exist.
        gone = set(committed) - set(in_force) if in_force[:1] == sorted(splits)[:1] else set()
        chosen = {split: seq for split, seq in committed.items() if split in {*splits, *gone}}
        return self._losses.unsent(chosen, bytes_max=bytes_max)

    def mark_losses_sent(self, numbers: Sequence[int]) -> None:
        """Record that they are in the topic for dead letters."""
        self._losses.mark_sent(self._committed(), numbers)

    def remove_losses(self, losses: Sequence[KeptLoss]) -> None:
        """Remove losses that were delivered after all, or are not wanted."""
        self._losses.remove(losses)

    def _committed(self) -> dict[str, int]:
        """Return the number of each split's head, including those of ended plans."""
        heads = self._heads.read(self._splits_of_all_plans())
        return {split: known.head.seq for split, known in heads.items()}

    def see(self, rows: Sequence[Seen]) -> None:
        """Replace observed states, except of splits that others own; the times are the store's."""
        leases, now_ms = self._leases_of([row.split for row in rows if row.split]), _now_ms()
        owners = {split: lease.owner for split, (_, lease) in leases.items()}
        ours = [row for row in rows if owners.get(row.split) in {None, row.worker}]
        keys = [Key(self._rows.seen, SPLIT + row.split) for row in ours]
        before = self._rows.read(Seen, keys)
        found: dict[Key, bytes | None] = {}
        for key, each in zip(keys, ours, strict=True):
            _, last = before.get(key, (0, None))
            since_ms = last.since_ms if last is not None and last.state is each.state else now_ms
            found[key] = pack(msgspec.structs.replace(each, since_ms=since_ms, seen_ms=now_ms))
        if found:
            self._values.put(found)

    def seen(self) -> Mapping[str, Seen]:
        """Return the observed state of each split, and that of the job under the empty name."""
        found = [
            self._rows.unpack(Seen, key, entry)
            for key, entry in self._values.scan([self._rows.seen]).items()
            if key.name.startswith(SPLIT)
        ]
        return {each.split: each for each in found}

    def note_sink(self, host: str, mark: str) -> None:
        """Store *mark*, which identifies the sink that the job opened on *host*."""
        self._values.put({Key(self._rows.seen, SINK + host): pack(mark)})

    def opened_sink(self, host: str) -> str | None:
        """Return the mark of the sink that the job last opened on *host*; None if it never did."""
        found = self._rows.row(str, Key(self._rows.seen, SINK + host))
        return found and found[1]

    def report(self, problem: str) -> None:
        """Store why the job as a whole cannot run; an empty text says that it can."""
        key, said = Key(self._rows.seen, PROBLEM), pack(problem)
        entry = self._values.row(key)
        if said != (entry.value if entry else pack("")):  # Each run reports twice that it can.
            self._values.put({key: said})

    def problem(self) -> str:
        """Return the last reported problem."""
        found = self._rows.row(str, Key(self._rows.seen, PROBLEM))
        return found[1] if found else ""


@cache
def store_over(values: type[KeyValues]) -> type[Store]:
    """Return the class of stores over a backend."""
    members = {"config_class": values.config_class, "values_class": values}
    return type(f"{values.__name__}Store", (Store,), members)


def _set_by_command(head: Head) -> Head:
    """Return a head that outranks *head* and the state in a sink."""
    return msgspec.structs.replace(
        head,
        token=head.token + 1,
        owner=None,
        seq=head.seq + 1,
        moved=head.moved + 1,
        kept_in=FORKED if head.kept_in == FORKED else "",
        behind=False,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""What nobody runs in Cassandra: other positions for its splits, and jobs that part from others.

Each head is written on condition, with a token above those that were given: whoever owned a split
before, wherever he is, commits nothing any more (I2).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from headrace.connector.stores import (
    Counters,
    StateLostError,
    StoreUnavailableError,
)
from headrace.connector.stores.cassandra_losses import CassandraLosses
from headrace.connector.stores.cassandra_plans import CassandraPlans
from headrace.connector.stores.cassandra_session import CassandraSession
from headrace.connector.stores.cassandra_state import NEW_LEASE, CassandraHeads, lease_key
from headrace.connector.stores.state_copies import Copied
from headrace.connector.stores.stored import PARTED, PLAN
from headrace.plugins import EncodedPosition, LeaseLostError

_FORGET: Final = tuple(
    f"DELETE FROM {table} WHERE job = ?"  # noqa: S608 (constants)
    for table in ("seen", "workers", "plans")
)


class CassandraParting:
    """The splits of one job, while nobody runs it. Belongs to the session's thread."""

    def __init__(
        self,
        session: CassandraSession,
        job: str,
        heads: CassandraHeads,
        plans: CassandraPlans,
    ) -> None:
        """Look at nothing yet."""
        self._session = session
        self._job = job
        self._heads = heads
        self._plans = plans

    def reposition(self, positions: Mapping[str, EncodedPosition | None]) -> None:
        """Do what `Store.reposition` promises, of splits that nobody owns."""
        heads = []
        for split, position in positions.items():
            state = self._heads.state(split)
            if state.plan < 0:
                raise LeaseLostError("its job becomes one with another", place=f"split {split}")
            counters = state.counters if position else {}
            after = replace(
                state,
                token=state.token + 1,
                seq=state.seq + 1,
                position=position,
                counters=counters,
            )
            heads.append(self._heads.anew(after, self._moved(split), is_known=True))
        self._put(heads)

    def become_copy(self, of: str) -> None:
        """Do what `Store.become_copy` promises, of a job that nobody runs."""
        losses = CassandraLosses(self._session, of, bytes_max=0)
        others = CassandraHeads(self._session, of, losses)
        plan = CassandraPlans(self._session, of, others, losses).in_force()
        states = [others.fence_off(split) for split in plan.splits]
        known = self._tokens(plan.splits)
        self._forget([split for split in self._plans.in_force().splits if split not in plan.splits])
        heads = [
            self._heads.anew(
                replace(
                    state,
                    token=1 + max(state.token, known.get(state.split, 0)),
                    counters={},  # I3: what the other job did before is in its own books.
                ),
                Copied(PARTED, 0),
                is_known=state.split in known,
            )
            for state in states
        ]
        self._put(heads)
        self._apply([(NEW_LEASE, (*lease_key(self._job, s), 0)) for s in plan.splits])
        self._become(of, plan.number, plan.splits)

    def begin_beside(self, job: str) -> None:
        """Do what `Store.begin_beside` promises."""
        self._forget(self._plans.in_force().splits)
        self._become(job, PLAN, ())

    def thaw(
        self, tokens: Mapping[str, int], states: Mapping[str, tuple[EncodedPosition, Counters]]
    ) -> None:
        """Do what `Store.thaw` promises: a token after that of the claim keeps out all others."""
        plan, heads = self._plans.in_force().number, []
        for split, token in tokens.items():
            state = self._heads.state(split)
            if state.plan > 0:
                continue
            position, counters = states.get(split, (state.position, state.counters))
            after = replace(
                state,
                plan=plan,
                token=token + 1,
                seq=state.seq + 1,
                position=position,
                counters=counters,
            )
            heads.append(self._heads.anew(after, self._moved(split), is_known=True))
        self._put(heads)

    def inherit(self, of: str) -> None:
        """Do what `Store.inherit` promises."""
        losses = CassandraLosses(self._session, of, bytes_max=0)
        heads = CassandraHeads(self._session, of, losses)
        other = CassandraParting(
            self._session, of, heads, CassandraPlans(self._session, of, heads, losses)
        )
        splits = other.splits()
        plans = self._session.rows_of(
            "SELECT plan FROM heads WHERE job = ? AND split = ?", [(of, split) for split in splits]
        )
        if any((row["plan"] or 0) > 0 for row in plans):
            raise LeaseLostError("is not frozen", place=f"job {of}")
        mine = CassandraLosses(self._session, self._job, bytes_max=0)
        mine.inherit(losses, splits, into=self._plans.in_force().splits)
        other.forget()

    def splits(self) -> Sequence[str]:
        """Return the splits of all plans."""
        plans = self._plans.all()
        return sorted({s for plan in (plans.in_force, *plans.ended) for s in plan.splits})

    def forget(self) -> None:
        """Remove the job; what names its splits goes last."""
        self._forget(self.splits())
        self._session.write([(statement, (self._job,)) for statement in _FORGET])
        self._session.apply("DELETE FROM jobs WHERE job = ? IF EXISTS", self._job)

    def _moved(self, split: str) -> Copied:
        """Return what is known of a head when its position has been set once more."""
        copied = self._heads.copied(split)
        return Copied(PARTED if copied.kept_in == PARTED else "", copied.moved + 1)

    def _become(self, of: str, plan: int, splits: Sequence[str]) -> None:
        """Give the job the key of another, and a plan."""
        rows = self._session.rows("SELECT job_key FROM jobs WHERE job = ?", of, serial=True)
        if not rows:
            raise StateLostError("there is no such job", place=f"job {of}")
        self._session.write([("DELETE FROM plans WHERE job = ?", (self._job,))])
        text = json.dumps(list(splits))
        made = self._session.apply(
            "INSERT INTO jobs (job, job_key, plan, splits) VALUES (?, ?, ?, ?) IF NOT EXISTS",
            *(self._job, rows[0]["job_key"], plan, text),
        )
        if not made["[applied]"]:
            self._session.apply(
                "UPDATE jobs SET job_key = ?, plan = ?, splits = ? WHERE job = ? IF EXISTS",
                *(rows[0]["job_key"], plan, text, self._job),
            )

    def _forget(self, splits: Sequence[str]) -> None:
        """Remove what the job kept of *splits*."""
        for split in splits:
            self._apply(
                [
                    ("DELETE FROM heads WHERE job = ? AND split = ? IF EXISTS", (self._job, split)),
                    (
                        "DELETE FROM leases WHERE job = ? AND bucket = ? AND split = ? IF EXISTS",
                        lease_key(self._job, split),
                    ),
                ]
            )
            self._session.write(
                [("DELETE FROM chunks WHERE job = ? AND split = ?", (self._job, split))]
            )

    def _tokens(self, splits: Sequence[str]) -> Mapping[str, int]:
        rows = self._session.rows_of(
            "SELECT split, fence FROM heads WHERE job = ? AND split = ?",
            [(self._job, split) for split in splits],
        )
        return {row["split"]: row["fence"] for row in rows if row["fence"] is not None}

    def _put(self, heads: Sequence[tuple[str, Sequence[object]]]) -> None:
        if not all(self._apply(heads)):
            raise LeaseLostError("somebody claimed a split meanwhile", place=f"job {self._job}")

    def _apply(self, statements: Sequence[tuple[str, Sequence[object]]]) -> Sequence[bool]:
        outcomes = self._session.apply_all(statements)
        if None in outcomes:
            raise StoreUnavailableError("what was written is not known: repeat it")
        return [bool(outcome and outcome["[applied]"]) for outcome in outcomes]

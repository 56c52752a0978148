"""What nobody runs in Cassandra: other positions for its splits, and jobs that part from others.

Each head is written on condition, with a token above those that were given: whoever owned a split
before, wherever he is, commits nothing any more (I2).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.connector.stores import StateLostError, StoreUnavailableError
from headrace.connector.stores.board import PLAN
from headrace.connector.stores.cassandra_losses import CassandraLosses
from headrace.connector.stores.cassandra_plans import CassandraPlans
from headrace.connector.stores.cassandra_session import CassandraSession
from headrace.connector.stores.cassandra_state import NEW_LEASE, CassandraHeads, lease_key
from headrace.plugins import EncodedPosition, LeaseLostError


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
            counters = state.counters if position else {}
            after = replace(
                state,
                token=state.token + 1,
                seq=state.seq + 1,
                position=position,
                counters=counters,
            )
            heads.append(self._heads.anew(after, is_known=True))
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

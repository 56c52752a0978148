"""The plan generations of a job in Cassandra, and one taking another's place, step by step.

No step is seen before the last one, which is one row: which plan is in force. First the heads of
the old plan are closed: nobody commits to them any more, so whoever takes the change up again after
a crash makes the same of them. All rows of the new plan carry a token above those that were there.
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from headrace.connector.runtime import crash
from headrace.connector.stores import (
    Plan,
    Plans,
    SplitState,
    StateLostError,
    StoreUnavailableError,
    Succeed,
    Successor,
)
from headrace.connector.stores.cassandra_losses import CassandraLosses
from headrace.connector.stores.cassandra_session import RESTORE, CassandraSession
from headrace.connector.stores.cassandra_state import BUCKETS, NEW_LEASE, CassandraHeads
from headrace.connector.stores.state_copies import Copied
from headrace.connector.stores.stored import (
    JOB_KEY_BYTES,
    PLAN,
    UnreadableError,
    counters_of,
    counters_text,
    decoded,
    key_of,
    names,
)
from headrace.plugins import EncodedPosition, LeaseLostError

_CLOSE: Final = "UPDATE heads SET plan = ? WHERE job = ? AND split = ? IF fence = ? AND owner = ?"
_END: Final = (
    "UPDATE plans SET splits = ?, books = ?, counters = ? WHERE job = ? AND plan = ? "
    "IF books = null"
)
Row = Mapping[str, Any]  # Any: the driver's rows have no types.


class CassandraPlans:
    """The plans of one job. Belongs to the session's thread."""

    def __init__(
        self,
        session: CassandraSession,
        job: str,
        heads: CassandraHeads,
        losses: CassandraLosses,
    ) -> None:
        """Look at nothing yet."""
        self._session = session
        self._job = job
        self._heads = heads
        self._losses = losses

    def job_key(self) -> bytes:
        """Do what `Store.job_key` promises: a job that nothing is kept of gets a row and a key.

        Raises:
            StateLostError: the row is gone, or the key in it.

        """
        row = self._row("job_key")
        if row is None and self._has_leases() and not self._row("job_key"):
            what = "table jobs has no row of it, but table leases has"
            raise StateLostError(what, place=f"job {self._job}", hint=RESTORE)
        if row is None:
            row = self._session.apply(
                "INSERT INTO jobs (job, job_key, plan, splits) VALUES (?, ?, ?, '[]') "
                "IF NOT EXISTS",
                *(self._job, secrets.token_bytes(JOB_KEY_BYTES), PLAN),
            )
            row = self._row("job_key") if row["[applied]"] else row
        with self._session.named_errors():
            what = f"table jobs, job {self._job}, column job_key"
            return key_of(row and row["job_key"], what)

    def all(self) -> Plans:
        """Do what `Store.plans` promises."""
        in_force = self.in_force()
        rows = self._session.rows(
            "SELECT plan, splits, books, counters FROM plans WHERE job = ?", self._job
        )
        with self._session.named_errors():
            return Plans.of(in_force, [self._plan(row) for row in rows])

    def _plan(self, row: Row) -> Plan:
        what = f"table plans, job {self._job}, plan {row['plan']}, column"
        return Plan(
            number=row["plan"],
            splits=names(row["splits"], f"{what} splits"),
            books=decoded(row["books"] or "{}", dict[str, int], f"{what} books"),
            counters=counters_of(row["counters"] or "{}", f"{what} counters"),
        )

    def in_force(self) -> Plan:
        """Return the plan in force."""
        row = self._row("plan, splits") or {"plan": PLAN, "splits": "[]"}
        what = f"table jobs, job {self._job}, column"
        with self._session.named_errors():
            if row["plan"] is None:
                raise UnreadableError(f"{what} plan: found NULL")
            return Plan(number=row["plan"], splits=names(row["splits"], f"{what} splits"))

    def committed(self) -> dict[str, int]:
        """Return the number of each split's head, also of those of plans that ended."""
        plans = self.all()
        splits = {split for plan in (plans.in_force, *plans.ended) for split in plan.splits}
        rows = self._session.rows_of(
            "SELECT split, seq FROM heads WHERE job = ? AND split = ?",
            [(self._job, split) for split in sorted(splits)],
        )
        return {row["split"]: row["seq"] or 0 for row in rows}

    def announce(self, splits: Sequence[str], *, after: int) -> None:
        """Do what `Store.announce` promises."""
        if self.in_force().number == after:
            self._session.apply(
                "INSERT INTO plans (job, plan, splits) VALUES (?, ?, ?) IF NOT EXISTS",
                *(self._job, after + 1, json.dumps(list(splits))),
            )

    def replan(
        self,
        owner: str,
        tokens: Mapping[str, int],
        succeed: Succeed,
        lease_of: Callable[[str], tuple[str, int, str]],
    ) -> None:
        """Do what `Store.replan` promises; *lease_of* gives the key of a split's lease."""
        plans = self.all()
        before, plan = plans.in_force, plans.announced
        if plan is None:
            raise LeaseLostError("the plan is another one by now", place=f"job {self._job}")
        states = self.closed(owner, tokens)
        successor = succeed(states)
        moved = 1 + max(self._heads.copied(split).moved for split in before.splits)
        token = self._made(plan, successor.positions, max(tokens.values()), Copied("", moved))
        self._apply(
            [(NEW_LEASE, (*lease_of(split), token)) for split in plan.splits], must_be=False
        )
        self._end(before, successor)
        crash.reached("plan_made")
        self._apply(
            [
                (
                    "UPDATE jobs SET plan = ?, splits = ? WHERE job = ? IF plan = ?",
                    (plan.number, json.dumps(plan.splits), self._job, before.number),
                )
            ]
        )

    def closed(self, owner: str, tokens: Mapping[str, int]) -> Sequence[SplitState]:
        """Close the heads of the plan in force, and return their states: nobody changes them.

        Raises:
            LeaseLostError: *owner* has not claimed all of them with *tokens*.

        """
        plan = self.in_force()
        if set(plan.splits) != set(tokens):
            raise LeaseLostError("the plan is another one by now", place=f"job {self._job}")
        self._apply(
            [
                (_CLOSE, (-plan.number, self._job, split, tokens[split], owner))
                for split in plan.splits
            ]
        )
        states = [self._heads.state(split) for split in plan.splits]
        for state in states:
            self._losses.forget_after(state.split, state.seq, state.token)
        return states

    def _made(
        self,
        plan: Plan,
        positions: Mapping[str, EncodedPosition | None],
        highest: int,
        copied: Copied,
    ) -> int:
        """Write chunks and heads of a plan that is not in force yet; return their token."""
        rows = self._session.rows_of(
            "SELECT split, fence, seq FROM heads WHERE job = ? AND split = ?",
            [(self._job, split) for split in plan.splits],
        )
        known = {row["split"]: row for row in rows if row["fence"] is not None}
        token = 1 + max([highest, *(int(row["fence"]) for row in known.values())])
        heads = []
        for split in plan.splits:
            # A name that comes again goes on in its numbers: what was lost under them is kept.
            seq = known[split]["seq"] if split in known else 0
            state = SplitState(
                split=split,
                plan=plan.number,
                token=token,
                seq=seq,
                position=positions[split],
                counters={},
            )
            heads.append(self._heads.anew(state, copied, is_known=split in known))
        self._apply(heads)
        return token

    def _end(self, plan: Plan, successor: Successor) -> None:
        """Keep the books of the plan that ends."""
        books = json.dumps(dict(successor.books)), counters_text(successor.counters)
        self._apply(
            [(_END, (json.dumps(plan.splits), *books, self._job, plan.number))], must_be=False
        )

    def _row(self, columns: str) -> Row | None:
        query = f"SELECT {columns} FROM jobs WHERE job = ?"  # noqa: S608 (constants)
        rows = self._session.rows(query, self._job, serial=True)
        return rows[0] if rows else None

    def _has_leases(self) -> bool:
        keys = [(self._job, bucket) for bucket in range(BUCKETS)]
        return bool(
            self._session.rows_of("SELECT split FROM leases WHERE job = ? AND bucket = ?", keys)
        )

    def _apply(
        self, statements: Sequence[tuple[str, Sequence[object]]], *, must_be: bool = True
    ) -> None:
        """Write on condition; where *must_be* is not set, what is there already is as good."""
        outcomes = self._session.apply_all(statements)
        if None in outcomes:  # It is taken up again from the beginning.
            raise StoreUnavailableError("how far a plan was changed is not known")
        if must_be and not all(outcome and outcome["[applied]"] for outcome in outcomes):
            raise LeaseLostError("somebody else changes the plan", place=f"job {self._job}")

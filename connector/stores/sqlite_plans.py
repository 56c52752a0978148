"""The plan generations of a job in SQLite: who has which splits, and one taking another's place."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from headrace.connector.runtime import crash
from headrace.connector.stores import Plan, Plans, SplitState, Successor
from headrace.connector.stores.sqlite_file import named_errors, transaction
from headrace.connector.stores.sqlite_jobs import splits_of
from headrace.connector.stores.stored import (
    BEGINS_ANEW,
    counters_of,
    counters_text,
    decoded,
    names,
)
from headrace.plugins import EncodedPosition, LeaseLostError

_OF_SPLITS: Final = ("leases", "heads", "chunks", "seen")


class SqlitePlans:
    """The plans of one job. Belongs to the connection's thread."""

    def __init__(self, connection: sqlite3.Connection, job: str) -> None:
        """Look at nothing yet."""
        self._connection = connection
        self._job = job

    def all(self) -> Plans:
        """Do what `Store.plans` promises."""
        with named_errors(self._connection):
            number, splits = splits_of(self._connection, self._job)
            rows = self._connection.execute(
                "SELECT plan, splits, books, counters FROM plans WHERE job = ? ORDER BY plan",
                (self._job,),
            ).fetchall()
            found = [self._plan(*row) for row in rows]
        return Plans.of(Plan(number=number, splits=splits), found)

    def _plan(self, number: int, splits: str, books: str, counters: str) -> Plan:
        what = f"table plans, job {self._job}, plan {number}, column"
        return Plan(
            number=number,
            splits=names(splits, f"{what} splits"),
            books=decoded(books, dict[str, int], f"{what} books"),
            counters=counters_of(counters, f"{what} counters"),
        )

    def announce(self, splits: Sequence[str], *, after: int) -> None:
        """Do what `Store.announce` promises."""
        with transaction(self._connection):
            if self.all().in_force.number == after:
                self._connection.execute(
                    "INSERT OR IGNORE INTO plans (job, plan, splits) VALUES (?, ?, ?)",
                    (self._job, after + 1, json.dumps(list(splits))),
                )

    def replace(self, owner: str, states: Sequence[SplitState], successor: Successor) -> None:
        """Put the announced plan in force instead of that of *states*, which *owner* has claimed.

        Raises:
            LeaseLostError: they are not the states of now, or not this owner's.

        """
        with transaction(self._connection):
            plans = self.all()
            if plans.announced is None or not self._are_of_now(owner, states):
                raise LeaseLostError("a split was claimed meanwhile", place=f"job {self._job}")
            self._end(plans.in_force, successor)
            moved = self._moved()
            for table in _OF_SPLITS:
                self._connection.execute(
                    f"DELETE FROM {table} WHERE job = ? AND split != ''",  # noqa: S608 (constants)
                    (self._job,),
                )
            token = 1 + max(state.token for state in states)
            self._begin(plans.announced, successor.positions, token, moved)
            crash.reached("plan_made")

    def _are_of_now(self, owner: str, states: Sequence[SplitState]) -> bool:
        rows = self._connection.execute(
            "SELECT split, token, owner, seq FROM heads WHERE job = ?", (self._job,)
        )
        expected = {(state.split, state.token, owner, state.seq) for state in states}
        return expected == set(rows.fetchall())

    def _moved(self) -> int:
        """Return how often positions were set here, this time too: they go before a sink's."""
        query = "SELECT max(moved) FROM heads WHERE job = ?"
        (moved,) = self._connection.execute(query, (self._job,)).fetchone()
        return int(moved) + 1

    def _end(self, plan: Plan, successor: Successor) -> None:
        books = json.dumps(dict(successor.books)), counters_text(successor.counters)
        self._connection.execute(
            "INSERT INTO plans VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (job, plan) "
            "DO UPDATE SET splits = ?3, books = ?4, counters = ?5",
            (self._job, plan.number, json.dumps(plan.splits), *books),
        )

    def _begin(
        self, plan: Plan, positions: Mapping[str, EncodedPosition | None], token: int, moved: int
    ) -> None:
        for split in plan.splits:
            position = positions[split]
            self._connection.execute(
                "INSERT INTO leases (job, split, token, beat, lease_ms) VALUES (?, ?, ?, 0, 0)",
                (self._job, split, token),
            )
            chunks = position.chunks if position else {}
            self._connection.execute(
                "INSERT INTO heads (job, split, plan, token, seq, head, chunks, counters, moved) "
                "VALUES (?, ?, ?, ?, 0, ?, ?, '{}', ?)",
                (
                    *(self._job, split, plan.number, token, position.head if position else None),
                    *(json.dumps(list(chunks)) if position else BEGINS_ANEW, moved),
                ),
            )
            self._connection.executemany(
                "INSERT INTO chunks VALUES (?, ?, ?, ?)",
                [(self._job, split, name, content) for name, content in chunks.items()],
            )
        self._connection.execute(
            "UPDATE jobs SET plan = ?, splits = ? WHERE job = ?",
            (plan.number, json.dumps(plan.splits), self._job),
        )

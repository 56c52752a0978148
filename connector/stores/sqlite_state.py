"""Loads and replaces the state of splits in SQLite: fenced, atomic, and sure of the outcome.

Separate from the store because these few statements carry I2, I3 and I7 alone.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from headrace.connector.runtime import crash
from headrace.connector.stores import (
    Commit,
    Counters,
    SplitState,
    StoreUnavailableError,
)
from headrace.connector.stores.sqlite_file import named_errors, snapshot, transaction
from headrace.connector.stores.sqlite_jobs import is_known, lost, splits_of
from headrace.connector.stores.sqlite_losses import Losses
from headrace.connector.stores.state_copies import Copied, StateCopies
from headrace.connector.stores.stored import (
    BEGINS_ANEW,
    PARTED,
    UnreadableError,
    check_plan,
    check_position,
    chunks_of,
    counters_of,
    counters_text,
    not_kept,
)
from headrace.plugins import EncodedPosition, HeadraceError, LeaseLostError

_HEAD: Final = (
    "SELECT plan, token, owner, seq, head, chunks, counters FROM heads WHERE job = ? AND split = ?"
)


def load(connection: sqlite3.Connection, job: str, split: str) -> SplitState:
    """Read one split's state.

    Raises:
        LeaseLostError: it is no split of the plan in force.
        StateLostError: the head or a chunk is missing.

    """
    with snapshot(connection):
        row = connection.execute(_HEAD, (job, split)).fetchone()
        found = connection.execute(
            "SELECT name, content FROM chunks WHERE job = ? AND split = ?", (job, split)
        )
        chunks = dict(found.fetchall())
        in_force, splits = splits_of(connection, job)
    if row is None:
        raise _headless(connection, job, split)
    plan, token, _, seq, head, names, counters = row
    try:
        if split in splits:
            check_plan(plan, in_force)
        listed = chunks_of(names, list[str])
        kept = check_position(head, listed, seq=seq, plan=plan)
        counts = counters_of(counters)
    except UnreadableError as error:
        raise lost(connection, job, f"table heads, {error}", split) from error
    position = None
    if kept is not None and listed is not None:
        missing = [name for name in listed if name not in chunks]
        if missing:
            raise lost(connection, job, f"chunk {missing[0]} of head {seq} is missing", split)
        position = EncodedPosition(kept, {name: chunks[name] for name in listed})
    return SplitState(
        split=split, plan=plan, token=token, seq=seq, position=position, counters=counts
    )


def replace_positions(
    connection: sqlite3.Connection, job: str, positions: Mapping[str, EncodedPosition | None]
) -> None:
    """Replace the positions of splits that nobody owns, in the open transaction.

    None makes a split begin anew, its counters too. A new token keeps out whoever owned it.
    """
    for split, position in positions.items():
        place = (job, split)
        connection.execute("DELETE FROM chunks WHERE job = ? AND split = ?", place)
        connection.executemany(
            "INSERT INTO chunks VALUES (?, ?, ?, ?)",
            [(*place, *chunk) for chunk in (position.chunks if position else {}).items()],
        )
        connection.execute(  # I2: what a former owner still has under way changes nothing.
            "UPDATE heads SET token = token + 1, owner = NULL, seq = seq + 1, head = ?, "
            "chunks = ?, counters = CASE WHEN ? THEN counters ELSE '{}' END, "
            "moved = moved + 1, kept_in = CASE kept_in WHEN ? THEN kept_in ELSE '' END, behind = 0 "
            "WHERE job = ? AND split = ?",
            (
                position.head if position else None,
                json.dumps(list(position.chunks)) if position else BEGINS_ANEW,
                position is not None,
                PARTED,
                *place,
            ),
        )


def freeze(
    connection: sqlite3.Connection, job: str, owner: str, tokens: Mapping[str, int]
) -> Sequence[SplitState]:
    """Do what `Store.freeze` promises."""
    with transaction(connection):
        for split, token in tokens.items():
            frozen = connection.execute(
                "UPDATE heads SET plan = -abs(plan) "
                "WHERE job = ? AND split = ? AND token = ? AND owner = ?",
                (job, split, token, owner),
            )
            if not frozen.rowcount:
                raise LeaseLostError("somebody claimed it meanwhile", place=f"split {split}")
    return [load(connection, job, split) for split in tokens]


def thaw(
    connection: sqlite3.Connection,
    job: str,
    owner: str,
    tokens: Mapping[str, int],
    states: Mapping[str, tuple[EncodedPosition, Counters]],
) -> None:
    """Do what `Store.thaw` promises."""
    with transaction(connection):
        for split, token in tokens.items():
            row = connection.execute(_HEAD, (job, split)).fetchone()
            if row is None:
                raise _headless(connection, job, split)
            plan, found, who, *_ = row
            if plan > 0:
                continue
            if (found, who) != (token, owner):
                raise _replaced(split, found, token)
            if split in states:
                position, counters = states[split]
                replace_positions(connection, job, {split: position})
                connection.execute(
                    "UPDATE heads SET counters = ? WHERE job = ? AND split = ?",
                    (counters_text(counters), job, split),
                )
            connection.execute(
                "UPDATE heads SET plan = -plan WHERE job = ? AND split = ?", (job, split)
            )


def is_frozen(connection: sqlite3.Connection, job: str) -> bool:
    """Say whether splits of a job are frozen."""
    query = "SELECT 1 FROM heads WHERE job = ? AND plan < 0"
    with named_errors(connection):
        return connection.execute(query, (job,)).fetchone() is not None


class StateWriter(StateCopies):
    """Commits to the heads of one job."""

    def __init__(
        self, connection: sqlite3.Connection, job: str, *, quarantine_bytes_max: int
    ) -> None:
        """*quarantine_bytes_max* bounds what this job keeps in quarantine."""
        self._connection = connection
        self._job = job
        self._losses = Losses(connection, job)
        self._quarantine_bytes_max = quarantine_bytes_max

    def commit(self, commits: Sequence[Commit]) -> Mapping[str, HeadraceError]:
        """Do what `Store.commit` promises."""
        refused: dict[str, HeadraceError] = {}
        try:
            with transaction(self._connection):
                for commit in commits:
                    error = self._replace(commit)
                    if error:
                        refused[commit.split] = error
                crash.reached("commit_heads")
        except StoreUnavailableError:
            if not self._was_applied(commits):
                raise
        crash.reached("committed")
        return refused

    def load(self, split: str, token: int) -> SplitState:
        """See `StateCopies.load`."""
        state = load(self._connection, self._job, split)
        if state.plan < 0:
            raise LeaseLostError("its job becomes one with another", place=f"split {split}")
        if state.token != token:
            raise _replaced(split, state.token, token)
        return state

    def copied(self, split: str) -> Copied:
        """See `StateCopies.copied`."""
        query = "SELECT kept_in, moved FROM heads WHERE job = ? AND split = ?"
        with named_errors(self._connection):
            row = self._connection.execute(query, (self._job, split)).fetchone()
        return Copied(*row) if row else Copied("", 0)

    def prepare(self, commit: Commit) -> tuple[bool, HeadraceError | None]:
        """See `StateCopies.prepare`."""
        applied, error = self._judge(commit)
        if applied or error or not commit.losses:
            return applied, error
        with transaction(self._connection):
            seq = commit.previous
            self._losses.cover(commit.split, seq)  # What an earlier try put away goes.
            return False, self._losses.keep(
                commit.split,
                commit.losses,
                bytes_max=self._quarantine_bytes_max,
                awaits=commit.seq,
            )

    def cover(self, split: str, token: int, seq: int) -> None:
        """See `StateCopies.cover`."""
        with transaction(self._connection):
            self._check_token(split, token)
            self._losses.cover(split, seq)
            self._connection.execute(
                "UPDATE heads SET behind = 1 WHERE job = ? AND split = ?", (self._job, split)
            )

    def released(self, split: str, token: int) -> None:
        """See `StateCopies.released`."""
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE heads SET behind = 0 WHERE job = ? AND split = ? AND token = ?",
                (self._job, split, token),
            )

    def outrank(self, split: str, token: int, moved: int) -> None:
        """See `StateCopies.outrank`."""
        with transaction(self._connection):
            self._check_token(split, token)
            self._connection.execute(
                "UPDATE heads SET moved = max(moved, ? + 1), kept_in = '' "
                "WHERE job = ? AND split = ?",
                (moved, self._job, split),
            )

    def raise_token(self, split: str, token: int) -> None:
        """See `StateCopies.raise_token`."""
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE heads SET token = max(token, ?) WHERE job = ? AND split = ?",
                (token, self._job, split),
            )

    def adopt(self, state: SplitState, position: EncodedPosition, copied: Copied) -> None:
        """See `StateCopies.adopt`."""
        with transaction(self._connection):
            self._check_token(state.split, state.token)
            self._put_chunks(state.split, self._stored(state.split), position)
            self._put_head(state.split, state.seq, position, state.counters)
            self._note_copied(state.split, state.seq, copied)

    def copy(self, commit: Commit, copied: Copied) -> HeadraceError | None:
        """See `StateCopies.copy`."""
        with transaction(self._connection):
            error = self._replace(replace(commit, losses=()))
            if error:
                return error
            self._note_copied(commit.split, commit.seq, copied)
            crash.reached("commit_heads")
        crash.reached("committed")
        return None

    def behind(self) -> frozenset[str]:
        """See `StateCopies.behind`."""
        query = "SELECT split FROM heads WHERE job = ? AND behind != 0"
        with named_errors(self._connection):
            return frozenset(split for (split,) in self._connection.execute(query, (self._job,)))

    def believe(self) -> None:
        """See `StateCopies.believe`."""
        with transaction(self._connection):
            self._connection.execute("UPDATE heads SET behind = 0 WHERE job = ?", (self._job,))

    def _check_token(self, split: str, token: int) -> None:
        """Refuse what a former owner asks for, in the open transaction."""
        row = self._connection.execute(_HEAD, (self._job, split)).fetchone()
        if row is None:
            raise _headless(self._connection, self._job, split)
        if row[1] != token:
            raise _replaced(split, row[1], token)

    def _note_copied(self, split: str, seq: int, copied: Copied) -> None:
        self._losses.cover(split, seq)
        self._connection.execute(
            "UPDATE heads SET kept_in = ?, moved = ?, behind = 1 WHERE job = ? AND split = ?",
            (copied.kept_in, copied.moved, self._job, split),
        )

    def _judge(self, commit: Commit) -> tuple[bool, HeadraceError | None]:
        """Say whether *commit* was applied, and why it must not be."""
        place = (self._job, commit.split)
        with named_errors(self._connection):
            row = self._connection.execute(_HEAD, place).fetchone()
        if row is None:
            return False, _headless(self._connection, *place)
        plan, token, owner, seq, *_ = row
        if (plan, token, owner) != (commit.plan, commit.token, commit.owner):
            return False, _replaced(commit.split, token, commit.token)  # I2.
        if seq == commit.seq:  # An earlier try of this very commit was applied after all.
            return True, None
        if seq != commit.previous:
            what = f"head is number {seq}, expected {commit.previous}"
            return False, lost(self._connection, self._job, what, commit.split)
        return False, None

    def _replace(self, commit: Commit) -> HeadraceError | None:
        """Replace one head, in the open transaction; say why it must not be."""
        applied, error = self._judge(commit)
        if applied or error:
            return error
        stored = self._stored(commit.split)
        if gone := commit.position.kept - stored:
            return lost(self._connection, self._job, not_kept(gone), commit.split)
        full = self._losses.keep(commit.split, commit.losses, bytes_max=self._quarantine_bytes_max)
        if full:
            return full
        self._put_chunks(commit.split, stored, commit.position)
        self._put_head(commit.split, commit.seq, commit.position, commit.counters)
        return None

    def _put_head(
        self, split: str, seq: int, position: EncodedPosition, counters: Counters
    ) -> None:
        self._connection.execute(
            "UPDATE heads SET seq = ?, head = ?, chunks = ?, counters = ?, kept_in = '', "
            "behind = 0 WHERE job = ? AND split = ?",
            (
                seq,
                position.head,
                json.dumps(position.names),
                counters_text(counters),
                self._job,
                split,
            ),
        )

    def _put_chunks(self, split: str, stored: set[str], position: EncodedPosition) -> None:
        place = (self._job, split)
        self._connection.executemany(
            "INSERT INTO chunks VALUES (?, ?, ?, ?)",
            [(*place, *chunk) for chunk in position.chunks.items() if chunk[0] not in stored],
        )
        crash.reached("commit_chunks")
        self._connection.executemany(
            "DELETE FROM chunks WHERE job = ? AND split = ? AND name = ?",
            [(*place, name) for name in stored.difference(position.names)],
        )

    def _stored(self, split: str) -> set[str]:
        """Return the names of the chunks that a split has."""
        rows = self._connection.execute(
            "SELECT name FROM chunks WHERE job = ? AND split = ?", (self._job, split)
        )
        return {name for (name,) in rows}

    def _was_applied(self, commits: Sequence[Commit]) -> bool:
        """Learn whether a commit that failed took effect all the same (agreement line 30).

        One transaction held them all, so one head of mine that moved on says that all did.
        """
        if self._connection.in_transaction:  # What it would show is not durable.
            return False
        with named_errors(self._connection):
            heads = [
                (commit, self._connection.execute(_HEAD, (self._job, commit.split)).fetchone())
                for commit in commits
            ]
        return any(
            head and head[:4] == (commit.plan, commit.token, commit.owner, commit.seq)
            for commit, head in heads
        )


def _headless(connection: sqlite3.Connection, job: str, split: str) -> HeadraceError:
    """Return why a split has no head: another plan took its place, or it was lost."""
    plan, splits = splits_of(connection, job)
    if split not in splits and is_known(connection, job):
        return LeaseLostError(f"is no split of plan {plan}", place=f"split {split}")
    return lost(connection, job, "its head is missing", split)


def _replaced(split: str, found: int, mine: int) -> LeaseLostError:
    return LeaseLostError(f"head carries token {found}, mine is {mine}", place=f"split {split}")

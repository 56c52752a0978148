"""Gaps of a job: what its splits met, and letting those go on that stand before one (I10)."""

import contextlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.connector.control.errors import NotFoundError, NotStoppedError
from headrace.connector.control.offsets import Offsets
from headrace.connector.control.status import live_workers
from headrace.connector.runtime.processes import is_dead, this_process
from headrace.connector.stores import Commit, Owner, SplitState, Store
from headrace.connector.stores.board import Board
from headrace.connector.stores.sqlite_file import transaction
from headrace.connector.stores.sqlite_state import replace_positions
from headrace.plugins import EncodedPosition, Gap, Position, Source

OPEN: Final = "open"
LEASE_MS: Final = 15_000


@dataclass(frozen=True, slots=True)
class JobGap:
    """A gap, and the splits that met it."""

    gap: Gap
    splits: Sequence[str]

    @property
    def is_open(self) -> bool:
        """Whether it stops them."""
        return self.gap.state == OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Let *job* go on behind its open gaps of these names; `policy` is `expire` or `assume`."""

    job: str
    names: Sequence[str]
    policy: str

    @property
    def name(self) -> str:
        """What the audit says it is about."""
        return f"{self.job}: {', '.join(self.names)} ({self.policy})"


class Gaps:
    """The gaps of jobs, whose states are in the state file or in a store of their own.

    Belongs to the connection's thread.
    """

    def __init__(
        self, connection: sqlite3.Connection, *, dead: Callable[[Owner], bool] = is_dead
    ) -> None:
        """*dead* says True only when it is certain."""
        self._connection = connection
        self._dead = dead

    def of(self, job: str, source: type[Source], store: Store | None = None) -> Sequence[JobGap]:
        """Return the gaps of *job*, in the order in which they were noticed."""
        return _gaps_in(_positions(self._states(job, store), source))

    def accept(
        self, wish: Acceptance, source: type[Source], store: Store | None = None
    ) -> Sequence[JobGap]:
        """Move the splits that stand before the gaps behind them, and have them run again.

        Raises:
            NotFoundError: a name that is none of an open gap.
            NotStoppedError: one of the splits is owned by a live worker.

        """
        alone = transaction(self._connection) if store is None else contextlib.nullcontext()
        with alone:
            states = self._states(wish.job, store)
            positions = _positions(states, source)
            accepted = _accepted(wish, _gaps_in(positions))
            splits = {split for each in accepted for split in each.splits}
            moved = {
                split: positions[split].without_gaps(wish.names, wish.policy).encode()
                for split in splits
            }
            if store is None:
                self._check_free(wish.job, splits)
                replace_positions(self._connection, wish.job, moved)
            else:
                _replace(store, [state for state in states if state.split in moved], moved)
            Board(self._connection).ask_restart(wish.job, sorted(splits))
        return accepted

    def _states(self, job: str, store: Store | None) -> Sequence[SplitState]:
        return Offsets(self._connection).states(job) if store is None else store.states()

    def _check_free(self, job: str, splits: set[str]) -> None:
        query = "SELECT split, owner FROM leases WHERE job = ?"
        live = live_workers(self._connection, job, self._dead)
        for split, owner in self._connection.execute(query, (job,)):
            if split in splits and owner in live:
                raise _still_owned(split)


def _positions(states: Sequence[SplitState], source: type[Source]) -> Mapping[str, Position]:
    return {
        state.split: source.decode_position(state.position)
        for state in states
        if state.position is not None
    }


def _gaps_in(positions: Mapping[str, Position]) -> Sequence[JobGap]:
    found: dict[tuple[str, str], tuple[Gap, list[str]]] = {}
    for split, position in positions.items():
        for gap in position.gaps():
            found.setdefault((gap.name, gap.state), (gap, []))[1].append(split)
    made = [JobGap(gap, splits) for gap, splits in found.values()]
    return sorted(made, key=lambda each: (each.gap.noticed_ms, each.gap.name))


def _accepted(wish: Acceptance, gaps: Sequence[JobGap]) -> Sequence[JobGap]:
    found = [each for each in gaps if each.is_open]
    names = {each.gap.name for each in found}
    if unknown := sorted(set(wish.names) - names):
        known = ", ".join(sorted(names)) or "none"
        raise NotFoundError("gap", f"no open gap is {unknown[0]!r}", f"there are: {known}")
    return [each for each in found if each.gap.name in wish.names]


def _replace(
    store: Store, states: Sequence[SplitState], moved: Mapping[str, EncodedPosition]
) -> None:
    """Commit other positions as a worker would: under a claim, which fences the last owner."""
    owner = this_process()
    store.enroll(owner)
    try:
        rows = [row for row in store.leases() if row.split in moved and row.owner is None]
        tokens = store.claim(owner.worker, rows, LEASE_MS)
        for split in moved.keys() - tokens.keys():
            raise _still_owned(split)
        commits = [
            Commit(
                split=state.split,
                plan=state.plan,
                token=tokens[state.split],
                owner=owner.worker,
                previous=state.seq,
                seq=state.seq + 1,
                position=moved[state.split],
                counters=state.counters,
            )
            for state in states
        ]
        for refusal in store.commit(commits).values():
            raise refusal
    finally:
        store.dismiss(owner.worker)


def _still_owned(split: str) -> NotStoppedError:
    return NotStoppedError("gap", f"split {split} is still stopping", "wait a moment")

"""Gaps of a job: what its splits met, and letting those go on that stand before one (I10)."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.connector.control.errors import NotFoundError, NotStoppedError
from headrace.connector.control.offsets import Offsets
from headrace.connector.control.status import live_workers
from headrace.connector.runtime.processes import is_dead
from headrace.connector.stores import Owner
from headrace.connector.stores.board import Board
from headrace.connector.stores.sqlite_file import transaction
from headrace.connector.stores.sqlite_state import replace_positions
from headrace.plugins import Gap, Position, Source

OPEN: Final = "open"


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
    """The gaps in one state file. Belongs to the connection's thread."""

    def __init__(
        self, connection: sqlite3.Connection, *, dead: Callable[[Owner], bool] = is_dead
    ) -> None:
        """*dead* says True only when it is certain."""
        self._connection = connection
        self._dead = dead

    def of(self, job: str, source: type[Source]) -> Sequence[JobGap]:
        """Return the gaps of *job*, in the order in which they were noticed."""
        found: dict[tuple[str, str], tuple[Gap, list[str]]] = {}
        for split, position in self._positions(job, source).items():
            for gap in position.gaps():
                found.setdefault((gap.name, gap.state), (gap, []))[1].append(split)
        made = [JobGap(gap, splits) for gap, splits in found.values()]
        return sorted(made, key=lambda each: (each.gap.noticed_ms, each.gap.name))

    def accept(self, wish: Acceptance, source: type[Source]) -> Sequence[JobGap]:
        """Move the splits that stand before the gaps behind them, and have them run again.

        Raises:
            NotFoundError: a name that is none of an open gap.
            NotStoppedError: one of the splits is owned by a live worker.

        """
        with transaction(self._connection):
            found = [each for each in self.of(wish.job, source) if each.is_open]
            names = {each.gap.name for each in found}
            if unknown := sorted(set(wish.names) - names):
                known = ", ".join(sorted(names)) or "none"
                raise NotFoundError("gap", f"no open gap is {unknown[0]!r}", f"there are: {known}")
            accepted = [each for each in found if each.gap.name in wish.names]
            splits = {split for each in accepted for split in each.splits}
            self._check_free(wish.job, splits)
            positions = self._positions(wish.job, source)
            moved = {
                split: positions[split].without_gaps(wish.names, wish.policy) for split in splits
            }
            encoded = {split: position.encode() for split, position in moved.items()}
            replace_positions(self._connection, wish.job, encoded)
            Board(self._connection).ask_restart(wish.job, sorted(splits))
        return accepted

    def _positions(self, job: str, source: type[Source]) -> dict[str, Position]:
        states = Offsets(self._connection).states(job)
        return {
            state.split: source.decode_position(state.position)
            for state in states
            if state.position is not None
        }

    def _check_free(self, job: str, splits: set[str]) -> None:
        query = "SELECT split, owner FROM leases WHERE job = ?"
        live = live_workers(self._connection, job, self._dead)
        for split, owner in self._connection.execute(query, (job,)):
            if split in splits and owner in live:
                raise NotStoppedError("gap", f"split {split} is still stopping", "wait a moment")

"""The copies in Cassandra of states that a sink keeps: columns of the heads, and their losses.

A head is written on condition only, so a former owner changes none. Losses are written before the
commit that covers them is decided, and are seen when the head says so.
"""

from dataclasses import replace
from typing import Final

from headrace.connector.stores import Commit, SplitState
from headrace.connector.stores.cassandra_losses import CassandraLosses
from headrace.connector.stores.cassandra_plans import CassandraPlans
from headrace.connector.stores.cassandra_session import CassandraSession
from headrace.connector.stores.cassandra_state import CassandraHeads
from headrace.connector.stores.state_copies import Copied, StateCopies
from headrace.plugins import EncodedPosition, HeadraceError, LeaseLostError

_WHERE: Final = "WHERE job = ? AND split = ?"
_MARK: Final = f"UPDATE heads SET behind = ? {_WHERE} IF fence = ?"  # noqa: S608 (constants)


class CassandraCopies(StateCopies):
    """See `StateCopies`. Belongs to the session's thread."""

    def __init__(
        self,
        session: CassandraSession,
        job: str,
        heads: CassandraHeads,
        losses: CassandraLosses,
        plans: CassandraPlans,
    ) -> None:
        """Keep the parts."""
        self._session = session
        self._job = job
        self._heads = heads
        self._losses = losses
        self._plans = plans

    def load(self, split: str, token: int) -> SplitState:
        """See `StateCopies.load`."""
        return self._heads.load(split, token, forgets=False)

    def copied(self, split: str) -> Copied:
        """See `StateCopies.copied`."""
        return self._heads.copied(split)

    def prepare(self, commit: Commit) -> tuple[bool, HeadraceError | None]:
        """See `StateCopies.prepare`."""
        applied, error = self._heads.judged(commit)
        if applied or error or not commit.losses:
            return applied, error
        # What an earlier try put away goes.
        self._losses.forget_after(commit.split, commit.previous, commit.token)
        full = self._losses.full(commit, list(self._plans.committed()))
        if full is None:
            self._session.write(self._losses.writes(commit))
        return False, full

    def copy(self, commit: Commit, copied: Copied) -> HeadraceError | None:
        """See `StateCopies.copy`."""
        seen = replace(commit, losses=())  # They are there: see `prepare`.
        return self._heads.commit([seen], (), copied).get(commit.split)

    def adopt(self, state: SplitState, position: EncodedPosition, copied: Copied) -> None:
        """See `StateCopies.adopt`."""
        self._heads.adopt(state, position, copied)
        self._losses.forget_after(state.split, state.seq, state.token)

    def cover(self, split: str, token: int, seq: int) -> None:
        """See `StateCopies.cover`."""
        if not self._mark(split, token, behind=True):
            raise LeaseLostError("somebody claimed it meanwhile", place=f"split {split}")
        self._losses.forget_after(split, seq, token)

    def released(self, split: str, token: int) -> None:
        """See `StateCopies.released`."""
        self._mark(split, token, behind=False)

    def outrank(self, split: str, token: int, moved: int) -> None:
        """See `StateCopies.outrank`."""
        most = max(self._heads.copied(split).moved, moved + 1)
        self._session.apply(
            f"UPDATE heads SET moved = ?, kept_in = '' {_WHERE} IF fence = ?",  # noqa: S608 (constants)
            *(most, self._job, split, token),
        )

    def raise_token(self, split: str, token: int) -> None:
        """See `StateCopies.raise_token`."""
        self._session.apply(
            f"UPDATE heads SET fence = ? {_WHERE} IF fence < ?",  # noqa: S608 (constants)
            *(token, self._job, split, token),
        )

    def behind(self) -> frozenset[str]:
        """See `StateCopies.behind`."""
        # A mark is there before the sink may have more: any read of a quorum sees it.
        query = f"SELECT split, behind FROM heads {_WHERE}"  # noqa: S608 (constants)
        keys = [(self._job, split) for split in self._plans.in_force().splits]
        rows = self._session.rows_of(query, keys)
        return frozenset(row["split"] for row in rows if row["behind"])

    def believe(self) -> None:
        """See `StateCopies.believe`."""
        for split in self._plans.in_force().splits:
            self._session.apply(
                f"UPDATE heads SET behind = false {_WHERE} IF EXISTS",  # noqa: S608 (constants)
                *(self._job, split),
            )

    def _mark(self, split: str, token: int, *, behind: bool) -> bool:
        marked = self._session.apply(_MARK, behind, self._job, split, token)
        return bool(marked["[applied]"])

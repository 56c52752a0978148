"""Claiming, renewing and giving away the leases of a job's splits. Runs on the control thread.

Nothing here stops a split: it says which splits were gained, lost, or should be handed over. The
rules are those of `Store` plus time: an owner counts its deadline from before it asked for the
renewal; a claimer waits until a row stood still for a whole lease period on its own clock.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headrace.connector.runtime.processes import is_alive, is_dead
from headrace.connector.stores import LeaseRow, Owner, Store, WorkerRow
from headrace.plugins import Clock


class Lease:
    """A split held by this process. The control thread renews it, the data thread asks it."""

    def __init__(self, split: str, token: int, *, deadline_ms: int, margin_ms: int) -> None:
        """*deadline_ms* is on the boot clock; nothing is submitted in the last *margin_ms*."""
        self.split = split
        self.token = token
        self.deadline_ms = deadline_ms
        self._margin_ms = margin_ms

    def allows(self, now_ms: int) -> bool:
        """Whether a batch may be submitted at *now_ms* (I2)."""
        return now_ms < self.deadline_ms - self._margin_ms


@dataclass(frozen=True, slots=True)
class Changes:
    """What one round of lease keeping came to."""

    gained: Sequence[Lease] = ()
    lost: Sequence[str] = ()
    hand_over: Sequence[str] = ()


@dataclass(slots=True)
class _Sighting:
    """A row as it was seen, and since when it has looked like that."""

    row: LeaseRow | WorkerRow
    since_ms: int


class LeaseKeeper:
    """See the module. `others_live` says that every split held elsewhere has a live owner.

    The rows of workers are read in each step, those of leases when there may be something to
    claim: when workers came, went or fell silent, when this one has too few, or a split has nobody;
    else at every renewal.
    """

    def __init__(  # noqa: PLR0913 (its surroundings; tests replace the last two)
        self,
        store: Store,
        owner: Owner,
        clock: Clock,
        *,
        lease_ms: int,
        dead: Callable[[Owner], bool] = is_dead,
        alive: Callable[[Owner], bool] = is_alive,
    ) -> None:
        """*owner* is enrolled in *store*; *dead* and *alive* say True only when it is certain."""
        self._store = store
        self._owner = owner
        self._clock = clock
        self._lease_ms = lease_ms
        self._margin_ms = lease_ms // 5
        self._dead = dead
        self._alive = alive
        self._held: dict[str, Lease] = {}
        self._leaving: set[str] = set()
        self._barred: dict[str, int | None] = {}
        self._seen: dict[tuple[str, str], _Sighting] = {}
        self._renewed_ms = clock.monotonic_ms()
        self._rows: Sequence[LeaseRow] = ()
        self._looked_ms: int | None = None
        self._live: frozenset[str] = frozenset()  # Who lived at the last look.
        self._ownerless = False
        self.others_live = False

    @property
    def held(self) -> Mapping[str, Lease]:
        """The leases held, also those that are being handed over."""
        return self._held

    def step(self) -> Changes:
        """Renew when it is time, then claim what is free and give away what is too much.

        Raises:
            StoreUnavailableError: nothing was renewed; the deadlines stand. Call again.

        """
        lost = self._renew()
        workers = self._store.workers()
        now_ms = self._clock.monotonic_ms()
        live = self._live_workers(workers, now_ms)
        knows = not lost and self._knows(live, now_ms)
        free = [] if knows else self._look(workers, live, now_ms)
        share = -(-len(self._rows) // max(1, len(live)))
        staying = len(self._held) - len(self._leaving)
        gained = self._claim(free[: max(0, share - staying)])
        extra = sorted(set(self._held) - self._leaving)[share:] if not gained else []
        self._leaving.update(extra)
        return Changes(gained, lost, extra)

    def take_all(self) -> bool:
        """Renew when it is time, and claim all that is free; say whether every split is held.

        Of several that want all of them, the one that has the first split goes on. Raises as
        `step`.
        """
        self._renew()
        workers, now_ms = self._store.workers(), self._clock.monotonic_ms()
        free = self._look(workers, self._live_workers(workers, now_ms), now_ms)
        rows = self._rows
        first = [row for row in free if row.split == rows[0].split]
        self._claim(first)
        if rows and rows[0].split in self._held:
            self._claim([row for row in free if row not in first])
        return len(self._held) == len(rows)

    def let_go(self) -> None:
        """Hold nothing any more, whatever the store says: all is claimed anew."""
        for lease in self._held.values():
            self._store.release(self._owner.worker, lease.split, lease.token)
        self._held.clear()

    def _knows(self, live: frozenset[str], now_ms: int) -> bool:
        """Say whether the leases are as they were at the last look, for all that matters here."""
        if self._looked_ms is None or live != self._live or self._ownerless or self._barred:
            return False
        staying = len(self._held) - len(self._leaving)
        has_enough = staying >= len(self._rows) // max(1, len(live))
        return has_enough and now_ms - self._looked_ms < self._lease_ms // 3

    def _look(
        self, workers: Sequence[WorkerRow], live: frozenset[str], now_ms: int
    ) -> list[LeaseRow]:
        """Read the leases, and return those that may be claimed."""
        self._rows, self._looked_ms, self._live = self._store.leases(), now_ms, live
        return self._claimable(self._rows, {row.owner.worker: row for row in workers}, now_ms)

    def renew_only(self) -> Changes:
        """Renew when it is time, and claim nothing: the worker is stopping."""
        return Changes(lost=self._renew())

    def closed(self, split: str, token: int, *, failed: bool, again_ms: int | None = None) -> None:
        """Forget a lease that the data thread gave back.

        A failed split is not claimed before *again_ms* on the clock; None is never.
        """
        if split in self._held and self._held[split].token == token:
            del self._held[split]
            self._leaving.discard(split)
        if failed:
            self._barred[split] = again_ms

    def admit(self, split: str) -> None:
        """Let a split that failed be claimed again."""
        self._barred.pop(split, None)

    def leave(self, split: str) -> bool:
        """Note that *split* is to be handed over; False when it is not held, or leaves already."""
        if split not in self._held or split in self._leaving:
            return False
        self._leaving.add(split)
        return True

    def _renew(self) -> list[str]:
        sent_ms = self._clock.monotonic_ms()  # Before the request: the answer may take its time.
        if sent_ms - self._renewed_ms < self._lease_ms // 3:
            return []
        tokens = {split: lease.token for split, lease in self._held.items()}
        lost = self._store.renew(self._owner.worker, tokens)
        for split, lease in self._held.items():
            if split not in lost:
                lease.deadline_ms = sent_ms + self._lease_ms
        for split in lost:
            self.closed(split, tokens[split], failed=False)
        self._renewed_ms = sent_ms
        return sorted(lost)

    def _live_workers(self, rows: Sequence[WorkerRow], now_ms: int) -> frozenset[str]:
        live = set()
        for row in rows:
            mine = row.owner.worker == self._owner.worker
            if not mine and (
                self._dead(row.owner)
                or self._still_ms(("worker", row.owner.worker), row, now_ms) >= self._lease_ms
            ):
                continue
            live.add(row.owner.worker)
        return frozenset(live)

    def _claimable(
        self, rows: Sequence[LeaseRow], workers: Mapping[str, WorkerRow], now_ms: int
    ) -> list[LeaseRow]:
        """Return the rows that may be claimed, and note whether the others are in good hands.

        A row stands still when it does itself, or its owner's: each renewal and each claim moves
        that one first.
        """
        free: list[LeaseRow] = []
        self.others_live = True
        self._ownerless = False
        for row in rows:
            if row.split in self._held or self._is_barred(row.split, now_ms):
                continue
            still_ms = self._still_ms(("lease", row.split), row, now_ms)
            worker = workers.get(row.owner or "")
            owner = worker.owner if worker else None
            self._ownerless |= row.owner not in self._live
            if worker is not None and owner is not None:
                still_ms = max(still_ms, self._still_ms(("worker", owner.worker), worker, now_ms))
            if (
                row.owner is None
                or (owner and self._dead(owner))
                or still_ms >= max(row.lease_ms, self._lease_ms)
            ):
                free.append(row)
            elif owner is None or not self._alive(owner):
                self.others_live = False
        return free

    def _is_barred(self, split: str, now_ms: int) -> bool:
        until_ms = self._barred.get(split, 0)
        if until_ms is not None and now_ms >= until_ms:
            self.admit(split)
            return False
        return True

    def _still_ms(self, key: tuple[str, str], row: LeaseRow | WorkerRow, now_ms: int) -> int:
        """Return for how long *row* has looked as it does."""
        seen = self._seen.get(key)
        if seen is None or seen.row != row:
            self._seen[key] = seen = _Sighting(row, now_ms)
        return now_ms - seen.since_ms

    def _claim(self, rows: Sequence[LeaseRow]) -> list[Lease]:
        if not rows:
            return []
        sent_ms = self._clock.monotonic_ms()
        tokens = self._store.claim(self._owner.worker, rows, self._lease_ms)
        gained = [
            Lease(split, token, deadline_ms=sent_ms + self._lease_ms, margin_ms=self._margin_ms)
            for split, token in tokens.items()
        ]
        self._held.update({lease.split: lease for lease in gained})
        return gained

"""Claiming, renewing and giving away the leases of a job's splits. Runs on the control thread.

It does not stop splits: it reports which were gained, lost, or should be handed over. The rules are
those of `Store` plus time: an owner counts its deadline from before it requested the renewal; a
claimer waits until a row has not changed for a whole lease period on its own clock.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from headrace.connector.foundation.processes import is_alive, is_dead
from headrace.connector.runtime.splits.assignment import Part, Rates, assigned
from headrace.connector.runtime.splits.ownership import Changes, Lease
from headrace.connector.stores import LeaseRow, Owner, StoreUnavailableError, WorkerRow
from headrace.connector.stores.keyed.store import Store
from headrace.plugins import Clock, Nearness

SETTLED_MS: Final = 60_000  # How long a split stays if only rates suggest a move.
LEVEL_LEASES: Final = 3  # The number of leases after which loads are compared again.
SOON_MS: Final = 250


@dataclass(slots=True)
class _Sighting:
    """A row as last read, and since when it has not changed."""

    row: LeaseRow | WorkerRow
    since_ms: int


class LeaseHolder:
    """See the module. `others_live` says that every split held elsewhere has a live owner.

    Each step reads the rows of workers. It reads those of leases if there may be something to
    claim: when workers joined, left or fell silent, when one hands over to this one, or a split has
    no owner. Else it reads them at every renewal, unless this worker is alone and holds all splits
    of its source: then a renewal shows as much.
    """

    def __init__(  # noqa: PLR0913 (its surroundings; tests replace the last two)
        self,
        store: Store,
        owner: Owner,
        clock: Clock,
        *,
        lease_ms: int,
        splits: Collection[str] | None = None,
        nearness: Nearness | None = None,
        dead: Callable[[Owner], bool] = is_dead,
        alive: Callable[[Owner], bool] = is_alive,
    ) -> None:
        """*owner* is enrolled in *store*; *dead* and *alive* return True only if it is certain.

        Only *splits*, those of the source, are ever claimed: another process may have changed the
        plan, and the source of this process does not know the new splits. None stands for all.
        """
        self._store = store
        self._owner = owner
        self._clock = clock
        self._lease_ms = lease_ms
        self._splits = None if splits is None else frozenset(splits)
        self._margin_ms = lease_ms // 5
        self._grace_ms = lease_ms // 2  # For the worker that should claim a split.
        self._nearness = nearness or Nearness()
        self._dead = dead
        self._alive = alive
        self._held: dict[str, Lease] = {}
        self._leaving: dict[str, str] = {}  # By split: its handover target.
        self._barred: dict[str, int | None] = {}
        self._seen: dict[tuple[str, str], _Sighting] = {}
        self._renewed_ms = clock.monotonic_ms()
        self._rows: Sequence[LeaseRow] = ()
        self._looked_ms: int | None = None
        self._levelled_ms: int | None = None
        self._workers: Mapping[str, WorkerRow] = {}  # Those alive at the last look.
        self._enrolled: Mapping[str, WorkerRow] = {}  # And those that did not sign off.
        self._wanted: Mapping[str, str] = {}  # By split: the worker that asks for it.
        self._ownerless = False
        self._free_ms: dict[str, int] = {}  # Since when a split is free.
        self._reported: Sequence[str] = ()  # The announced handover targets.
        self._unreported: set[str] = set()  # Lost in a round that the store failed to finish.
        self.rates = Rates()
        self.others_live = False

    @property
    def held(self) -> Mapping[str, Lease]:
        """The leases held, including those being handed over."""
        return self._held

    @property
    def live(self) -> Sequence[str]:
        """The live workers at the last look, and this one; not those for certain splits."""
        return sorted(self._working)

    def step(self) -> Changes:
        """Renew leases if due, then claim free splits and hand over surplus ones.

        Raises:
            StoreUnavailableError: nothing was renewed; the deadlines stay. Call again.

        """
        lost, late = self._renew()
        try:
            return self._balance(lost, late)
        except StoreUnavailableError:
            self._unreported.update(lost)
            raise

    def _balance(self, lost: Sequence[str], late: Sequence[str]) -> Changes:
        workers = {row.owner.worker: row for row in self._store.workers()}
        now_ms = self._clock.monotonic_ms()
        live = self._live_workers(workers, now_ms)
        if not lost and self._knows(live, now_ms):
            return Changes(late=late)
        moved = live.keys() != self._workers.keys()
        free = self._look(workers, live, now_ms)
        asked = self._asked_for()
        if asked:
            self._levelled_ms = None
            self._leaving |= asked
            self._offer_targets()
            return Changes(lost=lost, hand_over=asked, late=late)
        if not (free or moved or self._must_level(now_ms)):
            return Changes(lost=lost, late=late)
        self._levelled_ms = None
        homes = self._homes({row.split for row in free})
        mine = [row for row in free if self._is_for_me(row, homes, now_ms)]
        gained = self._claim(mine, now_ms, homes)
        # While splits are about to be claimed, the surplus will soon change.
        young = any(now_ms - since_ms < self._grace_ms for since_ms in self._free_ms.values())
        if gained or young:
            return Changes(gained, lost, late=late)
        self._levelled_ms = now_ms
        leaving = self._too_much(homes, now_ms)
        self._leaving |= leaving
        self._offer_targets()
        return Changes(gained, lost, leaving, late)

    def next_ms(self, poll_ms: int) -> int:
        """Return when to step next: after *poll_ms*, or when a silent worker loses its leases."""
        me, now_ms = self._owner.worker, self._clock.monotonic_ms()
        if any(me in row.handover_targets for row in self._workers.values()):
            return now_ms + min(poll_ms, SOON_MS)
        ends = (
            seen.since_ms + self._lease_ms
            for name in self._workers
            if name != me and (seen := self._seen.get(("worker", name))) is not None
        )
        # A past time was handled, or the store fails: no reason to read it at once.
        return min([now_ms + poll_ms, *(end for end in ends if end > now_ms)])

    def take(self, splits: Collection[str]) -> Changes:
        """Renew leases if due, and claim those of *splits* that are free; hand over nothing.

        Raises as `step`.
        """
        lost, late = self._renew()
        workers = {row.owner.worker: row for row in self._store.workers()}
        now_ms = self._clock.monotonic_ms()
        free = self._look(workers, self._live_workers(workers, now_ms), now_ms)
        gained = self._claim([row for row in free if row.split in splits], now_ms)
        return Changes(gained, lost, late=late)

    def take_all(self) -> bool:
        """Renew leases if due, and claim all free splits; return whether every split is held.

        Of several workers that want all of them, the one that has the first split continues.
        Raises as `step`.
        """
        self._renew()
        workers = {row.owner.worker: row for row in self._store.workers()}
        now_ms = self._clock.monotonic_ms()
        free = self._look(workers, self._live_workers(workers, now_ms), now_ms)
        rows = self._rows
        first = [row for row in free if row.split == rows[0].split]
        self._claim(first, now_ms)
        if rows and rows[0].split in self._held:
            self._claim([row for row in free if row not in first], now_ms)
        return len(self._held) == len(rows)

    def is_covered(self) -> bool:
        """Read the leases; return whether each split is held, failed here, or has a live owner.

        Raises as `step`.
        """
        workers = {row.owner.worker: row for row in self._store.workers()}
        now_ms = self._clock.monotonic_ms()
        self._live_workers(workers, now_ms)
        free = self._claimable(self._store.leases(), workers, now_ms)
        return self.others_live and not free

    def let_go(self) -> None:
        """Forget all leases, also those in the store: every split is claimed again."""
        for lease in self._held.values():
            self._store.release(self._owner.worker, lease.split, lease.token)
        self._held.clear()

    def _knows(self, live: Mapping[str, WorkerRow], now_ms: int) -> bool:
        """Return whether the leases are the same as at the last look, as far as it matters here."""
        if self._looked_ms is None or live.keys() != self._workers.keys():
            return False
        if self._ownerless or self._barred or self._levelled_ms is None:
            return False
        if _wanted(live) != self._wanted:
            return False
        if any(self._owner.worker in row.handover_targets for row in live.values()):
            return False
        if len(live) == 1 and self._splits is not None and len(self._held) == len(self._splits):
            return True
        return now_ms - self._looked_ms < self._lease_ms // 3

    def _look(
        self, workers: Mapping[str, WorkerRow], live: Mapping[str, WorkerRow], now_ms: int
    ) -> list[LeaseRow]:
        """Read the leases, and return those that may be claimed."""
        self._rows, self._looked_ms, self._workers = self._store.leases(), now_ms, live
        self._wanted, me = _wanted(live), self._owner.worker
        found = self._claimable(self._rows, workers, now_ms)
        free = [row for row in found if self._wanted.get(row.split, me) == me]
        self._free_ms = {row.split: self._free_ms.get(row.split, now_ms) for row in free}
        return free

    def _must_level(self, now_ms: int) -> bool:
        levelled_ms = self._levelled_ms
        return levelled_ms is None or now_ms - levelled_ms >= LEVEL_LEASES * self._lease_ms

    def _homes(self, free: Collection[str]) -> Mapping[str, str]:
        """Return the worker that should own each split, as every worker computes it."""
        parts = [
            Part(row.split, row.rate, None if row.split in free else row.owner)
            for row in self._rows
            if row.split not in self._wanted
        ]
        places = {name: row.places for name, row in self._working.items()}
        return assigned(parts, places, self._nearness.shares)

    @property
    def _working(self) -> Mapping[str, WorkerRow]:
        """The live workers that take any split."""
        return {name: row for name, row in self._workers.items() if not row.wants}

    def _asked_for(self) -> Mapping[str, str]:
        """Return the splits held here that other workers ask for, and those workers."""
        me = self._owner.worker
        return {
            split: worker
            for split, worker in self._wanted.items()
            if worker != me and split in self._held and split not in self._leaving
        }

    def _is_for_me(self, row: LeaseRow, homes: Mapping[str, str], now_ms: int) -> bool:
        """Return whether to claim a free split: it is assigned to this worker, or stays free."""
        if homes[row.split] == self._owner.worker:
            return True
        return now_ms - self._free_ms[row.split] >= self._grace_ms

    def _too_much(self, homes: Mapping[str, str], now_ms: int) -> Mapping[str, str]:
        """Return the splits to hand over now, and their targets: at most half of those held."""
        staying = [split for split in self._held if split not in self._leaving]
        working = max(1, len(self._working))
        share = -(-len(self._rows) // working)
        wanted = [
            split
            for split in sorted(staying, reverse=True)
            if homes.get(split, self._owner.worker) != self._owner.worker
            and not self._held[split].adopted
        ]
        if len(staying) <= share:
            counts = Counter(row.owner for row in self._rows)
            least = len(self._rows) // working
            wanted = [
                split
                for split in wanted
                if counts[homes[split]] < least or now_ms - self._held[split].since_ms >= SETTLED_MS
            ]
        room = max(1, len(self._held) // 2) - len(self._leaving)
        return {split: homes[split] for split in sorted(wanted[: max(0, room)])}

    def _offer_targets(self) -> None:
        handover_targets = sorted({target for target in self._leaving.values() if target})
        if handover_targets != list(self._reported):
            with suppress(StoreUnavailableError):  # The targets find out by themselves, later.
                self._store.offer(self._owner.worker, handover_targets)
                self._reported = handover_targets

    def renew_only(self) -> Changes:
        """Renew leases if due, and claim nothing: the worker is stopping."""
        lost, late = self._renew()
        return Changes(lost=lost, late=late)

    def closed(self, split: str, token: int, *, failed: bool, again_ms: int | None = None) -> str:
        """Forget a lease that the data thread gave back; return its handover target, if any.

        A failed split is not claimed before *again_ms* on the clock; None: never.
        """
        target = ""
        if split in self._held and self._held[split].token == token:
            del self._held[split]
            self.rates.end(split)
            if split in self._leaving:
                target = self._leaving.pop(split)
                self._levelled_ms = None  # There may be more to hand over.
        if failed:
            self._barred[split] = again_ms
        return target

    def admit(self, split: str) -> None:
        """Allow a failed split to be claimed again."""
        self._barred.pop(split, None)

    def leave(self, split: str) -> bool:
        """Mark *split* for handover; False if it is not held, or already marked."""
        if split not in self._held or split in self._leaving:
            return False
        self._leaving[split] = ""
        return True

    def _renew(self) -> tuple[Sequence[str], Sequence[str]]:
        """Renew leases if due; return the lost ones, and those renewed late."""
        sent_ms = self._clock.monotonic_ms()  # Before the request: the reply may be slow.
        if sent_ms - self._renewed_ms < self._lease_ms // 3:
            return self._take_unreported(), ()
        tokens = {split: lease.token for split, lease in self._held.items()}
        lost = self._store.renew(self._owner.worker, tokens, self.rates.all())
        late = [
            split
            for split, lease in self._held.items()
            if split not in lost and not lease.allows(sent_ms)
        ]
        for split, lease in self._held.items():
            if split not in lost:
                lease.deadline_ms = sent_ms + self._lease_ms
        for split in lost:
            self.closed(split, tokens[split], failed=False)
        self._renewed_ms = sent_ms
        self._offer_targets()
        return sorted({*lost, *self._take_unreported()}), sorted(late)

    def _take_unreported(self) -> Sequence[str]:
        unreported, self._unreported = sorted(self._unreported), set()
        return unreported

    def _live_workers(self, rows: Mapping[str, WorkerRow], now_ms: int) -> Mapping[str, WorkerRow]:
        self._enrolled = rows
        return {
            name: row
            for name, row in rows.items()
            if name == self._owner.worker
            or not (
                self._still_ms(("worker", name), row, now_ms) >= self._lease_ms
                or self._dead(row.owner)
            )
        }

    def _claimable(
        self, rows: Sequence[LeaseRow], workers: Mapping[str, WorkerRow], now_ms: int
    ) -> list[LeaseRow]:
        """Return the rows that may be claimed, and store whether the others have live owners.

        A row is stale if it or its owner's row has not changed: each renewal and each claim changes
        the owner's row first.
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
            self._ownerless |= row.owner not in self._workers
            if worker is not None and owner is not None:
                still_ms = max(still_ms, self._still_ms(("worker", owner.worker), worker, now_ms))
            if (
                row.owner in (None, self._owner.worker)  # Mine: the reply to a claim was lost.
                or (owner and self._dead(owner))
                or still_ms >= max(row.lease_ms, self._lease_ms)
            ) and (self._splits is None or row.split in self._splits):
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
        """Return for how many ms *row* has not changed."""
        seen = self._seen.get(key)
        if seen is None or seen.row != row:
            self._seen[key] = seen = _Sighting(row, now_ms)
        return now_ms - seen.since_ms

    def _has_ended(self, worker: str) -> bool:
        """Return whether a worker that did not give back its lease certainly sends nothing more."""
        row = self._enrolled.get(worker)
        return row is None or self._dead(row.owner)

    def _claim(
        self, rows: Sequence[LeaseRow], sent_ms: int, homes: Mapping[str, str] | None = None
    ) -> list[Lease]:
        """Claim leases, which count from *sent_ms*, a time before the request."""
        if not rows:
            return []
        tokens = self._store.claim(self._owner.worker, rows, self._lease_ms)
        gained = [
            Lease(
                row.split,
                tokens[row.split],
                deadline_ms=sent_ms + self._lease_ms,
                margin_ms=self._margin_ms,
                since_ms=sent_ms,
                former=row.owner,
                ended=row.owner is not None and self._has_ended(row.owner),
                adopted=homes is not None and homes[row.split] != self._owner.worker,
            )
            for row in rows
            if row.split in tokens
        ]
        for row in rows:
            if row.split in tokens:
                self.rates.begin(row.split, row.rate, sent_ms)
        self._held.update({lease.split: lease for lease in gained})
        return gained


def _wanted(live: Mapping[str, WorkerRow]) -> Mapping[str, str]:
    """Return the worker that asks for each split; the first by name of several."""
    found: dict[str, str] = {}
    for name in sorted(live):
        for split in live[name].wants:
            found.setdefault(split, name)
    return found

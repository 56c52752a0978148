"""Workers that renew leases over one store by a driven clock, without threads and pipelines.

Of the data thread's work only draining a split takes time: as long as the test says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.connector.runtime.splits.leases import LeaseHolder
from headrace.connector.stores import Owner
from headrace.connector.stores.keyed.store import Store
from headrace.plugins import Nearness
from headrace.plugins.testing.doubles import DrivenClock

LEASE_SECONDS = 10
POLL_MS = 1_000
TERM_MS = 1_000 * LEASE_SECONDS - 2 * POLL_MS
STEP_MS = 50


@dataclass
class Member:
    """One worker; a test may pause it."""

    name: str
    lease_holder: LeaseHolder
    due_ms: int
    stopped: bool = False
    draining: dict[str, int] = field(default_factory=dict)


class Fleet:
    """All workers of a job; `bytes_per_second` is the rate of changes, by split."""

    def __init__(
        self, store: Store, clock: DrivenClock, splits: Sequence[str], *, drain_ms: int = 700
    ) -> None:
        """Register *splits*; draining and committing one takes *drain_ms*."""
        store.register(splits)
        self.store = store
        self.clock = clock
        self.members: dict[str, Member] = {}
        self.bytes_per_second: Mapping[str, int] = {}
        self.moved: list[tuple[int, str, str]] = []
        """When each split was gained, and the new owner."""
        self.freed: dict[str, int] = {}
        """When a release of each split was last requested."""
        self._drain_ms = drain_ms
        self._totals: dict[str, float] = {}

    def join(self, name: str, nearness: Nearness | None = None) -> Member:
        """Start another worker, which makes its first step at once."""
        owner = Owner(worker=name, host="h", boot="b", pid_space="p", pid=1, started=2)
        near = nearness or Nearness()
        self.store.enroll(owner, near.here)
        lease_holder = LeaseHolder(
            self.store,
            owner,
            self.clock,
            lease_ms=TERM_MS,
            nearness=near,
            dead=lambda _: False,
            alive=lambda _: False,
        )
        self.members[name] = Member(name, lease_holder, self.clock.monotonic_ms())
        return self.members[name]

    def leave(self, name: str) -> None:
        """Stop a worker, which releases its leases."""
        del self.members[name]
        self.store.dismiss(name)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(int(seconds * 1_000) // STEP_MS):
            for split, rate in self.bytes_per_second.items():
                self._totals[split] = self._totals.get(split, 0) + rate * STEP_MS / 1_000
            for member in self.members.values():
                if not member.stopped:
                    self._step(member)
            self.clock.advance(STEP_MS)

    def owners(self) -> Mapping[str, str | None]:
        """Return the owner of each split."""
        return {row.split: row.owner for row in self.store.leases()}

    def _step(self, member: Member) -> None:
        now_ms, lease_holder = self.clock.monotonic_ms(), member.lease_holder
        for split in [split for split, until in member.draining.items() if until <= now_ms]:
            token = lease_holder.held[split].token
            self.store.release(member.name, split, token)
            lease_holder.closed(split, token, failed=False)
            del member.draining[split]
            member.due_ms = now_ms
        if now_ms < member.due_ms:
            return
        lease_holder.rates.observe(
            {split: int(self._totals.get(split, 0)) for split in lease_holder.held}, now_ms
        )
        changes = lease_holder.step()
        for split in changes.hand_over:
            self.freed[split] = now_ms
            member.draining[split] = now_ms + self._drain_ms
        for split in changes.lost:
            member.draining.pop(split, None)
        self.moved += [(now_ms, lease.split, member.name) for lease in changes.gained]
        member.due_ms = lease_holder.next_ms(POLL_MS)

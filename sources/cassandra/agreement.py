"""When enough copies agree: the rules of one split, as exact as their specification.

It does no I/O and asks no clock: entries and split time are passed in. "Line n" cites the rules in
docs/agreement.md. For one thread.
"""

from array import array

from headrace.sources.cassandra import codes, native
from headrace.sources.cassandra.records import Groups, Records

_HOST_COUNTERS = 4  # First, counted, surplus, repeat: per host.
_KIND_BITS = 0xFF
_MASK16 = 0xFFFF


class Agreement(Records):
    """The rules that the records of one split follow (lines 11-17, 20, 22-25)."""

    def __init__(self, groups: Groups) -> None:
        """Start empty, at split time 0."""
        super().__init__(groups)
        self.touched = 0  # The number of the record that was observed last.
        self.hosts = memoryview(array("q", bytes(8 * _HOST_COUNTERS * max(1, groups.hosts))))
        self.agreed = 0
        self.expired = 0
        self.expired_published = 0
        self.expired_late = 0
        self.overflowed = 0
        self.memory_shortened = 0

    # ---- input (lines 11-17) ----

    def observe(  # noqa: PLR0913, PLR0917 (one entry; a value object per entry would cost more)
        self,
        host: int,
        d0: int,
        d1: int,
        keyspace: int,
        token: int,
        segment: int,
        position: int,
        length: int,
    ) -> int:
        """Take one entry of *host*; return 0, or how many copies justify emitting it now.

        A negative number is the same for a mutation that had expired: it is emitted as late.
        """
        bit = 1 << host
        slot = self._find(d0, d1)
        self.touched = (
            self.number + 1 if slot < 0 else self.words[slot * codes.RECORD_WORDS + codes.NUMBER]
        )
        if slot < 0:  # Line 14.
            group = self.groups_table.find(keyspace, token)
            slot = self._new(d0, d1, keyspace, group, token)
            self.words[slot * codes.RECORD_WORDS + codes.SEEN] = bit
            self.hosts[host * _HOST_COUNTERS] += 1
            self._mark(slot)
            copies = self._decide(slot)
            if copies == 0:
                self._locate(slot, host, segment, position, length)
            return copies
        base = slot * codes.RECORD_WORDS
        self.words[base + codes.LAST] = self.tau
        self._mark(slot)
        if self.words[base + codes.SEEN] & bit:  # Line 15: never a second vote.
            self.hosts[host * _HOST_COUNTERS + 3] += 1
            return 0
        self.words[base + codes.SEEN] |= bit
        kind = self.words[base + codes.META] & _KIND_BITS
        if kind == codes.PENDING:  # Line 16, by kind.
            self.hosts[host * _HOST_COUNTERS + 1] += 1
            copies = self._decide(slot)
            if copies == 0:
                self._locate(slot, host, segment, position, length)
            return copies
        if kind == codes.EXPIRED_DROPPED:
            self.hosts[host * _HOST_COUNTERS + 1] += 1
            copies = self._met(slot)
            if copies > 0:
                self._become(slot, codes.PUBLISHED)
                self.expired -= 1
                self.agreed += 1
                self.expired_late += 1
            return -copies
        self.hosts[host * _HOST_COUNTERS + 2] += 1
        return 0

    def _decide(self, slot: int) -> int:
        """Publish a pending record whose level is met (line 17)."""
        copies = self._met(slot)
        if copies > 0:
            self._become(slot, codes.PUBLISHED)
            self.pending -= 1
            self.agreed += 1
        return copies

    def _met(self, slot: int) -> int:
        """Return the distinct hosts seen if the level is satisfied, else 0 (line 3)."""
        base = slot * codes.RECORD_WORDS
        group = self.words[base + codes.META] >> 16 & _MASK16
        seen = self.words[base + codes.SEEN]
        if native.popcount(seen & self.groups_table.masks[group]) < self.groups_table.needed[group]:
            return 0
        return native.popcount(seen)

    # ---- time (lines 20, 23, 24) ----

    def due(self, wait: int) -> list[int]:
        """Return the slots of the pending records *wait* ms of split time old (line 20)."""
        return [
            slot
            for slot in self.oldest_pending(self.pending)
            if self.tau >= self.words[slot * codes.RECORD_WORDS + codes.BORN] + wait
        ]

    def ready(self) -> list[int]:
        """Return the slots of pending records whose level is met, as after a load (line 18)."""
        return [slot for slot in self.oldest_pending(self.pending) if self._met(slot)]

    def publish(self, slot: int) -> None:
        """Let a pending record that is ready become published: its bytes were found again."""
        self._become(slot, codes.PUBLISHED)
        self._mark(slot)
        self.pending -= 1
        self.agreed += 1

    def expire(self, slot: int, kind: int) -> None:
        """Let a pending record become EXPIRED_DROPPED or EXPIRED_PUBLISHED."""
        self._become(slot, kind)
        self._mark(slot)
        self.pending -= 1
        if kind == codes.EXPIRED_PUBLISHED:
            self.expired_published += 1
        else:
            self.expired += 1

    def forget_old(self, memory: int, complete: int) -> int:
        """Forget by age, in ms of split time, and return how many were dropped (line 23).

        *memory* is M and *complete* is C: how long incomplete and complete records are kept.
        """
        dropped = 0
        for slot in range(self.used):
            base = slot * codes.RECORD_WORDS
            kind = self.words[base + codes.META] & _KIND_BITS
            if kind in (codes.FREE, codes.PENDING):
                continue
            if kind != codes.EXPIRED_DROPPED and self._complete(slot):
                if self.tau >= self.words[base + codes.LAST] + complete:
                    self._free(slot)
                    dropped += 1
            elif self.tau >= self.words[base + codes.SINCE] + memory:
                self._free(slot)
                dropped += 1
        if dropped:
            self._reindex()
        return dropped

    def shorten(self, records_max: int) -> int:
        """Forget the oldest complete records, then other published ones, above *records_max*."""
        dropped = 0
        for complete_only in (1, 0):
            while self.live > records_max:
                found = self._forget_oldest(complete_only)
                if found == 0:
                    break
                dropped += found
        self.memory_shortened += dropped
        return dropped

    def _forget_oldest(self, complete_only: int) -> int:
        """Drop the older half, by number, of what may go; 0 when nothing may."""
        lowest = self.number
        highest = 0
        for slot in range(self.used):
            if self._may_go(slot, complete_only):
                number = self.words[slot * codes.RECORD_WORDS + codes.NUMBER]
                lowest = min(lowest, number)
                highest = max(highest, number)
        middle = lowest + (highest - lowest) // 2
        dropped = 0
        for slot in range(self.used):
            if self._may_go(slot, complete_only):
                number = self.words[slot * codes.RECORD_WORDS + codes.NUMBER]
                if number <= middle:
                    self._free(slot)
                    dropped += 1
        if dropped:
            self._reindex()
        return dropped

    def _may_go(self, slot: int, complete_only: int) -> int:
        kind = self.words[slot * codes.RECORD_WORDS + codes.META] & _KIND_BITS
        if kind in (codes.FREE, codes.PENDING):  # Line 22: pending never goes here.
            return 0
        if complete_only:
            return 0 if kind == codes.EXPIRED_DROPPED else self._complete(slot)
        return 1

    def _complete(self, slot: int) -> int:
        base = slot * codes.RECORD_WORDS
        group = self.words[base + codes.META] >> 16 & _MASK16
        expected = self.groups_table.masks[group]
        return int(expected & ~self.words[base + codes.SEEN] == 0)

    def unpublished_segments(self, host: int) -> set[int]:
        """Return the segments of *host* that hold copies of pending or expired records (34)."""
        found: set[int] = set()
        for slot in range(self.used):
            kind = self.words[slot * codes.RECORD_WORDS + codes.META] & _KIND_BITS
            if kind in (codes.PENDING, codes.EXPIRED_DROPPED):
                found.update([loc[1] for loc in self.locations(slot) if loc[0] == host])
        return found

    def oldest_pending(self, count: int) -> list[int]:
        """Return the slots of the oldest pending records, at most *count*."""
        found = [
            (self.words[slot * codes.RECORD_WORDS + codes.NUMBER], slot)
            for slot in range(self.used)
            if self.words[slot * codes.RECORD_WORDS + codes.META] & _KIND_BITS == codes.PENDING
        ]
        return [slot for _, slot in sorted(found)[:count]]

    def overflow(self, slot: int) -> None:
        """Forget a pending record whose bytes are safe elsewhere (line 25)."""
        self.pending -= 1
        self.overflowed += 1
        self._drop(slot)

    def identity(self, slot: int) -> tuple[int, int, int]:
        """Return a record's digest as two words, and how many distinct hosts logged it."""
        base = slot * codes.RECORD_WORDS
        copies = native.popcount(self.words[base + codes.SEEN])
        return self.words[base + codes.D0], self.words[base + codes.D1], copies

"""When enough copies agree: the rules of one split, as exact as their specification.

It does no I/O and asks no clock: entries and split time are passed in. "Line n" cites the rules in
docs/agreement.md. For one thread.
"""

from array import array

from headrace.sources.cassandra import codes, native
from headrace.sources.cassandra.groups import Groups
from headrace.sources.cassandra.record_rows import StoredRecords

_HOST_COUNTERS = 4  # First, counted, surplus, repeat: per host.
_SHARED, _CHECKED = 0x400, 0x800
_STREAMED, _NO_REPLICA = 1 << 54, 1 << 55
_ONE = 1  # As wide as a word of `seen`.
_MASK16 = 0xFFFF
_NOT_LOOKED = (1 << 63) - 1  # See `newest_published`.
_HALF = 0x8000_0000


class Agreement(StoredRecords):
    """The rules that the records of one split follow (lines 11-20, 22-25)."""

    def __init__(self, groups: Groups) -> None:
        """Start empty, at split time 0."""
        super().__init__(groups)
        self.touched = 0  # The number of the record that was observed last.
        self.suspect = -1  # The slot that codes.SUSPECT speaks of.
        self.streamed = 0  # Whether the next entry was logged while its node received a stream.
        self.hosts = memoryview(array("q", bytes(8 * _HOST_COUNTERS * max(1, groups.hosts))))
        # Host, until when in split time, first place on the ring and the one behind: mutations born
        # before count as logged by that host (line 21).
        self.assumed = memoryview(array("Q", [0]))
        self.assumes = 0  # Words of it.
        self.agreed = 0
        self.expired = 0
        self.not_replica = 0
        self.filtered = 0
        self.expired_published = 0
        self.expired_late = 0
        self.reencoded = 0
        self.overflowed = 0
        self.memory_shortened = 0
        self.forgotten_incomplete = 0  # Before all copies had come: a later one comes again (36).

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

        codes.ASSUMED is added where more were assumed. A negative number is the same for a mutation
        that had expired: it is emitted as late. With codes.SUSPECT the caller compares what the
        entry says, and calls `publish` or `know` for the slot `suspect` before the next entry.
        """
        bit = _ONE << host
        slot = self._find_likely(d0, d1)
        if slot < 0:  # Line 14.
            self.touched = self.number + 1
            group = self.groups_table.find(keyspace, token)
            slot = self._new(d0, d1, keyspace, group, token)
            self.words[slot * codes.RECORD_WORDS + codes.SEEN] = bit
            if self.streamed:
                self.words[slot * codes.RECORD_WORDS + codes.META] |= _STREAMED
            self.hosts[host * _HOST_COUNTERS] += 1
            self._mark(slot)
            return self._decide(slot, host, segment, position, length)
        base = slot * codes.RECORD_WORDS
        self.touched = self.words[base + codes.NUMBER]
        self.words[base + codes.LAST] = self.tau
        self._mark(slot)
        if self.words[base + codes.SEEN] & bit:  # Line 15: never a second vote.
            self.hosts[host * _HOST_COUNTERS + 3] += 1
            return 0
        self.words[base + codes.SEEN] |= bit
        kind = self._kind(slot)
        if kind == codes.JOINED:
            slot = self._joined_to(slot, bit)
            kind = self._kind(slot)
            base = slot * codes.RECORD_WORDS
        if kind == codes.PENDING:  # Line 16, by kind.
            self.hosts[host * _HOST_COUNTERS + 1] += 1
            self.words[base + codes.META] &= ~_CHECKED
            if not self.streamed:  # One that was written here makes it no stream's.
                self.words[base + codes.META] &= ~_STREAMED
            return self._decide(slot, host, segment, position, length)
        if kind == codes.EXPIRED_DROPPED:
            self.hosts[host * _HOST_COUNTERS + 1] += 1
            copies = self._met(slot)
            if copies > 0:
                self._become_published(slot, codes.PUBLISHED, host, segment, position, length)
                self.newest[self.head(slot)] = _NOT_LOOKED
                if self.words[base + codes.META] & _NO_REPLICA:
                    self.words[base + codes.META] &= ~_NO_REPLICA
                    self.not_replica -= 1
                else:
                    self.expired -= 1
                self.agreed += 1
                self.expired_late += 1
            return -copies
        self.hosts[host * _HOST_COUNTERS + 2] += 1
        return 0

    def _joined_to(self, slot: int, bit: int) -> int:
        """Let a copy count for the record that its own was joined to, if that may be published."""
        other = self._other(slot)
        if other < 0:
            return slot
        base = other * codes.RECORD_WORDS
        kind = self._kind(other)
        if (
            kind not in (codes.PENDING, codes.EXPIRED_DROPPED)
            or self.words[base + codes.SEEN] & bit
        ):
            return slot
        self.words[base + codes.SEEN] |= bit
        self.words[base + codes.LAST] = self.tau
        self._mark(other)
        return other

    def _other(self, slot: int) -> int:
        """Return the record that a joined one leads to; -1 if it is forgotten."""
        base = slot * codes.RECORD_WORDS
        return self._find(self.words[base + codes.BORN], self.words[base + codes.LOCATIONS])

    def _decide(self, slot: int, host: int, segment: int, position: int, length: int) -> int:
        """Publish a pending record whose level is met (line 17), or keep where its copy lies."""
        copies = self._met(slot)
        meta = self.words[slot * codes.RECORD_WORDS + codes.META]
        if copies == 0 or meta & (_SHARED | _STREAMED):
            self._locate(slot, host, segment, position, length)
            if copies == 0 or meta & _STREAMED:
                return 0
            self.suspect = slot
            return codes.SUSPECT
        self._agree(slot, host, segment, position, length)
        return copies

    def _agree(self, slot: int, host: int, segment: int, position: int, length: int) -> None:
        self._become_published(slot, codes.PUBLISHED, host, segment, position, length)
        self._mark(slot)
        self.pending -= 1
        self.agreed += 1

    def _met(self, slot: int) -> int:
        """Return the distinct hosts seen if the level is satisfied, else 0 (line 3)."""
        base = slot * codes.RECORD_WORDS
        group = self.words[base + codes.META] >> 16 & _MASK16
        seen = self.words[base + codes.SEEN]
        if self.groups_table.met(group, seen):
            return native.popcount(seen)
        return self._met_assuming(slot) if self.assumes else 0

    def _met_assuming(self, slot: int) -> int:
        """Do the same for a pending record with the copies that are assumed (line 21)."""
        base = slot * codes.RECORD_WORDS
        seen = self.words[base + codes.SEEN]
        assumed = seen
        place = (self.words[base + codes.TOKEN] >> 32) ^ _HALF
        at = 0
        while at < self.assumes:
            if (
                self.assumed[at + 1] > self.words[base + codes.BORN]
                and self.assumed[at + 2] <= place < self.assumed[at + 3]
            ):
                assumed |= _ONE << self.assumed[at]
            at += 4
        group = self.words[base + codes.META] >> 16 & _MASK16
        if self._kind(slot) != codes.PENDING or not self.groups_table.met(group, assumed):
            return 0
        return native.popcount(seen) | codes.ASSUMED

    def assume(self, parts: list[tuple[int, int, int, int]]) -> None:
        """Count hosts for pending mutations whose copies may have been in *parts* that are gone.

        Each is a host, the split time before which they were born, and the places on the ring that
        it is said of: the first, and the one behind.
        """
        words = [word for part in parts for word in part]
        self.assumes = len(words)
        self.assumed = memoryview(array("Q", words))

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
        return [slot for slot in self.oldest_pending(self.pending) if self.is_ready(slot)]

    def copies(self, slot: int) -> int:
        """Return what `observe` says of an emission: hosts seen, with codes.ASSUMED or EXPIRED."""
        met = self._met(slot)
        seen = native.popcount(self.words[slot * codes.RECORD_WORDS + codes.SEEN])
        return met if met > 0 else seen | codes.EXPIRED

    def publish(self, slot: int, host: int, segment: int, position: int, length: int) -> int:
        """Let a pending record become published with the bytes of one copy; return its copies."""
        copies = self._met(slot)
        self._agree(slot, host, segment, position, length)
        return copies

    def expire(self, slot: int) -> None:
        """Let a pending record become EXPIRED_DROPPED; no replica's copy is booked apart (13)."""
        base = slot * codes.RECORD_WORDS
        self._become(slot, codes.EXPIRED_DROPPED)
        self._mark(slot)
        self.pending -= 1
        if self.words[base + codes.SEEN] & self._expected(slot):
            self.expired += 1
        else:
            self.words[base + codes.META] |= _NO_REPLICA
            self.not_replica += 1

    def publish_expired(
        self, slot: int, host: int, segment: int, position: int, length: int
    ) -> None:
        """Let a pending record become EXPIRED_PUBLISHED with the bytes of one copy."""
        self._become_published(slot, codes.EXPIRED_PUBLISHED, host, segment, position, length)
        self._mark(slot)
        self.pending -= 1
        self.expired_published += 1

    # ---- other bytes for the same content (lines 17, 19) ----

    def newest_published(self, slot: int) -> int:
        """Return the newest write time in what was published of the slot's token.

        The largest 64-bit number stands for "not known", the smallest for "nothing".
        """
        return self.newest[self.head(slot)]

    def learn_newest(self, slot: int, timestamp: int) -> None:
        """Say up to which write time what was published of the slot's token goes."""
        self.newest[self.head(slot)] = timestamp

    def number_of(self, slot: int) -> int:
        """Return a record's number: older ones have lower ones."""
        return self.words[slot * codes.RECORD_WORDS + codes.NUMBER]

    def is_ready(self, slot: int) -> bool:
        """Say whether a record may be published: what may be a stream's only when compared."""
        meta = self.words[slot * codes.RECORD_WORDS + codes.META]
        if self._kind(slot) != codes.PENDING or meta & (_STREAMED | _CHECKED) == _STREAMED:
            return False
        return self._met(slot) > 0

    def siblings(self, slot: int) -> list[tuple[int, int]]:
        """Return the other records of the slot's token as (slot, kind), the last one first."""
        found = []
        other = self.head(slot)
        while other >= 0:
            if other != slot:
                found.append((other, self._kind(other)))
            other = self.links[other]
        return found

    def unchecked(self, wait: int) -> list[int]:
        """Return pending records, *wait* ms old, that were not compared since their last copy."""
        return [slot for slot in self.due(wait) if self._is_unchecked(slot)]

    def _is_unchecked(self, slot: int) -> int:
        meta = self.words[slot * codes.RECORD_WORDS + codes.META]
        return 1 if meta & (_SHARED | _STREAMED) and not meta & _CHECKED else 0

    def check(self, slot: int) -> None:
        """Note that a pending record was compared; it is again when it gets another copy."""
        self.words[slot * codes.RECORD_WORDS + codes.META] |= _CHECKED

    def know(self, slot: int) -> None:
        """Let a pending record become CONTENT_KNOWN: all that it says was published."""
        self._become(slot, codes.CONTENT_KNOWN)
        self._mark(slot)
        self.pending -= 1
        self.reencoded += 1

    def is_streamed(self, slot: int) -> bool:
        """Say whether all copies of a record may come from a stream."""
        return (self.words[slot * codes.RECORD_WORDS + codes.META] & _STREAMED) != 0

    def leave_out(self, slot: int) -> None:
        """Let a pending record become CONTENT_KNOWN, booked as filtered: nobody asks for it."""
        self._become(slot, codes.CONTENT_KNOWN)
        self._mark(slot)
        self.pending -= 1
        self.filtered += 1

    def joined(self, slot: int) -> list[int]:
        """Return the records that were joined to this one."""
        base = slot * codes.RECORD_WORDS
        if not self.words[base + codes.META] & _SHARED:
            return []
        found = []
        for other, kind in self.siblings(slot):
            if kind == codes.JOINED and self._other(other) == slot:
                found.append(other)
        return found

    def join(self, slot: int, other: int) -> None:
        """Let the copies of a pending record count for *other*, which says the same and waits."""
        base = slot * codes.RECORD_WORDS
        to = other * codes.RECORD_WORDS
        for host, segment, position, length in reversed(self.locations(slot)):
            self._locate(other, host, segment, position, length)
        self.words[to + codes.SEEN] |= self.words[base + codes.SEEN]
        self.words[to + codes.LAST] = max(
            self.words[to + codes.LAST], self.words[base + codes.LAST]
        )
        self._become(slot, codes.JOINED)
        self.words[base + codes.BORN] = self.words[to + codes.D0]
        self.words[base + codes.LOCATIONS] = self.words[to + codes.D1]
        self._mark(slot)
        self._mark(other)
        self.pending -= 1
        self.reencoded += 1

    def forget_old(self, memory: int, complete: int) -> int:
        """Forget by age, in ms of split time, and return how many were dropped (line 23).

        *memory* is M and *complete* is C: how long incomplete and complete records are kept.
        """
        dropped = 0
        for slot in range(self.used):
            base = slot * codes.RECORD_WORDS
            kind = self._kind(slot)
            if kind in (codes.FREE, codes.PENDING) or self._leads_on(slot):
                continue
            if kind != codes.EXPIRED_DROPPED and self._complete(slot):
                if self.tau >= self.words[base + codes.LAST] + complete:
                    self._free(slot)
                    dropped += 1
            elif self.tau >= self.words[base + codes.SINCE] + memory:
                self.forgotten_incomplete += kind != codes.EXPIRED_DROPPED
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
        kind = self._kind(slot)
        if kind in (codes.FREE, codes.PENDING):  # Line 22: pending never goes here.
            return 0
        if complete_only:
            return 0 if kind == codes.EXPIRED_DROPPED else self._complete(slot)
        return 1

    def _complete(self, slot: int) -> int:
        return int(self._expected(slot) & ~self.words[slot * codes.RECORD_WORDS + codes.SEEN] == 0)

    def _expected(self, slot: int) -> int:
        """Return the hosts that may all log a record (line 4)."""
        base = slot * codes.RECORD_WORDS
        return self.groups_table.expected[self.words[base + codes.META] >> 16 & _MASK16]

    def _leads_on(self, slot: int) -> int:
        """Say whether later copies in these bytes count for another record."""
        if self._kind(slot) != codes.JOINED:
            return 0
        other = self._other(slot)
        return 1 if other >= 0 and self._has_locations(other) else 0

    def unpublished(self, host: int, most: int) -> dict[int, list[tuple[int, int]]]:
        """Return where copies of pending and expired records lie in the log of *host* (34).

        By segment: position and length of each copy, of no more than *most* copies in one.
        """
        found: dict[int, list[tuple[int, int]]] = {}
        for slot in range(self.used):
            kind = self._kind(slot)
            if kind in (codes.PENDING, codes.EXPIRED_DROPPED):
                for at, segment, position, length in self.locations(slot):
                    if at == host:
                        copies = found.setdefault(segment, [])
                        if len(copies) < most:
                            copies.append((position, length))
        return found

    def referenced(self) -> int:
        """Return the hosts that any record has seen, as a mask."""
        found = 0
        for slot in range(self.used):
            if self._kind(slot) != codes.FREE:
                found |= self.words[slot * codes.RECORD_WORDS + codes.SEEN]
        return found

    def oldest_pending(self, count: int) -> list[int]:
        """Return the slots of the oldest pending records, at most *count*."""
        found = [
            (self.words[slot * codes.RECORD_WORDS + codes.NUMBER], slot)
            for slot in range(self.used)
            if self._kind(slot) == codes.PENDING
        ]
        return [slot for _, slot in sorted(found)[:count]]

    def overflow(self, slots: list[int]) -> None:
        """Forget pending records whose bytes are safe elsewhere (line 25)."""
        for slot in slots:
            for other in self.joined(slot):  # A copy in these bytes begins anew, too.
                self._free(other)
            self.pending -= 1
            self.overflowed += 1
            self._free(slot)
        if slots:
            self._reindex()

    def identity(self, slot: int) -> tuple[int, int, int]:
        """Return a record's digest as two words, and how many distinct hosts logged it."""
        base = slot * codes.RECORD_WORDS
        copies = native.popcount(self.words[base + codes.SEEN])
        return self.words[base + codes.D0], self.words[base + codes.D1], copies

"""When enough copies agree: the state machine of one split, as exact as its specification.

It does no I/O and asks no clock: entries and split time are passed in. Records live in one flat
table of 64-bit words, found by open addressing over the digest, so that an entry costs no Python
object. "Line n" cites the rules in docs/agreement.md. For one thread.
"""

import itertools
from array import array

from headrace.sources.cassandra import codes, native

_WORDS = 10  # 64-bit words of a record; the fields:
_D0, _D1, _SEEN, _TOKEN, _META, _NUMBER, _BORN, _SINCE, _LAST, _LOCS = range(10)
# _META: bits 0-7 kind, 8 dirty, 9 persisted, 16-31 replica group, 32-47 keyspace.
_DIRTY, _PERSISTED = 0x100, 0x200
_KIND_BITS = 0xFF
_LOC = 5  # Numbers of a location: host, segment, position, length, next + 1.
_ROOM_FIRST = 1024
_HOST_COUNTERS = 4  # First, counted, surplus, repeat: per host.
_MASK16 = 0xFFFF
_MASK64 = 0xFFFF_FFFF_FFFF_FFFF


class Groups:
    """Replica groups: which hosts hold a token, and how many copies its level needs.

    Group g needs `needed[g]` distinct hosts of `masks[g]`. Keyspace k's ring has the tokens
    `tokens[first[k]:first[k+1]]`, ascending; a token belongs to the first ring token that is not
    smaller, wrapping round, and `groups` gives that ring token's group.
    """

    def __init__(self, hosts: int) -> None:
        """Begin with no keyspace; *hosts* is the number of logs, 64 at most."""
        self.hosts = hosts
        self.masks = memoryview(array("Q", [0]))
        self.needed = memoryview(array("i", [0]))
        self.first = memoryview(array("i", [0]))
        self.tokens = memoryview(array("q", [0]))
        self.groups = memoryview(array("i", [0]))
        self.count = 0

    def set(
        self,
        masks: list[int],
        needed: list[int],
        rings: list[list[tuple[int, int]]],
    ) -> None:
        """Take the groups, and per keyspace its ring as (token, group) in ascending order."""
        self.masks = memoryview(array("Q", masks or [0]))
        self.needed = memoryview(array("i", needed or [0]))
        self.count = len(masks)
        bounds = [0, *itertools.accumulate(len(ring) for ring in rings)]
        self.first = memoryview(array("i", bounds))
        self.tokens = memoryview(array("q", [token for ring in rings for token, _ in ring] or [0]))
        self.groups = memoryview(array("i", [group for ring in rings for _, group in ring] or [0]))

    def find(self, keyspace: int, token: int) -> int:
        """Return the group that holds *token* in *keyspace*."""
        low = self.first[keyspace]
        high = self.first[keyspace + 1]
        begin = low
        while low < high:
            middle = (low + high) // 2
            if self.tokens[middle] < token:
                low = middle + 1
            else:
                high = middle
        return self.groups[begin if low == self.first[keyspace + 1] else low]


class Agreement:
    """The records of one split and the rules they follow (lines 11-17, 20, 22-25)."""

    def __init__(self, groups: Groups) -> None:
        """Start empty, at split time 0."""
        self.groups_table = groups
        self.tau = 0
        self.number = 0
        self.touched = 0  # The number of the record that was observed last.
        self.live = 0
        self.pending = 0
        self.room = _ROOM_FIRST
        self.words = memoryview(array("Q", bytes(8 * _WORDS * self.room)))
        self.slots = memoryview(array("i", [-1] * (2 * self.room)))
        self.used = 0  # Slots ever taken; beyond it the table is untouched.
        self.free = 0  # First free slot + 1, linked through _LOCS.
        self.locs = memoryview(array("q", bytes(8 * _LOC * self.room)))
        self.locs_used = 0
        self.locs_free = 0
        self.dirty = memoryview(array("i", bytes(4 * self.room)))
        self.dirty_count = 0
        self.dropped = array("Q")
        self.hosts = memoryview(array("q", bytes(8 * _HOST_COUNTERS * max(1, groups.hosts))))
        self.agreed = 0
        self.expired = 0
        self.expired_late = 0
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
        self.touched = self.number + 1 if slot < 0 else self.words[slot * _WORDS + _NUMBER]
        if slot < 0:  # Line 14.
            group = self.groups_table.find(keyspace, token)
            slot = self._new(d0, d1, keyspace, group, token)
            self.words[slot * _WORDS + _SEEN] = bit
            self.hosts[host * _HOST_COUNTERS] += 1
            self._locate(slot, host, segment, position, length)
            self._mark(slot)
            return self._decide(slot)
        base = slot * _WORDS
        self.words[base + _LAST] = self.tau
        self._mark(slot)
        if self.words[base + _SEEN] & bit:  # Line 15: never a second vote.
            self.hosts[host * _HOST_COUNTERS + 3] += 1
            return 0
        self.words[base + _SEEN] |= bit
        kind = self.words[base + _META] & _KIND_BITS
        if kind == codes.PENDING:  # Line 16, by kind.
            self.hosts[host * _HOST_COUNTERS + 1] += 1
            self._locate(slot, host, segment, position, length)
            return self._decide(slot)
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
        base = slot * _WORDS
        group = self.words[base + _META] >> 16 & _MASK16
        seen = self.words[base + _SEEN]
        if native.popcount(seen & self.groups_table.masks[group]) < self.groups_table.needed[group]:
            return 0
        return native.popcount(seen)

    # ---- time (lines 20, 23, 24) ----

    def sweep(self, wait: int, memory: int, complete: int) -> int:
        """Expire and forget by age; all three in ms of split time; return how many were dropped.

        *wait* is W: pending records that old expire. *memory* is M and *complete* is C: how long
        incomplete and complete records are kept.
        """
        dropped = 0
        for slot in range(self.used):
            base = slot * _WORDS
            kind = self.words[base + _META] & _KIND_BITS
            if kind == codes.FREE:
                continue
            if kind == codes.PENDING:
                if self.tau >= self.words[base + _BORN] + wait:
                    self._become(slot, codes.EXPIRED_DROPPED)
                    self._mark(slot)
                    self.pending -= 1
                    self.expired += 1
            elif kind != codes.EXPIRED_DROPPED and self._complete(slot):
                if self.tau >= self.words[base + _LAST] + complete:
                    self._drop(slot)
                    dropped += 1
            elif self.tau >= self.words[base + _SINCE] + memory:
                self._drop(slot)
                dropped += 1
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
                number = self.words[slot * _WORDS + _NUMBER]
                lowest = min(lowest, number)
                highest = max(highest, number)
        middle = lowest + (highest - lowest) // 2
        dropped = 0
        for slot in range(self.used):
            if self._may_go(slot, complete_only):
                number = self.words[slot * _WORDS + _NUMBER]
                if number <= middle:
                    self._drop(slot)
                    dropped += 1
        return dropped

    def _may_go(self, slot: int, complete_only: int) -> int:
        kind = self.words[slot * _WORDS + _META] & _KIND_BITS
        if kind in (codes.FREE, codes.PENDING):  # Line 22: pending never goes here.
            return 0
        if complete_only:
            return 0 if kind == codes.EXPIRED_DROPPED else self._complete(slot)
        return 1

    def _complete(self, slot: int) -> int:
        base = slot * _WORDS
        group = self.words[base + _META] >> 16 & _MASK16
        expected = self.groups_table.masks[group]
        return int(expected & ~self.words[base + _SEEN] == 0)

    def unpublished_segments(self, host: int) -> set[int]:
        """Return the segments of *host* that hold copies of pending or expired records (34)."""
        found: set[int] = set()
        for slot in range(self.used):
            kind = self.words[slot * _WORDS + _META] & _KIND_BITS
            if kind in (codes.PENDING, codes.EXPIRED_DROPPED):
                found.update([loc[1] for loc in self.locations(slot) if loc[0] == host])
        return found

    def oldest_pending(self, count: int) -> list[tuple[int, list[tuple[int, int, int, int]]]]:
        """Return slots and locations (host, segment, position, length) of the oldest pending."""
        found = [
            (self.words[slot * _WORDS + _NUMBER], slot)
            for slot in range(self.used)
            if self.words[slot * _WORDS + _META] & _KIND_BITS == codes.PENDING
        ]
        return [(slot, self.locations(slot)) for _, slot in sorted(found)[:count]]

    def overflow(self, slot: int) -> None:
        """Forget a pending record whose bytes are safe elsewhere (line 25)."""
        self.pending -= 1
        self._drop(slot)

    # ---- the table ----

    def fetch_slot(self, d0: int) -> None:
        """Begin to load the part of the index where a digest's search starts."""
        native.prefetch_slot(self.slots, d0 & (2 * self.room - 1))

    def fetch_record(self, d0: int) -> None:
        """Begin to load the record that a digest's search meets first."""
        slot = self.slots[d0 & (2 * self.room - 1)]
        if slot >= 0:
            native.prefetch_record(self.words, slot * _WORDS)

    def _find(self, d0: int, d1: int) -> int:
        mask = 2 * self.room - 1
        at = d0 & mask
        slot = self.slots[at]
        while slot >= 0:
            if self.words[slot * _WORDS] == d0 and self.words[slot * _WORDS + _D1] == d1:
                return slot
            at = (at + 1) & mask
            slot = self.slots[at]
        return -1

    def _new(self, d0: int, d1: int, keyspace: int, group: int, token: int) -> int:
        """Add a pending record born now and return its slot."""
        if self.free:
            slot = self.free - 1
            self.free = self.words[slot * _WORDS + _LOCS]
        else:
            if self.used == self.room:
                self._grow()
            slot = self.used
            self.used += 1
        self.live += 1
        self.pending += 1
        self.number += 1
        base = slot * _WORDS
        self.words[base + _D0] = d0
        self.words[base + _D1] = d1
        self.words[base + _TOKEN] = token & _MASK64
        self.words[base + _META] = codes.PENDING | group << 16 | keyspace << 32
        self.words[base + _NUMBER] = self.number
        self.words[base + _BORN] = self.tau
        self.words[base + _SINCE] = self.tau
        self.words[base + _LAST] = self.tau
        self.words[base + _LOCS] = 0
        self._index(slot)
        return slot

    def _index(self, slot: int) -> None:
        mask = 2 * self.room - 1
        at = self.words[slot * _WORDS] & mask
        while self.slots[at] >= 0:
            at = (at + 1) & mask
        self.slots[at] = slot

    def _drop(self, slot: int) -> None:
        """Forget a record: close the gap it leaves in its probe sequence, free its slot."""
        base = slot * _WORDS
        mask = 2 * self.room - 1
        at = self.words[base] & mask
        while self.slots[at] != slot:
            at = (at + 1) & mask
        gap = at
        at = (at + 1) & mask
        while self.slots[at] >= 0:
            home = self.words[self.slots[at] * _WORDS] & mask
            # Move it back unless its home lies cyclically between the gap and it.
            if ((at - home) & mask) >= ((at - gap) & mask):
                self.slots[gap] = self.slots[at]
                gap = at
            at = (at + 1) & mask
        self.slots[gap] = -1
        if self.words[base + _META] & _PERSISTED:
            self.dropped.append(self.words[base])
            self.dropped.append(self.words[base + _D1])
        self._forget_locations(slot)
        self.words[base + _META] = codes.FREE
        self.words[base + _LOCS] = self.free
        self.free = slot + 1
        self.live -= 1

    def _grow(self) -> None:
        words = memoryview(array("Q", bytes(16 * _WORDS * self.room)))
        words[: self.room * _WORDS] = self.words
        self.words = words
        self.room *= 2
        self.slots = memoryview(array("i", [-1]) * (2 * self.room))
        for slot in range(self.used):
            if self.words[slot * _WORDS + _META] & _KIND_BITS != codes.FREE:
                self._index(slot)

    def _become(self, slot: int, kind: int) -> None:
        base = slot * _WORDS
        self.words[base + _META] = (self.words[base + _META] & ~_KIND_BITS) | kind
        self.words[base + _SINCE] = self.tau
        if kind != codes.EXPIRED_DROPPED:
            self._forget_locations(slot)

    def _mark(self, slot: int) -> None:
        """Note that the record differs from what the last snapshot holds."""
        meta = self.words[slot * _WORDS + _META]
        if not meta & _DIRTY:
            self.words[slot * _WORDS + _META] = meta | _DIRTY
            if self.dirty_count == len(self.dirty):
                dirty = memoryview(array("i", bytes(8 * len(self.dirty))))
                dirty[: self.dirty_count] = self.dirty
                self.dirty = dirty
            self.dirty[self.dirty_count] = slot
            self.dirty_count += 1

    # ---- rows: records as they are stored ----

    def changed_rows(self) -> bytes:
        """Return the records changed or dropped since the last call, as rows of 64-bit words.

        A row is nine words as in the table (kind FREE: dropped), the number of its locations, and
        four words for each. Clears what it returned.
        """
        size = _WORDS * (len(self.dropped) // 2)
        for i in range(self.dirty_count):
            # A slot freed and taken again is listed twice; the first visit clears it.
            if self.words[self.dirty[i] * _WORDS + _META] & _DIRTY:
                size += self._row_size(self.dirty[i])
        rows = memoryview(array("Q", bytes(8 * max(size, 1))))
        at = 0
        gone = memoryview(self.dropped) if self.dropped else memoryview(array("Q", [0]))
        for i in range(0, len(self.dropped), 2):
            rows[at] = gone[i]
            rows[at + 1] = gone[i + 1]
            at += _WORDS
        for i in range(self.dirty_count):
            slot = self.dirty[i]
            if self.words[slot * _WORDS + _META] & _DIRTY:
                self.words[slot * _WORDS + _META] &= ~_DIRTY
                at = self._write_row(rows, at, slot)
        self.dirty_count = 0
        self.dropped = array("Q")
        return bytes(rows[:at])

    def all_rows(self) -> bytes:
        """Return every record as rows, as `changed_rows` does; nothing is changed after it."""
        self.dirty_count = 0
        self.dropped = array("Q")
        for slot in range(self.used):
            meta = self.words[slot * _WORDS + _META]
            if meta & _KIND_BITS != codes.FREE:
                self.words[slot * _WORDS + _META] = meta & ~_DIRTY
                self._mark(slot)
        return self.changed_rows()

    def _row_size(self, slot: int) -> int:
        size = _WORDS
        loc = self.words[slot * _WORDS + _LOCS]
        while loc:
            size += _LOC - 1
            loc = self.locs[(loc - 1) * _LOC + 4]
        return size

    def _write_row(self, rows: memoryview, at: int, slot: int) -> int:
        base = slot * _WORDS
        self.words[base + _META] |= _PERSISTED
        for i in range(_LOCS):
            rows[at + i] = self.words[base + i]
        rows[at + _META] &= ~_PERSISTED
        count = 0
        end = at + _WORDS
        loc = self.words[base + _LOCS]
        while loc:
            for i in range(_LOC - 1):
                rows[end + i] = self.locs[(loc - 1) * _LOC + i]
            end += _LOC - 1
            count += 1
            loc = self.locs[(loc - 1) * _LOC + 4]
        rows[at + _LOCS] = count
        return end

    def restore(self, rows: memoryview, host_map: list[int], keyspace_map: list[int]) -> None:
        """Apply stored rows in order; the maps turn their host and keyspace numbers into ours."""
        at = 0
        while at < len(rows):
            slot = self._find(rows[at], rows[at + 1])
            if slot >= 0:
                if self.words[slot * _WORDS + _META] & _KIND_BITS == codes.PENDING:
                    self.pending -= 1
                self._drop(slot)
            kind = rows[at + _META] & _KIND_BITS
            if kind != codes.FREE:
                self._restore_row(rows, at, kind, host_map, keyspace_map)
            at += _WORDS + rows[at + _LOCS] * (_LOC - 1)
        self.dropped = array("Q")

    def _restore_row(
        self,
        rows: memoryview,
        at: int,
        kind: int,
        host_map: list[int],
        keyspace_map: list[int],
    ) -> None:
        token = rows[at + _TOKEN]
        signed = token - (1 << 64) if token >> 63 else token
        keyspace = keyspace_map[rows[at + _META] >> 32 & _MASK16]
        group = self.groups_table.find(keyspace, signed)
        slot = self._new(rows[at], rows[at + 1], keyspace, group, signed)
        base = slot * _WORDS
        self.words[base + _META] = kind | _PERSISTED | group << 16 | keyspace << 32
        seen = rows[at + _SEEN]
        self.words[base + _SEEN] = sum(
            1 << new for old, new in enumerate(host_map) if seen >> old & 1
        )
        for field in (_NUMBER, _BORN, _SINCE, _LAST):
            self.words[base + field] = rows[at + field]
        self.number = max(self.number - 1, rows[at + _NUMBER])
        if kind != codes.PENDING:
            self.pending -= 1
        for i in reversed(range(rows[at + _LOCS])):
            loc = at + _WORDS + i * (_LOC - 1)
            self._locate(slot, host_map[rows[loc]], rows[loc + 1], rows[loc + 2], rows[loc + 3])

    # ---- where copies lie ----

    def _locate(self, slot: int, host: int, segment: int, position: int, length: int) -> None:
        if self.locs_free:
            loc = self.locs_free - 1
            self.locs_free = self.locs[loc * _LOC + 4]
        else:
            loc = self.locs_used
            self.locs_used += 1
            if loc * _LOC >= len(self.locs):
                locs = memoryview(array("q", bytes(16 * len(self.locs))))
                locs[: len(self.locs)] = self.locs
                self.locs = locs
        base = slot * _WORDS
        at = loc * _LOC
        self.locs[at] = host
        self.locs[at + 1] = segment
        self.locs[at + 2] = position
        self.locs[at + 3] = length
        self.locs[at + 4] = self.words[base + _LOCS]
        self.words[base + _LOCS] = loc + 1

    def _forget_locations(self, slot: int) -> None:
        loc = self.words[slot * _WORDS + _LOCS]
        self.words[slot * _WORDS + _LOCS] = 0
        while loc:
            following = self.locs[(loc - 1) * _LOC + 4]
            self.locs[(loc - 1) * _LOC + 4] = self.locs_free
            self.locs_free = loc
            loc = following

    def locations(self, slot: int) -> list[tuple[int, int, int, int]]:
        """Return where the copies of a pending or expired record lie, the newest first."""
        found = []
        loc = self.words[slot * _WORDS + _LOCS]
        while loc:
            at = (loc - 1) * _LOC
            found.append((self.locs[at], self.locs[at + 1], self.locs[at + 2], self.locs[at + 3]))
            loc = self.locs[at + 4]
        return found

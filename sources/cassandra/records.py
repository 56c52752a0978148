"""The records of one split in one flat table, found by digest, and as rows when they are stored.

Separate from the rules that change them: `agreement`. An entry costs no Python object; a look-up
goes by open addressing over the digest. For one thread.
"""

import itertools
from array import array

from headrace.sources.cassandra import codes, native

_DIRTY, _PERSISTED = 0x100, 0x200
_KIND_BITS = 0xFF
_ROOM_FIRST = 1024
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

    def set(
        self,
        masks: list[int],
        needed: list[int],
        rings: list[list[tuple[int, int]]],
    ) -> None:
        """Take the groups, and per keyspace its ring as (token, group) in ascending order."""
        self.masks = memoryview(array("Q", masks or [0]))
        self.needed = memoryview(array("i", needed or [0]))
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


class Records:
    """The table. `tau` is split time in ms, `number` the last record's number."""

    def __init__(self, groups: Groups) -> None:
        """Start empty, at split time 0."""
        self.groups_table = groups
        self.tau = 0
        self.number = 0
        self.live = 0
        self.pending = 0
        self.room = _ROOM_FIRST
        self.words = memoryview(array("Q", bytes(8 * codes.RECORD_WORDS * self.room)))
        self.slots = memoryview(array("i", [-1] * (2 * self.room)))
        self.used = 0  # Slots ever taken; beyond it the table is untouched.
        self.free = 0  # First free slot + 1, linked through codes.LOCATIONS.
        self.locs = memoryview(array("q", bytes(8 * codes.LOCATION_WORDS * self.room)))
        self.locs_used = 0
        self.locs_free = 0
        self.dirty = memoryview(array("i", bytes(4 * self.room)))
        self.dirty_count = 0
        self.dropped = memoryview(array("Q", bytes(16 * _ROOM_FIRST)))  # Digests.
        self.dropped_count = 0

    def fetch_slot(self, d0: int) -> None:
        """Begin to load the part of the index where a digest's search starts."""
        native.prefetch_slot(self.slots, d0 & (2 * self.room - 1))

    def fetch_record(self, d0: int) -> None:
        """Begin to load the record that a digest's search meets first."""
        slot = self.slots[d0 & (2 * self.room - 1)]
        if slot >= 0:
            native.prefetch_record(self.words, slot * codes.RECORD_WORDS)

    def _find(self, d0: int, d1: int) -> int:
        mask = 2 * self.room - 1
        at = d0 & mask
        slot = self.slots[at]
        while slot >= 0:
            if (
                self.words[slot * codes.RECORD_WORDS] == d0
                and self.words[slot * codes.RECORD_WORDS + codes.D1] == d1
            ):
                return slot
            at = (at + 1) & mask
            slot = self.slots[at]
        return -1

    def _new(self, d0: int, d1: int, keyspace: int, group: int, token: int) -> int:
        """Add a pending record born now and return its slot."""
        if self.free:
            slot = self.free - 1
            self.free = self.words[slot * codes.RECORD_WORDS + codes.LOCATIONS]
        else:
            if self.used == self.room:
                self._grow()
            slot = self.used
            self.used += 1
        self.live += 1
        self.pending += 1
        self.number += 1
        base = slot * codes.RECORD_WORDS
        self.words[base + codes.D0] = d0
        self.words[base + codes.D1] = d1
        self.words[base + codes.TOKEN] = token & _MASK64
        self.words[base + codes.META] = codes.PENDING | group << 16 | keyspace << 32
        self.words[base + codes.NUMBER] = self.number
        self.words[base + codes.BORN] = self.tau
        self.words[base + codes.SINCE] = self.tau
        self.words[base + codes.LAST] = self.tau
        self.words[base + codes.LOCATIONS] = 0
        self._index(slot)
        return slot

    def _index(self, slot: int) -> None:
        mask = 2 * self.room - 1
        at = self.words[slot * codes.RECORD_WORDS] & mask
        while self.slots[at] >= 0:
            at = (at + 1) & mask
        self.slots[at] = slot

    def _drop(self, slot: int) -> None:
        """Forget a record: close the gap it leaves in its probe sequence, free its slot."""
        mask = 2 * self.room - 1
        at = self.words[slot * codes.RECORD_WORDS] & mask
        while self.slots[at] != slot:
            at = (at + 1) & mask
        gap = at
        at = (at + 1) & mask
        while self.slots[at] >= 0:
            home = self.words[self.slots[at] * codes.RECORD_WORDS] & mask
            # Move it back unless its home lies cyclically between the gap and it.
            if ((at - home) & mask) >= ((at - gap) & mask):
                self.slots[gap] = self.slots[at]
                gap = at
            at = (at + 1) & mask
        self.slots[gap] = -1
        self._free(slot)

    def _free(self, slot: int) -> None:
        """Forget a record that the index still leads to: `_reindex` must follow."""
        base = slot * codes.RECORD_WORDS
        if self.words[base + codes.META] & _PERSISTED:
            self._note_dropped(self.words[base], self.words[base + codes.D1])
        self._forget_locations(slot)
        self.words[base + codes.META] = codes.FREE
        self.words[base + codes.LOCATIONS] = self.free
        self.free = slot + 1
        self.live -= 1

    def _reindex(self) -> None:
        """Make the index anew: once for many records is less than once for each."""
        self.slots = memoryview(array("i", [-1]) * (2 * self.room))
        for slot in range(self.used):
            if self.words[slot * codes.RECORD_WORDS + codes.META] & _KIND_BITS != codes.FREE:
                self._index(slot)

    def _note_dropped(self, d0: int, d1: int) -> None:
        if 2 * self.dropped_count == len(self.dropped):
            dropped = memoryview(array("Q", bytes(16 * len(self.dropped))))
            dropped[: len(self.dropped)] = self.dropped
            self.dropped = dropped
        self.dropped[2 * self.dropped_count] = d0
        self.dropped[2 * self.dropped_count + 1] = d1
        self.dropped_count += 1

    def _grow(self) -> None:
        words = memoryview(array("Q", bytes(16 * codes.RECORD_WORDS * self.room)))
        words[: self.room * codes.RECORD_WORDS] = self.words
        self.words = words
        self.room *= 2
        self._reindex()

    def _become(self, slot: int, kind: int) -> None:
        base = slot * codes.RECORD_WORDS
        self.words[base + codes.META] = (self.words[base + codes.META] & ~_KIND_BITS) | kind
        self.words[base + codes.SINCE] = self.tau
        if kind != codes.EXPIRED_DROPPED:
            self._forget_locations(slot)

    def _mark(self, slot: int) -> None:
        """Note that the record differs from what the last snapshot holds."""
        meta = self.words[slot * codes.RECORD_WORDS + codes.META]
        if not meta & _DIRTY:
            self.words[slot * codes.RECORD_WORDS + codes.META] = meta | _DIRTY
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
        size = codes.RECORD_WORDS * self.dropped_count
        for i in range(self.dirty_count):
            # A slot freed and taken again is listed twice; the first visit clears it.
            if self.words[self.dirty[i] * codes.RECORD_WORDS + codes.META] & _DIRTY:
                size += self._row_size(self.dirty[i])
        rows = memoryview(bytearray(8 * max(size, 1))).cast("Q")
        at = 0
        for i in range(self.dropped_count):
            rows[at] = self.dropped[2 * i]
            rows[at + 1] = self.dropped[2 * i + 1]
            at += codes.RECORD_WORDS
        for i in range(self.dirty_count):
            slot = self.dirty[i]
            if self.words[slot * codes.RECORD_WORDS + codes.META] & _DIRTY:
                self.words[slot * codes.RECORD_WORDS + codes.META] &= ~_DIRTY
                at = self._write_row(rows, at, slot)
        self.dirty_count = 0
        self.dropped_count = 0
        return bytes(rows[:at])

    def all_rows(self) -> bytes:
        """Return every record as rows, as `changed_rows` does; nothing is changed after it."""
        self.dirty_count = 0
        self.dropped_count = 0
        for slot in range(self.used):
            meta = self.words[slot * codes.RECORD_WORDS + codes.META]
            if meta & _KIND_BITS != codes.FREE:
                self.words[slot * codes.RECORD_WORDS + codes.META] = meta & ~_DIRTY
                self._mark(slot)
        return self.changed_rows()

    def _row_size(self, slot: int) -> int:
        size = codes.RECORD_WORDS
        loc = self.words[slot * codes.RECORD_WORDS + codes.LOCATIONS]
        while loc:
            size += codes.LOCATION_WORDS - 1
            loc = self.locs[(loc - 1) * codes.LOCATION_WORDS + 4]
        return size

    def _write_row(self, rows: memoryview, at: int, slot: int) -> int:
        base = slot * codes.RECORD_WORDS
        self.words[base + codes.META] |= _PERSISTED
        for i in range(codes.LOCATIONS):
            rows[at + i] = self.words[base + i]
        rows[at + codes.META] &= ~_PERSISTED
        count = 0
        end = at + codes.RECORD_WORDS
        loc = self.words[base + codes.LOCATIONS]
        while loc:
            for i in range(codes.LOCATION_WORDS - 1):
                rows[end + i] = self.locs[(loc - 1) * codes.LOCATION_WORDS + i]
            end += codes.LOCATION_WORDS - 1
            count += 1
            loc = self.locs[(loc - 1) * codes.LOCATION_WORDS + 4]
        rows[at + codes.LOCATIONS] = count
        return end

    def restore(self, rows: memoryview, host_map: list[int], keyspace_map: list[int]) -> None:
        """Apply stored rows in order; the maps turn their host and keyspace numbers into ours."""
        at = 0
        while at < len(rows):
            slot = self._find(rows[at], rows[at + 1])
            if slot >= 0:
                if self.words[slot * codes.RECORD_WORDS + codes.META] & _KIND_BITS == codes.PENDING:
                    self.pending -= 1
                self._drop(slot)
            kind = rows[at + codes.META] & _KIND_BITS
            if kind != codes.FREE:
                self._restore_row(rows, at, kind, host_map, keyspace_map)
            at += codes.RECORD_WORDS + rows[at + codes.LOCATIONS] * (codes.LOCATION_WORDS - 1)
        self.dropped_count = 0

    def _restore_row(
        self,
        rows: memoryview,
        at: int,
        kind: int,
        host_map: list[int],
        keyspace_map: list[int],
    ) -> None:
        token = rows[at + codes.TOKEN]
        signed = token - (1 << 64) if token >> 63 else token
        keyspace = keyspace_map[rows[at + codes.META] >> 32 & _MASK16]
        group = self.groups_table.find(keyspace, signed)
        slot = self._new(rows[at], rows[at + 1], keyspace, group, signed)
        base = slot * codes.RECORD_WORDS
        self.words[base + codes.META] = kind | _PERSISTED | group << 16 | keyspace << 32
        seen = rows[at + codes.SEEN]
        self.words[base + codes.SEEN] = sum(
            1 << new for old, new in enumerate(host_map) if seen >> old & 1
        )
        for field in (codes.NUMBER, codes.BORN, codes.SINCE, codes.LAST):
            self.words[base + field] = rows[at + field]
        self.number = max(self.number - 1, rows[at + codes.NUMBER])
        if kind != codes.PENDING:
            self.pending -= 1
        for i in reversed(range(rows[at + codes.LOCATIONS])):
            loc = at + codes.RECORD_WORDS + i * (codes.LOCATION_WORDS - 1)
            self._locate(slot, host_map[rows[loc]], rows[loc + 1], rows[loc + 2], rows[loc + 3])

    # ---- where copies lie ----

    def _locate(self, slot: int, host: int, segment: int, position: int, length: int) -> None:
        if self.locs_free:
            loc = self.locs_free - 1
            self.locs_free = self.locs[loc * codes.LOCATION_WORDS + 4]
        else:
            loc = self.locs_used
            self.locs_used += 1
            if loc * codes.LOCATION_WORDS >= len(self.locs):
                locs = memoryview(array("q", bytes(16 * len(self.locs))))
                locs[: len(self.locs)] = self.locs
                self.locs = locs
        base = slot * codes.RECORD_WORDS
        at = loc * codes.LOCATION_WORDS
        self.locs[at] = host
        self.locs[at + 1] = segment
        self.locs[at + 2] = position
        self.locs[at + 3] = length
        self.locs[at + 4] = self.words[base + codes.LOCATIONS]
        self.words[base + codes.LOCATIONS] = loc + 1

    def _forget_locations(self, slot: int) -> None:
        loc = self.words[slot * codes.RECORD_WORDS + codes.LOCATIONS]
        self.words[slot * codes.RECORD_WORDS + codes.LOCATIONS] = 0
        while loc:
            following = self.locs[(loc - 1) * codes.LOCATION_WORDS + 4]
            self.locs[(loc - 1) * codes.LOCATION_WORDS + 4] = self.locs_free
            self.locs_free = loc
            loc = following

    def locations(self, slot: int) -> list[tuple[int, int, int, int]]:
        """Return where the copies of a pending or expired record lie, the newest first."""
        found = []
        loc = self.words[slot * codes.RECORD_WORDS + codes.LOCATIONS]
        while loc:
            at = (loc - 1) * codes.LOCATION_WORDS
            found.append((self.locs[at], self.locs[at + 1], self.locs[at + 2], self.locs[at + 3]))
            loc = self.locs[at + 4]
        return found

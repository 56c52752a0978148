"""The records of one split in one flat table, found by digest.

Separate from the rules that change them, `agreement`, and from how they are stored, `record_rows`.
An entry costs no Python object; a look-up goes by open addressing over the digest. For one thread.
"""

import os
from array import array

from headrace.sources.cassandra import codes, native
from headrace.sources.cassandra.blocks import Block
from headrace.sources.cassandra.groups import Groups

_DIRTY, _PERSISTED, _SHARED = 0x100, 0x200, 0x400
_KIND_BITS = 0xFF
_HOST_SHIFT, _HOST_BITS = 48, 0x3F
_LOW32 = 0xFFFF_FFFF
_NOT_LOOKED = (1 << 63) - 1  # As the newest write time of a token: nobody has looked.
_ROOM_FIRST = 1024
# The type of each table's items and how many a record has: words, links, newest, slots, heads.
_TABLES = (("Q", codes.RECORD_WORDS), ("i", 1), ("q", 1), ("I", 2), ("I", 2))
RECORD_BYTES = sum(items * array(code).itemsize for code, items in _TABLES)  # Of memory.
# What a table's view is while its block grows.
_NO_WORDS, _NO_LINKS, _NO_TIMES, _NO_PLACES = (memoryview(array(code)) for code in "QiqI")
_AHEAD = 8  # Records whose places are fetched before they are needed.
_MASK16 = 0xFFFF
_SIGN = 1 << 63
_MASK64 = 0xFFFF_FFFF_FFFF_FFFF


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
        # `slots` finds a record by its digest. Records of one token are linked: `heads` finds the
        # last one, `links` lead to the others. Both have a record's slot + 1, and above it as many
        # bits of what is searched as there is room for, so that few records, each far away in
        # memory, are touched in vain; 0 is none. `newest` is, of a head, the newest write time in
        # what was published of its token.
        self.blocks = [Block(code, items * self.room) for code, items in _TABLES]
        self._view()
        # Who may write rows must not choose where tokens stand.
        self.salt = int.from_bytes(os.urandom(8), "little") | 1
        self.used = 0  # Slots ever taken; beyond it the table is untouched.
        self.likely = -1  # What `fetch_record` said of the digest that is looked for next.
        self.vacant = 0
        self.indexed = 0  # How often the indexes were made: so old a place in them is.
        self._reindex()
        self.free = 0  # First free slot + 1, linked through codes.LOCATIONS.
        self.locs = memoryview(array("q", bytes(8 * codes.LOCATION_WORDS * self.room)))
        self.locs_used = 0
        self.locs_free = 0
        self.dirty = memoryview(array("i", bytes(4 * self.room)))
        self.dirty_count = 0
        self.dropped = memoryview(array("Q", bytes(16 * _ROOM_FIRST)))  # Digests.
        self.dropped_count = 0

    def fetch_slot(self, d0: int) -> None:
        """Begin to load the part of the index where the search for a digest starts."""
        native.prefetch_index(self.slots, d0 & (2 * self.room - 1))

    def _fetch_head(self, token: int, keyspace: int) -> None:
        at = self._hash(token, keyspace) >> 32 & (2 * self.room - 1)
        native.prefetch_index(self.heads, at)

    def fetch_record(self, d0: int, token: int, keyspace: int) -> int:
        """Begin to load a digest's record, or where a new one is linked.

        Returns what `likely` may be when that digest is looked for: where the search ended.
        """
        mask = 2 * self.room - 1
        at = self._search(d0, d0 & mask)
        found = self.slots[at]
        if found:
            native.prefetch_record(self.words, ((found & mask) - 1) * codes.RECORD_WORDS)
        else:
            self._fetch_head(token & _MASK64, keyspace)
        return self.indexed << 32 | at

    def _find_likely(self, d0: int, d1: int) -> int:
        """Return what `_find` does; the search goes on where `likely` says that it stood.

        How long a search is no processor foresees, so one for each entry is enough.
        """
        at = self.likely & _LOW32 if self.likely >> 32 == self.indexed else d0 & (2 * self.room - 1)
        self.likely = -1
        return self._find_from(at, d0, d1)

    def _find(self, d0: int, d1: int) -> int:
        """Return a digest's slot; -1 for none, and then `vacant` is where in `slots` it goes."""
        return self._find_from(d0 & (2 * self.room - 1), d0, d1)

    def _find_from(self, at: int, d0: int, d1: int) -> int:
        mask = 2 * self.room - 1
        at = self._search(d0, at)
        while self.slots[at]:
            slot = (self.slots[at] & mask) - 1
            base = slot * codes.RECORD_WORDS
            if self.words[base] == d0 and self.words[base + codes.D1] == d1:
                return slot
            at = self._search(d0, (at + 1) & mask)
        self.vacant = at
        return -1

    def _search(self, d0: int, at: int) -> int:
        """Return where, from *at* on, `slots` may have a digest, or has nothing."""
        mask = 2 * self.room - 1
        tag = d0 >> 32 & ~mask
        found = self.slots[at]
        while found and found & ~mask != tag:
            at = (at + 1) & mask
            found = self.slots[at]
        return at

    def _new(self, d0: int, d1: int, keyspace: int, group: int, token: int) -> int:
        """Add a pending record born now, of what was just looked for, and return its slot."""
        if self.free:
            slot = self.free - 1
            self.free = self.words[slot * codes.RECORD_WORDS + codes.LOCATIONS]
            # The next one's row is far away, too: this one's alone would be waited for.
            native.prefetch_record(self.words, (self.free - 1) * codes.RECORD_WORDS)
        else:
            if self.used == self.room:
                self._grow()
                self._find(d0, d1)  # What is vacant now.
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
        self.newest[slot] = _NOT_LOOKED
        self._index(slot, self.vacant)
        self._link(slot)
        # One that was alone may have been published since somebody looked.
        if self.links[slot] >= 0 and self.links[self.links[slot]] >= 0:
            self.newest[slot] = self.newest[self.links[slot]]
        return slot

    def _index(self, slot: int, at: int) -> None:
        """Let the search for a record's digest, which comes by *at*, find it."""
        mask = 2 * self.room - 1
        while self.slots[at]:
            at = (at + 1) & mask
        d0 = self.words[slot * codes.RECORD_WORDS]
        self.slots[at] = (d0 >> 32 & ~mask) | (slot + 1)

    def _hash(self, token: int, keyspace: int) -> int:
        return ((token ^ keyspace) * self.salt) & _MASK64

    def _head_place(self, token: int, keyspace: int) -> int:
        """Return where the head of a token stands among `heads`, or would."""
        mask = 2 * self.room - 1
        hashed = self._hash(token, keyspace)
        at = hashed >> 32 & mask
        head = self.heads[at]
        tag = hashed & _LOW32 & ~mask
        while head:
            if head & ~mask == tag:
                base = ((head & mask) - 1) * codes.RECORD_WORDS
                if (
                    self.words[base + codes.TOKEN] == token
                    and self.words[base + codes.META] >> 32 & _MASK16 == keyspace
                ):
                    break
            at = (at + 1) & mask
            head = self.heads[at]
        return at

    def _link(self, slot: int) -> None:
        """Make a record the head of its token, unless a younger one is."""
        base = slot * codes.RECORD_WORDS
        token = self.words[base + codes.TOKEN]
        keyspace = self.words[base + codes.META] >> 32 & _MASK16
        mask = 2 * self.room - 1
        at = self._head_place(token, keyspace)
        head = (self.heads[at] & mask) - 1
        self.links[slot] = head
        if head >= 0:
            other = head * codes.RECORD_WORDS
            self.words[base + codes.META] |= _SHARED
            self.words[other + codes.META] |= _SHARED
            if self.words[base + codes.NUMBER] < self.words[other + codes.NUMBER]:
                self.links[slot] = self.links[head]
                self.links[head] = slot
                slot = head
        self.heads[at] = (self._hash(token, keyspace) & _LOW32 & ~mask) | (slot + 1)

    def head(self, slot: int) -> int:
        """Return the last record of the slot's token, which stands for all of them."""
        base = slot * codes.RECORD_WORDS
        keyspace = self.words[base + codes.META] >> 32 & _MASK16
        at = self._head_place(self.words[base + codes.TOKEN], keyspace)
        return (self.heads[at] & (2 * self.room - 1)) - 1

    def _free(self, slot: int) -> None:
        """Forget a record that the index still leads to: `_reindex` must follow."""
        base = slot * codes.RECORD_WORDS
        if self.links[slot] >= 0:
            self._hand_over(slot)
        if self.words[base + codes.META] & _PERSISTED:
            self._note_dropped(self.words[base], self.words[base + codes.D1])
        self._forget_locations(slot)
        self.words[base + codes.META] = codes.FREE
        self.words[base + codes.LOCATIONS] = self.free
        self.free = slot + 1
        self.live -= 1

    def _hand_over(self, slot: int) -> None:
        """Let another record be the head of a token: what is known of the token outlives this."""
        base = slot * codes.RECORD_WORDS
        keyspace = self.words[base + codes.META] >> 32 & _MASK16
        at = self._head_place(self.words[base + codes.TOKEN], keyspace)
        if self.heads[at] & (2 * self.room - 1) == slot + 1:
            other = self.links[slot]
            while other >= 0 and self._kind(other) == codes.FREE:
                other = self.links[other]
            if other >= 0:
                self.newest[other] = self.newest[slot]
                self.heads[at] += other - slot

    def _reindex(self) -> None:
        """Make the indexes anew: once for many records is less than once for each."""
        self.indexed += 1
        for i in range(2 * self.room):
            self.slots[i] = self.heads[i] = 0
        for slot in range(self.used):
            if slot + _AHEAD < self.used:
                base = (slot + _AHEAD) * codes.RECORD_WORDS
                keyspace = self.words[base + codes.META] >> 32 & _MASK16
                self.fetch_slot(self.words[base])
                self._fetch_head(self.words[base + codes.TOKEN], keyspace)
            if self._kind(slot) != codes.FREE:
                base = slot * codes.RECORD_WORDS
                self.words[base + codes.META] &= ~_SHARED
                self._index(slot, self.words[base] & (2 * self.room - 1))
                self._link(slot)

    def _kind(self, slot: int) -> int:
        return self.words[slot * codes.RECORD_WORDS + codes.META] & _KIND_BITS

    def _note_dropped(self, d0: int, d1: int) -> None:
        if 2 * self.dropped_count == len(self.dropped):
            self._grow_dropped()
        self.dropped[2 * self.dropped_count] = d0
        self.dropped[2 * self.dropped_count + 1] = d1
        self.dropped_count += 1

    def _grow_dropped(self) -> None:
        dropped = memoryview(array("Q", bytes(16 * len(self.dropped))))
        dropped[: len(self.dropped)] = self.dropped
        self.dropped = dropped

    def _grow(self) -> None:
        self.words, self.links, self.newest = _NO_WORDS, _NO_LINKS, _NO_TIMES
        self.slots = self.heads = _NO_PLACES
        try:
            for block, (_, items) in zip(self.blocks, _TABLES, strict=True):
                block.grow(2 * items * self.room)
        finally:
            self._view()
        self.room *= 2
        self._reindex()

    def _view(self) -> None:
        words, links, newest, slots, heads = [block.view() for block in self.blocks]
        self.words, self.links, self.newest = words, links, newest
        self.slots, self.heads = slots, heads

    def _become(self, slot: int, kind: int) -> None:
        base = slot * codes.RECORD_WORDS
        if kind != codes.EXPIRED_DROPPED:
            self._forget_locations(slot)
        self.words[base + codes.META] = (self.words[base + codes.META] & ~_KIND_BITS) | kind
        self.words[base + codes.SINCE] = self.tau

    def _become_published(  # noqa: PLR0913, PLR0917 (a copy, field by field)
        self, slot: int, kind: int, host: int, segment: int, position: int, length: int
    ) -> None:
        """Become one of the two published kinds, and keep where the copy lies."""
        self._become(slot, kind)
        base = slot * codes.RECORD_WORDS
        self.words[base + codes.META] &= ~(_HOST_BITS << _HOST_SHIFT)
        self.words[base + codes.META] |= host << _HOST_SHIFT
        self.words[base + codes.BORN] = segment
        self.words[base + codes.LOCATIONS] = position << 32 | length

    def _mark(self, slot: int) -> None:
        """Note that the record differs from what the last snapshot holds."""
        meta = self.words[slot * codes.RECORD_WORDS + codes.META]
        if not meta & _DIRTY:
            self.words[slot * codes.RECORD_WORDS + codes.META] = meta | _DIRTY
            if self.dirty_count == len(self.dirty):
                self._grow_dirty()
            self.dirty[self.dirty_count] = slot
            self.dirty_count += 1

    def _grow_dirty(self) -> None:  # Apart: a view among a function's variables costs each call.
        dirty = memoryview(array("i", bytes(8 * len(self.dirty))))
        dirty[: self.dirty_count] = self.dirty
        self.dirty = dirty

    def regroup(self, groups: Groups) -> None:
        """Go by *groups*: other replicas hold the tokens now."""
        self.groups_table = groups
        for slot in range(self.used):
            base = slot * codes.RECORD_WORDS
            if self._kind(slot) != codes.FREE:
                keyspace = self.words[base + codes.META] >> 32 & _MASK16
                group = groups.find(keyspace, _signed(self.words[base + codes.TOKEN]))
                self.words[base + codes.META] &= ~(_MASK16 << 16)
                self.words[base + codes.META] |= group << 16

    # ---- where copies lie ----

    def _locate(self, slot: int, host: int, segment: int, position: int, length: int) -> None:
        if self.locs_free:
            loc = self.locs_free - 1
            self.locs_free = self.locs[loc * codes.LOCATION_WORDS + 4]
        else:
            loc = self.locs_used
            if loc * codes.LOCATION_WORDS >= len(self.locs):
                locs = memoryview(array("q", bytes(16 * len(self.locs))))
                locs[: len(self.locs)] = self.locs
                self.locs = locs
            self.locs_used += 1
        base = slot * codes.RECORD_WORDS
        at = loc * codes.LOCATION_WORDS
        self.locs[at] = host
        self.locs[at + 1] = segment
        self.locs[at + 2] = position
        self.locs[at + 3] = length
        self.locs[at + 4] = self.words[base + codes.LOCATIONS]
        self.words[base + codes.LOCATIONS] = loc + 1

    def _has_locations(self, slot: int) -> int:
        """Say whether a record's last word leads to locations, as long as its bytes are needed."""
        kind = self._kind(slot)
        return 1 if kind == codes.PENDING or kind == codes.EXPIRED_DROPPED else 0  # noqa: PLR1714

    def _first_location(self, slot: int) -> int:
        if not self._has_locations(slot):
            return 0
        return self.words[slot * codes.RECORD_WORDS + codes.LOCATIONS]

    def _forget_locations(self, slot: int) -> None:
        loc = self._first_location(slot)
        self.words[slot * codes.RECORD_WORDS + codes.LOCATIONS] = 0
        while loc:
            following = self.locs[(loc - 1) * codes.LOCATION_WORDS + 4]
            self.locs[(loc - 1) * codes.LOCATION_WORDS + 4] = self.locs_free
            self.locs_free = loc
            loc = following

    def locations(self, slot: int) -> list[tuple[int, int, int, int]]:
        """Return where copies lie, the newest first; of a published record the one published."""
        found = []
        base = slot * codes.RECORD_WORDS
        kind = self._kind(slot)
        if kind in (codes.PUBLISHED, codes.EXPIRED_PUBLISHED):
            word = self.words[base + codes.LOCATIONS]
            host = self.words[base + codes.META] >> _HOST_SHIFT & _HOST_BITS
            return [(host, self.words[base + codes.BORN], word >> 32, word & _LOW32)] * bool(word)
        loc = self._first_location(slot)
        while loc:
            at = (loc - 1) * codes.LOCATION_WORDS
            found.append((self.locs[at], self.locs[at + 1], self.locs[at + 2], self.locs[at + 3]))
            loc = self.locs[at + 4]
        return found


def _signed(token: int) -> int:
    """Return a token as the ring has it, from a word without sign."""
    return (token ^ _SIGN) - _SIGN

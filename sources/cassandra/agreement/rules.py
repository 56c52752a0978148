"""Decides when enough copies agree: the records of one split and their rules.

An entry costs no Python object: records are rows of a flat table, and a look-up uses open
addressing by the digest. It does no I/O and reads no clock: entries and split time are arguments.
"Line n" cites the rules in docs/agreement.md. For one thread.
"""

import os
from array import array

from headrace.plugins import MiscountError
from headrace.sources.cassandra.errors import StateError
from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.native.growable import Block
from headrace.sources.cassandra.ring.replica_groups import Groups

PIECE_WORDS = 32 * 1024 - 64  # Of a stored piece: sealed, it has at most 256 KiB, with any content.
# The counters for the entries of a host.
HOST_FATES = ("first", "counted", "surplus", "repeat")
_HOST_COUNTERS = 4
_FIRST, _COUNTED, _SURPLUS, _REPEAT = 0, 1, 2, 3
# Words of an assumption.
_ASSUMED_WORDS = 4
_ASSUMED_HOST, _ASSUMED_UNTIL, _ASSUMED_FROM, _ASSUMED_TO = 0, 1, 2, 3
# Flags in META; for its other parts see `constants`.
_DIRTY, _PERSISTED, _SHARED, _CHECKED = 0x100, 0x200, 0x400, 0x800
_STREAMED, _NO_REPLICA = 1 << 54, 1 << 55
_STORED_BITS = 0xFF_FFFF_0000_00FF  # The part of META that is stored.
# Literals: C would shift the constants as 32-bit numbers.
_GROUP_MASK, _HOST_MASK = 0xFFFF << 16, 0x3F << 48
_HOSTS_MAX = 64
_ONE = 1  # As wide as a word.
_HALF = 0x8000_0000
_LOW32 = 0xFFFF_FFFF
_MASK64 = 0xFFFF_FFFF_FFFF_FFFF
_SIGN = 1 << 63
_NOT_LOOKED = (1 << 63) - 1  # As the newest write time of a token: not looked up yet.
_ROOM_FIRST = 128  # Grows soon if needed; many splits are empty.
# The type of each table's items and their number per record: words, links, newest, slots, heads.
_TABLES = (("Q", constants.RECORD_WORDS), ("i", 1), ("q", 1), ("I", 2), ("I", 2))
RECORD_BYTES = sum(items * array(code).itemsize for code, items in _TABLES)  # Of memory.
# The view of a table while its block grows.
_NO_WORDS, _NO_LINKS, _NO_TIMES, _NO_PLACES = (memoryview(array(code)) for code in "QiqI")
_AHEAD = 8  # Records whose places are prefetched.


class Agreement:
    """The records of one split and their rules (lines 11-20, 22-25).

    `number` is that of the last record.
    """

    def __init__(self, groups: Groups) -> None:
        """Start empty, at split time 0."""
        self.groups_table = groups
        self.split_time_ms = 0
        self.number = 0
        self.live = 0
        self.pending = 0
        self.touched = 0  # The number of the last observed record.
        self.suspect = -1  # The slot for constants.SUSPECT.
        self.streamed = 0  # Whether its node received a stream when the next entry was logged.
        self.hosts = memoryview(array("q", bytes(8 * _HOST_COUNTERS * max(1, groups.hosts))))
        # Host, end in split time, first place on the ring and the one behind: mutations born before
        # count as logged by that host (line 21).
        self.assumed = memoryview(array("Q", [0]))
        self.assumes = 0  # Its number of words.
        self.agreed = 0
        self.emitted = memoryview(array("Q", [0, 0]))  # The sum of the digests: `take_emitted`.
        # The digest of the last published record: a copy may have completed another one.
        self.named0 = self.named1 = 0
        # Sums of the first halves of digests: of the given entries, added by the caller of
        # `observe`, and of the records under which they were counted, from these records.
        self.given_sum = self.counted_sum = 0
        self.expired = 0
        self.not_replica = 0
        self.filtered = 0
        self.expired_published = 0
        self.reencoded = 0
        self.overflowed = 0
        self.memory_shortened = 0
        self.forgotten_incomplete = 0  # Before all copies arrived: a later one is repeated (36).
        self._make_table()

    def _make_table(self) -> None:
        self.room = _ROOM_FIRST
        # `slots` finds a record by its digest. Records of one token are linked: `heads` finds the
        # last one, `links` lead to the others. Both have a record's slot + 1, and in the bits above
        # as much of the search key as fits, so that few distant records are touched without
        # success; 0 is none. `newest` is, for a head, the newest write time published of its token.
        self.blocks = [Block(code, items * self.room) for code, items in _TABLES]
        self._view()
        # Writers of rows must not be able to choose the places of tokens.
        self.salt = int.from_bytes(os.urandom(8), "little") | 1
        self.used = 0  # Slots ever used; beyond it the table is untouched.
        self.likely = -1  # The result of `fetch_record` for the next digest.
        self.vacant = 0
        self.indexed = 1  # The version of the indexes, and so of places in them.
        self.free = 0  # First free slot + 1, linked through constants.LOCATIONS.
        self.locs = memoryview(array("q", bytes(8 * constants.LOCATION_WORDS * self.room)))
        self.locs_used = 0
        self.locs_free = 0
        self.dirty = memoryview(array("i", bytes(4 * self.room)))
        self.dirty_count = 0
        self.dropped = memoryview(array("Q", bytes(16 * _ROOM_FIRST)))  # Digests.
        self.dropped_count = 0
        self.scratch = Block("Q", PIECE_WORDS).view()  # Kept: new pages cost more than their use.

    # ---- the fields of a record, of its META, and of a location ----

    def _field(self, slot: int, field: int) -> int:
        return self.words[slot * constants.RECORD_WORDS + field]

    def _set_field(self, slot: int, field: int, value: int) -> None:
        self.words[slot * constants.RECORD_WORDS + field] = value

    def _kind(self, slot: int) -> int:
        return self._field(slot, constants.META) & constants.KIND_BITS

    def _set_kind(self, slot: int, kind: int) -> None:
        meta = self._field(slot, constants.META)
        self._set_field(slot, constants.META, (meta & ~constants.KIND_BITS) | kind)

    def _group(self, slot: int) -> int:
        return self._field(slot, constants.META) >> constants.GROUP_SHIFT & constants.GROUP_BITS

    def _keyspace(self, slot: int) -> int:
        return _keyspace_of(self._field(slot, constants.META))

    def _published_host(self, slot: int) -> int:
        return _host_of(self._field(slot, constants.META))

    def _flags(self, slot: int, flags: int) -> int:
        """Return those of *flags* that a record has."""
        return self._field(slot, constants.META) & flags

    def _add_flags(self, slot: int, flags: int) -> None:
        self.words[slot * constants.RECORD_WORDS + constants.META] |= flags

    def _remove_flags(self, slot: int, flags: int) -> None:
        self.words[slot * constants.RECORD_WORDS + constants.META] &= ~flags

    def _see(self, slot: int, hosts: int) -> None:
        self.words[slot * constants.RECORD_WORDS + constants.SEEN] |= hosts

    def _location(self, loc: int, field: int) -> int:
        """Return a field of the location *loc*, which counts from 1."""
        return self.locs[(loc - 1) * constants.LOCATION_WORDS + field]

    def _set_location(self, loc: int, field: int, value: int) -> None:
        self.locs[(loc - 1) * constants.LOCATION_WORDS + field] = value

    def _count(self, slot: int, host: int, fate: int) -> None:
        """Count an entry of *host*, whose record is in *slot*."""
        self.hosts[host * _HOST_COUNTERS + fate] += 1
        self.counted_sum += self._field(slot, constants.D0)

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
        """Observe one entry of *host*. Return 0, or the number of copies that justify emitting it.

        constants.ASSUMED is added if copies were assumed. A negative number is the same for a
        mutation that had expired: it is emitted as late. After constants.SUSPECT the caller
        compares the content of the entry, and calls `publish` or `know` for the slot `suspect`
        before the next entry.
        """
        bit = _ONE << host
        slot = self._find_likely(d0, d1)
        if slot < 0:  # Line 14.
            self.touched = self.number + 1
            group = self.groups_table.find(keyspace, token)
            slot = self._new(d0, d1, keyspace, group, token)
            self._set_field(slot, constants.SEEN, bit)
            if self.streamed:
                self._add_flags(slot, _STREAMED)
            self._count(slot, host, _FIRST)
            self._mark(slot)
            return self._decide(slot, host, segment, position, length)
        self.touched = self._field(slot, constants.NUMBER)
        self._set_field(slot, constants.LAST, self.split_time_ms)
        self._mark(slot)
        if self._field(slot, constants.SEEN) & bit:  # Line 15: never a second vote.
            self._count(slot, host, _REPEAT)
            return 0
        self._see(slot, bit)
        kind, own = self._kind(slot), slot
        if kind == constants.JOINED:
            slot = self._joined_to(slot, bit)
            kind = self._kind(slot)
        if kind == constants.PENDING:  # Line 16, by kind.
            self._count(own, host, _COUNTED)
            self._remove_flags(slot, _CHECKED)
            if not self.streamed:  # An entry written here means it is not a stream's.
                self._remove_flags(slot, _STREAMED)
            return self._decide(slot, host, segment, position, length)
        if kind == constants.EXPIRED_DROPPED:
            self._count(own, host, _COUNTED)
            copies = self._met(slot)
            if copies > 0:
                self._become_published(slot, constants.PUBLISHED, host, segment, position, length)
                self.newest[self.head(slot)] = _NOT_LOOKED
                if self._flags(slot, _NO_REPLICA):
                    self._remove_flags(slot, _NO_REPLICA)
                    self.not_replica -= 1
                else:
                    self.expired -= 1
                self.agreed += 1
            return -copies
        self._count(own, host, _SURPLUS)
        return 0

    def _joined_to(self, slot: int, bit: int) -> int:
        """Count a copy for the record that its own was joined to, if that can be published."""
        other = self._other(slot)
        if other < 0:
            return slot
        kind = self._kind(other)
        if (
            kind not in (constants.PENDING, constants.EXPIRED_DROPPED)
            or self._field(other, constants.SEEN) & bit
        ):
            return slot
        self._see(other, bit)
        self._set_field(other, constants.LAST, self.split_time_ms)
        self._mark(other)
        return other

    def _other(self, slot: int) -> int:
        """Return the record that a joined one refers to; -1 if it is forgotten."""
        return self._find(self._field(slot, constants.BORN), self._field(slot, constants.LOCATIONS))

    def _decide(self, slot: int, host: int, segment: int, position: int, length: int) -> int:
        """Publish a pending record whose level is met (line 17), or store the place of its copy."""
        copies = self._met(slot)
        meta = self._field(slot, constants.META)
        if copies == 0 or meta & (_SHARED | _STREAMED):
            self._locate(slot, host, segment, position, length)
            if copies == 0 or meta & _STREAMED:
                return 0
            self.suspect = slot
            return constants.SUSPECT
        self._agree(slot, host, segment, position, length)
        return copies

    def _agree(self, slot: int, host: int, segment: int, position: int, length: int) -> None:
        self._become_published(slot, constants.PUBLISHED, host, segment, position, length)
        self._mark(slot)
        self.pending -= 1
        self.agreed += 1

    def _met(self, slot: int) -> int:
        """Return the number of distinct hosts seen if the level is met, else 0 (line 3)."""
        group = self._group(slot)
        seen = self._field(slot, constants.SEEN)
        if self.groups_table.met(group, seen):
            return ops.popcount(seen)
        return self._met_assuming(slot) if self.assumes else 0

    def _met_assuming(self, slot: int) -> int:
        """Do the same for a pending record, including the assumed copies (line 21)."""
        seen = self._field(slot, constants.SEEN)
        assumed = seen
        place = (self._field(slot, constants.TOKEN) >> 32) ^ _HALF
        at = 0
        while at < self.assumes:
            if (
                self.assumed[at + _ASSUMED_UNTIL] > self._field(slot, constants.BORN)
                and self.assumed[at + _ASSUMED_FROM] <= place < self.assumed[at + _ASSUMED_TO]
            ):
                assumed |= _ONE << self.assumed[at + _ASSUMED_HOST]
            at += _ASSUMED_WORDS
        group = self._group(slot)
        if self._kind(slot) != constants.PENDING or not self.groups_table.met(group, assumed):
            return 0
        return ops.popcount(seen) | constants.ASSUMED

    def assume(self, parts: list[tuple[int, int, int, int]]) -> None:
        """Count hosts for pending mutations whose copies may have been in *parts* that are lost.

        Each is a host, the split time before which they were born, and the affected places on the
        ring: the first, and the one behind.
        """
        words = [word for part in parts for word in part]
        self.assumes = len(words)
        self.assumed = memoryview(array("Q", words))

    def counted(self, host: int) -> list[int]:
        """Return the counts of the entries of *host* by fate, in the order of `HOST_FATES`."""
        first = host * _HOST_COUNTERS
        return list(self.hosts[first : first + _HOST_COUNTERS])

    def first_copies(self) -> int:
        """Return how many entries of all hosts were the first of their mutation."""
        return sum(self.hosts[_FIRST::_HOST_COUNTERS])

    def forget_counts(self, host: int) -> None:
        """Reset the counters of the entries of *host*."""
        for fate in range(_HOST_COUNTERS):
            self.hosts[host * _HOST_COUNTERS + fate] = 0

    # ---- time (lines 20, 23, 24) ----

    def due(self, slots: list[int], wait: int) -> list[int]:
        """Return those of *slots* that are pending and *wait* ms of split time old (line 20)."""
        return [slot for slot in slots if self._is_pending(slot, wait)]

    def _is_pending(self, slot: int, wait: int) -> int:
        if self._kind(slot) != constants.PENDING:
            return 0
        return 1 if self.split_time_ms >= self._field(slot, constants.BORN) + wait else 0

    def forgets_in(self, memory: int, complete: int) -> int:
        """Return in how many ms of split time `forget_old` forgets the first record.

        It is 0 if it does now. A record that is new, or published meanwhile, is kept longer than
        *memory* or *complete* from now, the arguments of `forget_old`: the result is never larger.
        """
        left = min(memory, complete)
        for slot in range(self.used if self.live else 0):
            kind = self._kind(slot)
            if kind not in (constants.FREE, constants.PENDING) and not self._leads_on(slot):
                is_complete = kind != constants.EXPIRED_DROPPED and self._complete(slot)
                kept = complete if is_complete else memory
                if self._outlived(slot, kept, is_complete):
                    return 0
                ends = kept + self._field(slot, constants.LAST if is_complete else constants.SINCE)
                left = min(left, ends - self.split_time_ms)
        return left

    def _outlived(self, slot: int, kept: int, is_complete: int) -> int:
        """Return whether a record is old enough to be forgotten (line 23)."""
        since = self._field(slot, constants.LAST if is_complete else constants.SINCE)
        return 1 if self.split_time_ms >= since + kept else 0

    def ready(self, slots: list[int]) -> list[int]:
        """Return those of *slots* that are pending with their level met, as after a load (18)."""
        return [slot for slot in slots if self.is_ready(slot)]

    def copies(self, slot: int) -> int:
        """Return the result of `observe` for an emission: hosts seen, with ASSUMED or EXPIRED."""
        met = self._met(slot)
        seen = ops.popcount(self._field(slot, constants.SEEN))
        return met if met > 0 else seen | constants.EXPIRED

    def publish(self, slot: int, host: int, segment: int, position: int, length: int) -> int:
        """Publish a pending record with the bytes of one copy. Return its copies."""
        copies = self._met(slot)
        self._agree(slot, host, segment, position, length)
        return copies

    def expire(self, slot: int) -> None:
        """Make a pending record EXPIRED_DROPPED; one of no replica is booked separately (13)."""
        self._become(slot, constants.EXPIRED_DROPPED)
        self._mark(slot)
        self.pending -= 1
        if self._field(slot, constants.SEEN) & self._expected(slot):
            self.expired += 1
        else:
            self._add_flags(slot, _NO_REPLICA)
            self.not_replica += 1

    def publish_expired(
        self, slot: int, host: int, segment: int, position: int, length: int
    ) -> None:
        """Make a pending record EXPIRED_PUBLISHED with the bytes of one copy."""
        self._become_published(slot, constants.EXPIRED_PUBLISHED, host, segment, position, length)
        self._mark(slot)
        self.pending -= 1
        self.expired_published += 1

    # ---- the same content in other bytes (lines 17, 19) ----

    def newest_published(self, slot: int) -> int:
        """Return the newest write time published of the slot's token.

        The largest 64-bit number means "unknown", the smallest "nothing".
        """
        return self.newest[self.head(slot)]

    def learn_newest(self, slot: int, timestamp: int) -> None:
        """Set the newest write time published of the slot's token."""
        self.newest[self.head(slot)] = timestamp

    def number_of(self, slot: int) -> int:
        """Return a record's number: older ones have lower ones."""
        return self._field(slot, constants.NUMBER)

    def is_ready(self, slot: int) -> bool:
        """Return whether a record may be published; a possible stream's only when compared."""
        meta = self._field(slot, constants.META)
        if self._kind(slot) != constants.PENDING or meta & (_STREAMED | _CHECKED) == _STREAMED:
            return False
        return self._met(slot) > 0

    def others_of_token(self, slot: int) -> list[tuple[int, int]]:
        """Return the other records of the slot's token as (slot, kind), the last one first."""
        found = []
        other = self.head(slot)
        while other >= 0:
            if other != slot:
                found.append((other, self._kind(other)))
            other = self.links[other]
        return found

    def published_of_token(self, slot: int) -> list[int]:
        """Return the records of the slot's token that were published, the last one first.

        None of them is forgotten while `indexed` does not change.
        """
        found = []
        other = self.head(slot)
        while other >= 0:
            if self._kind(other) in (constants.PUBLISHED, constants.EXPIRED_PUBLISHED):
                found.append(other)
            other = self.links[other]
        return found

    def unchecked(self, slots: list[int], wait: int) -> list[int]:
        """Return those of `due` that were not compared since their last copy."""
        return [slot for slot in self.due(slots, wait) if self._is_unchecked(slot)]

    def _is_unchecked(self, slot: int) -> int:
        meta = self._field(slot, constants.META)
        return 1 if meta & (_SHARED | _STREAMED) and not meta & _CHECKED else 0

    def check(self, slot: int) -> None:
        """Note that a pending record was compared; another copy requires it again."""
        self._add_flags(slot, _CHECKED)

    def know(self, slot: int) -> None:
        """Make a pending record CONTENT_KNOWN: all its content was published."""
        self._become(slot, constants.CONTENT_KNOWN)
        self._mark(slot)
        self.pending -= 1
        self.reencoded += 1

    def is_streamed(self, slot: int) -> bool:
        """Return whether all copies of a record may come from a stream."""
        return self._flags(slot, _STREAMED) != 0

    def leave_out(self, slot: int) -> None:
        """Make a pending record CONTENT_KNOWN, booked as filtered: it is not delivered."""
        self._become(slot, constants.CONTENT_KNOWN)
        self._mark(slot)
        self.pending -= 1
        self.filtered += 1

    def joined(self, slot: int) -> list[int]:
        """Return the records that were joined to this one."""
        if not self._flags(slot, _SHARED):
            return []
        found = []
        for other, kind in self.others_of_token(slot):
            if kind == constants.JOINED and self._other(other) == slot:
                found.append(other)
        return found

    def join(self, slot: int, other: int) -> None:
        """Count the copies of a pending record for *other*, a pending one with the same content."""
        for host, segment, position, length in reversed(self.locations(slot)):
            self._locate(other, host, segment, position, length)
        self._see(other, self._field(slot, constants.SEEN))
        last = max(self._field(other, constants.LAST), self._field(slot, constants.LAST))
        self._set_field(other, constants.LAST, last)
        self._become(slot, constants.JOINED)
        self._set_field(slot, constants.BORN, self._field(other, constants.D0))
        self._set_field(slot, constants.LOCATIONS, self._field(other, constants.D1))
        self._mark(slot)
        self._mark(other)
        self.pending -= 1
        self.reencoded += 1

    def forget_old(self, memory: int, complete: int) -> int:
        """Forget records by age, in ms of split time. Return how many were dropped (line 23).

        *memory* is M and *complete* is C: how long incomplete and complete records are kept.
        """
        dropped = 0
        for slot in range(self.used):
            kind = self._kind(slot)
            if kind in (constants.FREE, constants.PENDING) or self._leads_on(slot):
                continue
            if kind != constants.EXPIRED_DROPPED and self._complete(slot):
                if self._outlived(slot, complete, 1):
                    self._free(slot)
                    dropped += 1
            elif self._outlived(slot, memory, 0):
                self.forgotten_incomplete += kind != constants.EXPIRED_DROPPED
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
        """Drop the older half, by number, of the droppable records; 0 if there are none."""
        lowest = self.number
        highest = 0
        for slot in range(self.used):
            if self._may_go(slot, complete_only):
                number = self._field(slot, constants.NUMBER)
                lowest = min(lowest, number)
                highest = max(highest, number)
        middle = lowest + (highest - lowest) // 2
        dropped = 0
        for slot in range(self.used):
            if self._may_go(slot, complete_only):
                number = self._field(slot, constants.NUMBER)
                if number <= middle:
                    self._free(slot)
                    dropped += 1
        if dropped:
            self._reindex()
        return dropped

    def _may_go(self, slot: int, complete_only: int) -> int:
        kind = self._kind(slot)
        if kind in (constants.FREE, constants.PENDING):  # Line 22: pending records never go here.
            return 0
        if complete_only:
            return 0 if kind == constants.EXPIRED_DROPPED else self._complete(slot)
        return 1

    def _complete(self, slot: int) -> int:
        return int(self._expected(slot) & ~self._field(slot, constants.SEEN) == 0)

    def _expected(self, slot: int) -> int:
        """Return the hosts that may all log a record (line 4)."""
        return self.groups_table.expected[self._group(slot)]

    def _leads_on(self, slot: int) -> int:
        """Return whether later copies with these bytes count for another record."""
        if self._kind(slot) != constants.JOINED:
            return 0
        other = self._other(slot)
        return 1 if other >= 0 and self._has_locations(other) else 0

    def unpublished(self, host: int, most: int) -> dict[int, list[tuple[int, int]]]:
        """Return the places of copies of pending and expired records in the log of *host* (34).

        By segment: position and length of each copy, for at most *most* copies in one.
        """
        found: dict[int, list[tuple[int, int]]] = {}
        for slot in range(self.used):
            kind = self._kind(slot)
            if kind in (constants.PENDING, constants.EXPIRED_DROPPED):
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
            if self._kind(slot) != constants.FREE:
                found |= self._field(slot, constants.SEEN)
        return found

    def oldest_pending(self, count: int) -> list[int]:
        """Return the slots of the oldest pending records, at most *count*."""
        found = [
            (self._field(slot, constants.NUMBER), slot)
            for slot in range(self.used if self.pending else 0)
            if self._kind(slot) == constants.PENDING
        ]
        return [slot for _, slot in sorted(found)[:count]]

    def overflow(self, slots: list[int]) -> None:
        """Forget pending records whose bytes are safe elsewhere (line 25)."""
        for slot in slots:
            for other in self.joined(slot):  # A copy with these bytes starts over, too.
                self._free(other)
            self.pending -= 1
            self.overflowed += 1
            self._free(slot)
        if slots:
            self._reindex()

    def identity(self, slot: int) -> tuple[int, int, int]:
        """Return a record's digest as two words, and the number of hosts that logged it."""
        copies = ops.popcount(self._field(slot, constants.SEEN))
        return self._field(slot, constants.D0), self._field(slot, constants.D1), copies

    # ---- the table of records ----

    def fetch_slot(self, d0: int) -> None:
        """Prefetch the part of the index where the search for a digest starts."""
        ops.prefetch_index(self.slots, d0 & (2 * self.room - 1))

    def _fetch_head(self, token: int, keyspace: int) -> None:
        at = self._hash(token, keyspace) >> 32 & (2 * self.room - 1)
        ops.prefetch_index(self.heads, at)

    def fetch_record(self, d0: int, token: int, keyspace: int) -> int:
        """Prefetch a digest's record, or the place of a new one.

        Returns a value for `likely` when that digest is looked up: the end of the search.
        """
        mask = 2 * self.room - 1
        at = self._search(d0, d0 & mask)
        found = self.slots[at]
        if found:
            ops.prefetch_record(self.words, ((found & mask) - 1) * constants.RECORD_WORDS)
        else:
            self._fetch_head(token & _MASK64, keyspace)
        return self.indexed << 32 | at

    def _find_likely(self, d0: int, d1: int) -> int:
        """Return the result of `_find`; the search continues at `likely`.

        The processor cannot predict the length of a search, so one per entry is enough.
        """
        at = self.likely & _LOW32 if self.likely >> 32 == self.indexed else d0 & (2 * self.room - 1)
        self.likely = -1
        return self._find_from(at, d0, d1)

    def _find(self, d0: int, d1: int) -> int:
        """Return a digest's slot; -1 for none, and then `vacant` is its place in `slots`."""
        return self._find_from(d0 & (2 * self.room - 1), d0, d1)

    def _find_from(self, at: int, d0: int, d1: int) -> int:
        mask = 2 * self.room - 1
        at = self._search(d0, at)
        while self.slots[at]:
            slot = (self.slots[at] & mask) - 1
            if self._field(slot, constants.D0) == d0 and self._field(slot, constants.D1) == d1:
                return slot
            at = self._search(d0, (at + 1) & mask)
        self.vacant = at
        return -1

    def _search(self, d0: int, at: int) -> int:
        """Return the next place from *at* where `slots` may have a digest, or is empty."""
        mask = 2 * self.room - 1
        tag = d0 >> 32 & ~mask
        found = self.slots[at]
        while found and found & ~mask != tag:
            at = (at + 1) & mask
            found = self.slots[at]
        return at

    def _new(self, d0: int, d1: int, keyspace: int, group: int, token: int) -> int:
        """Add a pending record born now, for the digest just looked up. Return its slot."""
        if self.free:
            slot = self.free - 1
            self.free = self._field(slot, constants.LOCATIONS)
            # Also the next one's row, which is distant, too: a single prefetch would be waited for.
            ops.prefetch_record(self.words, (self.free - 1) * constants.RECORD_WORDS)
        else:
            if self.used == self.room:
                self._grow()
                self._find(d0, d1)  # The vacant place now.
            slot = self.used
            self.used += 1
        self.live += 1
        self.pending += 1
        self.number += 1
        self._set_field(slot, constants.D0, d0)
        self._set_field(slot, constants.D1, d1)
        self._set_field(slot, constants.TOKEN, token & _MASK64)
        meta = group << constants.GROUP_SHIFT | keyspace << constants.KEYSPACE_SHIFT
        self._set_field(slot, constants.META, meta | constants.PENDING)
        self._set_field(slot, constants.NUMBER, self.number)
        self._set_field(slot, constants.BORN, self.split_time_ms)
        self._set_field(slot, constants.SINCE, self.split_time_ms)
        self._set_field(slot, constants.LAST, self.split_time_ms)
        self._set_field(slot, constants.LOCATIONS, 0)
        self.newest[slot] = _NOT_LOOKED
        self._index(slot, self.vacant)
        self._link(slot)
        # A single record may have been published since the last look.
        if self.links[slot] >= 0 and self.links[self.links[slot]] >= 0:
            self.newest[slot] = self.newest[self.links[slot]]
        return slot

    def _index(self, slot: int, at: int) -> None:
        """Enter a record into the index of digests, from *at* on."""
        mask = 2 * self.room - 1
        while self.slots[at]:
            at = (at + 1) & mask
        d0 = self._field(slot, constants.D0)
        self.slots[at] = (d0 >> 32 & ~mask) | (slot + 1)

    def _hash(self, token: int, keyspace: int) -> int:
        return ((token ^ keyspace) * self.salt) & _MASK64

    def _head_place(self, token: int, keyspace: int) -> int:
        """Return the place of the head of a token in `heads`, existing or not."""
        mask = 2 * self.room - 1
        hashed = self._hash(token, keyspace)
        at = hashed >> 32 & mask
        head = self.heads[at]
        tag = hashed & _LOW32 & ~mask
        while head:
            if head & ~mask == tag:
                slot = (head & mask) - 1
                if self._field(slot, constants.TOKEN) == token and self._keyspace(slot) == keyspace:
                    break
            at = (at + 1) & mask
            head = self.heads[at]
        return at

    def _link(self, slot: int) -> None:
        """Make a record the head of its token, unless a younger one is."""
        token = self._field(slot, constants.TOKEN)
        keyspace = self._keyspace(slot)
        mask = 2 * self.room - 1
        at = self._head_place(token, keyspace)
        head = (self.heads[at] & mask) - 1
        self.links[slot] = head
        if head >= 0:
            self._add_flags(slot, _SHARED)
            self._add_flags(head, _SHARED)
            if self._field(slot, constants.NUMBER) < self._field(head, constants.NUMBER):
                self.links[slot] = self.links[head]
                self.links[head] = slot
                slot = head
        self.heads[at] = (self._hash(token, keyspace) & _LOW32 & ~mask) | (slot + 1)

    def head(self, slot: int) -> int:
        """Return the last record of the slot's token, which represents all of them."""
        keyspace = self._keyspace(slot)
        at = self._head_place(self._field(slot, constants.TOKEN), keyspace)
        return (self.heads[at] & (2 * self.room - 1)) - 1

    def _free(self, slot: int) -> None:
        """Forget a record that is still in the index: `_reindex` must follow."""
        if self.links[slot] >= 0:
            self._hand_over(slot)
        if self._flags(slot, _PERSISTED):
            self._note_dropped(self._field(slot, constants.D0), self._field(slot, constants.D1))
        self._forget_locations(slot)
        self._set_field(slot, constants.META, constants.FREE)
        self._set_field(slot, constants.LOCATIONS, self.free)
        self.free = slot + 1
        self.live -= 1

    def _hand_over(self, slot: int) -> None:
        """Make another record the head of a token: facts about the token outlive this one."""
        keyspace = self._keyspace(slot)
        at = self._head_place(self._field(slot, constants.TOKEN), keyspace)
        if self.heads[at] & (2 * self.room - 1) == slot + 1:
            other = self.links[slot]
            while other >= 0 and self._kind(other) == constants.FREE:
                other = self.links[other]
            if other >= 0:
                self.newest[other] = self.newest[slot]
                self.heads[at] += other - slot

    def _reindex(self) -> None:
        """Rebuild the indexes: once for many records costs less than once for each."""
        self.indexed += 1
        for i in range(2 * self.room):
            self.slots[i] = self.heads[i] = 0
        for slot in range(self.used):
            if slot + _AHEAD < self.used:
                keyspace = self._keyspace(slot + _AHEAD)
                self.fetch_slot(self._field(slot + _AHEAD, constants.D0))
                self._fetch_head(self._field(slot + _AHEAD, constants.TOKEN), keyspace)
            if self._kind(slot) != constants.FREE:
                self._remove_flags(slot, _SHARED)
                self._index(slot, self._field(slot, constants.D0) & (2 * self.room - 1))
                self._link(slot)

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
        if kind != constants.EXPIRED_DROPPED:
            self._forget_locations(slot)
        self._set_kind(slot, kind)
        self._set_field(slot, constants.SINCE, self.split_time_ms)

    def _become_published(  # noqa: PLR0913, PLR0917 (a copy, field by field)
        self, slot: int, kind: int, host: int, segment: int, position: int, length: int
    ) -> None:
        """Become one of the two published kinds, and store the place of the copy."""
        self._become(slot, kind)
        self._remove_flags(slot, _HOST_MASK)
        self._add_flags(slot, host << constants.HOST_SHIFT)
        self._set_field(slot, constants.BORN, segment)
        self._set_field(slot, constants.LOCATIONS, position << 32 | length)
        self.named0 = self._field(slot, constants.D0)
        self.named1 = self._field(slot, constants.D1)
        ops.add_digest(self.emitted, 0, self.words, slot * constants.RECORD_WORDS + constants.D0)

    def take_emitted(self, split: str) -> int:
        """Return the sum of the digests published since the last call, modulo 2**128.

        Raises:
            MiscountError: an entry was counted, but not as a copy of its own record.

        """
        if self.given_sum != self.counted_sum:
            message = "entries that agreement was given are not in its records"
            raise MiscountError(message, place=f"split {split}")
        low, high = self.emitted
        self.emitted[0] = self.emitted[1] = 0
        return low | high << 64

    def _mark(self, slot: int) -> None:
        """Note that the record differs from the last snapshot."""
        if not self._flags(slot, _DIRTY):
            self._add_flags(slot, _DIRTY)
            if self.dirty_count == len(self.dirty):
                self._grow_dirty()
            self.dirty[self.dirty_count] = slot
            self.dirty_count += 1

    def _grow_dirty(self) -> None:  # Separate: a view among a function's variables costs each call.
        dirty = memoryview(array("i", bytes(8 * len(self.dirty))))
        dirty[: self.dirty_count] = self.dirty
        self.dirty = dirty

    def regroup(self, groups: Groups) -> None:
        """Use *groups*: the tokens have other replicas now."""
        self.groups_table = groups
        for slot in range(self.used):
            if self._kind(slot) != constants.FREE:
                keyspace = self._keyspace(slot)
                group = groups.find(keyspace, _signed(self._field(slot, constants.TOKEN)))
                self._remove_flags(slot, _GROUP_MASK)
                self._add_flags(slot, group << constants.GROUP_SHIFT)

    # ---- the places of copies ----

    def _locate(self, slot: int, host: int, segment: int, position: int, length: int) -> None:
        loc = self.locs_free
        if loc:
            self.locs_free = self._location(loc, constants.LOCATION_NEXT)
        else:
            if self.locs_used * constants.LOCATION_WORDS >= len(self.locs):
                locs = memoryview(array("q", bytes(16 * len(self.locs))))
                locs[: len(self.locs)] = self.locs
                self.locs = locs
            self.locs_used += 1
            loc = self.locs_used
        self._set_location(loc, constants.LOCATION_HOST, host)
        self._set_location(loc, constants.LOCATION_SEGMENT, segment)
        self._set_location(loc, constants.LOCATION_POSITION, position)
        self._set_location(loc, constants.LOCATION_LENGTH, length)
        self._set_location(loc, constants.LOCATION_NEXT, self._field(slot, constants.LOCATIONS))
        self._set_field(slot, constants.LOCATIONS, loc)

    def _has_locations(self, slot: int) -> int:
        """Return whether a record's last word refers to locations, while its bytes are needed."""
        kind = self._kind(slot)
        return 1 if kind == constants.PENDING or kind == constants.EXPIRED_DROPPED else 0  # noqa: PLR1714

    def _first_location(self, slot: int) -> int:
        if not self._has_locations(slot):
            return 0
        return self._field(slot, constants.LOCATIONS)

    def _forget_locations(self, slot: int) -> None:
        loc = self._first_location(slot)
        self._set_field(slot, constants.LOCATIONS, 0)
        while loc:
            following = self._location(loc, constants.LOCATION_NEXT)
            self._set_location(loc, constants.LOCATION_NEXT, self.locs_free)
            self.locs_free = loc
            loc = following

    def locations(self, slot: int) -> list[tuple[int, int, int, int]]:
        """Return the places of copies, the newest first; for a published record, one."""
        found = []
        kind = self._kind(slot)
        if kind in (constants.PUBLISHED, constants.EXPIRED_PUBLISHED):
            word = self._field(slot, constants.LOCATIONS)
            host = self._published_host(slot)
            return [(host, self._field(slot, constants.BORN), word >> 32, word & _LOW32)] * bool(
                word
            )
        loc = self._first_location(slot)
        while loc:
            found.append(
                (
                    self._location(loc, constants.LOCATION_HOST),
                    self._location(loc, constants.LOCATION_SEGMENT),
                    self._location(loc, constants.LOCATION_POSITION),
                    self._location(loc, constants.LOCATION_LENGTH),
                )
            )
            loc = self._location(loc, constants.LOCATION_NEXT)
        return found

    # ---- rows, as stored ----

    def changed_rows(self) -> bytes:
        """Return the records changed or dropped since the last call, as rows of 64-bit words.

        A row is ten words as in the table (kind FREE: dropped). For a record with locations, the
        last is their number, and four words for each follow. Clears the changes.
        """
        return b"".join(self.changed_pieces(PIECE_WORDS))

    def changed_pieces(self, words_max: int) -> list[bytes]:
        """Return the same in pieces of at most *words_max* words, in order."""
        pieces: list[bytes] = []
        rows = self.scratch
        words_max = min(words_max, len(rows))
        at = 0
        for i in range(self.dropped_count):
            if at + constants.RECORD_WORDS > words_max:
                pieces.append(bytes(rows[:at]))
                at = 0
            for word in range(constants.RECORD_WORDS):
                rows[at + word] = 0
            rows[at + constants.D0] = self.dropped[2 * i]
            rows[at + constants.D1] = self.dropped[2 * i + 1]
            at += constants.RECORD_WORDS
        for i in range(self.dirty_count):
            slot = self.dirty[i]
            # A slot freed and reused is listed twice; the first visit clears it.
            if self._flags(slot, _DIRTY):
                self._remove_flags(slot, _DIRTY)
                size = self._row_size(slot)
                if at and at + size > words_max:
                    pieces.append(bytes(rows[:at]))
                    at = 0
                if size > len(rows):  # Very many were joined to it.
                    rows = self.scratch = Block("Q", size).view()
                at = self._write_row(at, slot)
        self.dirty_count = 0
        self.dropped_count = 0
        if at:
            pieces.append(bytes(rows[:at]))
        return pieces

    def has_changed(self) -> bool:
        """Return whether `changed_rows` would return anything."""
        return self.dirty_count + self.dropped_count > 0

    def touch(self, first: int, parts: int) -> int:
        """Mark one of *parts* of all slots as changed, from *first* on. Return the next one.

        0 means that the last one is included.
        """
        last = min(first + max(1, self.used // parts), self.used)
        for slot in range(first, last):
            if self._kind(slot) != constants.FREE:
                self._mark(slot)
        return last if last < self.used else 0

    def _row_size(self, slot: int) -> int:
        size = constants.RECORD_WORDS
        loc = self._first_location(slot)
        while loc:
            size += constants.LOCATION_WORDS - 1
            loc = self._location(loc, constants.LOCATION_NEXT)
        return size

    def _write_row(self, at: int, slot: int) -> int:
        """Write a record to `scratch`: passing a view costs as much as a row."""
        self._add_flags(slot, _PERSISTED)
        for i in range(constants.RECORD_WORDS):
            self.scratch[at + i] = self._field(slot, i)
        self.scratch[at + constants.META] &= _STORED_BITS
        end = at + constants.RECORD_WORDS
        if not self._has_locations(slot):
            return end
        count = 0
        loc = self._first_location(slot)
        while loc:
            for i in range(constants.LOCATION_WORDS - 1):
                self.scratch[end + i] = self._location(loc, i)
            end += constants.LOCATION_WORDS - 1
            count += 1
            loc = self._location(loc, constants.LOCATION_NEXT)
        self.scratch[at + constants.LOCATIONS] = count
        return end

    def restore(self, rows: memoryview, host_map: list[int], keyspace_map: list[int]) -> None:
        """Apply stored rows in order; the maps convert their host and keyspace numbers to ours.

        Copies of a host that is HOST_GONE no longer count, and cannot be read again.

        Raises:
            StateError: the rows are not of these hosts and keyspaces.

        """
        misfit = _misfit(rows, len(host_map), len(keyspace_map))
        if misfit >= 0:
            raise StateError(
                f"expected rows of records, found a row that does not fit at word {misfit}",
                place="CDC state, records",
                hint="restore the store from a backup, or start the job under a new name",
            )
        at = 0
        gone = set()
        while at < len(rows):
            kind = rows[at + constants.META] & constants.KIND_BITS
            slot = self._find(rows[at + constants.D0], rows[at + constants.D1])
            if kind != constants.FREE:
                gone.discard(slot)
                self._restore_row(rows, at, slot, host_map, keyspace_map)
            elif slot >= 0:
                gone.add(slot)
            at += constants.RECORD_WORDS
            if kind in (constants.PENDING, constants.EXPIRED_DROPPED):
                at += rows[at - 1] * (constants.LOCATION_WORDS - 1)
        for slot in gone:
            self.pending -= self._kind(slot) == constants.PENDING
            self._free(slot)
        if gone:
            self._reindex()
        self.dropped_count = 0

    def _restore_row(
        self,
        rows: memoryview,
        at: int,
        slot: int,
        host_map: list[int],
        keyspace_map: list[int],
    ) -> None:
        kind = rows[at + constants.META] & constants.KIND_BITS
        if slot < 0:
            signed = _signed(rows[at + constants.TOKEN])
            keyspace = keyspace_map[_keyspace_of(rows[at + constants.META])]
            group = self.groups_table.find(keyspace, signed)
            number = self.number
            d0, d1 = rows[at + constants.D0], rows[at + constants.D1]
            slot = self._new(d0, d1, keyspace, group, signed)
            self.number = max(number, rows[at + constants.NUMBER])
        self.pending += int(kind == constants.PENDING) - int(self._kind(slot) == constants.PENDING)
        self._forget_locations(slot)
        self._set_kind(slot, kind)
        self._remove_flags(slot, _HOST_MASK | _STREAMED | _NO_REPLICA)
        self._add_flags(slot, rows[at + constants.META] & (_STREAMED | _NO_REPLICA) | _PERSISTED)
        seen = rows[at + constants.SEEN]
        self._set_field(slot, constants.SEEN, 0)
        for old in range(len(host_map)):
            host = host_map[old]
            if seen >> old & 1 and host != constants.HOST_GONE:
                self._see(slot, _ONE << host)
        for field in (constants.NUMBER, constants.BORN, constants.SINCE, constants.LAST):
            self._set_field(slot, field, rows[at + field])
        if self._has_locations(slot):
            for i in reversed(range(rows[at + constants.LOCATIONS])):
                loc = at + constants.RECORD_WORDS + i * (constants.LOCATION_WORDS - 1)
                host = host_map[rows[loc]]
                if host != constants.HOST_GONE:
                    self._locate(slot, host, rows[loc + 1], rows[loc + 2], rows[loc + 3])
        else:
            self._set_field(slot, constants.LOCATIONS, rows[at + constants.LOCATIONS])
        if kind == constants.PUBLISHED or kind == constants.EXPIRED_PUBLISHED:  # noqa: PLR1714 (C)
            host = host_map[_host_of(rows[at + constants.META])]
            if host == constants.HOST_GONE:
                self._set_field(slot, constants.LOCATIONS, 0)  # Unknown.
            else:
                self._add_flags(slot, (_ONE * host) << constants.HOST_SHIFT)


def _misfit(rows: memoryview, hosts: int, keyspaces: int) -> int:
    """Return the start of the first row with another host or keyspace; -1 if all fit."""
    at = 0
    count = len(rows)
    while at < count:
        end = at + constants.RECORD_WORDS
        if end > count:
            return at
        kind = rows[at + constants.META] & constants.KIND_BITS
        copies = 0
        if kind == constants.PENDING or kind == constants.EXPIRED_DROPPED:  # noqa: PLR1714 (C)
            copies = rows[end - 1]
        if kind > constants.JOINED or copies > count:
            return at
        if end + copies * (constants.LOCATION_WORDS - 1) > count:
            return at
        if kind != constants.FREE and (
            _keyspace_of(rows[at + constants.META]) >= keyspaces
            or (hosts < _HOSTS_MAX and rows[at + constants.SEEN] >> hosts)
            or _host_of(rows[at + constants.META]) >= hosts
        ):
            return at
        for copy in range(copies):
            if rows[end + copy * (constants.LOCATION_WORDS - 1)] >= hosts:
                return at
        at = end + copies * (constants.LOCATION_WORDS - 1)
    return -1


def _keyspace_of(meta: int) -> int:
    return meta >> constants.KEYSPACE_SHIFT & constants.KEYSPACE_BITS


def _host_of(meta: int) -> int:
    """Return the host of the published copy."""
    return meta >> constants.HOST_SHIFT & constants.HOST_BITS


def _signed(token: int) -> int:
    """Return a token of the ring from an unsigned word."""
    return (token ^ _SIGN) - _SIGN

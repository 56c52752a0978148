"""The records of one split as rows of 64-bit words: what is stored of them, and read back.

Separate from the table itself: `records`. For one thread.
"""

from headrace.sources.cassandra import codes
from headrace.sources.cassandra.blocks import Block
from headrace.sources.cassandra.errors import StateError
from headrace.sources.cassandra.groups import Groups
from headrace.sources.cassandra.records import Records

PIECE_WORDS = 32 * 1024 - 64  # Of a stored piece: sealed it has at most 256 KiB, whatever is in it.
_DIRTY, _PERSISTED = 0x100, 0x200
_STREAMED, _NO_REPLICA = 1 << 54, 1 << 55
_STORED_BITS = 0xFF_FFFF_0000_00FF  # Of META.
_KIND_BITS = 0xFF
_HOST_SHIFT, _HOST_BITS = 48, 0x3F
_HOSTS_MAX = 64
_MASK16 = 0xFFFF
_SIGN = 1 << 63
_ONE = 1  # As wide as a word.


class StoredRecords(Records):
    """The table, with what changed since it was stored last."""

    def __init__(self, groups: Groups) -> None:
        """Start empty, at split time 0."""
        super().__init__(groups)
        self.scratch = Block("Q", PIECE_WORDS).view()  # Kept: new pages cost more than their use.

    def changed_rows(self) -> bytes:
        """Return the records changed or dropped since the last call, as rows of 64-bit words.

        A row is ten words as in the table (kind FREE: dropped). Of a record that has locations the
        last is their number, and four words for each follow. Clears what it returned.
        """
        return b"".join(self.changed_pieces(PIECE_WORDS))

    def changed_pieces(self, words_max: int) -> list[bytes]:
        """Return the same in pieces of at most *words_max* words, which go in this order."""
        pieces: list[bytes] = []
        rows = self.scratch
        words_max = min(words_max, len(rows))
        at = 0
        for i in range(self.dropped_count):
            if at + codes.RECORD_WORDS > words_max:
                pieces.append(bytes(rows[:at]))
                at = 0
            rows[at] = self.dropped[2 * i]
            rows[at + 1] = self.dropped[2 * i + 1]
            for word in range(2, codes.RECORD_WORDS):
                rows[at + word] = 0
            at += codes.RECORD_WORDS
        for i in range(self.dirty_count):
            slot = self.dirty[i]
            # A slot freed and taken again is listed twice; the first visit clears it.
            if self.words[slot * codes.RECORD_WORDS + codes.META] & _DIRTY:
                self.words[slot * codes.RECORD_WORDS + codes.META] &= ~_DIRTY
                size = self._row_size(slot)
                if at and at + size > words_max:
                    pieces.append(bytes(rows[:at]))
                    at = 0
                if size > len(rows):  # It has been joined by very many.
                    rows = self.scratch = Block("Q", size).view()
                at = self._write_row(at, slot)
        self.dirty_count = 0
        self.dropped_count = 0
        if at:
            pieces.append(bytes(rows[:at]))
        return pieces

    def has_changed(self) -> bool:
        """Say whether there is something that `changed_rows` would return."""
        return self.dirty_count + self.dropped_count > 0

    def touch(self, first: int, parts: int) -> int:
        """Take one of *parts* of all slots as changed, from *first* on; return the next one.

        0 says that the last one is among them.
        """
        last = min(first + max(1, self.used // parts), self.used)
        for slot in range(first, last):
            if self._kind(slot) != codes.FREE:
                self._mark(slot)
        return last if last < self.used else 0

    def _row_size(self, slot: int) -> int:
        size = codes.RECORD_WORDS
        loc = self._first_location(slot)
        while loc:
            size += codes.LOCATION_WORDS - 1
            loc = self.locs[(loc - 1) * codes.LOCATION_WORDS + 4]
        return size

    def _write_row(self, at: int, slot: int) -> int:
        """Write a record to `scratch`: to hand over a view costs as much as a row."""
        base = slot * codes.RECORD_WORDS
        self.words[base + codes.META] |= _PERSISTED
        for i in range(codes.RECORD_WORDS):
            self.scratch[at + i] = self.words[base + i]
        self.scratch[at + codes.META] &= _STORED_BITS
        end = at + codes.RECORD_WORDS
        if not self._has_locations(slot):
            return end
        count = 0
        loc = self._first_location(slot)
        while loc:
            for i in range(codes.LOCATION_WORDS - 1):
                self.scratch[end + i] = self.locs[(loc - 1) * codes.LOCATION_WORDS + i]
            end += codes.LOCATION_WORDS - 1
            count += 1
            loc = self.locs[(loc - 1) * codes.LOCATION_WORDS + 4]
        self.scratch[at + codes.LOCATIONS] = count
        return end

    def restore(self, rows: memoryview, host_map: list[int], keyspace_map: list[int]) -> None:
        """Apply stored rows in order; the maps turn their host and keyspace numbers into ours.

        What a host that is HOST_GONE has logged counts no more, nor can it be read again.

        Raises:
            StateError: they are no rows of these hosts and keyspaces.

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
            kind = rows[at + codes.META] & _KIND_BITS
            slot = self._find(rows[at], rows[at + 1])
            if kind != codes.FREE:
                gone.discard(slot)
                self._restore_row(rows, at, slot, host_map, keyspace_map)
            elif slot >= 0:
                gone.add(slot)
            at += codes.RECORD_WORDS
            if kind in (codes.PENDING, codes.EXPIRED_DROPPED):
                at += rows[at - 1] * (codes.LOCATION_WORDS - 1)
        for slot in gone:
            self.pending -= self._kind(slot) == codes.PENDING
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
        kind = rows[at + codes.META] & _KIND_BITS
        if slot < 0:
            signed = _signed(rows[at + codes.TOKEN])
            keyspace = keyspace_map[rows[at + codes.META] >> 32 & _MASK16]
            group = self.groups_table.find(keyspace, signed)
            number = self.number
            slot = self._new(rows[at], rows[at + 1], keyspace, group, signed)
            self.number = max(number, rows[at + codes.NUMBER])
        self.pending += int(kind == codes.PENDING) - int(self._kind(slot) == codes.PENDING)
        self._forget_locations(slot)
        base = slot * codes.RECORD_WORDS
        self.words[base + codes.META] = (
            (self.words[base + codes.META] & ~(_KIND_BITS | _HOST_BITS << _HOST_SHIFT))
            & ~(_STREAMED | _NO_REPLICA)
            | (rows[at + codes.META] & (_STREAMED | _NO_REPLICA))
            | kind
            | _PERSISTED
        )
        seen = rows[at + codes.SEEN]
        self.words[base + codes.SEEN] = 0
        for old in range(len(host_map)):
            host = host_map[old]
            if seen >> old & 1 and host != codes.HOST_GONE:
                self.words[base + codes.SEEN] |= _ONE << host
        for field in (codes.NUMBER, codes.BORN, codes.SINCE, codes.LAST):
            self.words[base + field] = rows[at + field]
        if self._has_locations(slot):
            for i in reversed(range(rows[at + codes.LOCATIONS])):
                loc = at + codes.RECORD_WORDS + i * (codes.LOCATION_WORDS - 1)
                host = host_map[rows[loc]]
                if host != codes.HOST_GONE:
                    self._locate(slot, host, rows[loc + 1], rows[loc + 2], rows[loc + 3])
        else:
            self.words[base + codes.LOCATIONS] = rows[at + codes.LOCATIONS]
        if kind == codes.PUBLISHED or kind == codes.EXPIRED_PUBLISHED:  # noqa: PLR1714 (C)
            host = host_map[rows[at + codes.META] >> _HOST_SHIFT & _HOST_BITS]
            if host == codes.HOST_GONE:
                self.words[base + codes.LOCATIONS] = 0  # Not known.
            else:
                self.words[base + codes.META] |= (_ONE * host) << _HOST_SHIFT


def _misfit(rows: memoryview, hosts: int, keyspaces: int) -> int:
    """Return where the first row begins that is none of these hosts and keyspaces; -1: all are."""
    at = 0
    count = len(rows)
    while at < count:
        end = at + codes.RECORD_WORDS
        if end > count:
            return at
        kind = rows[at + codes.META] & _KIND_BITS
        copies = 0
        if kind == codes.PENDING or kind == codes.EXPIRED_DROPPED:  # noqa: PLR1714 (C)
            copies = rows[end - 1]
        if kind > codes.JOINED or copies > count:
            return at
        if end + copies * (codes.LOCATION_WORDS - 1) > count:
            return at
        if kind != codes.FREE and (
            rows[at + codes.META] >> 32 & _MASK16 >= keyspaces
            or (hosts < _HOSTS_MAX and rows[at + codes.SEEN] >> hosts)
            or rows[at + codes.META] >> _HOST_SHIFT & _HOST_BITS >= hosts
        ):
            return at
        for copy in range(copies):
            if rows[end + copy * (codes.LOCATION_WORDS - 1)] >= hosts:
                return at
        at = end + copies * (codes.LOCATION_WORDS - 1)
    return -1


def _signed(token: int) -> int:
    """Return a token as the ring has it, from a word without sign."""
    return (token ^ _SIGN) - _SIGN

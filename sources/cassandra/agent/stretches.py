"""Stretches of plain segments that an agent framed once, for all readers.

For each entry, a stretch has its place, its table and its token, by which readers select entries.
Separate so that it can be compiled.
"""

import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter

from headrace.sources.cassandra.agent.entry_columns import EntryColumns
from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.native import constants, ops

# For an entry: the start and end of its mutation in `data`, its token, and its table's number,
# doubled, plus one if it has several updates.
_WORDS = 4
_START, _END, _TOKEN, _TABLE = 0, 1, 2, 3
_TABLE_ID_BYTES = 16
_CRC_BYTES, _HEAD_BYTES = 4, 8  # After the mutation of an entry, and before it.
_GROUP = 64  # Digests computed together.
_DIGEST_MAX = 32 * 1024 * 1024  # Longer entries are sent unchanged: no one requests them by place.
_FIRST_ENTRIES = 64
_PLACE_NUMBERS = 2
_NO_DATA = memoryview(bytearray())
BEGIN = attrgetter("begin")  # The order of stretches in a file.
# Returns the treatments of a table's entries, by its id: those of one update, and the others.
Treatment = Callable[[bytes], tuple[int, int]]


class Asked:
    """A reader's selection of entries; see `Wanted`."""

    def __init__(
        self, key: bytes, ranges: Sequence[tuple[int, int]], treatment: Treatment, *, full: bool
    ) -> None:
        """Select digests by *key*, or all bytes; *ranges* of tokens are inclusive and ascending."""
        self.k0 = int.from_bytes(key[:8], "little")
        self.k1 = int.from_bytes(key[8:16], "little")
        self.full = full
        self.treatment = treatment
        self.range_count = len(ranges)
        self.ranges = memoryview(array("q", [end for each in ranges for end in each] or [0]))


class Stretch:
    """Part of a segment, from `begin` to `end` in the file. `data` has its bytes.

    Bytes outside entries are sent unchanged: markers, partial entries, and damage.
    """

    def __init__(self, room: memoryview = _NO_DATA) -> None:
        """Start without a file; bytes are read into *room* if they fit."""
        self.room = room
        self.entries = memoryview(array("q", bytes(8 * _WORDS * _FIRST_ENTRIES)))
        self.ranges = memoryview(array("q", bytes(16 * _GROUP)))
        self.digests = memoryview(array("Q", bytes(16 * _GROUP)))
        self.start(0)

    def start(self, begin: int) -> None:
        """Start at *begin* in a file, without data."""
        self.begin = self.end = begin
        self.data = _NO_DATA
        self.count = 0
        self.tables: list[bytes] = [b""]  # The first is for malformed entries.
        self.ids = memoryview(array("Q", [0, 0]))
        self.table = 0  # That of the last entry.
        self.waiting = 0

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        return max(len(self.data), len(self.room)) + 8 * len(self.entries)

    def read(self, descriptor: int, until: int) -> None:
        """Read the bytes up to *until* in the file, after those already read."""
        at, size = len(self.data), until - self.begin
        room = self.room
        if size > len(room):
            room = memoryview(bytearray(size))
            room[:at] = memoryview(self.data)
        came = os.preadv(descriptor, [room[at:size]], self.begin + at)
        self.data = room[: at + came]

    def frame(self, framer: Framer, until: int) -> int:
        """Frame up to *until* in the file, or the durable end. Return the framer's last result.

        Raises:
            CorruptSegmentError: the bytes after `end` are damaged.

        """
        while framer.at < until:
            found = framer.next_entry()
            self.end = max(self.end, framer.at)
            if found != constants.ENTRY:
                return found
            self._add(framer)
        return constants.ENTRY

    def leave(self, end: int) -> None:
        """End the stretch at *end*: bytes after the last entry are sent unchanged."""
        self.end = end

    def _add(self, framer: Framer) -> None:
        entry = _WORDS * self.count
        if entry == len(self.entries):
            self._grow()
        end = framer.at - _CRC_BYTES - self.begin
        self.entries[entry + _START] = end - (framer.end - framer.start)
        self.entries[entry + _END] = end
        self.entries[entry + _TOKEN] = 0
        self.entries[entry + _TABLE] = self._table_of(framer, entry)
        self.count += 1

    def _table_of(self, framer: Framer, entry: int) -> int:
        """Note the token of an entry. Return the number of its table, 0 if it is malformed."""
        at = framer.start
        if framer.messaging >= constants.MESSAGING_60:
            at += 1  # Flags.
        updates = framer.window[at]
        at = framer.after_vint(at)
        if at + _TABLE_ID_BYTES >= framer.end:
            return 0
        high, low = ops.u64(framer.window, at), ops.u64(framer.window, at + 8)
        if high != self.ids[2 * self.table] or low != self.ids[2 * self.table + 1]:
            self.table = self._number_of(high, low, framer, at)
        at += _TABLE_ID_BYTES
        if framer.messaging >= constants.MESSAGING_60:
            at = framer.after_vint(at)  # The schema epoch.
        length = framer.vint(at)
        if length < 0 or framer.behind + length > framer.end:
            return 0
        token = ops.token(framer.window, framer.behind, framer.behind + length)
        self.entries[entry + _TOKEN] = token
        return 2 * self.table + (1 if updates != 1 else 0)

    def _number_of(self, high: int, low: int, framer: Framer, at: int) -> int:
        for number in range(1, len(self.tables)):
            if self.ids[2 * number] == high and self.ids[2 * number + 1] == low:
                return number
        self.tables.append(ops.take(framer.window, at, at + _TABLE_ID_BYTES))
        self.ids = memoryview(array("Q", [*memoryview(self.ids).tolist(), high, low]))
        return len(self.tables) - 1

    def _grow(self) -> None:
        entries = memoryview(array("q", bytes(16 * len(self.entries))))
        entries[: len(self.entries)] = self.entries
        self.entries = entries

    def select(self, columns: EntryColumns, at: int, until: int, asked: Asked) -> int:
        """Add the part *asked* from *at* in the file to about *until*. Return its end."""
        treatments = self._treatments(asked)
        number, passed = self._first_behind(at), 0
        while number < self.count and at < until:
            entry = _WORDS * number
            start, end = self.entries[entry + _START], self.entries[entry + _END]
            first = self.begin + start - _HEAD_BYTES
            if first > at:  # A sync marker.
                passed = self._pass(columns, passed)
                self._as_it_is(columns, at, first)
            if first < at or end - start > _DIGEST_MAX:
                passed = self._pass(columns, passed)
                self._as_it_is(columns, max(first, at), self.begin + end + _CRC_BYTES)
            elif self._is_passed(treatments, entry, asked):
                passed += end - start + constants.ENTRY_OVERHEAD
            else:
                passed = self._pass(columns, passed)
                self._put(columns, start, end, asked)
            at = self.begin + end + _CRC_BYTES
            number += 1
        self._pass(columns, passed)
        self._digest(columns, asked)
        if number == self.count and at < self.end:
            self._as_it_is(columns, at, self.end)
            at = self.end
        return at

    def _treatments(self, asked: Asked) -> memoryview:
        """Return the treatments of entries, by the numbers of tables and updates."""
        found = [constants.ENTRY_WANTED, constants.ENTRY_WANTED]
        for table_id in self.tables[1:]:
            found += asked.treatment(table_id)
        return memoryview(array("i", found))

    def _first_behind(self, at: int) -> int:
        """Return the number of the first entry that ends after *at* in the file."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) >> 1
            if self.begin + self.entries[_WORDS * middle + _END] + _CRC_BYTES <= at:
                low = middle + 1
            else:
                high = middle
        return low

    def _is_passed(self, treatments: memoryview, entry: int, asked: Asked) -> int:
        length = self.entries[entry + _END] - self.entries[entry + _START]
        if length + constants.ENTRY_OVERHEAD < constants.PASSED_BYTES_MIN:
            return 0
        treatment = treatments[self.entries[entry + _TABLE]]
        if treatment != constants.ENTRY_BY_TOKEN:
            return 1 if treatment == constants.ENTRY_PASSED else 0
        token = self.entries[entry + _TOKEN]
        low, high = 0, asked.range_count
        while low < high:
            middle = (low + high) >> 1
            if asked.ranges[2 * middle] <= token:
                low = middle + 1
            else:
                high = middle
        return 0 if low > 0 and token <= asked.ranges[2 * low - 1] else 1

    def _pass(self, columns: EntryColumns, count: int) -> int:
        if count:
            columns.part(constants.PART_PASSED, count)
        return 0

    def _as_it_is(self, columns: EntryColumns, begin: int, end: int) -> None:
        columns.part(constants.PART_BYTES, end - begin)
        columns.put(self.data, begin - self.begin, end - self.begin)

    def _put(self, columns: EntryColumns, start: int, end: int, asked: Asked) -> None:
        if asked.full:
            columns.part(constants.PART_FULL, end - start)
            columns.put(self.data, start, end)
        else:
            columns.part(constants.PART_DIGEST, end - start)
            self.ranges[2 * self.waiting] = start
            self.ranges[2 * self.waiting + 1] = end
            self.waiting += 1
            if self.waiting == _GROUP:
                self._digest(columns, asked)

    def _digest(self, columns: EntryColumns, asked: Asked) -> None:
        """Compute the pending digests of entries."""
        count, self.waiting = self.waiting, 0
        ops.siphash_all(self.data, self.ranges, 0, 2, count, asked.k0, asked.k1, self.digests)
        columns.put_digests(self.digests, count)


class Gathering:
    """Mutations at given places, gathered from the parts of a file."""

    def __init__(self, places: bytes, bytes_max: int, room: Callable[[int], memoryview]) -> None:
        """Start without mutations; *places* are as in `RemadeEntries.places`.

        *room* returns memory of at least a given number of bytes.

        Raises:
            ValueError: they are malformed, or of more than *bytes_max* mutation bytes.

        """
        if len(places) % (4 * _PLACE_NUMBERS):
            raise ValueError(f"{len(places)} bytes of places")
        self.places = memoryview(places).cast("I")
        self.count = len(self.places) // _PLACE_NUMBERS
        self.done = self.size = 0
        total = 0
        for i in range(self.count):
            total += self.places[2 * i + 1]
            if self.places[2 * i] < self.places[2 * i + 1] + _CRC_BYTES:
                raise ValueError("a place before the beginning of its segment")
        if total > bytes_max:
            raise ValueError(f"expected at most {bytes_max} bytes, {total} were asked for")
        self.room = room(total)
        self.content = self.room[:total]
        self.out = self.content

    def next(self) -> tuple[int, int]:
        """Return the start and end of the next mutation in the file; 0 and 0 when all arrived."""
        if self.done == self.count:
            return 0, 0
        end = self.places[2 * self.done] - _CRC_BYTES
        return end - self.places[2 * self.done + 1], end

    def take(self, data: ops.View, begin: int) -> int:
        """Copy mutations from *data*, which starts at *begin* in the file. Return their number.

        It ends at the first one that is not in *data*.
        """
        first = self.done
        while self.done < self.count:
            end = self.places[2 * self.done] - _CRC_BYTES - begin
            start = end - self.places[2 * self.done + 1]
            if start < 0 or end > len(data):
                break
            ops.copy(self.out, self.size, data, start, end)
            self.size += end - start
            self.done += 1
        return self.done - first


def covering(stretches: Sequence[Stretch], at: int) -> Stretch | None:
    """Return the one of ascending *stretches* with the byte *at* of their file."""
    number = bisect_right(stretches, at, key=BEGIN) - 1
    return stretches[number] if number >= 0 and at < stretches[number].end else None

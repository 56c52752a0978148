"""Segments that an agent frames once for all readers of a stretch.

A stretch is kept while there is room, and so is the framer at its end: a section is not framed
again from its start. For one thread; blocking file I/O.
"""

import contextlib
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from headrace.sources.cassandra.agent.entry_columns import EntryColumns
from headrace.sources.cassandra.agent.stretches import BEGIN, Asked, Gathering, Stretch, covering
from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.commitlog.opening import open_segment
from headrace.sources.cassandra.errors import CorruptSegmentError, UnsupportedSegmentError
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.logs.directory import SegmentInfo
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.native.growable import Block
from headrace.sources.cassandra.schema.system_table_ids import is_system_table

KEPT_MAX: Final = 32  # Each costs an open file and a window of 128 KiB.
STRETCH_BYTES: Final = 1024 * 1024
ROOM_BYTES: Final = STRETCH_BYTES + 64 * 1024  # An entry may extend beyond.
STRETCHES_BYTES_MAX: Final = 32 * 1024 * 1024
STRETCHES_MAX: Final = 1024
FAR: Final = 1 << 62  # Behind the end of any segment.
_NO_DATA: Final = memoryview(bytearray())


class Wanted(msgspec.Struct, frozen=True):
    """A reader's selection of entries.

    Entries of single updates are skipped if their table is in `passed`, or is a system table and
    not in `kept` (None: all are kept); so are all whose token is in none of `ranges` (inclusive,
    ascending; empty: everywhere). The others are sent `full`, or as digests by `key`.
    """

    key: bytes
    full: bool = False
    ranges: Sequence[tuple[int, int]] = ()
    passed: Collection[bytes] = msgspec.field(default_factory=frozenset)
    kept: Collection[bytes] | None = None

    def treatment(self, table_id: bytes) -> tuple[int, int]:
        """Return the treatment of a table's entries: those of one update, and those of more."""
        is_system = is_system_table(table_id)
        by_token = not (is_system or not self.ranges)
        others = constants.ENTRY_BY_TOKEN if by_token else constants.ENTRY_WANTED
        if table_id in self.passed:
            return constants.ENTRY_PASSED, others
        if is_system and self.kept is not None and table_id not in self.kept:
            return constants.ENTRY_PASSED, others
        return others, others

    def asked(self) -> Asked:
        """Return the same selection, for a stretch."""
        return Asked(self.key, self.ranges, self.treatment, full=self.full)


class _Walk(msgspec.Struct):
    """A framer on a file of its own."""

    framer: Framer
    descriptor: int

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Read file bytes."""
        return os.preadv(self.descriptor, [buffer], offset)


class FramingSessions:
    """The framing of one agent. `kept_bytes` is the size of the kept stretches."""

    def __init__(self, bytes_max: int = STRETCHES_BYTES_MAX) -> None:
        """Start empty; stretches take at most *bytes_max*, and one more."""
        self._bytes_max = bytes_max
        self._walks: OrderedDict[tuple[str, int], _Walk] = OrderedDict()
        self._kept: OrderedDict[tuple[str, int], Stretch] = OrderedDict()  # The oldest use first.
        self._by_file: dict[str, list[Stretch]] = {}  # The same ones, ascending.
        self._spare: list[Stretch] = []  # With free memory.
        self.kept_bytes = 0
        self._ends: OrderedDict[str, int] = OrderedDict()  # Of final segments, as far as known.
        self._columns = EntryColumns()
        self._keys = Keys(KeyOptions())

    def entries(  # noqa: PLR0913 (a segment, and a selection)
        self,
        info: SegmentInfo,
        mark: str,
        descriptor: int,
        *,
        begin: int,
        end: int,
        wanted: Wanted,
    ) -> tuple[bytes, bool]:
        """Return the selected part of a plain segment, and whether it ends the final segment.

        *mark* distinguishes its file from others.

        Raises:
            UnsupportedSegmentError: the segment is compressed or encrypted.
            SegmentError: its header is damaged.

        """
        # I6: no damage is sent that may still be overwritten.
        end = min(end, self._ends.get(mark, end) if info.final else info.limit)
        asked, at = wanted.asked(), begin
        self._columns.clear()
        while at < end:
            stretch = self._stretch(info, mark, descriptor, at)
            reached = stretch.select(self._columns, at, end, asked)
            if reached == at:
                self._note_end(info, mark, at)
                break
            at = reached
        return self._columns.taken(), info.final and at >= self._ends.get(mark, FAR)

    def _note_end(self, info: SegmentInfo, mark: str, at: int) -> None:
        if info.final:
            self._ends[mark] = at
            if len(self._ends) > STRETCHES_MAX:
                self._ends.popitem(last=False)

    def mutations(self, mark: str, descriptor: int, gathering: Gathering) -> bool:
        """Gather mutations of a segment. Return whether all were found."""
        while True:
            begin, end = gathering.next()
            if begin == end:
                return True
            stretch = covering(self._by_file.get(mark, ()), begin)
            if stretch is not None and gathering.take(stretch.data, stretch.begin):
                continue
            window = os.pread(descriptor, max(STRETCH_BYTES, end - begin), begin)
            if not gathering.take(window, begin):
                return False

    def _stretch(self, info: SegmentInfo, mark: str, descriptor: int, at: int) -> Stretch:
        """Return a stretch with the byte *at*; an empty one if nothing more is durable."""
        here = self._by_file.get(mark, [])
        found = covering(here, at)
        if found is not None:
            self._kept.move_to_end((mark, found.begin))
            return found
        after = bisect_right(here, at, key=BEGIN)
        until = min([at + STRETCH_BYTES, *(each.begin for each in here[after : after + 1])])
        if not info.final:
            until = min(until, info.limit)
        made = self._framed(info, mark, descriptor, at, until)
        if made.end > at:
            self._keep(mark, made)
        else:
            self._give_back(made)
        return made

    def _begun(self, begin: int, count: int) -> Stretch:
        """Return a new stretch that starts at *begin*, for about *count* bytes."""
        if count < STRETCH_BYTES // 2:
            made = Stretch()
        else:
            made = self._spare.pop() if self._spare else Stretch(Block("B", ROOM_BYTES).view())
        made.start(begin)
        return made

    def _give_back(self, stretch: Stretch) -> None:
        """Reuse the memory of a stretch: new pages cost more than their use."""
        if stretch.room:
            self._spare.append(stretch)

    def _framed(
        self, info: SegmentInfo, mark: str, descriptor: int, begin: int, until: int
    ) -> Stretch:
        walk = self._walks.pop((mark, begin), None) or self._begin(info, descriptor, begin)
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, walk.descriptor)
            made = self._begun(begin, until - begin)
            made.read(walk.descriptor, until)
            data = memoryview(made.data)
            walk.framer.give(begin, data)
            was_read = begin + len(data)
            walk.framer.allow(info.limit, indexed=info.indexed)
            try:
                made.frame(walk.framer, until)
            except CorruptSegmentError:
                made.leave(max(made.end, was_read))
            walk.framer.give(begin, _NO_DATA)
            if made.end > was_read:  # An entry goes beyond.
                made.read(walk.descriptor, made.end)
            if walk.framer.at == made.end:
                undo.pop_all()
                self._keep_walk(walk, mark)
        return made

    def _begin(self, info: SegmentInfo, descriptor: int, begin: int) -> _Walk:
        walk = _Walk(Framer(), os.dup(descriptor))
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, walk.descriptor)
            described, _ = open_segment(
                walk.framer,
                walk.read_into,
                keys=self._keys,
                place=info.name,
                resume=begin,
                segment_id=info.segment_id,
            )
            if described.wrapping is not None:
                raise UnsupportedSegmentError("entries of a packed segment", place=info.name)
            undo.pop_all()
        return walk

    def _keep(self, mark: str, stretch: Stretch) -> None:
        here = self._by_file.setdefault(mark, [])
        here.insert(bisect_right(here, stretch.begin, key=BEGIN), stretch)
        self._kept[mark, stretch.begin] = stretch
        self.kept_bytes += stretch.memory_bytes
        while len(self._kept) > 1 and (
            self.kept_bytes > self._bytes_max or len(self._kept) > STRETCHES_MAX
        ):
            self._drop(*next(iter(self._kept)))

    def _drop(self, mark: str, begin: int) -> None:
        stretch = self._kept.pop((mark, begin))
        self.kept_bytes -= stretch.memory_bytes
        here = self._by_file[mark]
        here.remove(stretch)
        if not here:
            del self._by_file[mark]
        self._give_back(stretch)

    def _keep_walk(self, walk: _Walk, mark: str) -> None:
        """Keep a framer that can continue at its place."""
        place = mark, walk.framer.at
        with contextlib.suppress(KeyError):
            os.close(self._walks.pop(place).descriptor)
        self._walks[place] = walk
        if len(self._walks) > KEPT_MAX:
            os.close(self._walks.popitem(last=False)[1].descriptor)

    def forget_gone(self) -> None:
        """Close the files that were removed."""
        for place, walk in list(self._walks.items()):
            if os.fstat(walk.descriptor).st_nlink == 0:
                os.close(self._walks.pop(place).descriptor)

    def close(self) -> None:
        """Close all files, and drop all stretches."""
        for walk in self._walks.values():
            os.close(walk.descriptor)
        self._walks.clear()
        self._kept.clear()
        self._by_file.clear()
        self._spare.clear()
        self._ends.clear()
        self.kept_bytes = 0

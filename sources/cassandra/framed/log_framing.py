"""Frames a part of a node's log once, and yields its entries in blocks for splits.

A part that cannot be framed, because it is damaged or cannot be opened, is left to the readers of
the splits: they read the segment themselves, and treat it as without blocks.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from headrace.plugins import HeadraceError
from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.commitlog.opening import open_segment
from headrace.sources.cassandra.commitlog.unwrap import Workspace
from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.framed.blocks import End, Head, block_of
from headrace.sources.cassandra.framed.sharing import Shares
from headrace.sources.cassandra.framed.sorting import EntrySorter
from headrace.sources.cassandra.keystore.keys import Keys
from headrace.sources.cassandra.logs.directory import LogReader, SegmentBytes, SegmentInfo
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.state.cdc_state import Marker

HELD_BYTES_MAX: Final = 32 * 1024 * 1024  # Of entries in memory, for all splits together.
# Less is held while blocks have about this size: it stays in the processor's cache.
HELD_BYTES_MIN: Final = 4 * 1024 * 1024
BLOCK_BYTES: Final = 256 * 1024
KEY_BYTES: Final = 16

Blocks = Iterator[tuple[int, bytes]]  # A split, and a block for it.
Spared = Callable[[SegmentInfo], Sequence[tuple[int, int]]]


class LogPart(NamedTuple):
    """The part of the log of `node` after `begin`, up to `end`.

    `read` are the nodes whose logs have parts; `key` is that of the digests of all parts.
    """

    node: str
    begin: Marker
    end: Marker
    read: Sequence[str]
    key: bytes = b""


class LogFramer:
    """The framing of logs. For one thread; blocking file I/O."""

    def __init__(
        self,
        sorter: EntrySorter,
        keys: Keys,
        spared: Mapping[str, Spared],
    ) -> None:
        """*keys* decrypt segments; *spared* returns parts of segments to leave out, by node."""
        self._sorter = sorter
        self._keys = keys
        self._spared = spared
        self._framer = Framer()
        self._workspace = Workspace()
        self._header_bytes = 0
        wanted = max(HELD_BYTES_MIN, BLOCK_BYTES * len(sorter.wanted))
        self._held_max = min(HELD_BYTES_MAX, wanted)

    def frame(self, log: LogReader, part: LogPart, book: int, shares: Shares) -> Blocks:
        """Yield the blocks of *part* of a *log*; split *book* keeps the log's books.

        *shares* are those of the log.
        """
        self._sorter.begin(book, shares, part.key)
        for segment in log.segments():
            number = segment.segment_id
            if segment.missing or not part.begin.segment_id <= number <= part.end.segment_id:
                continue
            begin = part.begin.offset if number == part.begin.segment_id else 0
            until = part.end.offset if number == part.end.segment_id else END_OFFSET
            head = Head(part.node, number, begin, until, number=0, key=part.key)
            try:
                opened = log.open(segment)
            except FileNotFoundError:
                continue
            try:
                yield from self._frame(opened, segment, head)
            except HeadraceError:
                self._sorter.clear()
                for split in self._sorter.wanted:
                    yield split, block_of(Head(part.node, number, begin, until, 0, is_unfit=True))
            finally:
                opened.close()

    def _frame(self, opened: SegmentBytes, segment: SegmentInfo, head: Head) -> Blocks:
        until = segment.until if head.until >= segment.end else head.until
        self._open(opened, segment, head.begin, until)
        framer, sorter = self._framer, self._sorter
        numbers = dict.fromkeys(sorter.wanted, 0)
        spared_of = self._spared.get(head.node)
        spared, found = deque(spared_of(segment) if spared_of else ()), constants.ENTRY
        while found == constants.ENTRY:
            while spared and spared[0][1] <= framer.at:
                spared.popleft()
            if spared and spared[0][0] <= framer.at:
                self._open(opened, segment, min(spared.popleft()[1], until), until)
            found = sorter.sort(framer, spared[0][0] if spared else END_OFFSET, self._held_max)
            if found == constants.ENTRY and sorter.held < self._held_max:
                continue  # Up to a part to leave out.
            end = None if found == constants.ENTRY else End(found, framer.at, framer.at_until)
            for split in sorter.wanted:
                entries = sorter.sent(split)
                said = Head(
                    head.node,
                    head.segment_id,
                    head.begin,
                    head.until,
                    numbers[split],
                    framer.place,
                    framer.messaging,
                    self._header_bytes,
                    entries.count,
                    end,
                    digests=entries.digests,
                    both=entries.both,
                    key=head.key,
                )
                numbers[split] += 1
                yield split, block_of(said, *entries.columns())
            sorter.clear()

    def _open(self, opened: SegmentBytes, segment: SegmentInfo, resume: int, until: int) -> None:
        described, _ = open_segment(
            self._framer,
            opened.read_into,
            keys=self._keys,
            place=segment.name,
            resume=resume,
            segment_id=segment.segment_id,
            workspace=self._workspace,
        )
        self._header_bytes = described.header_bytes
        self._framer.allow(segment.limit, until, segment.indexed)

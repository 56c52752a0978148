"""A node's log whose entries were framed before; other parts are read from its files."""

from collections.abc import Callable, Collection, Sequence

from headrace.sources.cassandra.commitlog.framer import Framer, Supply
from headrace.sources.cassandra.errors import StateError
from headrace.sources.cassandra.framed.blocks import Block, BlockFile
from headrace.sources.cassandra.logs.directory import Arcs, LogReader, SegmentBytes, SegmentInfo
from headrace.sources.cassandra.logs.reread import Copies
from headrace.sources.cassandra.logs.rescued_copies import Rescued
from headrace.sources.cassandra.native import constants


class FramedSegment:
    """A segment as blocks of entries."""

    supply: Supply | None = None

    def __init__(self, file: BlockFile, blocks: Sequence[Block], copies: Copies) -> None:
        """Set *blocks*, which are in *file*; *copies* are those of all logs."""
        self._file = file
        self._blocks = blocks
        self._copies = copies
        self._next = 0

    def begin(self, framer: Framer, resume: int) -> None:
        """Make *framer* find the entries that end after *resume*.

        Raises:
            StateError: the blocks start after it.

        """
        self._next = 0
        head = self._blocks[0].head
        if head.begin > resume:
            said = f"entries were framed from byte {head.begin} on, and are wanted from {resume}"
            raise StateError(said, place=head.place, hint="this is a bug: report it")
        framer.open_gathered(
            self._give,
            segment_id=head.segment_id,
            header_bytes=head.header_bytes,
            messaging=head.messaging,
            resume=resume,
            place=head.place,
        )

    def _give(self, framer: Framer) -> int:
        while self._next < len(self._blocks):
            block = self._blocks[self._next]
            self._next += 1
            if block.head.count:
                framer.gather(*self._file.columns(block, self._copies.at))
                return constants.ENTRY
        end = self._blocks[-1].head.end
        assert end is not None  # noqa: S101 (checked when the file was opened)
        framer.pass_to(end.at, at_until=end.at_until)
        return end.found

    def read_into(self, _offset: int, _buffer: memoryview) -> int:
        """Return 0: there are only entries, without bytes between them."""
        return 0

    def close(self) -> None:
        """Close the segments of copies: the file stays open for all segments."""
        self._copies.close()


class FramedLog:
    """A log of one node, with framed entries."""

    def __init__(
        self, node: str, log: LogReader, file: Callable[[], BlockFile], copies: Copies
    ) -> None:
        """*file* returns the blocks of the split being read; *copies* read all logs."""
        self._node = node
        self._copies = copies
        self._log = log
        self._file = file

    def segments(self) -> Sequence[SegmentInfo]:
        """Return the segments with CDC data now."""
        return self._log.segments()

    def is_still(self) -> bool:
        """Implement `LogReader.is_still`."""
        return self._log.is_still()

    def open(self, segment: SegmentInfo) -> SegmentBytes:
        """Open a listed segment, from its blocks if it has any."""
        file = self._file()
        blocks = file.of(self._node).get(segment.segment_id)
        return FramedSegment(file, blocks, self._copies) if blocks else self._log.open(segment)

    def narrow(self, passed: Collection[bytes], kept: Collection[bytes], arcs: Arcs) -> bool:
        """Implement `LogReader.narrow`."""
        return self._log.narrow(passed, kept, arcs)

    def fetch(self, segment_id: int, position: int, length: int) -> Rescued | None:
        """Implement `LogReader.fetch`."""
        return self._log.fetch(segment_id, position, length)

"""Segments that an agent frames for readers, each at its reader's place.

A reader asks for a stretch at a time; a walk that is kept continues where the last one ended, so
that a section is not framed again from its start. For one thread; blocking file I/O.
"""

import contextlib
import os
from collections import OrderedDict
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

from headrace.sources.cassandra.agent.framed_entries import Wanted, parts
from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.commitlog.opening import open_segment
from headrace.sources.cassandra.errors import UnsupportedSegmentError
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.logs.directory import SegmentInfo

KEPT_MAX: Final = 32  # Each is an open file and a window of 64 KiB.
PIECE_BYTES: Final = 256 * 1024


@dataclass(slots=True)
class _Walk:
    """A framer on a file of its own."""

    framer: Framer
    descriptor: int
    at: int

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Read file bytes."""
        return os.preadv(self.descriptor, [buffer], offset)


class Walks:
    """See the module."""

    def __init__(self) -> None:
        """Begin with none."""
        self._kept: OrderedDict[tuple[str, int], _Walk] = OrderedDict()
        self._keys = Keys(KeyOptions())

    def pieces(  # noqa: PLR0913 (which segment, and what of it)
        self,
        info: SegmentInfo,
        mark: str,
        descriptor: int,
        *,
        begin: int,
        end: int,
        wanted: Wanted,
    ) -> Generator[bytes]:
        """Yield what is wanted of a plain segment, in pieces; *mark* tells its file from others.

        Raises:
            UnsupportedSegmentError: it is compressed or encrypted.
            SegmentError: its header is damaged.

        """
        walk = self._kept.pop((mark, begin), None) or self._begin(info, descriptor, begin)
        walk.framer.allow(info.limit, told=info.told)
        if not info.final:  # I6: nor is damage sent that may still be written.
            end = min(end, info.limit)
        return self._run(walk, mark, end, wanted)

    def _run(self, walk: _Walk, mark: str, end: int, wanted: Wanted) -> Generator[bytes]:
        piece = bytearray()
        try:
            for part in parts(walk.framer, walk.read_into, walk.at, end, wanted):
                walk.at = part.end
                piece += part.sent
                if len(piece) >= PIECE_BYTES:
                    yield bytes(piece)
                    piece.clear()
            if piece:
                yield bytes(piece)
        finally:
            self._keep(walk, mark)

    def _begin(self, info: SegmentInfo, descriptor: int, begin: int) -> _Walk:
        walk = _Walk(Framer(), os.dup(descriptor), begin)
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

    def _keep(self, walk: _Walk, mark: str) -> None:
        """Keep a walk that can continue at its place."""
        if walk.framer.at != walk.at:
            os.close(walk.descriptor)
            return
        with contextlib.suppress(KeyError):
            os.close(self._kept.pop((mark, walk.at)).descriptor)
        self._kept[mark, walk.at] = walk
        if len(self._kept) > KEPT_MAX:
            os.close(self._kept.popitem(last=False)[1].descriptor)

    def forget_gone(self) -> None:
        """Close the files that have no name any more."""
        for place, walk in list(self._kept.items()):
            if os.fstat(walk.descriptor).st_nlink == 0:
                os.close(self._kept.pop(place).descriptor)

    def close(self) -> None:
        """Close all files."""
        for walk in self._kept.values():
            os.close(walk.descriptor)
        self._kept.clear()

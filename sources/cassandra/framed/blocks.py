"""Blocks of framed entries: how one is written, and a file of those of one split.

A block is two numbers of 32 bits, the lengths of its head and of its body; the head in MessagePack;
and the body: where entries end in the segment (64 bits each), their sizes (32 bits), and their
bytes. Numbers are little-endian. Blocks may be in a file in any order.
"""

import os
import struct
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final

import msgspec

from headrace.sources.cassandra.errors import StateError

_LENGTHS: Final = struct.Struct("<II")
_END_BYTES, _SIZE_BYTES = 8, 4


class End(msgspec.Struct, frozen=True, array_like=True):
    """What a framer found behind the last block of a section: see `Framer.next_entry`."""

    found: int
    at: int
    at_until: bool


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What a block is: the one of that `number` in the section that begins at `begin` in a segment.

    `until` is where the section ends; the last block of it has an `end`. With `is_unfit` none of
    the segment could be framed once for all.
    """

    node: str
    segment_id: int
    begin: int
    until: int
    number: int
    place: str = ""
    messaging: int = 0
    header_bytes: int = 0
    count: int = 0
    end: End | None = None
    is_unfit: bool = False


class Block(msgspec.Struct, frozen=True):
    """Where the body of a block is in its file."""

    head: Head
    at: int
    size: int


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Head)
_ORDER: Final = attrgetter("head.begin", "head.number")


def block_of(head: Head, *columns: memoryview) -> bytes:
    """Return a block with these columns, as bytes."""
    said = _ENCODER.encode(head)
    return b"".join((_LENGTHS.pack(len(said), sum(map(len, columns))), said, *columns))


class BlockFile:
    """A file of blocks. For one thread; blocking file I/O."""

    def __init__(self, path: Path) -> None:
        """Find the blocks in *path*, by node and segment, in their order.

        Raises:
            StateError: blocks are missing, or it is not of blocks.

        """
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        self.segments: dict[str, dict[int, Sequence[Block]]] = {}
        found: dict[tuple[str, int], list[Block]] = {}
        for block in self._scanned():
            found.setdefault((block.head.node, block.head.segment_id), []).append(block)
        for (node, segment_id), blocks in found.items():
            if not any(block.head.is_unfit for block in blocks):
                blocks.sort(key=_ORDER)
                self._check(blocks)
                self.segments.setdefault(node, {})[segment_id] = blocks

    def _scanned(self) -> Sequence[Block]:
        found, at, size = [], 0, os.fstat(self._descriptor).st_size
        while at < size:
            lengths = os.pread(self._descriptor, _LENGTHS.size, at)
            if len(lengths) < _LENGTHS.size:
                raise self._damaged("cut short", at)
            head_size, body_size = _LENGTHS.unpack(lengths)
            at += _LENGTHS.size
            try:
                head = _DECODER.decode(os.pread(self._descriptor, head_size, at))
            except msgspec.MsgspecError as error:
                raise self._damaged(str(error), at) from error
            at += head_size
            if at + body_size > size or head.count * (_END_BYTES + _SIZE_BYTES) > body_size:
                raise self._damaged(f"a block of {body_size} bytes", at)
            found.append(Block(head, at, body_size))
            at += body_size
        return found

    def _check(self, blocks: Sequence[Block]) -> None:
        """Find out whether each block of a segment is there, once."""
        begin, number = blocks[0].head.begin, 0
        for block in blocks:
            head = block.head
            if (head.begin, head.number) != (begin, number):
                said = f"expected block {number} of the section at {begin} of {head.place}"
                raise self._damaged(f"{said}, found {head.number} at {head.begin}", block.at)
            begin, number = (begin, number + 1) if head.end is None else (head.until, 0)
        if number:
            raise self._damaged(f"the last section of {blocks[-1].head.place} has no end", begin)

    def _damaged(self, said: str, at: int) -> StateError:
        hint = "remove nothing from the temporary folder while a replay runs; run it again"
        return StateError(said, place=f"{self._path}: byte {at}", hint=hint)

    def columns(self, block: Block) -> tuple[memoryview, memoryview, memoryview]:
        """Return where entries end, their sizes, and their bytes."""
        body = memoryview(bytearray(block.size))
        if os.preadv(self._descriptor, [body], block.at) != block.size:
            raise self._damaged("cut short", block.at)
        ends = _END_BYTES * block.head.count
        sizes = ends + _SIZE_BYTES * block.head.count
        return body[:ends].cast("q"), body[ends:sizes].cast("i"), body[sizes:]

    def of(self, node: str) -> Mapping[int, Sequence[Block]]:
        """Return the blocks of a node's segments, by number; none of what was not framed."""
        return self.segments.get(node, {})

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

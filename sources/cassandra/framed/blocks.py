"""Blocks of framed entries: their format, and a file with those of one split.

A block is two 32-bit numbers, the lengths of its head and of its body; the head in MessagePack; and
the body: ends of entries in the segment (64 bits each), digests (128 bits), sizes (32 bits), the
kind of each entry (8 bits), and bytes. Numbers are little-endian. Blocks may be in a file in any
order. The bytes of an entry that is sent as a digest are in the block of another log; if they are
in none, they are read again from the log of the entry.
"""

import mmap
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from headrace.sources.cassandra.commitlog.framer import digest
from headrace.sources.cassandra.errors import SegmentError, StateError
from headrace.sources.cassandra.framed.rejoining import SentBytes
from headrace.sources.cassandra.logs.rescued_copies import Rescued

# Returns the mutation in a node's log, by its segment, the end of its entry and its length.
Fetch = Callable[[str, int, int, int], Rescued | None]

_LENGTHS: Final = struct.Struct("<II")
_END_BYTES, _DIGEST_BYTES, _SIZE_BYTES, _KIND_BYTES = 8, 16, 4, 1


class End(msgspec.Struct, frozen=True, array_like=True):
    """The framer's result after the last block of a section: see `Framer.next_entry`."""

    found: int
    at: int
    at_until: bool


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The head of block `number` in the section that starts at `begin` in a segment.

    `until` is the end of the section; its last block has an `end`. With `is_unfit` none of the
    segment could be framed for all splits. Of `count` entries, `digests` have a digest under `key`;
    of these, `both` also have bytes.
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
    digests: int = 0
    both: int = 0
    key: bytes = b""


class _Columns(NamedTuple):
    """The starts of the columns in a body."""

    digests: int
    sizes: int
    kinds: int
    content: int

    @classmethod
    def of(cls, head: Head) -> "_Columns":
        digests = _END_BYTES * head.count
        sizes = digests + _DIGEST_BYTES * head.digests
        kinds = sizes + _SIZE_BYTES * head.count
        return cls(digests, sizes, kinds, kinds + _KIND_BYTES * head.count)


class Block(msgspec.Struct, frozen=True):
    """The place of a block's body in its file."""

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
        """Find the blocks in *path*, by node and segment, in order.

        Raises:
            StateError: blocks are missing, or the file has another format.

        """
        self._path = path
        self._mapped = _mapped(path)
        self._blocks = self._scanned()
        self.segments: dict[str, dict[int, Sequence[Block]]] = {}
        found: dict[tuple[str, int], list[Block]] = {}
        for block in self._blocks:
            found.setdefault((block.head.node, block.head.segment_id), []).append(block)
        for (node, segment_id), blocks in found.items():
            if not any(block.head.is_unfit for block in blocks):
                blocks.sort(key=_ORDER)
                self._check(blocks)
                self.segments.setdefault(node, {})[segment_id] = blocks

    def _scanned(self) -> Sequence[Block]:
        found, at, size = [], 0, len(self._mapped)
        while at < size:
            if size - at < _LENGTHS.size:
                raise self._damaged("cut short", at)
            head_size, body_size = _LENGTHS.unpack_from(self._mapped, at)
            at += _LENGTHS.size
            try:
                head = _DECODER.decode(self._mapped[at : at + head_size])
            except msgspec.MsgspecError as error:
                raise self._damaged(str(error), at) from error
            at += head_size
            if at + body_size > size or _Columns.of(head).content > body_size:
                raise self._damaged(f"a block of {body_size} bytes", at)
            found.append(Block(head, at, body_size))
            at += body_size
        return found

    def _check(self, blocks: Sequence[Block]) -> None:
        """Check that each block of a segment exists once."""
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

    def columns(self, block: Block, fetch: Fetch) -> tuple[memoryview, memoryview, memoryview]:
        """Return the ends of entries, their sizes, and their bytes.

        *fetch* reads mutations that no log sent. Raises as it does.

        Raises:
            StateError: another mutation or none is at a place, because its segment is gone.

        """
        body = self._read(block, 0, block.size)
        at, head = _Columns.of(block.head), block.head
        ends = body[: at.digests].cast("q")
        sizes, content = body[at.sizes : at.kinds].cast("i"), body[at.content :]
        if head.digests == head.both:
            return ends, sizes, content
        digests = body[at.digests : at.sizes].cast("Q")
        made = memoryview(bytearray(sum(sizes)))
        missing = self._sent.rejoin(
            self._mapped, body[at.kinds : at.content], sizes, digests, content, made
        )
        for number, begin, word in missing:
            wanted = bytes(digests[word : word + 2].cast("B"))
            raw = self._again(head, ends[number], sizes[number], wanted, fetch)
            made[begin : begin + sizes[number]] = raw
        return ends, sizes, made

    @staticmethod
    def _again(head: Head, position: int, length: int, wanted: bytes, fetch: Fetch) -> bytes:
        """Read a mutation from the place where it was framed."""
        said = "a mutation that was there is gone"
        try:
            found = fetch(head.node, head.segment_id, position, length)
        except SegmentError as error:  # The reader of the log would treat it as damage there.
            found, said = None, f"a mutation cannot be read any more: {error.message}"
        if found is None or digest(found.raw, head.key) != wanted:
            hint = "segments were removed while a replay read them: run it again"
            place = f"{head.place} of {head.node}: before byte {position}"
            raise StateError(said, place=place, hint=hint)
        return found.raw

    def _read(self, block: Block, begin: int, end: int) -> memoryview:
        """Return a copy, in which columns are aligned."""
        return memoryview(bytearray(self._mapped[block.at + begin : block.at + end]))

    @cached_property
    def _sent(self) -> SentBytes:
        """The mutations sent with bytes and digest, of all logs."""
        sent = SentBytes(sum(block.head.both for block in self._blocks))
        for block in self._blocks:
            if block.head.both:
                at = _Columns.of(block.head)
                part = self._read(block, at.digests, at.content)
                kinds, sizes = at.kinds - at.digests, at.sizes - at.digests
                sent.add(
                    block.at + at.content,
                    part[kinds:],
                    part[sizes:kinds].cast("i"),
                    part[:sizes].cast("Q"),
                )
        return sent

    def of(self, node: str) -> Mapping[int, Sequence[Block]]:
        """Return the blocks of a node's segments, by number, except those not framed."""
        return self.segments.get(node, {})

    def close(self) -> None:
        """Close the file."""
        self._mapped = memoryview(b"")


def _mapped(path: Path) -> memoryview:
    """Return the file as mapped memory: its bytes are copied once or twice, in order."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))

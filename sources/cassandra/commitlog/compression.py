"""The blocks of Cassandra's compressors: section 2.5 of docs/commit-log.md. Pure.

A block is unpacked into memory of the caller's, which has the size that the block is said to have.
No decompressor writes, or keeps, more than that.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import cramjam
import msgspec

from headrace.sources.cassandra.errors import (
    BadBlockError,
    BadLengthError,
    DamagedSectionError,
    UnsupportedSegmentError,
)

# Fills the second from the first and returns how many bytes it wrote.
Decompress: TypeAlias = Callable[[memoryview, memoryview], int]

_PACKAGE: Final = "org.apache.cassandra.io.compress."
_PREFIX_BYTES: Final = 4  # LZ4's own length, which is little-endian.


class BlockError(Exception):
    """A block that cannot be unpacked; caught where its place is known.

    `kind` is the class of the error to raise there.
    """

    def __init__(self, message: str, kind: type[DamagedSectionError]) -> None:
        """*message* says what is wrong with it."""
        super().__init__(message)
        self.message = message
        self.kind = kind


class Compressor(msgspec.Struct, frozen=True):
    """A block format; a byte of it never stands for more than `growth_max` bytes."""

    name: str
    growth_max: int
    decompress: Decompress

    def unpack(self, packed: memoryview, room: memoryview) -> None:
        """Fill *room* with what is *packed*, which must be as long.

        Raises:
            BlockError: it has another length, or is not such a block.

        """
        if not room:  # What an empty block looks like differs: some have no byte at all.
            return
        try:
            came = self.decompress(packed, room)
        except cramjam.DecompressionError:
            raise BlockError(f"the {self.name} block is damaged", BadBlockError) from None
        if came != len(room):
            found = f"{came} bytes came out of the {self.name} block, {len(room)} were said"
            raise BlockError(found, BadLengthError)


def _lz4(packed: memoryview, room: memoryview) -> int:
    said = int.from_bytes(packed[:_PREFIX_BYTES], "little")
    if len(packed) < _PREFIX_BYTES or said != len(room):
        found = f"the LZ4 block says {said} bytes, its frame {len(room)}"
        raise BlockError(found, BadLengthError)
    came = cramjam.lz4.decompress_block_into(packed[_PREFIX_BYTES:], room)
    if came != said:
        raise BlockError(f"the LZ4 block is damaged: {came} bytes of {said} came", BadBlockError)
    return came


def _noop(packed: memoryview, room: memoryview) -> int:
    if len(packed) == len(room):
        room[:] = packed
    return len(packed)


LZ4: Final = Compressor("LZ4", 255, _lz4)

# Growth: the longest match over the shortest form of it, rounded up.
_COMPRESSORS: Final = {
    "LZ4Compressor": LZ4,
    "SnappyCompressor": Compressor("Snappy", 64, cramjam.snappy.decompress_raw_into),
    "DeflateCompressor": Compressor("Deflate", 1_100, cramjam.zlib.decompress_into),
    "ZstdCompressor": Compressor("Zstd", 128 * 1024, cramjam.zstd.decompress_into),
    "NoopCompressor": Compressor("Noop", 1, _noop),
}


def compressor(class_name: str, *, place: str) -> Compressor:
    """Return the compressor that a segment's header names, with its package or without.

    Raises:
        UnsupportedSegmentError: none that Cassandra brings.

    """
    found = _COMPRESSORS.get(class_name.removeprefix(_PACKAGE))
    if found is None:
        raise UnsupportedSegmentError(
            f"a segment compressed with {class_name!r}",
            place=place,
            hint=f"this release reads {', '.join(sorted(_COMPRESSORS))}",
        )
    return found

"""The blocks of Cassandra's compressors: section 2.5 of docs/commit-log.md. Pure.

A block is decompressed into memory of the caller, which has the size stated for the block. No
decompressor writes or keeps more than that.
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

# Decompresses the first into the second and returns the number of bytes written.
Decompress: TypeAlias = Callable[[memoryview, memoryview], int]

_PACKAGE: Final = "org.apache.cassandra.io.compress."
_PREFIX_BYTES: Final = 4  # LZ4's own length; little-endian.


class BlockError(Exception):
    """A block that cannot be decompressed; caught where its place is known.

    `kind` is the class of the error to raise there.
    """

    def __init__(self, message: str, kind: type[DamagedSectionError]) -> None:
        """*message* describes the flaw."""
        super().__init__(message)
        self.message = message
        self.kind = kind


class Compressor(msgspec.Struct, frozen=True):
    """A block format; a compressed byte never expands to more than `growth_max` bytes."""

    name: str
    growth_max: int
    decompress: Decompress

    def unpack(self, packed: memoryview, room: memoryview) -> None:
        """Decompress *packed* into *room*, which must have the same length as the content.

        Raises:
            BlockError: the content has another length, or the block is damaged.

        """
        if not room:  # The form of an empty block differs: some have no byte at all.
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

# Growth: the longest match divided by its shortest form, rounded up.
_COMPRESSORS: Final = {
    "LZ4Compressor": LZ4,
    "SnappyCompressor": Compressor("Snappy", 64, cramjam.snappy.decompress_raw_into),
    "DeflateCompressor": Compressor("Deflate", 1_100, cramjam.zlib.decompress_into),
    "ZstdCompressor": Compressor("Zstd", 128 * 1024, cramjam.zstd.decompress_into),
    "NoopCompressor": Compressor("Noop", 1, _noop),
}


def compressor(class_name: str, *, place: str) -> Compressor:
    """Return the compressor in a segment's header, with its package or without.

    Raises:
        UnsupportedSegmentError: it is not one of Cassandra's own.

    """
    found = _COMPRESSORS.get(class_name.removeprefix(_PACKAGE))
    if found is None:
        raise UnsupportedSegmentError(
            f"a segment compressed with {class_name!r}",
            place=place,
            hint=f"this release reads {', '.join(sorted(_COMPRESSORS))}",
        )
    return found

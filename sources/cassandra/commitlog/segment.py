"""A segment's name, header and index file: sections 1 and 2.1 of docs/commit-log.md. Pure."""

import json
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from headrace.sources.cassandra.errors import (
    END_OFFSET,
    CorruptSegmentError,
    UnsupportedSegmentError,
)

# Commit log version -> messaging version of the mutations in it.
MESSAGING: Final = {7: 12, 8: 13, 9: 14}
HEADER_BYTES_MAX: Final = 18 + 0xFFFF
MARKER_BYTES: Final = 8
ID_BEHIND: Final = 1 << 48  # Above the ids of segments; as ms, until the year 10889.

_LOG = re.compile(r"CommitLog-(\d+)-(\d+)\.log")
_INDEX_NAME = re.compile(r"(CommitLog-\d+-(\d+))_cdc\.idx")
_INDEX = re.compile(rb"(\d{1,10})(\nCOMPLETED)?\n?")
_COMPRESSION, _KEY, _CIPHER, _IV = "compressionClass", "encKeyAlias", "encCipher", "encIV"
_CIPHERS: Final = frozenset({"AES/CBC/PKCS5PADDING", "AES/CBC/PKCS7PADDING"})
_IV_BYTES: Final = 16


class Compression(msgspec.Struct, frozen=True):
    """Each section is one block of this compressor (2.5)."""

    class_name: str


class Encryption(msgspec.Struct, frozen=True):
    """Each section is encrypted blocks (2.6): the name of the key, and each block's IV."""

    alias: str
    iv: bytes


class Descriptor(msgspec.Struct, frozen=True):
    """A segment's header: 4 bytes version, 8 id, 2 length of parameters, parameters, 4 CRC."""

    version: int
    segment_id: int
    header_bytes: int
    wrapping: Compression | Encryption | None = None

    @property
    def messaging(self) -> int:
        """The messaging version of the mutations inside."""
        return MESSAGING[self.version]


class Index(msgspec.Struct, frozen=True):
    """The content of a `_cdc.idx`: all before `offset` is durable; `completed`: read to the end."""

    offset: int
    completed: bool

    def indexed(self, size_bytes: int) -> int:
        """Return the logical offset up to which a final segment must have sections.

        It is 0 if the index cannot say: a replay writes the length of the file, *size_bytes*,
        instead of the offset.
        """
        return 0 if self.completed and self.offset == size_bytes else self.offset


def parse_name(name: str) -> tuple[int, int] | None:
    """Return the version and id in a segment's file name; None for any other name."""
    match = _LOG.fullmatch(name)
    return (int(match[1]), int(match[2])) if match and int(match[2]) < ID_BEHIND else None


def index_name(name: str) -> str:
    """Return the name of the index file beside the segment *name*."""
    return name.removesuffix(".log") + "_cdc.idx"


def log_name(name: str) -> str:
    """Return the name of the segment with the index file *name*; "" for any other name."""
    return name.removesuffix("_cdc.idx") + ".log" if name.endswith("_cdc.idx") else ""


def indexed_segments(names: Iterable[str]) -> dict[int, str]:
    """Return the segments with an index file in *names*: their names by id."""
    found = {}
    for name in names:
        match = _INDEX_NAME.fullmatch(name)
        if match and int(match[2]) < ID_BEHIND:
            found[int(match[2])] = f"{match[1]}.log"
    return found


def parse_index(content: bytes) -> Index | None:
    """Parse an index file; None while it is empty or half-written: read it again later."""
    match = _INDEX.fullmatch(content)
    if match is None or int(match[1]) >= END_OFFSET:
        return None
    return Index(int(match[1]), match[2] is not None)


def header_length(raw: bytes) -> int:
    """Return the length of the header in bytes, given its first 14 bytes."""
    return 18 + int.from_bytes(raw[12:14], "big")


def parse_descriptor(raw: bytes, *, place: str) -> Descriptor:
    """Parse the header at the start of *raw*, and check that the segment is supported.

    Raises:
        CorruptSegmentError: it is cut short, or its checksum is wrong.
        UnsupportedSegmentError: the version or a cipher is not supported.

    """
    if len(raw) < 14 or len(raw) < header_length(raw):
        raise CorruptSegmentError(
            f"a header of {len(raw)} bytes is cut short",
            place=f"{place}: byte 0",
            hint="copy the segment again; a live one has its header from the start",
        )
    length = header_length(raw)
    version, segment_id = int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:12], "big")
    stored = int.from_bytes(raw[length - 4 : length], "big")
    # The checksum covers the id's lower half first, and the length in four bytes (2.1).
    summed = raw[:4] + raw[8:12] + raw[4:8] + b"\0\0" + raw[12 : length - 4]
    if zlib.crc32(summed) != stored:
        raise CorruptSegmentError(
            f"header checksum: expected {zlib.crc32(summed):08x}, found {stored:08x}",
            place=f"{place}: byte {length - 4}",
            hint="the file is damaged, or is not a commit log segment",
        )
    if version not in MESSAGING:
        raise UnsupportedSegmentError(
            f"commit log version {version}; this release reads 7, 8 and 9",
            place=f"{place}: byte 0",
            hint="Cassandra 4.0 to 6.0 write these; 3.x is not supported",
        )
    wrapping = _wrapping(raw[14 : length - 4], place=f"{place}: byte 14")
    return Descriptor(version, segment_id, length, wrapping)


def _wrapping(raw: bytes, *, place: str) -> Compression | Encryption | None:
    try:
        parameters = json.loads(raw)
    except (ValueError, RecursionError):
        raise CorruptSegmentError("header parameters are not JSON", place=place) from None
    if not isinstance(parameters, dict):
        raise CorruptSegmentError("header parameters are not a JSON object", place=place)
    if _KEY in parameters and _CIPHER in parameters:  # Precedes compression, as in Cassandra.
        return _encryption(parameters, place=place)
    if _COMPRESSION not in parameters:
        return None
    return Compression(_text(parameters, _COMPRESSION, place=place))


def _encryption(parameters: Mapping[str, object], *, place: str) -> Encryption:
    cipher = _text(parameters, _CIPHER, place=place)
    if cipher.upper() not in _CIPHERS:
        raise UnsupportedSegmentError(
            f"a segment encrypted by {cipher!r}",
            place=place,
            hint="this release reads AES/CBC/PKCS5Padding, Cassandra's default",
        )
    try:
        iv = bytes.fromhex(_text(parameters, _IV, place=place))
    except ValueError:
        iv = b""
    if len(iv) != _IV_BYTES:
        expected = f"header parameter {_IV}: expected {2 * _IV_BYTES} hexadecimal digits"
        raise CorruptSegmentError(expected, place=place)
    return Encryption(_text(parameters, _KEY, place=place), iv)


def _text(parameters: Mapping[str, object], key: str, *, place: str) -> str:
    found = parameters.get(key)
    if not isinstance(found, str):
        raise CorruptSegmentError(f"header parameter {key}: expected a text", place=place)
    return found

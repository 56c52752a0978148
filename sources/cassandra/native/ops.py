"""Byte-level operations of the hot path, in Python; compiled modules call the C library instead.

Separate so that compiled callers get C functions and interpreted callers get this file. Positions
are byte offsets into *view*, *end* exclusive; they are not checked.
"""

import hashlib
import itertools
import struct
import zlib
from collections.abc import Sequence
from typing import TypeAlias
from uuid import UUID

from cassandra import murmur3

from headrace.sources.cassandra.native import constants

View: TypeAlias = bytes | bytearray | memoryview
Words: TypeAlias = memoryview

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_SIGN = 1 << 63
_INT_BYTES = 4
_SHORT_MAX = 0x7F  # A vint of one byte.
_DATE_ZERO = 0x8000_0000
_NUMBERS = {
    constants.AVRO_INT8: ">b",
    constants.AVRO_INT16: ">h",
    constants.AVRO_INT32: ">i",
    constants.AVRO_INT64: ">q",
    constants.AVRO_DATE: ">I",
}
_TEXTS = (constants.AVRO_TEXT, constants.AVRO_ASCII)
_SIZES = {
    constants.AVRO_BOOLEAN: 1,
    constants.AVRO_FLOAT: 4,
    constants.AVRO_DOUBLE: 8,
    constants.AVRO_UUID: 16,
}


def crc32(view: View, start: int, end: int, seed: int) -> int:
    """Return zlib's CRC-32 of the bytes, continued from *seed*."""
    return zlib.crc32(view[start:end], seed)


def siphash128(  # noqa: PLR0913, PLR0917 (the signature of its twin in C)
    view: View, start: int, end: int, k0: int, k1: int, out: Words
) -> None:
    """Write SipHash-2-4-128 with the key (*k0*, *k1*) to out[0] and out[1]."""
    v = [
        0x736F6D6570736575 ^ k0,
        0x646F72616E646F6D ^ k1 ^ 0xEE,
        0x6C7967656E657261 ^ k0,
        0x7465646279746573 ^ k1,
    ]
    content = bytes(view[start:end])
    length = len(content)
    content += bytes(7 - length % 8) + bytes([length & 0xFF])
    for at in range(0, len(content), 8):
        word = int.from_bytes(content[at : at + 8], "little")
        v[3] ^= word
        _sip_rounds(v, 2)
        v[0] ^= word
    v[2] ^= 0xEE
    _sip_rounds(v, 4)
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    _sip_rounds(v, 4)
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3]


def _sip_rounds(v: list[int], rounds: int) -> None:
    v0, v1, v2, v3 = v
    for _ in range(rounds):
        v0 = (v0 + v1) & _MASK
        v2 = (v2 + v3) & _MASK
        v1 = _rotate(v1, 13) ^ v0
        v3 = _rotate(v3, 16) ^ v2
        v0 = _rotate(v0, 32)
        v2 = (v2 + v1) & _MASK
        v0 = (v0 + v3) & _MASK
        v1 = _rotate(v1, 17) ^ v2
        v3 = _rotate(v3, 21) ^ v0
        v2 = _rotate(v2, 32)
    v[:] = v0, v1, v2, v3


def _rotate(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _MASK


def token(view: View, start: int, end: int) -> int:
    """Return the Murmur3Partitioner's token of a partition key, -(2^63) for the empty one."""
    if start == end:
        return -_SIGN
    found = int(murmur3.murmur3(bytes(view[start:end])))
    return _SIGN - 1 if found == -_SIGN else found


def siphash_all(  # noqa: PLR0913, PLR0917 (the signature of its twin in C)
    view: View,
    ranges: Words,
    first: int,
    stride: int,
    count: int,
    k0: int,
    k1: int,
    out: Words,
) -> None:
    """Write the digests of *count* byte ranges to *out*, two words each.

    Range i is from ranges[first + i * stride] to the number after it; C computes several at once.
    """
    for i in range(count):
        at = first + i * stride
        siphash128(view, ranges[at], ranges[at + 1], k0, k1, out[2 * i : 2 * i + 2])


def sha16_all(
    view: View, ranges: Words, stride: int, count: int, out: bytearray | memoryview
) -> None:
    """Write the first 16 bytes of SHA-256 of each of *count* byte ranges to *out*.

    Range i is from ranges[i * stride] to the number after it; C computes several at once.
    """
    for i in range(count):
        start, end = ranges[i * stride], ranges[i * stride + 1]
        out[16 * i : 16 * i + 16] = hashlib.sha256(view[start:end]).digest()[:16]


def i32(view: View, at: int) -> int:
    """Return the big-endian signed 32-bit number."""
    return int.from_bytes(view[at : at + 4], "big", signed=True)


def u32(view: View, at: int) -> int:
    """Return the big-endian unsigned 32-bit number."""
    return int.from_bytes(view[at : at + 4], "big")


def u64(view: View, at: int) -> int:
    """Return the big-endian unsigned 64-bit number."""
    return int.from_bytes(view[at : at + 8], "big")


def same(a: View, at: int, b: View, start: int, count: int) -> bool:
    """Return whether *count* bytes at a[at] and b[start] are equal."""
    return a[at : at + count] == b[start : start + count]


def copy(out: bytearray | memoryview, at: int, view: View, start: int, end: int) -> None:
    """Copy view[start:end] to out[at:]."""
    out[at : at + end - start] = view[start:end]


def take(view: View, start: int, end: int) -> bytes:
    """Return a copy of the bytes as a bytes object."""
    return bytes(view[start:end])


def take_words(words: Words, count: int) -> bytes:
    """Return a copy of the first *count* words as a bytes object."""
    return bytes(words[:count])


def vint_extra(first: int) -> int:
    """Return how many bytes follow the first byte of a vint: its leading one bits."""
    return 8 - (first ^ 0xFF).bit_length()


def popcount(mask: int) -> int:
    """Return the number of set bits."""
    return mask.bit_count()


def add_digest(out: Words, at: int, words: Words, start: int) -> None:
    """Add the digest in words[start:] to the sum in out[at:], modulo 2**128; words are unsigned."""
    whole = checksum_of(out, at) + checksum_of(words, start)
    out[at], out[at + 1] = whole & _MASK, whole >> 64 & _MASK


def put_digest(words: Words, at: int, d0: int, d1: int) -> None:
    """Write the halves of a digest to two words, the lower one first."""
    _put_halves(words, at, d0 | d1 << 64)


def put_bound(out: Words, at: int, digest: Words, start: int, count: int) -> None:
    """Write the sum of the shares of the first *count* changes, at least one, of a digest.

    The share of a change is the difference of two bounds: 0 before the first, the digest after the
    last. So all shares add up to the digest, for any number of changes.
    """
    _put_halves(out, at, _up_to(checksum_of(digest, start), count))


def add_checksum(out: Words, at: int, words: Words, start: int) -> None:
    """Add the checksum in words[start:] to the one in out[at:]."""
    _put_halves(out, at, checksum_of(out, at) + checksum_of(words, start))


def subtract_checksum(out: Words, at: int, words: Words, start: int) -> None:
    """Subtract the checksum in words[start:] from the one in out[at:]."""
    _put_halves(out, at, checksum_of(out, at) - checksum_of(words, start))


def shares_of(words: Sequence[int], at: int, count: int) -> list[int]:
    """Return the checksums of all *count* changes of the mutation with the digest in words[at:].

    See `put_bound`. The digest itself is the last item.
    """
    digest = checksum_of(words, at)
    ends = [_up_to(digest, index) for index in range(count)] + [digest]
    return [*((end - begin) % (1 << 128) for begin, end in itertools.pairwise(ends)), digest]


def checksum_of(words: Sequence[int], at: int) -> int:
    """Return the 128-bit number in two words, the lower one first."""
    return (words[at] & _MASK) | (words[at + 1] & _MASK) << 64


def _put_halves(words: Words, at: int, number: int) -> None:
    for place, half in ((at, number & _MASK), (at + 1, number >> 64 & _MASK)):
        words[place] = half - (1 << 64) if half & _SIGN else half


def _up_to(whole: int, count: int) -> int:
    """Return the sum of the first *count* shares of a digest."""
    found = 0
    for shift in (0, 64) if count else ():
        half = (whole >> shift & _MASK) ^ (count * 0x9E37_79B9_7F4A_7C15 & _MASK)
        half = half * 0xBF58_476D_1CE4_E5B9 & _MASK
        found |= (half ^ half >> 31) << shift
    return found


def put_bytes(out: bytearray | memoryview, at: int, content: bytes) -> int:
    """Write all of *content* at out[at]. Return its end."""
    out[at : at + len(content)] = content
    return at + len(content)


def put_long(out: bytearray | memoryview, at: int, number: int) -> int:
    """Write an Avro int or long at out[at]. Return its end, at most ten bytes later.

    Zigzag, then seven bits per byte, the lowest first.
    """
    rest = (number << 1) ^ (number >> 63)
    while rest > 0x7F:
        out[at] = (rest & 0x7F) | 0x80
        at += 1
        rest >>= 7
    out[at] = rest
    return at + 1


def prefetch_index(index: Words, at: int) -> None:
    """Prefetch index[at]; does nothing in Python."""


def prefetch_record(words: Words, at: int) -> None:
    """Prefetch the record that starts at words[at]; does nothing in Python."""


def put_value(  # noqa: PLR0913, PLR0917 (the signature of its twin in C)
    out: bytearray | memoryview, at: int, kind: int, view: View, start: int, length: int
) -> int:
    """Write a value of a simple type in Avro at out[at]. Return its end.

    Returns -1, with nothing written, for bytes that are not such a value, text that is not ASCII,
    and composite types. There must be room for `constants.COLUMN_BYTES` more than *length*.
    """
    raw = bytes(view[start : start + length])
    if kind in _NUMBERS and length == struct.calcsize(_NUMBERS[kind]):
        number = struct.unpack(_NUMBERS[kind], raw)[0]
        return put_long(out, at, number - _DATE_ZERO if kind == constants.AVRO_DATE else number)
    if kind == constants.AVRO_DECIMAL and length > _INT_BYTES:
        at = put_long(out, at, i32(raw, 0))
        return put_bytes(out, put_long(out, at, length - _INT_BYTES), raw[_INT_BYTES:])
    if kind == constants.AVRO_BYTES or (kind in _TEXTS and raw.isascii()):
        return put_bytes(out, put_long(out, at, length), raw)
    if length != _SIZES.get(kind):
        return -1
    if kind == constants.AVRO_UUID:
        return put_bytes(out, put_long(out, at, 36), str(UUID(bytes=raw)).encode())
    # The rest is a boolean, or a number that is little-endian in Avro.
    return put_bytes(out, at, bytes([raw[0] != 0]) if kind == constants.AVRO_BOOLEAN else raw[::-1])


def put_plain(  # noqa: PLR0913, PLR0917 (the signature of its twin in C)
    out: bytearray | memoryview,
    at: int,
    limit: int,
    row: Words,
    column: int,
    columns: Words,
    count: int,
    forms: Words,
    view: View,
    end: int,
    starts: Words,
    first: int,
) -> int:
    """Write plain cells in Avro at out[at], each column in a union with null. Return the end.

    They are those of the *count* columns listed in *columns*, from number row[PLAIN_COLUMN] on, and
    are read from *view*, up to *end*, at row[PLAIN_SIMPLE] and row[PLAIN_COMPLEX]; all three are
    advanced. Columns from *column* on that are not listed become null. A plain cell starts with
    row[PLAIN_MARK] and has a value, of at most 127 bytes if it is simple. It stops before any other
    cell and before what `put_value` does not write; in C also at a complex column that exceeds
    *limit*, in Python before each complex column: the general encoder writes the same bytes.
    starts[first + column] is where a column begins.
    """
    del limit
    while row[constants.PLAIN_COLUMN] < count:
        while column < columns[row[constants.PLAIN_COLUMN]]:
            out[at] = 0
            starts[first + column] = at
            at += 1
            column += 1
        starts[first + column] = at
        kind, fixed, path, _ = forms[
            column * constants.FORM_WIDTH : (column + 1) * constants.FORM_WIDTH
        ]
        begin = row[constants.PLAIN_SIMPLE]
        start = begin + row[constants.PLAIN_MARK_BYTES]
        if path or end <= start:
            break
        if row[constants.PLAIN_MARK] != int.from_bytes(view[begin:start], "little"):
            break
        start, length = (start, fixed) if fixed >= 0 else (start + 1, view[start])
        if not 0 < length <= min(_SHORT_MAX, end - start):
            break
        ended = put_value(out, at + 1, kind, view, start, length)
        if ended < 0:
            break
        out[at] = 2
        at, column = ended, column + 1
        row[constants.PLAIN_SIMPLE] = start + length
        row[constants.PLAIN_COLUMN] += 1
    return at

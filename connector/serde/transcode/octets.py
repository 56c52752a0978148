"""Byte-level operations of reshaping, in Python; the compiled module calls octets.pxd's C instead.

Also the numbers of plans; octets.pxd gives the same names the same values. Positions are byte
offsets, *end* is exclusive; nothing is checked.
"""

import math
import struct
from binascii import b2a_base64
from typing import TypeAlias

View: TypeAlias = bytes | bytearray | memoryview

# The kinds of a piece of Avro; `Walk._skip` depends on their order.
LONG = 1  # Also an int.
ENUM = 2
BYTES = 3
STRING = 4
FIXED = 5
BOOLEAN = 6
REAL = 7  # A float or a double.
OPTION = 8  # A union of null and a type.
RECORD = 9
ARRAY = 10
MAP = 11  # Its items are records of a string and a value.

# The conversions of a piece.
SAME = 0
WRAPPED = 1  # The lower 32 bits of a number.
CALLED = 2  # The result of a function of its bytes.
DECIMAL = 6  # Its digits; for a long decimal, the result of a function of its bytes.
DIGITS = 9  # An integer as a string.
WHOLE = 7  # A float or double without its fraction, as a long.
WRITTEN_SET = 3  # Of a column written cell by cell: an array of the keys that were written,
WRITTEN_LIST = 4  # of the values,
WRITTEN_MAP = 5  # or of both;
WRITTEN_FIELDS = 8  # of a UDT a record of the values.

# The edits of a value: it stays, is left out, is replaced by a constant, or converted by its piece.
KEEP = 0
DROP = 1
REPLACE = 2
CONVERT = 3

# Envelopes.
OWN = 0
FLAT = 1
DEBEZIUM = 2

# Facts of a change, which are fields of its envelope.
TIMESTAMP = 0
OPERATION = 1
EXPIRES = 2
UPDATED = 3
NOTES = 4
RANGE = 5
MUTATION = 6
INDEX = 7
OF = 8
FACTS = 9

# Further headers: made of several facts, or of any field that is a number or a string.
TRACE = 9
NUMBER = 10
TEXT = 11

_LONG_MAX = (1 << 63) - 1
_FLOAT_BYTES = 4
_MASK = 0xFFFF_FFFF_FFFF_FFFF
_SEVEN_BITS = 0x7F
_SHIFT_MAX = 63  # That of a long's last byte.
_BLANK = 0x20  # Below it are control characters.
_QUOTE_AND_SLASH = b'"\\'


def take(view: View, start: int, end: int) -> bytes:
    """Return a copy of the bytes."""
    return bytes(view[start:end])


def same(a: View, start: int, end: int, content: bytes) -> bool:
    """Say whether a[start:end] is *content*."""
    return a[start:end] == content


def copy(out: bytearray | memoryview, at: int, view: View, start: int, end: int) -> None:
    """Copy view[start:end] to out[at:]."""
    out[at : at + end - start] = view[start:end]


def copy_bytes(out: bytearray | memoryview, at: int, content: bytes) -> None:
    """Copy all of *content* to out[at:]."""
    out[at : at + len(content)] = content


def put_long(out: bytearray | memoryview, at: int, number: int) -> int:
    """Write an Avro int or long at out[at] and return its end, at most ten bytes further."""
    rest = (number << 1) ^ (number >> 63)
    while rest > _SEVEN_BITS:
        out[at] = (rest & _SEVEN_BITS) | 0x80
        at += 1
        rest >>= 7
    out[at] = rest
    return at + 1


def put_decimal(out: bytearray | memoryview, at: int, number: int) -> int:
    """Write the digits of a long at out[at] and return their end, at most 20 bytes further."""
    digits = b"%d" % number
    out[at : at + len(digits)] = digits
    return at + len(digits)


def put_base64(out: bytearray | memoryview, at: int, view: View, start: int, end: int) -> int:
    """Write view[start:end] in Base64 at out[at] and return the end."""
    made = b2a_base64(view[start:end], newline=False)
    out[at : at + len(made)] = made
    return at + len(made)


def plain_end(view: View, at: int, end: int) -> int:
    """Return where the first byte is that JSON escapes in a string, or *end*."""
    while at < end and view[at] >= _BLANK and view[at] not in _QUOTE_AND_SLASH:
        at += 1
    return at


def end_of(  # noqa: PLR0913, PLR0917 (plain numbers, for C)
    view: View, at: int, end: int, kind: int, single: int, size: int
) -> int:
    """Return the end of the value at *at*, or -1 if that is not before or at *end*.

    The value has no parts: it is of kind *single*, which may have a fixed *size*, or is an option
    of that, as *kind* says.
    """
    if kind == OPTION:
        number, at = _long_before(view, at, end)
        if not number or at < 0:
            return at
    if single <= STRING:
        number, at = _long_before(view, at, end)
        size = number if single > ENUM else 0
    return at + size if 0 <= at and 0 <= size <= end - at else -1


def _long_before(view: View, at: int, end: int) -> tuple[int, int]:
    """Return the int or long at *at*, and its end, or -1 if that is not before or at *end*."""
    coded = shift = 0
    byte = 0x80
    while byte & 0x80:
        if at >= end or shift > _SHIFT_MAX:
            return 0, -1
        byte = view[at]
        coded |= (byte & _SEVEN_BITS) << shift
        shift += 7
        at += 1
    return unzigzag(coded), at


def unzigzag(coded: int) -> int:
    """Return the signed number that the lower 64 bits of *coded* encode."""
    coded &= _MASK
    return (coded >> 1) ^ -(coded & 1)


def whole(view: View, at: int, size: int) -> int:
    """Return a float or double as a long, as Java casts it: 0 for NaN, else the nearest."""
    number: float = struct.unpack_from("<f" if size == _FLOAT_BYTES else "<d", view, at)[0]
    if math.isnan(number):
        return 0
    if math.isinf(number):
        return _LONG_MAX if number > 0 else -_LONG_MAX - 1
    return max(-_LONG_MAX - 1, min(_LONG_MAX, int(number)))


def real_bits(view: View, at: int, size: int) -> int:
    """Return the 64 bits of a float or double as those of a double."""
    number: float = struct.unpack_from("<f" if size == _FLOAT_BYTES else "<d", view, at)[0]
    return int.from_bytes(struct.pack(">d", number), "big")


def signed(number: int) -> int:
    """Return the lower 64 bits of *number* as a signed number."""
    number &= _MASK
    return number - (1 << 64) if number >> 63 else number


def long_bytes(number: int) -> bytes:
    """Return an Avro int or long."""
    out = bytearray(10)
    return bytes(out[: put_long(out, 0, number)])


def sized(content: bytes) -> bytes:
    """Return an Avro string or bytes."""
    return long_bytes(len(content)) + content


def long_at(view: View, at: int) -> tuple[int, int]:
    """Return the int or long at *at*, and its end."""
    coded = shift = 0
    while view[at] > _SEVEN_BITS:
        coded |= (view[at] & _SEVEN_BITS) << shift
        shift += 7
        at += 1
    return unzigzag(coded | view[at] << shift), at + 1

"""Byte-level operations of reshaping, in Python; the compiled module uses octets.pxd's C.

It also has the numbers of plans; octets.pxd gives the same names the same values. Positions are
byte offsets, *end* is exclusive; nothing is checked.
"""

import math
import struct
from binascii import b2a_base64
from collections.abc import Sequence
from typing import TypeAlias

View: TypeAlias = bytes | bytearray | memoryview

# The kinds of an Avro piece; `skip` depends on their order.
LONG = 1  # Also for int.
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
WRITTEN_SET = 3  # Of a column written cell by cell: an array of the written keys,
WRITTEN_LIST = 4  # of the values,
WRITTEN_MAP = 5  # or both;
WRITTEN_FIELDS = 8  # for a UDT, a record of the values.

# The edits of a value: keep it, drop it, replace it by a constant, or convert it by its piece.
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

# Other headers: made from several facts, or from any field that is a number or a string.
TRACE = 9
NUMBER = 10
TEXT = 11

NODE_WORDS = 3  # Of a plan's node, before those of its parts.

# The most bytes that `put_part` writes beyond a value.
SPILL_BYTES = 48

_LONG_MAX = (1 << 63) - 1
_FLOAT_BYTES = 4
_MASK = 0xFFFF_FFFF_FFFF_FFFF
_SEVEN_BITS = 0x7F
_SHIFT_MAX = 63  # The shift of a long's last byte.
_BLANK = 0x20  # Smaller ones are control characters.
_QUOTE_AND_SLASH = b'"\\'


def take(view: View, start: int, end: int) -> bytes:
    """Return a copy of the bytes."""
    return bytes(view[start:end])


def same(a: View, start: int, end: int, content: bytes) -> bool:
    """Return whether a[start:end] is *content*."""
    return a[start:end] == content


def copy(out: bytearray | memoryview, at: int, view: View, start: int, end: int) -> None:
    """Copy view[start:end] to out[at:]."""
    out[at : at + end - start] = view[start:end]


def copy_bytes(out: bytearray | memoryview, at: int, content: bytes) -> None:
    """Copy all of *content* to out[at:]."""
    out[at : at + len(content)] = content


def put_long(out: bytearray | memoryview, at: int, number: int) -> int:
    """Write an Avro int or long at out[at] and return its end, at most ten bytes later."""
    rest = (number << 1) ^ (number >> 63)
    while rest > _SEVEN_BITS:
        out[at] = (rest & _SEVEN_BITS) | 0x80
        at += 1
        rest >>= 7
    out[at] = rest
    return at + 1


def put_bytes(out: bytearray | memoryview, at: int, content: bytes) -> int:
    """Write all of *content* at out[at] and return its end."""
    out[at : at + len(content)] = content
    return at + len(content)


def put_part(  # noqa: PLR0913, PLR0917 (plain numbers, for C)
    out: bytearray | memoryview, at: int, view: View, start: int, end: int, edge: int
) -> int:
    """Write view[start:end] at out[at] and return the end.

    *view* has *edge* bytes. More bytes may be written, for which there must be room: `SPILL_BYTES`.
    """
    del edge
    out[at : at + end - start] = view[start:end]
    return at + end - start


def put_label(out: bytearray | memoryview, at: int, text: bytes, start: int, end: int) -> int:
    """Do the same as `put_part` with a part of *text*."""
    return put_part(out, at, text, start, end, len(text))


def put_plain(  # noqa: PLR0913, PLR0917 (plain numbers, for C)
    out: bytearray | memoryview, at: int, view: View, start: int, end: int, edge: int
) -> int:
    """Write view[start:end] up to the first byte that JSON escapes; return its place, or *end*.

    As with `put_part`, more bytes may be written.
    """
    plain = plain_end(view, start, end)
    put_part(out, at, view, start, plain, edge)
    return plain


def put_scaled(out: bytearray | memoryview, at: int, magnitude: int, scale: int) -> int:
    """Write the digits of a non-negative number, the last *scale* of them after a point.

    *scale* is at most 18. There is a digit before the point. Returns the end, at most 21 bytes
    later.
    """
    digits = b"%0*d" % (scale + 1, magnitude)
    if scale:
        digits = digits[:-scale] + b"." + digits[-scale:]
    out[at : at + len(digits)] = digits
    return at + len(digits)


def put_decimal(out: bytearray | memoryview, at: int, number: int) -> int:
    """Write the digits of a long at out[at] and return their end, at most 20 bytes later."""
    digits = b"%d" % number
    out[at : at + len(digits)] = digits
    return at + len(digits)


def put_base64(out: bytearray | memoryview, at: int, view: View, start: int, end: int) -> int:
    """Write view[start:end] in Base64 at out[at] and return the end."""
    made = b2a_base64(view[start:end], newline=False)
    out[at : at + len(made)] = made
    return at + len(made)


def plain_end(view: View, at: int, end: int) -> int:
    """Return the place of the first byte that JSON escapes in a string, or *end*."""
    while at < end and view[at] >= _BLANK and view[at] not in _QUOTE_AND_SLASH:
        at += 1
    return at


def skip(view: View, at: int, end: int, plan: Sequence[int], node: int) -> int:
    """Return the end of the value at *at*, or -1 if it is after *end*.

    Its type is the node of a `Piece.plan` that begins at *node*: the kind, the count of the node's
    numbers, and the size in bytes of a type with a fixed size, or the number of a record's parts.
    The nodes of its parts follow.
    """
    kind, _, size = plan[node : node + 3]
    if kind == RECORD:
        return _skip_parts(view, at, end, plan, node)
    if kind >= ARRAY:
        return _skip_items(view, at, end, plan, node + 3)
    if kind == OPTION:
        number, at = _long_before(view, at, end)
        return at if at < 0 or not number else skip(view, at, end, plan, node + 3)
    if kind <= STRING:
        number, at = _long_before(view, at, end)
        size = number if kind > ENUM else 0
    return at + size if 0 <= at and 0 <= size <= end - at else -1


def _skip_parts(view: View, at: int, end: int, plan: Sequence[int], node: int) -> int:
    inner = node + 3
    for _ in range(plan[node + 2]):
        at = skip(view, at, end, plan, inner)
        if at < 0:
            break
        inner += plan[inner + 1]
    return at


def _skip_items(view: View, at: int, end: int, plan: Sequence[int], inner: int) -> int:
    """Do the same for an array or a map whose items are the node *inner*."""
    while True:
        count, at = _long_before(view, at, end)
        if at < 0 or not count:
            return at
        if count < 0:
            count = -count
            _, at = _long_before(view, at, end)
        if at < 0 or not 0 < count <= end - at:
            return -1
        while count and at >= 0:
            at = skip(view, at, end, plan, inner)
            count -= 1
        if at < 0:
            return -1


def note_starts(  # noqa: PLR0913, PLR0917 (plain numbers, for C)
    view: View,
    at: int,
    end: int,
    plan: Sequence[int],
    node: int,
    starts: memoryview,
    part: int,
    until: int,
) -> int:
    """Skip parts of a record as `skip` does, from number *part* on, whose node this is.

    *starts* becomes where each starts, and where the one before *until* ends.
    """
    while part < until:
        starts[part] = at
        at = skip(view, at, end, plan, node)
        if at < 0:
            return -1
        node += plan[node + 1]
        part += 1
    starts[until] = at
    return at


def take_starts(  # noqa: PLR0913, PLR0917 (plain numbers, for C)
    given: memoryview, first: int, count: int, at: int, end: int, starts: memoryview
) -> int:
    """Copy where *count* parts start that begin at *at*, and where the last ends: its return value.

    -1: they do not begin there, or do not follow each other up to *end*.
    """
    for part in range(count + 1):
        start = given[first + part]
        if start < at or start > end or (not part and start != at):
            return -1
        starts[part] = at = start
    return at


def skip_last(view: View, at: int, end: int, plan: Sequence[int], first: int) -> int:
    """Skip the parts of a record from number *first* on, like `skip`; it begins at *at*."""
    inner = 3
    for part in range(plan[2]):
        if part >= first and at >= 0:
            at = skip(view, at, end, plan, inner)
        inner += plan[inner + 1]
    return at


def _long_before(view: View, at: int, end: int) -> tuple[int, int]:
    """Return the int or long at *at*, and its end, or -1 if that is after *end*."""
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
    """Return a float or double as a long, like a cast in Java: 0 for NaN, else the nearest."""
    number: float = struct.unpack_from("<f" if size == _FLOAT_BYTES else "<d", view, at)[0]
    if math.isnan(number):
        return 0
    if math.isinf(number):
        return _LONG_MAX if number > 0 else -_LONG_MAX - 1
    return max(-_LONG_MAX - 1, min(_LONG_MAX, int(number)))


def real(view: View, at: int, size: int) -> float:
    """Return a float or double."""
    number: float = struct.unpack_from("<f" if size == _FLOAT_BYTES else "<d", view, at)[0]
    return number


def real_bits(view: View, at: int, size: int) -> int:
    """Return the 64 bits of a float or double as those of a double."""
    return int.from_bytes(struct.pack(">d", real(view, at, size)), "big")


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


def number_at(view: View, at: int, end: int) -> int:
    """Return the int or long at *at*, which does not exceed *end*."""
    return _long_before(view, at, end)[0]


def long_end(view: View, at: int, end: int) -> int:
    """Return the end of the int or long at *at*, or -1 if it is after *end*."""
    return _long_before(view, at, end)[1]


def long_at(view: View, at: int) -> tuple[int, int]:
    """Return the int or long at *at*, and its end."""
    coded = shift = 0
    while view[at] > _SEVEN_BITS:
        coded |= (view[at] & _SEVEN_BITS) << shift
        shift += 7
        at += 1
    return unzigzag(coded | view[at] << shift), at + 1

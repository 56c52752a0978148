"""Writes the bytes of a block of changes for `blocks`. Hot: without Python objects."""

from headrace.connector.serde.transcode import octets

_NUMBER_BYTES = 33  # Of one change, without its pieces.


def total(pieces: list[bytes], begin: int, end: int) -> int:
    """Return the total size of the pieces from *begin* to before *end*; 0 for an empty list."""
    size = 0
    if pieces:
        for i in range(begin, end):
            piece = pieces[i]
            size += len(piece)
    return size


def content_of(  # noqa: PLR0913, PLR0917 (lists, for C)
    hashes: list[int],
    written_us: list[int],
    schemas: list[int],
    operations: list[int],
    pieces: list[list[bytes]],
    begin: int,
    end: int,
) -> bytearray:
    """Return the content of a block: columns of numbers, the ends of pieces, and the pieces.

    *pieces* are keys, names of rows, changes and states; an empty list stands for empty pieces.
    """
    size = _NUMBER_BYTES * (end - begin)
    for each in pieces:
        size += total(each, begin, end)
    made = bytearray(size)
    at = _put(made, 0, hashes, begin, end, 4)
    at = _put(made, at, written_us, begin, end, 8)
    at = _put(made, at, schemas, begin, end, 4)
    at = _put(made, at, operations, begin, end, 1)
    for each in pieces:
        at = _put_ends(made, at, each, begin, end)
    for each in pieces:
        at = _put_pieces(made, at, each, begin, end)
    return made


def _put(  # noqa: PLR0913, PLR0917 (plain numbers, for C)
    out: bytearray, at: int, numbers: list[int], begin: int, end: int, size: int
) -> int:
    """Write a column of numbers with *size* bytes each, little endian; return its end."""
    for i in range(begin, end):
        at = _put_number(out, at, numbers[i], size)
    return at


def _put_number(out: bytearray, at: int, number: int, size: int) -> int:
    for _ in range(size):
        out[at] = number & 0xFF
        number >>= 8
        at += 1
    return at


def _put_ends(out: bytearray, at: int, pieces: list[bytes], begin: int, end: int) -> int:
    """Write the ends of consecutive pieces."""
    size = 0
    for i in range(begin, end):
        if pieces:
            piece = pieces[i]
            size += len(piece)
        at = _put_number(out, at, size, 4)
    return at


def _put_pieces(out: bytearray, at: int, pieces: list[bytes], begin: int, end: int) -> int:
    if pieces:
        for i in range(begin, end):
            piece = pieces[i]
            octets.copy_bytes(out, at, piece)
            at += len(piece)
    return at

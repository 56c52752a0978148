"""Sorts 64-bit numbers by their bytes, because Python compares them slowly. Hot."""

from array import array
from collections.abc import Callable

_BYTES = 8
_VALUES = 256
_BYTE = 0xFF
_PLACE_BITS = 31
_PLACE = 0x7FFF_FFFF


def ascending(numbers: list[int]) -> list[int]:
    """Return unsigned numbers of up to 63 bits in ascending order."""
    count = len(numbers)
    words = memoryview(array("q", bytes(_BYTES * count)))
    for i in range(count):
        words[i] = numbers[i]
    words = _sorted(words, count)
    return [words[i] for i in range(count)]


def by_hash(
    names: list[tuple[bytes, bytes]], hash_of: Callable[[bytes], int]
) -> dict[tuple[bytes, bytes], int]:
    """Return a 63-bit hash of each name, which begins with its key's, in ascending order.

    The hashes of *hash_of* have 32 bits. Names with the same key keep their order.
    """
    count = len(names)
    words = memoryview(array("q", bytes(_BYTES * count)))
    for i in range(count):
        name = names[i]
        key = hash_of(name[0])
        words[i] = key << _PLACE_BITS | i
    words = _sorted(words, count)
    made = {}
    for i in range(count):
        place = words[i] & _PLACE
        name = names[place]
        row = hash_of(name[1])
        made[name] = words[i] - place | row >> 1
    return made


def _sorted(words: memoryview, count: int) -> memoryview:
    """Sort by each byte, the last one first, skipping bytes that are all the same."""
    other = memoryview(array("q", bytes(_BYTES * count)))
    ends = memoryview(array("q", bytes(_BYTES * _VALUES)))
    for byte in range(_BYTES if count > 1 else 0):
        shift = 8 * byte
        for i in range(_VALUES):
            ends[i] = 0
        for i in range(count):
            ends[words[i] >> shift & _BYTE] += 1
        if ends[words[0] >> shift & _BYTE] == count:
            continue
        begin = 0
        for i in range(_VALUES):
            begin += ends[i]
            ends[i] = begin - ends[i]
        for i in range(count):
            value = words[i] >> shift & _BYTE
            other[ends[value]] = words[i]
            ends[value] += 1
        words, other = other, words
    return words

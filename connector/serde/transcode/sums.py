"""Sums over a batch's records, without a Python object for each."""

from collections.abc import Sequence

from headrace.plugins import EncodedRecords

_MASK = 0xFFFF_FFFF_FFFF_FFFF


def bytes_of(values: Sequence[bytes]) -> tuple[int, int]:
    """Return the total bytes of *values*, and the largest size."""
    return _bytes_of(values if type(values) is list else list(values))


def _bytes_of(values: list[bytes]) -> tuple[int, int]:
    found = largest = 0
    for value in values:
        size = len(value)
        found += size
        largest = max(largest, size)
    return found, largest


def sum_of(encoded: EncodedRecords) -> int:
    """Return the sum for all changes of a batch: records, and changes that are not records."""
    found = encoded.omitted + sum(each.checksum for each in encoded.quarantined)
    checksums = encoded.checksums
    return found if checksums is None else found + total(checksums.low, checksums.high)


def measured(encoded: EncodedRecords) -> tuple[int, int]:
    """Return that sum, and the total bytes of all values."""
    return sum_of(encoded), bytes_of(encoded.values)[0]


def total(low: memoryview, high: memoryview) -> int:
    """Return the sum of 128-bit numbers, modulo 2**128; see `plugins.Checksums`."""
    halves = _total(low, high)
    return halves[0] | halves[1] << 64


def _total(low: memoryview, high: memoryview) -> tuple[int, int]:
    """Return the halves of the sum of two columns of signed words."""
    sum_low = sum_high = carries = 0
    for place in range(len(low)):
        word = low[place] & _MASK
        sum_low = (sum_low + word) & _MASK
        if sum_low < word:
            carries += 1
        sum_high = (sum_high + (high[place] & _MASK)) & _MASK
    return sum_low, (sum_high + carries) & _MASK

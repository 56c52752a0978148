"""Checksums of changes: 128-bit numbers whose sum shows whether all changes are present.

A source gives each change a checksum and each batch the sum of all of them, which it must compute
independently of the changes. Sums are modulo `MODULUS`, and do not depend on order.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

MODULUS: Final = 1 << 128
_HALF: Final = 1 << 64


class Checksums(msgspec.Struct, frozen=True):
    """The checksums of records: signed words, the lower 64 bits of each and the upper."""

    low: memoryview
    high: memoryview

    @classmethod
    def of(cls, numbers: Iterable[int]) -> "Checksums":
        """Return the columns of *numbers*."""
        content = b"".join((number % MODULUS).to_bytes(16, "little") for number in numbers)
        words = memoryview(content).cast("q")
        return cls(words[::2], words[1::2])

    def chosen(self, indexes: Iterable[int]) -> "Checksums":
        """Return the checksums of the records with these *indexes*."""
        numbers = list(self)
        return Checksums.of(numbers[index] for index in indexes)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.low)

    def __iter__(self) -> Iterator[int]:
        """Yield the checksums."""
        for low, high in zip(self.low, self.high, strict=True):
            yield low % _HALF + high % _HALF * _HALF

"""Checksums of changes: numbers of 128 bits whose sum tells whether all changes are there.

A source gives each change a checksum and each batch the sum of all of them, which it must know from
elsewhere than from the changes themselves. Sums are modulo `MODULUS`, and do not depend on order.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

MODULUS: Final = 1 << 128
_HALF: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Checksums:
    """The checksums of records: a column of the lower 64 bits of each, and one of the upper."""

    low: Sequence[int]
    high: Sequence[int]

    @classmethod
    def of(cls, numbers: Iterable[int]) -> "Checksums":
        """Return the columns of *numbers*."""
        pairs = [(number % _HALF, number // _HALF % _HALF) for number in numbers]
        return cls([low for low, _ in pairs], [high for _, high in pairs])

    def chosen(self, indexes: Iterable[int]) -> "Checksums":
        """Return the checksums of the records with these *indexes*."""
        places = list(indexes)
        return Checksums([self.low[i] for i in places], [self.high[i] for i in places])

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.low)

    def __iter__(self) -> Iterator[int]:
        """Yield the checksums."""
        for low, high in zip(self.low, self.high, strict=True):
            yield low % _HALF + high % _HALF * _HALF

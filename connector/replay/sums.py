"""Sets compared without keeping them: by their number and a sum of hashes. Pure."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

_MASK: Final = (1 << 64) - 1


class Sum(NamedTuple):
    """How many members a set has, and the sum of their hashes; the order does not matter."""

    members: int = 0
    hashes: int = 0

    def with_all(self, added: Iterable[bytes]) -> "Sum":
        """Return the sum with more members."""
        members, hashes = self
        for member in added:
            members += 1
            hashes += hash64(member)
        return Sum(members, hashes & _MASK)


def hash64(member: bytes) -> int:
    """Return 64 bits of a member: the same on every machine."""
    return int.from_bytes(blake2b(member, digest_size=8).digest(), "little")

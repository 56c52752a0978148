"""The range of a ring that a split is named after: `3-of-8`. Pure."""

import re
from typing import Final

_PART: Final = re.compile(r"(\d+)-of-(\d+)")


def token_range(split: str) -> tuple[int, int, int]:
    """Return number, first token and the token behind the last one of a split of the ring.

    A split that is no part of a ring has none of them.
    """
    part = _PART.fullmatch(split)
    if part is None:
        return 0, 0, 0
    number, count = int(part[1]), int(part[2])
    first, behind = (-(-(n << 32) // count) - (1 << 31) << 32 for n in (number - 1, number))
    return number & 0x7FFF, first, behind

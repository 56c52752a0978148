"""Which seeds the tests of rings run: a few, or those that HEADRACE_SEEDS says (`20..60`)."""

import os
from collections.abc import Sequence
from typing import Final

_GIVEN: Final = os.environ.get("HEADRACE_SEEDS", "")


def seeds(*usual: int) -> Sequence[int]:
    """Return the seeds that were asked for; by default those that are *usual*, or the first."""
    first, _, last = _GIVEN.partition("..")
    return range(int(first), int(last or first) + 1) if first else usual or (0,)


def is_soak() -> bool:
    """Tell whether seeds were asked for: then time does not matter."""
    return bool(_GIVEN)

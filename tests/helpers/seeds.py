"""Which seeds the tests of rings run: one of each, or as many as HEADRACE_SEEDS says (`20..60`)."""

import os
from collections.abc import Sequence
from typing import Final

_GIVEN: Final = os.environ.get("HEADRACE_SEEDS", "")


def seeds(usual: int = 1) -> Sequence[int]:
    """Return the seeds that were asked for; the first of all, as many as is *usual*, by default."""
    first, _, last = _GIVEN.partition("..")
    return range(int(first), int(last or first) + 1) if first else range(usual)


def is_soak() -> bool:
    """Tell whether seeds were asked for: then time does not matter."""
    return bool(_GIVEN)

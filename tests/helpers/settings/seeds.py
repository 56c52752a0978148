"""The seeds of tests of rings: a few, or those of HEADRACE_SEEDS (`20..60`)."""

import os
from collections.abc import Sequence
from typing import Final

_GIVEN: Final = os.environ.get("HEADRACE_SEEDS", "")


def seeds(*usual: int) -> Sequence[int]:
    """Return the requested seeds; by default those that are *usual*, or the first ones."""
    first, _, last = _GIVEN.partition("..")
    return range(int(first), int(last or first) + 1) if first else usual or (0,)


def is_soak() -> bool:
    """Return whether seeds were requested: then a test may take long."""
    return bool(_GIVEN)

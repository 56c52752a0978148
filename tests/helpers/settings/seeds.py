"""What tests do a few times, and `make soak` more often: seeds, recordings, forms.

HEADRACE_SEEDS (`20..60`) asks for it.
"""

import os
from collections.abc import Sequence
from typing import Final, TypeVar

_Value = TypeVar("_Value")
_GIVEN: Final = os.environ.get("HEADRACE_SEEDS", "")


def seeds(*usual: int) -> Sequence[int]:
    """Return the requested seeds; by default those that are *usual*, or the first ones."""
    first, _, last = _GIVEN.partition("..")
    return range(int(first), int(last or first) + 1) if first else usual or (0,)


def soaked(*values: _Value) -> tuple[_Value, ...]:
    """Return parameters that `make soak` adds; `make test` shows the same with the others."""
    return values if is_soak() else ()


def is_soak() -> bool:
    """Return whether seeds were requested: then a test may take long."""
    return bool(_GIVEN)

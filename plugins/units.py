"""Durations and sizes as people write them: `500ms`, `1.5h`, `4GiB`. Pure."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

_DURATIONS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
# What one of each unit of an option is, in ms or bytes.
_UNITS: Final[Mapping[str, tuple[Mapping[str, int], int]]] = {
    "ms": (_DURATIONS, 1),
    "seconds": (_DURATIONS, 1_000),
    "bytes": (_SIZES, 1),
    "kbytes": (_SIZES, 1_024),
}
_QUANTITY: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?) ?([A-Za-z]{1,3})")
_IN_KEY: Final = re.compile(rf"(?:^|[._])({'|'.join(_UNITS)})(?:[._]|$)")


def unit_in(key: str) -> str:
    """Return the unit that the name of an option says, as `ms` in `linger.ms`; or nothing."""
    found = _IN_KEY.findall(key)
    return str(found[-1]) if found else ""


def quantity(text: str, unit: str) -> Decimal | None:
    """Return how many of *unit* the text says, or None when it says no quantity of its kind."""
    match = _QUANTITY.fullmatch(text.strip())
    scale, one = _UNITS[unit]
    if match is None or match[2] not in scale:
        return None
    return Decimal(match[1]) * scale[match[2]] / one


def examples(unit: str) -> str:
    """Return what quantities of *unit* look like."""
    return "500ms, 10s, 2h" if _UNITS[unit][0] is _DURATIONS else "64KiB, 16MiB, 4GiB"

"""Durations in options and statements."""

import re
from typing import Final

from headrace.plugins import ConfigError, Problem

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")


def duration_ms(text: str, key: str) -> int:
    """Return the milliseconds of *text*, such as `7d` or `1h30m`.

    Raises:
        ConfigError: it is not a duration of at least 1 ms; the problem's key is *key*.

    """
    parts = _PART.findall(text)
    total = sum(int(number) * _UNITS_MS[unit] for number, unit in parts)
    if total < 1 or "".join(map("".join, parts)) != text:
        hint = "write a number and ms, s, m, h or d: 500ms, 90s, 1h30m, 7d"
        raise ConfigError([Problem(key, f"expected a duration, found {text[:32]!r}", hint)])
    return total

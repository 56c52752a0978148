"""How many bytes a second are read of each split, as its owner sees it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp
from typing import Final

FADE_MS: Final = 60_000  # What was read longer ago than this weighs little.


@dataclass(slots=True)
class _Seen:
    total: int
    at_ms: int
    rate: float


class Rates:
    """The rates of the splits that this process runs."""

    def __init__(self) -> None:
        """Know of no split."""
        self._seen: dict[str, _Seen] = {}

    def begin(self, split: str, rate: int, now_ms: int) -> None:
        """Take over what the last owner told of *split*, of which nothing is read yet."""
        self._seen[split] = _Seen(0, now_ms, rate)

    def observe(self, totals: Mapping[str, int], now_ms: int) -> None:
        """Note how many bytes were read of splits since they began."""
        for split, total in totals.items():
            seen = self._seen.setdefault(split, _Seen(total, now_ms, 0))
            passed_ms = now_ms - seen.at_ms
            if passed_ms > 0:
                fresh = max(0, total - seen.total) * 1000 / passed_ms
                kept = exp(-passed_ms / FADE_MS)
                rate = kept * seen.rate + (1 - kept) * fresh
                self._seen[split] = _Seen(total, now_ms, rate)

    def end(self, split: str) -> None:
        """Forget a split that is not run any more."""
        self._seen.pop(split, None)

    def all(self) -> Mapping[str, int]:
        """Return the bytes a second of each split."""
        return {split: round(seen.rate) for split, seen in self._seen.items()}

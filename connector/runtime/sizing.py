"""When a job should go on with another number of splits, because workers came or went. Pure."""

from collections.abc import Callable, Sequence
from typing import Final

SHRINK_FACTOR: Final = 4  # So many times too many splits are too many.
SHRINK_PATIENCE: Final = 20  # And only when it has been so for many times as long.


class Sizing:
    """Watches one run of a job. A change lets the whole job stand still, so it must be lasting."""

    def __init__(
        self,
        sized: Callable[[int], Sequence[str] | None],
        *,
        patience_ms: int,
    ) -> None:
        """*sized* says which splits suit so many workers; None: that is configured."""
        self._sized = sized
        self._patience_ms = patience_ms
        self._grows = True
        self._since_ms: int | None = None

    def due(self, in_force: Sequence[str], workers: int, now_ms: int) -> Sequence[str] | None:
        """Return the splits to go on with, when those *in_force* have been unfit for long."""
        sized = self._sized(workers)
        if sized is None:
            return None
        grows = len(sized) > len(in_force)
        if not grows and len(sized) * SHRINK_FACTOR > len(in_force):
            self._since_ms = None
            return None
        if self._since_ms is None or grows is not self._grows:
            self._since_ms, self._grows = now_ms, grows
        patience_ms = self._patience_ms * (1 if grows else SHRINK_PATIENCE)
        return sized if now_ms - self._since_ms >= patience_ms else None

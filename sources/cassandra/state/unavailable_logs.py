"""Logs that cannot be read: for how long, and when a split continues without them (line 8). Pure.

Each log has its own clock, which is part of the state of a split: so a restart does not restart the
wait. Only time with attempts to read counts.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

GAP: Final = "gap"
PUBLISH: Final = "publish"
WAITED_MS: Final = 60_000  # The unreadable time after which a commit is due.
RETURNS: Final = (GAP, PUBLISH)


class Absence(msgspec.Struct, frozen=True, array_like=True):
    """A log that was not read to its end recently.

    `unread_ms` is how long it could not be read, 0 once it can be; `split_time_ms` is when it was
    last read to its end.
    """

    unread_ms: int
    split_time_ms: int


class LogUnavailablePolicy(msgspec.Struct, frozen=True):
    """How long a split waits for logs: `after_ms`, and not at all for those `named`.

    If a log returns `memory_ms` of split time after it was last read, older entries are skipped,
    unless it `publishes`: the records that its copies belong to may be forgotten.
    """

    after_ms: int
    memory_ms: int
    named: Collection[str] = ()
    publishes: bool = False


class Absences:
    """The logs that one split could not read to their ends."""

    def __init__(self, policy: LogUnavailablePolicy, stored: Mapping[str, Absence]) -> None:
        """Continue from the *stored* absences."""
        self.stored = dict(stored)
        self._policy = policy

    def missed(self, node: str, passed_ms: int, split_time_ms: int) -> None:
        """Note at *split_time_ms* that a log is unreadable, and was for the last *passed_ms*."""
        before = self.stored.get(node, Absence(0, split_time_ms))
        self.stored[node] = Absence(before.unread_ms + passed_ms, before.split_time_ms)

    def found(self, node: str) -> None:
        """Note that a log can be read: if it fails again, the wait starts over."""
        if node in self.stored:
            self.stored[node] = Absence(0, self.stored[node].split_time_ms)

    def read(self, node: str) -> None:
        """Note that a log was read to its end, or that the rest of it is booked as a gap."""
        self.stored.pop(node, None)

    def is_absent(self, node: str) -> bool:
        """Return whether a split no longer waits for an unreadable log."""
        known = self.stored.get(node)
        waited_ms = -1 if known is None else known.unread_ms
        return node in self._policy.named or waited_ms >= self._policy.after_ms

    def quiet_ms(self, node: str) -> int:
        """Return how long an unreadable log requires no action.

        That is until the split stops waiting for it, or until its wait is to be committed.
        """
        known = self.stored.get(node)
        unread_ms = known.unread_ms if known else 0
        quiet_ms = WAITED_MS - unread_ms % WAITED_MS
        return (
            quiet_ms if self.is_absent(node) else min(quiet_ms, self._policy.after_ms - unread_ms)
        )

    def is_late(self, node: str, split_time_ms: int) -> bool:
        """Return whether a log may hold copies of forgotten records."""
        known = self.stored.get(node)
        if known is None or self._policy.publishes:
            return False
        return split_time_ms - known.split_time_ms > self._policy.memory_ms

    def unread_since(self, split_time_ms: int) -> frozenset[str]:
        """Return the logs that were not read to their ends after *split_time_ms*."""
        return frozenset(
            node for node, each in self.stored.items() if each.split_time_ms <= split_time_ms
        )


def together(given: Collection[tuple[Mapping[str, Absence], int]]) -> dict[str, Absence]:
    """Return the absences of several splits, merged, with the highest split time; see line 33.

    Each comes with the difference of its split time. The shortest wait for a log and its earliest
    read time count, so nothing happens too early.
    """
    found: dict[str, Absence] = {}
    for node in sorted({node for absences, _ in given for node in absences}):
        reported = [(absences[node], shift) for absences, shift in given if node in absences]
        waited_ms = (
            min(each.unread_ms for each, _ in reported) if len(reported) == len(given) else 0
        )
        found[node] = Absence(
            waited_ms, min(each.split_time_ms + shift for each, shift in reported)
        )
    return found

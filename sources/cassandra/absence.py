"""Logs that cannot be read: for how long, and when a split goes on without them (line 8). Pure.

A log has a clock of its own, which is part of the state of a split: so a restart does not begin to
wait anew. It is counted in time that passed while somebody tried to read.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

GAP: Final = "gap"
PUBLISH: Final = "publish"
RETURNS: Final = (GAP, PUBLISH)


class Absence(msgspec.Struct, frozen=True, array_like=True):
    """A log that was not read to its end of late.

    `unread_ms` is how long it could not be read, 0 once it can be; `tau` is the split time at which
    it was read to its end last.
    """

    unread_ms: int
    tau: int


class Patience(msgspec.Struct, frozen=True):
    """How long logs are waited for: `after_ms`, and those `named` not at all.

    One that returns `memory_ms` of split time after it was read last lacks what was logged before,
    unless it `publishes`: records that its copies belong to may be forgotten.
    """

    after_ms: int
    memory_ms: int
    named: Collection[str] = ()
    publishes: bool = False


class Absences:
    """The logs that one split could not read to their ends."""

    def __init__(self, patience: Patience, stored: Mapping[str, Absence]) -> None:
        """Go on from what was *stored*."""
        self.stored = dict(stored)
        self._patience = patience

    def missed(self, node: str, passed_ms: int, tau: int) -> None:
        """Note that a log cannot be read, as in the *passed_ms* before; *tau* is split time."""
        before = self.stored.get(node, Absence(0, tau))
        self.stored[node] = Absence(before.unread_ms + passed_ms, before.tau)

    def found(self, node: str) -> None:
        """Note that a log can be read: should it fail again, the wait begins anew."""
        if node in self.stored:
            self.stored[node] = Absence(0, self.stored[node].tau)

    def read(self, node: str) -> None:
        """Note that a log was read to its end, or that what is left of it is booked as a gap."""
        self.stored.pop(node, None)

    def is_absent(self, node: str) -> bool:
        """Say whether a log that cannot be read is waited for no longer."""
        known = self.stored.get(node)
        waited_ms = -1 if known is None else known.unread_ms
        return node in self._patience.named or waited_ms >= self._patience.after_ms

    def is_late(self, node: str, tau: int) -> bool:
        """Say whether what a log holds by now may be of records that are forgotten."""
        known = self.stored.get(node)
        if known is None or self._patience.publishes:
            return False
        return tau - known.tau > self._patience.memory_ms

    def unread_since(self, tau: int) -> frozenset[str]:
        """Return the logs that were not read to their ends after *tau*."""
        return frozenset(node for node, each in self.stored.items() if each.tau <= tau)


def together(given: Collection[tuple[Mapping[str, Absence], int]]) -> dict[str, Absence]:
    """Return what several splits knew, as one with the highest split time; see line 33.

    Each comes with what its own split time was less. Of how long a log was waited for the least
    counts, and of when it was read the earliest: so nothing is done too soon.
    """
    found: dict[str, Absence] = {}
    for node in sorted({node for absences, _ in given for node in absences}):
        told = [(absences[node], shift) for absences, shift in given if node in absences]
        waited_ms = min(each.unread_ms for each, _ in told) if len(told) == len(given) else 0
        found[node] = Absence(waited_ms, min(each.tau + shift for each, shift in told))
    return found

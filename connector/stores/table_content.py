"""Compares a sink's content of a table with the deliveries in the books."""

import msgspec


class TableContent(msgspec.Struct, frozen=True):
    """A sink's content of one table: *found* counts distinct changes, *repeated* the others.

    `delivered` is the count in the books, and `kept` their count of changes in quarantine, which
    may have been sent again by hand.
    """

    delivered: int
    kept: int
    found: int
    repeated: int

    @property
    def missing(self) -> int:
        """How many delivered changes the sink does not have."""
        return max(0, self.delivered - self.found)

    @property
    def unknown(self) -> int:
        """How many changes the sink has that are not in the books."""
        return max(0, self.found - self.delivered - self.kept)

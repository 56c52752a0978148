"""What a sink has of a table beside what the books say that was delivered."""

import msgspec


class TableContent(msgspec.Struct, frozen=True):
    """What a sink has of one table: *found* are different changes, *repeated* the others.

    `delivered` is what the books say, and `kept` what they say was kept elsewhere: it may have been
    sent again by hand.
    """

    delivered: int
    kept: int
    found: int
    repeated: int

    @property
    def missing(self) -> int:
        """How many changes the sink does not have though they were delivered."""
        return max(0, self.delivered - self.found)

    @property
    def unknown(self) -> int:
        """How many changes the sink has of which the books know nothing."""
        return max(0, self.found - self.delivered - self.kept)

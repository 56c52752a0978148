"""What the intake calls for an entry that it cannot decide alone.

Separate because they are not compiled with it. Their calls are rare.
"""

from typing import Protocol


class ContentComparer(Protocol):
    """Knows what was published of a split's tokens; reads and decodes copies again."""

    def decide(self, slot: int) -> int:
        """Return one of `comparison.Decision` for a pending record whose level is met."""


class Incoming(Protocol):
    """Knows of the streams that a node receives."""

    def written_before(self, segment: int, head: bytes, messaging: int) -> int:
        """Return the write time in µs before which an entry that begins so may be a stream's."""


class FurtherRead(Protocol):
    """Knows the tokens of a split of which more was read than its markers say (line 33)."""

    def has_seen(self, host: int, token: int, segment: int, position: int) -> int:
        """Say whether an entry of *token* that ends here was read."""

"""The protocols that the intake calls for an entry that it cannot decide alone.

Separate because they are not compiled with it. Their calls are rare.
"""

from typing import Protocol


class ContentComparer(Protocol):
    """Knows the published content of a split's tokens; reads and decodes copies again."""

    def decide(self, slot: int) -> int:
        """Return a `comparison.Decision` for a pending record whose level is met."""


class Incoming(Protocol):
    """Knows of the streams that a node receives."""

    def written_before(self, segment: int, head: bytes, messaging: int) -> int:
        """Return the write time in µs before which an entry with this head may be a stream's."""


class FurtherRead(Protocol):
    """Knows the tokens of a split that were read further than its markers (line 33)."""

    def has_seen(self, host: int, token: int, segment: int, position: int) -> int:
        """Return whether an entry of *token* that ends here was read."""

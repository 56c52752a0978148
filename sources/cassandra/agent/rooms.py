"""Memory for the responses of an agent, reused. For one thread."""

from typing import Final

from headrace.sources.cassandra.native.growable import Block

ROOM_BYTES: Final = 8 * 1024 * 1024  # Longer blocks are not kept.
ROOMS_MAX: Final = 2
_SMALL_BYTES: Final = 256 * 1024  # Shorter blocks are not worth keeping.


class Rooms:
    """A pool of memory: new pages cost more than writing into them."""

    def __init__(self) -> None:
        """Start without memory."""
        self._free: list[memoryview] = []

    def take(self, count: int) -> memoryview:
        """Return memory for at least *count* bytes."""
        if not _SMALL_BYTES <= count <= ROOM_BYTES:
            return memoryview(bytearray(count))
        return self._free.pop() if self._free else Block("B", ROOM_BYTES).view()

    def give_back(self, room: memoryview) -> None:
        """Return memory to the pool; it must not be read afterwards."""
        if len(room) == ROOM_BYTES and len(self._free) < ROOMS_MAX:
            self._free.append(room)

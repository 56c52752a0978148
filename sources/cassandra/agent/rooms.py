"""Memory for the answers of an agent, used again and again. For one thread."""

from typing import Final

from headrace.sources.cassandra.native.growable import Block

ROOM_BYTES: Final = 8 * 1024 * 1024  # What is longer is not kept.
ROOMS_MAX: Final = 2
_SMALL_BYTES: Final = 256 * 1024  # What is shorter is not worth it.


class Rooms:
    """Of no content in particular: new pages cost more than what is written into them."""

    def __init__(self) -> None:
        """Take no memory yet."""
        self._free: list[memoryview] = []

    def take(self, count: int) -> memoryview:
        """Return memory for *count* bytes at least."""
        if not _SMALL_BYTES <= count <= ROOM_BYTES:
            return memoryview(bytearray(count))
        return self._free.pop() if self._free else Block("B", ROOM_BYTES).view()

    def give_back(self, room: memoryview) -> None:
        """Give memory to others: nothing may read it any more."""
        if len(room) == ROOM_BYTES and len(self._free) < ROOMS_MAX:
            self._free.append(room)

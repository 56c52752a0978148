"""What came of the logs of other machines: the mutations that replicas send one after another.

The first replica that logs a mutation sends its bytes, the others a digest. Bounded: what is
forgotten too early is fetched again. For one thread.
"""

import os
from collections import OrderedDict
from typing import Final

from headrace.sources.cassandra.frame import digest
from headrace.sources.cassandra.rescue import Rescued

BYTES_MAX: Final = 32 * 1024 * 1024
PLACES_MAX: Final = 50_000
_EACH_BYTES: Final = 200  # That Python takes for one, about.

Place = tuple[str, int, int]  # Whose log, which segment, and where the entry ends.


class Exchange:
    """Mutations by their digests under `key`, which nobody else knows but the agents."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        """Begin with none."""
        self.key = os.urandom(16)
        self.readers = 0  # Logs that share it.
        self._bytes_max = bytes_max
        self._known: OrderedDict[bytes, bytes] = OrderedDict()  # The oldest first.
        self._bytes = 0
        self._places: OrderedDict[Place, Rescued] = OrderedDict()

    def place(self, place: Place, found: Rescued) -> None:
        """Remember which mutation is at a place, for who reads it again soon."""
        self._places[place] = found
        if len(self._places) > PLACES_MAX:
            self._places.popitem(last=False)

    def at(self, place: Place) -> Rescued | None:
        """Return the mutation at a place, if it is known."""
        return self._places.get(place)

    def get(self, name: bytes) -> bytes | None:
        """Return the mutation with a digest, if it is known."""
        return self._known.get(name)

    def add(self, raw: bytes) -> bytes:
        """Remember a mutation; return its digest."""
        name = digest(raw, self.key)
        if name not in self._known:
            self._known[name] = raw
            self._bytes += len(raw) + _EACH_BYTES
            while self._bytes > self._bytes_max:
                self._bytes -= len(self._known.popitem(last=False)[1]) + _EACH_BYTES
        return name

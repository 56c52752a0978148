"""Mutations from the logs of other machines, kept so that replicas send each only once.

The first replica that logs a mutation sends its bytes, the others a digest. Bounded: what is
forgotten too early is fetched again. For one thread.
"""

import os
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Final

from headrace.sources.cassandra.commitlog.framer import digest
from headrace.sources.cassandra.logs.rescued_copies import Rescued

BYTES_MAX: Final = 32 * 1024 * 1024
STRETCHES_MAX: Final = 24  # Each of a mebibyte of a segment or so.
_EACH_BYTES: Final = 200  # That Python takes for one, about.


class Exchange:
    """Mutations by their digests under `key`, which only this job and the agents know."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        """Begin with none."""
        self.key = os.urandom(16)
        self.readers = 0  # Logs that share it.
        self._bytes_max = bytes_max
        self._known: OrderedDict[bytes, bytes] = OrderedDict()  # The oldest first.
        self._bytes = 0
        # Whose log, which segment, its messaging version, and mutations by their entries' ends.
        self._stretches: deque[tuple[str, int, int, Mapping[int, bytes]]] = deque(
            maxlen=STRETCHES_MAX
        )

    def keep(self, log: str, segment_id: int, messaging: int, found: Mapping[int, bytes]) -> None:
        """Keep mutations by the ends of their entries, for readers that need them again soon."""
        self._stretches.appendleft((log, segment_id, messaging, found))

    def at(self, log: str, segment_id: int, position: int) -> Rescued | None:
        """Return the mutation at a place, if it is known."""
        for of, number, messaging, found in self._stretches:
            if number == segment_id and of == log and position in found:
                return Rescued(found[position], messaging)
        return None

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

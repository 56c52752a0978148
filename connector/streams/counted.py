"""The changes of topics, each counted once, by table, bucket of keys and window of write time.

Two mappings of bytes have what was counted, so that any store can keep it: `names` has an entry for
each change, with the place of its first message, `sums` one for each window. A message that is
taken again, after a crash between the two, changes nothing.
"""

import struct
import zlib
from collections import defaultdict
from collections.abc import Mapping, MutableMapping
from typing import Final, NamedTuple, Self

import msgspec

from headrace.connector.serde.change_names import hash_of, name_of
from headrace.connector.streams.changes import Change
from headrace.plugins import BadRecordError
from headrace.plugins.records.codecs import RUN_HEADER

BUCKETS: Final = 16
WINDOW_US: Final = 3_600_000_000
_PACK: Final = msgspec.msgpack.Encoder()
_PLACE: Final = struct.Struct(">IIq")  # A checksum of the topic's name, partition, offset.
_MASK: Final = (1 << 64) - 1


class UnnamedChangeError(BadRecordError):
    """A message does not say which change it is, so repeats cannot be recognised."""

    code = "unnamed_change"


class Counted(NamedTuple):
    """The number of different changes, the sum of their hashes, and how many messages repeat one.

    The sum has no order: it is the same for the same changes, however they came.
    """

    changes: int = 0
    hashes: int = 0
    repeated: int = 0

    def plus(self, other: "Counted") -> "Counted":
        """Return both together, which have no change in common."""
        changes, hashes, repeated = other
        return Counted(
            self.changes + changes, (self.hashes + hashes) & _MASK, self.repeated + repeated
        )


class Window(NamedTuple):
    """A table, a bucket of keys, and the write time with which the window begins, µs."""

    table: str
    bucket: int
    begin_us: int


class _Sum(NamedTuple):
    """What is kept of a window and a partition; messages up to offset `last` are in it."""

    changes: int = 0
    hashes: int = 0
    repeated: int = 0
    last: int = -1


_SUM: Final = msgspec.msgpack.Decoder(_Sum)
_KEY: Final = msgspec.msgpack.Decoder(tuple[str, int, int, str, int])


class CountedChanges:
    """Counts into *names* and *sums*, which may be any mappings of bytes. For one thread."""

    def __init__(
        self,
        names: MutableMapping[bytes, bytes],
        sums: MutableMapping[bytes, bytes],
        *,
        buckets: int = BUCKETS,
        window_us: int = WINDOW_US,
    ) -> None:
        """Continue with what they have, which was counted with the same *buckets* and windows."""
        self._names = names
        self._sums = sums
        self._buckets = buckets
        self._window_us = window_us

    @classmethod
    def in_memory(cls) -> Self:
        """Count from nothing, in this process alone."""
        return cls({}, {})

    def take(self, change: Change) -> None:
        """Count the change of a message, whose offset is known; leave out those of replays.

        Messages of a partition come in order.

        Raises:
            UnnamedChangeError: it does not say which change it is.

        """
        message = change.message
        if RUN_HEADER in message.headers:  # As `verify`: the books do not have it.
            return
        if change.mutation is None or change.index is None or message.offset < 0:
            raise UnnamedChangeError(
                "neither its fields nor its headers have mutation and index"
                if message.offset >= 0
                else "its offset was not given",
                place=f"topic {change.topic}, partition {change.partition}",
                hint="the envelopes cep44 and flat have them; others need them among the headers",
            )
        window = self._window_of(change)
        key = _PACK.encode((*window, change.topic, change.partition))
        kept = self._sums.get(key)
        found = _Sum() if kept is None else _SUM.decode(kept)
        name = name_of(change.mutation, change.index)
        place = _PLACE.pack(zlib.crc32(change.topic.encode()), change.partition, message.offset)
        is_first = self._names.get(name, place) == place
        if message.offset > found.last:
            added = Counted(1, hash_of(name)) if is_first else Counted(repeated=1)
            whole = Counted(*found[:3]).plus(added)
            self._sums[key] = _PACK.encode(_Sum(*whole, message.offset))
        # After the sum: a crash before this is made good when the message is taken again.
        if is_first:
            self._names[name] = place

    def windows(self) -> Mapping[Window, Counted]:
        """Return what was counted in each window."""
        found: dict[Window, Counted] = defaultdict(Counted)
        for key, content in list(self._sums.items()):
            table, bucket, begin_us, _, _ = _KEY.decode(key)
            window = Window(table, bucket, begin_us)
            found[window] = found[window].plus(Counted(*_SUM.decode(content)[:3]))
        return dict(sorted(found.items()))

    def tables(self) -> Mapping[str, Counted]:
        """Return what was counted of each table."""
        found: dict[str, Counted] = defaultdict(Counted)
        for window, counted in self.windows().items():
            found[window.table] = found[window.table].plus(counted)
        return dict(found)

    def _window_of(self, change: Change) -> Window:
        bucket = zlib.crc32(change.message.key or b"") % self._buckets
        begin_us = change.timestamp_us // self._window_us * self._window_us
        return Window(change.table, bucket, begin_us)

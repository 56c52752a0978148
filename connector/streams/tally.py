"""Counts the contents of messages, each thing once, by group; rereading adds nothing.

The counts are in two mappings of bytes, so that any store can keep them: `names` has an entry for
each thing, with the place of its first message, `sums` has one for each group and partition. After
a crash, either may be older than the other: the difference is corrected when the messages are read
again.
"""

import struct
import zlib
from collections import defaultdict
from collections.abc import Mapping, MutableMapping
from typing import Final, NamedTuple

import msgspec

_PACK: Final = msgspec.msgpack.Encoder()
_UNPACK: Final = msgspec.msgpack.Decoder(tuple[str | int, ...])
_PLACE: Final = struct.Struct(">IIq")  # A checksum of the topic's name, partition, offset.
_MASK: Final = (1 << 64) - 1

Group = tuple[str | int, ...]


class Place(NamedTuple):
    """The place of a message."""

    topic: str
    partition: int
    offset: int


class Counted(NamedTuple):
    """The number of different things, the sum of their hashes, and the number of repeats.

    The sum does not depend on order: it is the same for the same things.
    """

    number: int = 0
    hashes: int = 0
    repeated: int = 0

    def plus(self, other: "Counted") -> "Counted":
        """Return the total of two counts that have nothing in common."""
        number, hashes, repeated = other
        return Counted(
            self.number + number, (self.hashes + hashes) & _MASK, self.repeated + repeated
        )


class _Sum(NamedTuple):
    """The count of a group and a partition; it includes messages up to offset `last`."""

    number: int = 0
    hashes: int = 0
    repeated: int = 0
    last: int = -1


_SUM: Final = msgspec.msgpack.Decoder(_Sum)


class Tally:
    """Counts into *names* and *sums*, which may be any mappings of bytes. For one thread."""

    def __init__(
        self, names: MutableMapping[bytes, bytes], sums: MutableMapping[bytes, bytes]
    ) -> None:
        """Continue from their content."""
        self._names = names
        self._sums = sums

    def take(self, group: Group, name: bytes, place: Place, hashed: int = 0) -> bool:
        """Count the thing with this *name* in a message; return whether it was new.

        The messages of a partition must be given in order. A thing counts in the group of its first
        message.
        """
        key = _PACK.encode((*group, place.topic, place.partition))
        kept = self._sums.get(key)
        found = _Sum() if kept is None else _SUM.decode(kept)
        here = _PLACE.pack(zlib.crc32(place.topic.encode()), place.partition, place.offset)
        is_first = self._names.get(name, here) == here
        is_new = place.offset > found.last
        if is_new:
            added = Counted(1, hashed) if is_first else Counted(repeated=1)
            whole = Counted(*found[:3]).plus(added)
            self._sums[key] = _PACK.encode(_Sum(*whole, place.offset))
        # After the sum, so that each known name is in a sum.
        if is_first:
            self._names[name] = here
        return is_new and is_first

    def groups(self) -> Mapping[Group, Counted]:
        """Return the counts of each group."""
        found: dict[Group, Counted] = defaultdict(Counted)
        for key, content in list(self._sums.items()):
            *group, _, _ = _UNPACK.decode(key)
            found[*group,] = found[*group,].plus(Counted(*_SUM.decode(content)[:3]))
        return dict(found)

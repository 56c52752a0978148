"""The changes of topics, each counted once, by table, bucket of keys and window of write time."""

import zlib
from collections import defaultdict
from collections.abc import Mapping, MutableMapping
from typing import Final, NamedTuple

from headrace.connector.serde.change_names import hash_of, name_of
from headrace.connector.streams.changes import Change
from headrace.connector.streams.tally import Counted, Place, Tally
from headrace.plugins import BadRecordError
from headrace.plugins.records.codecs import RUN_HEADER

BUCKETS: Final = 16
WINDOW_US: Final = 3_600_000_000


class UnnamedChangeError(BadRecordError):
    """A message does not identify its change, so repeats cannot be recognised."""

    code = "unnamed_change"


class Window(NamedTuple):
    """A table, a bucket of keys, and the first write time of the window, in µs."""

    table: str
    bucket: int
    begin_us: int


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
        """Continue from their content, which was counted with the same *buckets* and windows."""
        self._tally = Tally(names, sums)
        self._buckets = buckets
        self._window_us = window_us

    def take(self, change: Change) -> None:
        """Count the change of a message with a known offset; leave out those of replays.

        The messages of a partition must be given in order.

        Raises:
            UnnamedChangeError: the message does not identify its change.

        """
        message = change.message
        if RUN_HEADER in message.headers:  # As for `verify`: the books do not have it.
            return
        if change.mutation is None or change.index is None or message.offset < 0:
            raise UnnamedChangeError(
                "neither its fields nor its headers have mutation and index"
                if message.offset >= 0
                else "its offset was not given",
                place=f"topic {change.topic}, partition {change.partition}",
                hint="the envelopes cep44 and flat have them; others need them among the headers",
            )
        bucket = zlib.crc32(message.key or b"") % self._buckets
        begin_us = change.timestamp_us // self._window_us * self._window_us
        name = name_of(change.mutation, change.index)
        place = Place(change.topic, change.partition, message.offset)
        self._tally.take(Window(change.table, bucket, begin_us), name, place, hash_of(name))

    def windows(self) -> Mapping[Window, Counted]:
        """Return the counted changes of each window."""
        groups = self._tally.groups()
        return {Window(*group): groups[group] for group in sorted(groups)}  # type: ignore[arg-type]  # As `take` made them.

    def tables(self) -> Mapping[str, Counted]:
        """Return the counted changes of each table."""
        found: dict[str, Counted] = defaultdict(Counted)
        for window, counted in self.windows().items():
            found[window.table] = found[window.table].plus(counted)
        return dict(found)

"""A history under the suite of sinks that are written exactly once."""

from collections.abc import Callable, Sequence

from headrace.connector.history.query import Event
from headrace.plugins import Delivery, TransactionalWriter
from headrace.plugins.testing import TransactionalDriver
from helpers.histories.kept import FOREVER_MS, Kept
from helpers.histories.rows import change, delivery

_NOW_US = 1_700_000_000_000_000


class HistoryDriver(TransactionalDriver):
    """Writes to a history, and reads from it what *events* finds."""

    def __init__(self, kept: Kept, events: Callable[[Kept], Sequence[Event]]) -> None:
        """Take an empty one."""
        self._kept = kept
        self._events = events

    def writer(self) -> TransactionalWriter:
        """Return a new writer."""
        return self._kept.sink.open_split("1-of-1")

    def delivery(self, values: Sequence[bytes]) -> Delivery:
        """Write each value into a column of one partition, so that they have an order."""
        return delivery(*(change(written_us=_NOW_US, note=each.decode()) for each in values))

    def seen(self) -> Sequence[bytes]:
        """Return that column of all changes."""
        return [str((event.change or {})["note"]).encode() for event in self._events(self._kept)]

    def deadline_ms(self) -> int:
        """Return a moment far ahead."""
        return FOREVER_MS

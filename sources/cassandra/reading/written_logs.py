"""The logs of a pump that can be read as they are written: by inotify, or by agents."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace.plugins import HeadraceError
from headrace.sources.cassandra.logs.descriptors import Descriptors
from headrace.sources.cassandra.logs.directory import LogDirectory
from headrace.sources.cassandra.logs.folder_watch import Inotify
from headrace.sources.cassandra.logs.seek import unread_bytes

if TYPE_CHECKING:
    from headrace.sources.cassandra.logs.directory import NodeLog
    from headrace.sources.cassandra.reading.cursor import LogCursor

SEGMENTS: Final = 4  # Number of segments for which a buffer has room.
SEGMENT_BYTES: Final = 32 * 1024 * 1024  # Cassandra's default: `commitlog_segment_size`.


class WrittenLogs:
    """The logs that report their writes. For the thread of the pump."""

    def __init__(
        self,
        logs: "Mapping[str, NodeLog]",
        cursors: "Mapping[str, LogCursor]",
        inotify: Inotify,
    ) -> None:
        """*cursors* are those of the logs being read; they change."""
        self._logs = logs
        self._cursors = cursors
        self._inotify = inotify
        self._descriptors: Descriptors | None = None  # Including those of answers, if any.
        self._has_inotify = False

    def names(self) -> Sequence[str]:
        """Return the nodes whose logs report writes."""
        return [node for node in self._cursors if self._is_reported(self._logs[node])]

    def others(self) -> Sequence[str]:
        """Return the nodes whose logs do not report writes: their agents are older."""
        return [node for node in self._cursors if not self._is_reported(self._logs[node])]

    @staticmethod
    def _is_reported(log: "NodeLog") -> bool:
        """Return whether a log reports writes; assumed of an agent that never answered."""
        if log.is_reported is None:
            with contextlib.suppress(HeadraceError):
                log.segments()
        return log.is_reported is not False

    def follow(self, nodes: Collection[str]) -> None:
        """Make the agents of *nodes* report writes, and no others."""
        is_near = all(isinstance(log, LogDirectory) for log in self._logs.values())
        if not is_near and self._descriptors is None:
            self._descriptors = Descriptors()
        for node, log in self._logs.items():
            log.follow(self._descriptors if node in nodes else None)

    def close(self) -> None:
        """Make all agents stop reporting."""
        for log in self._logs.values():
            log.follow(None)
        if self._descriptors is not None:
            self._descriptors.close()
            self._descriptors, self._has_inotify = None, False

    def are_written(self, nodes: Collection[str]) -> bool:
        """Return whether anything may have changed in the logs of *nodes*.

        This includes segments that another caller has listed, and the cursor has not.
        """
        return any(
            log.is_written() or _is_news(log, self._cursors[node])
            for node in nodes
            if node in self._cursors and (log := self._logs[node])
        )

    def descriptor(self) -> int | None:
        """Return a descriptor that is readable after an event; None if a directory causes none."""
        if not all(each.tells for each in self._directories()):
            return None
        events, descriptors = self._inotify.descriptor, self._descriptors
        if descriptors is None:
            return events
        if events is not None and not self._has_inotify:
            descriptors.add(events)
            self._has_inotify = True
        return descriptors.descriptor

    def unread_bytes(self, nodes: Collection[str]) -> int:
        """Return the bytes of the logs of *nodes* after their cursors."""
        found = 0
        for node in nodes:
            if node in self._cursors:
                with contextlib.suppress(HeadraceError):
                    found += unread_bytes(self._logs[node], self._cursors[node].marker)
        return found

    def buffer_bytes(self) -> int:
        """Return the size of a buffer for some of the largest segments."""
        sizes = [SEGMENT_BYTES]
        for log in (self._logs[node] for node in self._cursors):
            with contextlib.suppress(HeadraceError):
                sizes += [log.size_of(segment) for segment in log.segments()]
        return SEGMENTS * max(sizes)

    def _directories(self) -> Sequence[LogDirectory]:
        found = [self._logs[node] for node in self._cursors]
        return [log for log in found if isinstance(log, LogDirectory)]


def _is_news(log: "NodeLog", cursor: "LogCursor") -> bool:
    return log.listed is not None and log.listed is not cursor.listed

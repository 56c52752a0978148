"""The logs of a pump that can be read as they are written: directories on this machine."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace.sources.cassandra.errors import LogUnreadableError, NotCdcDirectoryError
from headrace.sources.cassandra.logs.directory import LogDirectory
from headrace.sources.cassandra.logs.folder_watch import Inotify
from headrace.sources.cassandra.logs.seek import unread_bytes

if TYPE_CHECKING:
    from headrace.sources.cassandra.logs.directory import NodeLog
    from headrace.sources.cassandra.reading.cursor import LogCursor

SEGMENTS: Final = 4  # A buffer has room for so many.
SEGMENT_BYTES: Final = 32 * 1024 * 1024  # Cassandra's default: `commitlog_segment_size`.


class WrittenLogs:
    """See the module. For the thread of the pump."""

    def __init__(
        self,
        logs: "Mapping[str, NodeLog]",
        cursors: "Mapping[str, LogCursor]",
        inotify: Inotify,
    ) -> None:
        """*cursors* are those of the logs that are read, which changes."""
        self._logs = logs
        self._cursors = cursors
        self._inotify = inotify

    def names(self) -> Sequence[str]:
        """Return the nodes whose logs are read here, from directories."""
        return [node for node in self._cursors if isinstance(self._logs[node], LogDirectory)]

    def others(self) -> Sequence[str]:
        """Return the nodes whose logs their agents serve."""
        return [node for node in self._cursors if not isinstance(self._logs[node], LogDirectory)]

    def are_written(self, nodes: Collection[str]) -> bool:
        """Return whether anything may have changed in the directories of *nodes*.

        Also what another caller has listed, and the cursor has not.
        """
        return any(
            log.is_written() or _is_news(log, self._cursors[node])
            for node in nodes
            if node in self._cursors and isinstance(log := self._logs[node], LogDirectory)
        )

    def descriptor(self) -> int | None:
        """Return what is readable after an event; None where some directory causes none."""
        if all(each.tells for each in self._directories()):
            return self._inotify.descriptor
        return None

    def unread_bytes(self, nodes: Collection[str]) -> int:
        """Return the bytes of the logs of *nodes* behind their cursors."""
        found = 0
        for node in nodes:
            if node in self._cursors:
                with contextlib.suppress(LogUnreadableError, NotCdcDirectoryError):
                    found += unread_bytes(self._logs[node], self._cursors[node].marker)
        return found

    def buffer_bytes(self) -> int:
        """Return the size of some of the largest segments."""
        sizes = [SEGMENT_BYTES]
        for log in self._directories():
            with contextlib.suppress(LogUnreadableError, NotCdcDirectoryError):
                sizes += [log.size_of(segment) for segment in log.segments()]
        return SEGMENTS * max(sizes)

    def _directories(self) -> Sequence[LogDirectory]:
        found = [self._logs[node] for node in self._cursors]
        return [log for log in found if isinstance(log, LogDirectory)]


def _is_news(log: LogDirectory, cursor: "LogCursor") -> bool:
    return log.listed is not None and log.listed is not cursor.listed

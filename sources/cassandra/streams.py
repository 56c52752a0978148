"""Streams that a node receives: repair, bootstrap and rebuild write again what was written before.

Whoever watches a node (an agent, or a script around `nodetool netstats`) says so in a file beside
the holds. What is logged meanwhile, and was written before the stream began, may be a stream's: it
is published only when it was compared with what was published (line 17 of docs/agreement.md).
Blocking file I/O; for one thread.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from headrace.plugins import Context
from headrace.sources.cassandra.manifest import file_of

FILE: Final = ".streams.json"
NEVER: Final = -(1 << 63)


class Stream(msgspec.Struct, frozen=True, rename={"first": "from", "last": "to"}):
    """While segments `first` to `last` were written, a stream came into `keyspace`.

    Without `last` it is not over. `began_us` is the node's clock when it began.
    """

    keyspace: str
    first: int
    began_us: int
    last: int | None = None


def streams_in(folder: Path) -> Sequence[Stream]:
    """Return the streams that the file in *folder* tells of.

    Raises:
        OSError, msgspec.MsgspecError: it cannot be read.

    """
    path = folder / FILE
    content = path.read_bytes() if path.exists() else b"[]"
    return msgspec.json.decode(content, type=list[Stream])


class Streams:
    """The streams of one node."""

    def __init__(
        self,
        read: Callable[[], Sequence[Stream]],
        node: str,
        context: Context,
        keyspaces: Callable[[], Sequence[str]],
    ) -> None:
        """Read nothing yet, by *read*; *keyspaces* gives the names that numbers stand for."""
        self._read = read
        self._node = node
        self._log = context.log
        self._keyspaces = keyspaces
        self._unread = ""  # Why, if so.
        self.streams: Sequence[Stream] = ()

    def look(self) -> None:
        """Read again; what cannot be read changes nothing, and is told of once."""
        try:
            self.streams = self._read()
            self._unread = ""
        except (OSError, msgspec.MsgspecError) as error:
            if self._unread != str(error):
                self._unread = str(error)
                self._log.warning("streams_unread", node=self._node, error=self._unread)

    def written_before(self, segment: int, keyspace: int) -> int:
        """Return the write time in µs before which an entry there may be a stream's, or NEVER."""
        name, file_id = self._keyspaces()[keyspace], file_of(segment)
        began = [
            stream.began_us
            for stream in self.streams
            if stream.keyspace == name
            and stream.first <= file_id
            and (stream.last is None or file_id <= stream.last)
        ]
        return max(began, default=NEVER)

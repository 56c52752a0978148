"""Streams that a node receives: repair, bootstrap and rebuild write old mutations again.

An observer of the node (an agent, or a script around `nodetool netstats`) records them in a file
beside the holds. A mutation that is logged meanwhile, and was written before the stream started,
may come from it: it is published only after a comparison with what was published (line 17 of
docs/agreement.md). Blocking file I/O; for one thread.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

from headrace.plugins import Context
from headrace.sources.cassandra.commitlog.heads import first_table_id
from headrace.sources.cassandra.commitlog.manifest import file_of
from headrace.sources.cassandra.schema.tables import TableSchema

FILE: Final = ".streams.json"
NEVER: Final = -(1 << 63)


class Stream(msgspec.Struct, frozen=True, rename={"first": "from", "last": "to"}):
    """While segments `first` to `last` were written, the node received a stream of `keyspace`.

    Empty `tables` means all. Without `last` it has not ended. `began_us` is the node's clock at its
    start.
    """

    keyspace: str
    first: int
    began_us: int
    last: int | None = None
    tables: tuple[str, ...] = ()

    def has(self, file_id: int, table: TableSchema) -> bool:
        """Return whether a mutation of *table* in this segment may come from the stream."""
        began = self.first <= file_id and (self.last is None or file_id <= self.last)
        named = not self.tables or table.name in self.tables
        return began and named and table.keyspace == self.keyspace


def streams_in(file: Path) -> Sequence[Stream]:
    """Return the streams in *file*; none if there is no file.

    Raises:
        OSError, msgspec.MsgspecError: the file cannot be read.

    """
    try:
        with open(file, "rb") as opened:  # noqa: PTH123 (at each listing)
            content = opened.read()
    except FileNotFoundError:
        return ()
    return msgspec.json.decode(content, type=list[Stream])


class Streams:
    """The streams of one node."""

    def __init__(
        self,
        read: Callable[[], Sequence[Stream]],
        node: str,
        context: Context,
        table_of: Callable[[UUID], TableSchema | None],
    ) -> None:
        """Read no file yet; *read* returns the streams, *table_of* finds a table by its id."""
        self._read = read
        self._node = node
        self._log = context.log
        self._table_of = table_of
        self._unread = ""  # The reason, if the file could not be read.
        self.streams: Sequence[Stream] = ()

    def look(self) -> None:
        """Read the file again; an unreadable one changes nothing and is reported once."""
        try:
            self.streams = self._read()
            self._unread = ""
        except (OSError, msgspec.MsgspecError) as error:
            if self._unread != str(error):
                self._unread = str(error)
                self._log.warning("streams_unread", node=self._node, error=self._unread)

    def written_before(self, segment: int, head: bytes, messaging: int) -> int:
        """Return the write time in µs before which an entry may be a stream's, or NEVER.

        *head* is the beginning of its mutation. Streams write one table per mutation.
        """
        table = self._table_of(UUID(bytes=first_table_id(head, messaging)))
        if table is None:
            return NEVER
        file_id = file_of(segment)
        came = (stream.began_us for stream in self.streams if stream.has(file_id, table))
        return max(came, default=NEVER)

"""The interfaces to which a transcoder passes its messages and changes.

Separate so that `columns` can use the transcoder, which does not import it.
"""

from headrace.sources.cassandra.encode.avro_bytes import AvroBytes
from headrace.sources.cassandra.encode.table_plan import TablePlan


class MessageOutput:
    """Receives messages instead of the lists of `EncodedRecords`."""

    def add_key(self, key: bytes) -> int:
        """Add the key of the next message."""
        raise NotImplementedError

    def add_value(self, out: AvroBytes, begin: int, end: int, tail: int, tail_end: int) -> int:
        """Add a value: the bytes of *out* from *begin* to *end*, then the tail."""
        raise NotImplementedError

    def keep_first(self, count: int) -> int:
        """Remove the messages after the first *count*."""
        raise NotImplementedError


class ChangeOutput:
    """Receives changes from the transcoder's `reader`, besides messages or instead."""

    def enter(self, plans: list[TablePlan], epoch: int) -> int:
        """Continue with the tables of another epoch."""
        raise NotImplementedError

    def wants(self, plan: TablePlan) -> int:
        """Return WITH_MESSAGE or WITHOUT_MESSAGE for a table whose changes it accepts, or UNWANTED.

        `constants` defines these names.
        """
        raise NotImplementedError

    def write(self, plan: TablePlan, operation: int, timestamp: int, row: int, ended: int) -> int:
        """Add a change; *row* is its ROW or start MARKER, *ended* its end MARKER."""
        raise NotImplementedError

    def finish(self, number: int, count: int) -> int:
        """End mutation *number* of the batch; with those of other tables it has *count* changes."""
        raise NotImplementedError

    def keep_first(self, count: int) -> int:
        """Remove the changes after the first *count*."""
        raise NotImplementedError

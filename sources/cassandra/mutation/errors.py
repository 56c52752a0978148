"""Errors of bytes that are not a valid mutation."""

from typing import TYPE_CHECKING

from headrace.plugins import BadRecordError

if TYPE_CHECKING:
    from headrace.sources.cassandra.mutation.changes import Mutation


class BadMutationError(BadRecordError):
    """An entry with a good checksum whose bytes do not fit the schema."""

    code = "bad_mutation"


class UnknownTableError(BadMutationError):
    """A table id that is not in the schema: the table was dropped, or is newer than the schema.

    `known` is the mutation before it, None if it is first; `known_bytes` is its length.
    """

    code = "unknown_table"

    def __init__(self, table_id: bytes, *, place: str = "") -> None:
        """*table_id* is the 16 bytes found in the mutation."""
        super().__init__(
            f"table id {table_id.hex()} is not in the schema",
            place=place,
            hint="dropped tables are skipped; for a new table give the job a fresh schema",
        )
        self.table_id = table_id
        self.known: Mutation | None = None
        self.known_bytes = 0

"""The named errors of the Cassandra source; each says where, what was found, what was expected."""

from typing import Final

from headrace.plugins import BadRecordError, FatalError, MissingRequirementError, RetriableError

END_OFFSET: Final = 0x7FFF_FFFF  # "To its end": no logical position in a segment is as large.


class SegmentError(FatalError):
    """A segment that cannot be read: its log stops there, and with it the splits that need it."""

    code = "segment"


class UnsupportedSegmentError(SegmentError):
    """A commit log version, compression or encryption that this release does not read."""

    code = "unsupported_segment"


class CorruptSegmentError(SegmentError):
    """A checksum or length that disagrees with the bytes.

    The logical positions from `begin` to `end` are unusable, and reading can go on at `end`;
    `raw` is the same range as bytes of the file, when the two differ.
    """

    code = "corrupt_segment"

    def __init__(  # noqa: PLR0913 (the parts of a message, and the range)
        self,
        message: str,
        *,
        place: str = "",
        hint: str = "",
        begin: int = 0,
        end: int = END_OFFSET,
        raw: tuple[int, int] | None = None,
    ) -> None:
        """By default nothing of the segment is usable."""
        super().__init__(message, place=place, hint=hint)
        self.begin = begin
        self.end = end
        self.raw = raw


class DamagedSectionError(CorruptSegmentError):
    """A section of a compressed or encrypted segment that cannot be unpacked.

    `file_range` and `positions` are what is lost: bytes of the file, and logical positions. Both
    begin at the section's sync marker. Where the second position is known, opening the segment
    again with it as the position to resume after reads on behind the damage. It is None when the
    chain of markers is broken: then the rest of the segment is lost.
    """

    code = "damaged_section"

    def __init__(
        self,
        message: str,
        *,
        file_range: tuple[int, int | None],
        positions: tuple[int, int | None],
        place: str = "",
        hint: str = "",
    ) -> None:
        """*place* says the byte of the file at which it was found."""
        first, last = file_range
        begin, end = positions
        super().__init__(
            message,
            place=place,
            hint=hint,
            begin=begin,
            end=END_OFFSET if end is None else end,
            raw=(first, END_OFFSET if last is None else last),
        )
        self.file_range = file_range
        self.positions = positions


class BadMutationError(BadRecordError):
    """An entry with a good checksum whose bytes do not fit the schema."""

    code = "bad_mutation"


class UnknownTableError(BadMutationError):
    """A table id that the schema does not have: dropped, or newer than the schema at hand."""

    code = "unknown_table"

    def __init__(self, table_id: bytes, *, place: str = "") -> None:
        """*table_id* is the 16 bytes found in the mutation."""
        super().__init__(
            f"table id {table_id.hex()} is not in the schema",
            place=place,
            hint="dropped tables are skipped; for a new table give the job a fresh schema",
        )
        self.table_id = table_id


class NotCdcDirectoryError(MissingRequirementError):
    """A path that is no readable `cdc_raw` directory."""

    code = "not_cdc_raw"


class TopologyError(FatalError):
    """Replicas that cannot be told from what is configured."""

    code = "topology"
    exit_status = 2


class StateError(FatalError):
    """A stored CDC state that cannot be used."""

    code = "state"


class LogUnreadableError(RetriableError):
    """A file of a log that is there but cannot be read now."""

    code = "log_unreadable"


class LogGapError(FatalError):
    """Part of a log vanished before it was read (I10)."""

    code = "log_gap"

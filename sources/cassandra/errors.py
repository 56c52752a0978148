"""The named errors of the Cassandra source; each says where, what was found, what was expected."""

from typing import TYPE_CHECKING, Final

from headrace.plugins import BadRecordError, FatalError, MissingRequirementError, RetriableError

if TYPE_CHECKING:  # The decoder raises these errors.
    from headrace.sources.cassandra.changes import Mutation
    from headrace.sources.cassandra.state import StoredGap

END_OFFSET: Final = 0x7FFF_FFFF  # "To its end": no logical position in a segment is as large.
DOES_NOT_OPEN: Final = "the password does not open it, or it is damaged"


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

    `raw` is the whole section, with its sync marker. When the chain of markers is broken, `end` is
    END_OFFSET and the rest of the segment is lost.
    """

    code = "damaged_section"


class BadLengthError(DamagedSectionError):
    """A section, or a block in it, that says a length which its bytes, or another one, contradict.

    The positions behind it are counted as if the length were right, or were 0 if it cannot be.
    """

    code = "bad_length"


class BadBlockError(DamagedSectionError):
    """A compressed block that does not decompress."""

    code = "bad_block"


class BadCipherTextError(DamagedSectionError):
    """An encrypted block that its key does not open, though it opens others."""

    code = "bad_cipher_text"


class SegmentKeyError(FatalError):
    """What is given to open encrypted segments does not open them. Never says any of it."""

    code = "segment_key"
    exit_status = 2


class NoKeyError(SegmentKeyError):
    """An encrypted segment, and no key or none of its name."""

    code = "no_key"


class WrongKeyError(SegmentKeyError):
    """A key that opens nothing of the segment."""

    code = "wrong_key"


class KeySizeError(SegmentKeyError):
    """A key of a size that AES does not have."""

    code = "key_size"


class KeyStoreError(SegmentKeyError):
    """A key store that is damaged, or is of a kind or uses a way that we do not read."""

    code = "key_store"


class KeyStorePasswordError(SegmentKeyError):
    """A password that does not open the key store, or the key in it."""

    code = "key_store_password"


class BadMutationError(BadRecordError):
    """An entry with a good checksum whose bytes do not fit the schema."""

    code = "bad_mutation"


class UnknownTableError(BadMutationError):
    """A table id that the schema does not have: dropped, or newer than the schema at hand.

    `known` is what of the mutation stands before it, when that is anything: `known_bytes` of it.
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


class NotCdcDirectoryError(MissingRequirementError):
    """A path that is no readable `cdc_raw` directory."""

    code = "not_cdc_raw"


class TopologyError(FatalError):
    """Replicas that cannot be told from what is configured."""

    code = "topology"
    exit_status = 2


class SplitTooWideError(FatalError):
    """More nodes hold the tokens of one split than a record can tell apart."""

    code = "split_too_wide"
    exit_status = 2


class StateError(FatalError):
    """A stored CDC state that cannot be used."""

    code = "state"


class LogUnreadableError(RetriableError):
    """A file of a log that is there but cannot be read now."""

    code = "log_unreadable"


class NotAFileError(LogUnreadableError):
    """Something under a segment's or an index's name that is no file; it is passed over."""

    code = "not_a_file"


class BadIndexError(RetriableError):
    """An index file that says nothing, or nothing that can be true; its segment is not read on."""

    code = "bad_index"


class AgentUnavailableError(LogUnreadableError):
    """The agent of a node does not answer; the logs of the others are read meanwhile."""

    code = "agent_unavailable"


class AgentUntrustedError(AgentUnavailableError):
    """TLS fails: one of us does not accept the other's certificate. Repeated, as the other is.

    Who does not wait for somebody to mend it ends with status 3.
    """

    code = "agent_untrusted"
    exit_status = 3


class LogGapError(FatalError):
    """Part of a log vanished before it was read (I10): `gap` says which."""

    code = "log_gap"

    def __init__(self, message: str, *, place: str, gap: "StoredGap", hint: str) -> None:
        """Stop before *gap*."""
        super().__init__(message, place=place, hint=hint)
        self.gap = gap

"""The named errors of the Cassandra source; each says where, what was found and expected."""

from typing import Final

from headrace.plugins import FatalError, HeadraceError, MissingRequirementError, RetriableError

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

    The logical positions from `begin` to `end` are unusable, and reading can continue at `end`;
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
        """By default the whole segment is unusable."""
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
    """A section, or a block in it, whose length contradicts its bytes or another length.

    The positions after it are counted as if the length were right, or 0 if it cannot be right.
    """

    code = "bad_length"


class BadBlockError(DamagedSectionError):
    """A compressed block that does not decompress."""

    code = "bad_block"


class BadCipherTextError(DamagedSectionError):
    """An encrypted block that its key does not decrypt, though it decrypts others."""

    code = "bad_cipher_text"


class SegmentKeyError(FatalError):
    """The configured keys do not decrypt the segments. The message never contains them."""

    code = "segment_key"
    exit_status = 2


class NoKeyError(SegmentKeyError):
    """An encrypted segment without a key, or without one of its name."""

    code = "no_key"


class WrongKeyError(SegmentKeyError):
    """A key that decrypts no part of the segment."""

    code = "wrong_key"


class KeySizeError(SegmentKeyError):
    """A key of a size that AES does not have."""

    code = "key_size"


class KeyStoreError(SegmentKeyError):
    """A key store that is damaged, or of a format or encryption that is not supported."""

    code = "key_store"


class KeyStorePasswordError(SegmentKeyError):
    """A password that does not open the key store, or the key in it."""

    code = "key_store_password"


class NotCdcDirectoryError(MissingRequirementError):
    """A path that is not a readable `cdc_raw` directory."""

    code = "not_cdc_raw"


class TopologyError(FatalError):
    """Replicas that cannot be determined from the configuration."""

    code = "topology"
    exit_status = 2


class SplitTooWideError(FatalError):
    """More nodes hold the tokens of one split than a record can distinguish."""

    code = "split_too_wide"
    exit_status = 2


class StateError(FatalError):
    """A stored CDC state that cannot be used."""

    code = "state"


class LogUnreadableError(RetriableError):
    """A file of a log that exists but cannot be read now."""

    code = "log_unreadable"


class NotAFileError(LogUnreadableError):
    """Something with the name of a segment or an index that is not a file; it is skipped."""

    code = "not_a_file"


class BadIndexError(RetriableError):
    """An index file that is empty or cannot be true; its segment is not read further."""

    code = "bad_index"


class AgentUnavailableError(LogUnreadableError):
    """The agent of a node does not answer; the logs of the others are read meanwhile."""

    code = "agent_unavailable"


class AgentUntrustedError(AgentUnavailableError):
    """TLS fails: the agent or the worker rejects the other's certificate. It is retried.

    A process that does not wait for a correction exits with status 3.
    """

    code = "agent_untrusted"
    exit_status = 3


class ScriptError(HeadraceError):
    """A step of a forge script that cannot be written."""

    code = "forge_script"
    exit_status = 2

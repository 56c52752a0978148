"""No bytes at all, for sinks that look at the records themselves."""

from headrace.connector.serde.records import RecordCodec
from headrace.plugins import Record


class NoneCodec(RecordCodec):
    """Gives every record an empty value and no key: the writer reads `delivery.batch`."""

    def encode_record(self, record: Record) -> tuple[bytes | None, bytes]:  # noqa: ARG002 (no bytes)
        """Return nothing."""
        return None, b""

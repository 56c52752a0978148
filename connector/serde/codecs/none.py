"""No bytes at all, for sinks that look at the records themselves."""

from headrace.plugins import Codec, Record


class NoneCodec(Codec):
    """Gives every record an empty value and no key: the writer reads `delivery.batch`."""

    def key(self, record: Record) -> None:
        """Return nothing."""

    def value(self, record: Record) -> bytes:  # noqa: ARG002 (no bytes)
        """Return nothing."""
        return b""

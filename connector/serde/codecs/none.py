"""The codec `none`: empty values, for sinks that read the records themselves."""

from headrace.plugins import Codec, Record


class NoneCodec(Codec):
    """Encodes every record as an empty value without a key: the writer reads `delivery.batch`."""

    def key(self, record: Record) -> None:
        """Return None."""

    def value(self, record: Record) -> bytes:  # noqa: ARG002 (no bytes)
        """Return an empty value."""
        return b""

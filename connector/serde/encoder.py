"""A batch in the form that the sink asked for: by the batch itself where that gives the same."""

from dataclasses import replace

from headrace.connector.serde.headers import ConstantHeaders, RecordHeaders
from headrace.connector.serde.records import codec
from headrace.plugins import Batch, Codec, Document, EncodedRecords, Encoding, Record


class Encoder:
    """Encodes batches for one sink. Belongs to the data thread."""

    def __init__(self, wanted: Encoding) -> None:
        """Load the codec that *wanted* names.

        Raises:
            ConfigError: there is none of that name.

        """
        self._name = wanted.codec
        self._codec = codec(wanted.codec)
        self._constant = ConstantHeaders(wanted.headers)
        record_headers = RecordHeaders(wanted.headers)
        self._plain = not record_headers
        if not self._plain:
            self._codec = _Shaping(self._codec, record_headers)

    def encode(self, batch: Batch, *, token: int) -> EncodedRecords:
        """Encode *batch*, which was read under the fencing *token*."""
        if self._plain and self._name in batch.encodings:
            encoded = batch.encode(self._name)
        else:
            encoded = self._codec.encode(batch)
        headers = self._constant.give(encoded.headers, encoded.tables, token)
        return encoded if headers is encoded.headers else replace(encoded, headers=headers)


class _Shaping(Codec):
    """Encodes with another codec what it makes of each record first."""

    def __init__(self, inner: Codec, headers: RecordHeaders) -> None:
        self._inner = inner
        self._headers = headers

    def prepare(self, record: Record) -> Record:
        """Return *record* with its headers."""
        return _Headed(record, self._headers)

    def key(self, record: Record) -> bytes | None:
        """Return the key's bytes."""
        return self._inner.key(record)

    def value(self, record: Record) -> bytes:
        """Return the value's bytes."""
        return self._inner.value(record)


class _Headed(Record):
    """A record with more headers; its document is the original's."""

    __slots__ = ("_original",)

    def __init__(self, original: Record, headers: RecordHeaders) -> None:
        super().__init__(
            key=original.key,
            value=original.value,
            operation=original.operation,
            timestamp_us=original.timestamp_us,
            schema=original.schema,
            headers=original.headers + headers.of(original),
            origin=original.origin,
        )
        self._original = original

    def document(self) -> Document:
        return self._original.document()

"""A batch in the form that the sink asked for: by the batch itself where that gives the same."""

from collections.abc import Sequence
from dataclasses import replace

from headrace.connector.serde.framing import Framing
from headrace.connector.serde.headers import ConstantHeaders
from headrace.connector.serde.records import codec
from headrace.connector.serde.shaping import Shaper
from headrace.plugins import Batch, Codec, EncodedRecords, Encoding, Record, RecordSchema


class Encoder:
    """Encodes batches for one sink. Belongs to the data thread."""

    def __init__(self, wanted: Encoding, framing: Framing | None = None) -> None:
        """Load the codecs that *wanted* names; *framing* is about a schema store.

        Raises:
            ConfigError: there is no such codec, envelope or key.

        """
        shaper = Shaper(wanted)
        self._shaper = shaper
        self._framing = framing
        values = codec(wanted.codec)
        keys = codec(wanted.key_codec) if wanted.key_codec else values
        self._own = wanted.codec if shaper.idle and keys is values else ""
        self._codec = values if self._own else _ShapingCodec(shaper, keys, values)
        self._constant = ConstantHeaders(wanted.headers)

    def announce(self, schemas: Sequence[RecordSchema]) -> None:
        """Have the schemas of records to come published, if there is a schema store."""
        if self._framing is not None:
            self._framing.announce([self._shaper.schema(schema) for schema in schemas])

    def close(self) -> None:
        """Stop publishing schemas."""
        if self._framing is not None:
            self._framing.close()

    def encode(self, batch: Batch, *, token: int) -> EncodedRecords:
        """Encode *batch*, which was read under the fencing *token*.

        Raises:
            SchemaUnpublishedError, SchemaIncompatibleError, NoGuidError: as `Framing.apply` says.

        """
        if self._own in batch.encodings:
            encoded = batch.encode(self._own)
        else:
            encoded = self._codec.encode(batch)
        if self._framing is not None:
            encoded = self._framing.apply(encoded)
        headers = self._constant.give(encoded.headers, encoded.tables, token)
        return encoded if headers is encoded.headers else replace(encoded, headers=headers)


class _ShapingCodec(Codec):
    """Encodes with two codecs what a shaper makes of each record."""

    def __init__(self, shaper: Shaper, keys: Codec, values: Codec) -> None:
        self._shaper = shaper
        self._keys = keys
        self._values = values

    def prepare(self, record: Record) -> Record:
        """Shape *record*."""
        return self._shaper.shape(record)

    def key(self, record: Record) -> bytes | None:
        """Return the key's bytes."""
        return self._keys.key(record)

    def value(self, record: Record) -> bytes:
        """Return the value's bytes."""
        return self._values.value(record)

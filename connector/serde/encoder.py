"""A batch in the form that the sink asked for: by the batch itself where that gives the same."""

from dataclasses import replace

from headrace.connector.serde.headers import ConstantHeaders
from headrace.connector.serde.records import codec
from headrace.connector.serde.shaping import Shaper
from headrace.plugins import Batch, Codec, EncodedRecords, Encoding, Record


class Encoder:
    """Encodes batches for one sink. Belongs to the data thread."""

    def __init__(self, wanted: Encoding) -> None:
        """Load the codecs that *wanted* names.

        Raises:
            ConfigError: there is no such codec, envelope or key.

        """
        shaper = Shaper(wanted)
        values = codec(wanted.codec)
        keys = codec(wanted.key_codec) if wanted.key_codec else values
        self._own = wanted.codec if shaper.idle and keys is values else ""
        self._codec = values if self._own else _ShapingCodec(shaper, keys, values)
        self._constant = ConstantHeaders(wanted.headers)

    def encode(self, batch: Batch, *, token: int) -> EncodedRecords:
        """Encode *batch*, which was read under the fencing *token*."""
        if self._own in batch.encodings:
            encoded = batch.encode(self._own)
        else:
            encoded = self._codec.encode(batch)
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

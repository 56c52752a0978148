"""A batch in the form that the sink asked for: by the batch itself where that gives the same."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from headrace.connector.serde.framing import Framing
from headrace.connector.serde.headers import ConstantHeaders
from headrace.connector.serde.large import LargeValues
from headrace.connector.serde.records import codec
from headrace.connector.serde.shaping import Shaper
from headrace.connector.serde.transforms.chain import Chain
from headrace.plugins import (
    BadRecordError,
    Batch,
    ClaimStore,
    Codec,
    EncodedRecords,
    Encoding,
    Notice,
    NumberPosition,
    Quarantined,
    Record,
    RecordBatch,
    RecordSchema,
    SinkOptions,
)
from headrace.plugins.codecs import CONTROL_HEADER, CONTROL_TABLE, set_aside

_STAGE = "VALUE_CONVERTER"
_JSON = msgspec.json.Encoder()


class Encoder:
    """Encodes batches for one sink. Belongs to the data thread."""

    def __init__(  # noqa: PLR0913 (each is about something else)
        self,
        wanted: Encoding,
        *,
        framing: Framing | None = None,
        chain: Chain | None = None,
        topic_of: Callable[[str], str] = str,
        options: SinkOptions | None = None,
        claims: ClaimStore | None = None,
    ) -> None:
        """Load the codecs that *wanted* names.

        *framing* is about a schema store, *chain* what is done to records, and *topic_of* says
        where a table's records go, which transforms may change. *options* say what becomes of
        large values, and *claims* may keep them.

        Raises:
            ConfigError: there is no such codec, envelope or key.

        """
        self._shaper = Shaper(wanted)
        self._framing = framing
        self._chain = chain
        self._topic_of = topic_of
        values = codec(wanted.codec)
        keys = codec(wanted.key_codec) if wanted.key_codec else values
        plain = self._shaper.idle and keys is values and not chain
        self._own = wanted.codec if plain else ""
        self._codec = values if keys is values else _PairCodec(keys, values)
        self._constant = ConstantHeaders(wanted.headers)
        self._large: LargeValues | None = None
        if options is not None and wanted.value_bytes_max:
            self._large = LargeValues(options, wanted.value_bytes_max, claims, self._encode_one)

    def announce(self, schemas: Sequence[RecordSchema]) -> None:
        """Have the schemas of records to come published, if there is a schema store."""
        if self._framing is not None:
            self._framing.announce([self.schema(schema) for schema in schemas])

    def schema(self, schema: RecordSchema) -> RecordSchema:
        """Return *schema* as its records are encoded."""
        shaped = self._shaper.schema(schema)
        if not self._chain:
            return shaped
        return self._chain.schema(shaped, self._topic_of(schema.table))

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
        elif self._own:
            encoded = self._codec.encode(batch)
        else:
            encoded = self._one_by_one(batch)
        if self._framing is not None:
            encoded = self._framing.apply(encoded)
        if self._large is not None:
            encoded = self._large.apply(encoded, batch)
        headers = self._constant.give(encoded.headers, encoded.tables, token)
        if headers is not encoded.headers:
            encoded = replace(encoded, headers=headers)
        notices = batch.notices()
        return self._with(notices, encoded) if notices else encoded

    def _with(self, notices: Sequence[Notice], encoded: EncodedRecords) -> EncodedRecords:
        """Append control records: JSON, whatever the format, and told by their header."""
        topics = encoded.topics
        if topics is not None:
            topics = [*topics, *[self._topic_of(CONTROL_TABLE)] * len(notices)]
        return replace(
            encoded,
            keys=[*encoded.keys, *(_JSON.encode(notice.key) for notice in notices)],
            values=[*encoded.values, *(_JSON.encode(notice.document) for notice in notices)],
            headers=[
                *encoded.headers,
                *(((CONTROL_HEADER, notice.kind.encode()),) for notice in notices),
            ],
            tables=[*encoded.tables, *[CONTROL_TABLE] * len(notices)],
            topics=topics,
        )

    def _encode_one(self, record: Record) -> tuple[Sequence[bytes | None], Sequence[bytes]]:
        """Encode a record that stands for one of a batch."""
        made = self._one_by_one(RecordBatch("", NumberPosition(0), 0, [record]))
        if self._framing is not None:
            made = self._framing.apply(made)
        return made.keys, made.values

    def _one_by_one(self, batch: Batch) -> EncodedRecords:
        """Shape and transform each record; one that fails is set aside, the others go on (I8)."""
        quarantined: list[Quarantined] = []
        shaped: list[Record] = []
        for record in batch.records():
            try:
                shaped.append(self._shaper.shape(record))
            except BadRecordError as error:
                quarantined.append(set_aside(record, error, _STAGE))
        quarantined = [*batch.quarantined(), *quarantined]  # It may know after the records.
        filtered = {}
        if self._chain:
            routed = [
                record.changed(topic=self._topic_of(record.schema.table)) for record in shaped
            ]
            done = self._chain.apply(routed)
            shaped, filtered = list(done.records), dict(done.filtered)
            quarantined += done.quarantined
        made = RecordBatch(batch.split, batch.end, batch.size_bytes, shaped)
        encoded = self._codec.encode(made)
        everything = [*quarantined, *encoded.quarantined]
        return replace(encoded, quarantined=everything, filtered=filtered)


class _PairCodec(Codec):
    """Encodes keys with one codec and values with another."""

    def __init__(self, keys: Codec, values: Codec) -> None:
        self._keys = keys
        self._values = values

    def key(self, record: Record) -> bytes | None:
        """Return the key's bytes."""
        return self._keys.key(record)

    def value(self, record: Record) -> bytes:
        """Return the value's bytes."""
        return self._values.value(record)

"""Encodes a batch in the sink's form; uses the batch's own bytes if they are the same."""

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import compress, groupby
from typing import Final

import msgspec

from headrace.connector.serde.codecs.avro import AvroCodec
from headrace.connector.serde.codecs.json import JsonCodec
from headrace.connector.serde.codecs.records import ShapedRecord, codec
from headrace.connector.serde.content import check
from headrace.connector.serde.headers import ConstantHeaders
from headrace.connector.serde.large import LargeValues
from headrace.connector.serde.schemas.framing import Framing
from headrace.connector.serde.shaping import DocumentRecord, Shaper
from headrace.connector.serde.transcode.edit import Editor
from headrace.connector.serde.transforms.chain import Chain, SchemaEdits
from headrace.plugins import (
    NO_ORIGIN,
    BadRecordError,
    Batch,
    Checksums,
    ClaimStore,
    Codec,
    EncodedRecords,
    Encoding,
    Notice,
    NumberPosition,
    Origin,
    Quarantined,
    Record,
    RecordBatch,
    RecordSchema,
    SinkOptions,
)
from headrace.plugins.records.codecs import CONTROL_HEADER, CONTROL_TABLE

_AVRO: Final = "avro"
_STARTS: Final = "avro.starts"
_JSON: Final = msgspec.json.Encoder()


class Encoder:
    """Encodes batches for one sink. For the data thread."""

    def __init__(  # noqa: PLR0913 (each has its own subject)
        self,
        wanted: Encoding,
        origin: Origin = NO_ORIGIN,
        *,
        framing: Framing | None = None,
        chain: Chain | None = None,
        topic_of: Callable[[str], str] = str,
        options: SinkOptions | None = None,
        claims: ClaimStore | None = None,
        joined: bool = False,
    ) -> None:
        """Load the codecs for *wanted*; *origin* is that of the source of the batches.

        *framing* publishes schemas, *chain* transforms records, and *topic_of* returns the topic of
        a table's records, which transforms may change. *options* control how large values are
        handled, and *claims* may store them. With *joined*, keys and values may be
        `columns.Pieces`, for columns in Arrow.

        Raises:
            ConfigError: the codec, envelope or key is unknown.

        """
        self._joined = joined
        self._shaper = Shaper(wanted, origin)
        self._framing = framing
        self._chain = chain
        self._editor = Editor()
        self._topic_of = topic_of
        values = codec(wanted.codec)
        self._avro = values if wanted.codec == _AVRO else codec(_AVRO)
        keys = codec(wanted.key_codec) if wanted.key_codec else values
        self._codec = values if keys is values else _PairCodec(keys, values)
        self._json: JsonCodec | None = None  # Set if a whole batch can be written at once.
        if isinstance(values, JsonCodec) and isinstance(keys, JsonCodec | AvroCodec):
            self._json = values
        # The encoding of a batch that needs no shaping: used unchanged, or written as JSON.
        whole = self._shaper.encoding if not chain else ""
        self._own = whole if keys is values and whole.partition(".")[0] == wanted.codec else ""
        self._by_codec = self._own == wanted.codec
        self._whole = whole if self._json is not None and whole.startswith(_AVRO) else ""
        self._json_keys = keys is values
        self._constant = ConstantHeaders(wanted.headers)
        self._large: LargeValues | None = None
        if options is not None and wanted.value_bytes_max:
            self._large = LargeValues(options, wanted.value_bytes_max, claims, self._encode_one)

    def announce(self, schemas: Sequence[RecordSchema]) -> None:
        """Publish the schemas of future records, if there is a schema store."""
        if self._framing is None:
            return
        made = []
        for schema in schemas:
            with contextlib.suppress(BadRecordError):  # Its records are dead-lettered.
                made.append(self.schema(schema))
        self._framing.announce(made)

    def schema(self, schema: RecordSchema) -> RecordSchema:
        """Return *schema* in the form of its encoded records. Raises as `Chain.schema`."""
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
            SchemaUnpublishedError, SchemaIncompatibleError, NoGuidError: as for `Framing.apply`.
            ChecksumError: the encoded records are not those of the batch.

        """
        encoded = self._encoded(batch)
        check(batch, encoded)
        if self._framing is not None:
            encoded = self._framing.apply(encoded)
        if self._large is not None:
            encoded = self._large.apply(encoded, batch)
        headers = self._constant.give(encoded.headers, encoded.tables, token)
        if headers is not encoded.headers:
            encoded = msgspec.structs.replace(encoded, headers=headers)
        notices = batch.notices()
        return self._with(notices, encoded) if notices else encoded

    def _with(self, notices: Sequence[Notice], encoded: EncodedRecords) -> EncodedRecords:
        """Append control records, which are JSON in every format, with a header."""
        topics = encoded.topics
        if topics is not None:
            topics = [*topics, *[self._topic_of(CONTROL_TABLE)] * len(notices)]
        return msgspec.structs.replace(
            encoded,
            keys=[*encoded.keys, *(_JSON.encode(notice.key) for notice in notices)],
            values=[*encoded.values, *(_JSON.encode(notice.document) for notice in notices)],
            headers=[
                *encoded.headers,
                *(((CONTROL_HEADER, notice.kind.encode()),) for notice in notices),
            ],
            tables=[*encoded.tables, *[CONTROL_TABLE] * len(notices)],
            topics=topics,
            checksums=encoded.checksums and Checksums.of([*encoded.checksums, *[0] * len(notices)]),
        )

    def _encode_one(self, record: Record) -> tuple[Sequence[bytes | None], Sequence[bytes]]:
        """Encode a record that replaces one of a batch."""
        made = self._encoded(RecordBatch("", NumberPosition(0), 0, [record]))
        if self._framing is not None:
            made = self._framing.apply(made)
        return made.keys, made.values

    def _encoded(self, batch: Batch) -> EncodedRecords:
        """Encode in the fastest available way; all give the same bytes."""
        if self._own in batch.encodings:
            made = batch.joined(self._own) if self._joined else batch.encode(self._own)
            return self._accepted(self._completed(made))
        if self._by_codec:
            return self._accepted(self._codec.encode(batch))
        if self._json is not None and self._whole in batch.encodings:
            given = self._accepted(self._completed(batch.encode(self._whole)))
            if self._shaper.knows(batch, given):
                with contextlib.suppress(BadRecordError):  # Only it is dead-lettered below.
                    return self._json.written(given, self._shaper.schemas, keys=self._json_keys)
        if _AVRO in batch.encodings:
            with_starts = _STARTS in batch.encodings
            given = self._completed(batch.encode(_STARTS if with_starts else _AVRO))
            if self._shaper.knows(batch, given):
                return self._shaped(given)
        parts = []
        for shaped, records in groupby(batch.records(), lambda r: self._shaper.shapes(r.schema)):
            run = RecordBatch(batch.split, NumberPosition(0), batch.size_bytes, list(records))
            parts.append(self._shaped(self._avro.encode(run)) if shaped else self._documents(run))
        # Known only after reading the records.
        return joined(parts, batch.quarantined(), batch.omitted())

    def _completed(self, given: EncodedRecords) -> EncodedRecords:
        """Return *given* with values in Avro for the records that the batch did not encode."""
        if not given.left:
            return given
        values = list(given.values)
        for index, record in given.left.items():
            values[index] = self._avro.value(record)
        return msgspec.structs.replace(given, values=values, left={}, starts=None)

    def _accepted(self, encoded: EncodedRecords) -> EncodedRecords:
        """Return *encoded* without records whose schema the schema store refused."""
        return encoded if self._framing is None else self._framing.accepted(encoded)

    def _shaped(self, given: EncodedRecords) -> EncodedRecords:
        """Shape and transform changes; only failed ones are dead-lettered (I8)."""
        given = self._accepted(given)
        edits = self._edits(given)
        if (self._codec is self._avro or self._json is not None) and edits is not None:
            made = self._shaper.reshape(given)
            if edits:
                made = self._edited(made, edits)
            if self._json is not None:
                edited = {schema_id: each.schema for schema_id, each in edits.items()}
                schemas = {**self._shaper.schemas, **edited}
                made = self._json.written(made, schemas, keys=self._json_keys)
            facts = given.facts if len(made) == len(given) else None
            return msgspec.structs.replace(
                made, quarantined=[*given.quarantined, *made.quarantined], facts=facts
            )
        records, lost = self._shaper.records(given)
        made = self._finished(records, [*given.quarantined, *lost])
        return msgspec.structs.replace(made, omitted=made.omitted + given.omitted)

    def _edits(self, given: EncodedRecords) -> Mapping[bytes, SchemaEdits] | None:
        """Return the transforms' edits by schema, or None if they depend on records."""
        made: dict[bytes, SchemaEdits] = {}
        if self._chain:
            ids = [headers[0][1] for headers in given.headers]
            schemas = self._shaper.schemas
            for schema_id, table in dict(zip(ids, given.tables, strict=True)).items():
                edits = self._chain.edits(schemas[schema_id], self._topic_of(table))
                if edits is None:
                    return None
                made[schema_id] = edits
        return made

    def _edited(self, given: EncodedRecords, edits: Mapping[bytes, SchemaEdits]) -> EncodedRecords:
        """Transform records in Avro that were just shaped."""
        timestamps: Sequence[int] = self._shaper.timestamps
        filtered: Mapping[str, int] = {}
        omitted = given.omitted
        dropped = {schema_id for schema_id, each in edits.items() if each.is_dropped}
        if dropped:
            gone = [headers[0][1] in dropped for headers in given.headers]
            kept = [i for i, is_gone in enumerate(gone) if not is_gone]
            filtered = Counter(compress(given.tables, gone))
            omitted += sum(compress(given.sums(), gone))
            given, timestamps = given.chosen(kept), [timestamps[i] for i in kept]
        keys, values = self._editor.apply(
            {schema_id: (each.key, each.value) for schema_id, each in edits.items()},
            given.keys,
            given.values,
            given.headers,
            timestamps,
        )
        topics = [edits[headers[0][1]].topic for headers in given.headers]
        return msgspec.structs.replace(
            given,
            keys=keys,
            values=values,
            topics=topics or None,
            filtered=filtered,
            omitted=omitted,
        )

    def _documents(self, batch: RecordBatch) -> EncodedRecords:
        """Transform and encode records that have no envelope."""
        records = [self._shaper.document(record) for record in batch.records()]
        return self._accepted(self._finished(records, []))

    def _finished(
        self, records: Sequence[ShapedRecord | DocumentRecord], lost: list[Quarantined]
    ) -> EncodedRecords:
        filtered: Mapping[str, int] = {}
        made: Sequence[Record] = records
        omitted = 0
        if self._chain:
            for record in records:
                record.topic = self._topic_of(record.schema.table)
            done = self._chain.apply(records)
            made, filtered = done.records, done.filtered
            lost += done.quarantined
            # A transform may drop records; an added one has the checksum of its original.
            omitted = sum(record.checksum for record in records)
            omitted -= sum(record.checksum for record in made)
            omitted -= sum(each.checksum for each in done.quarantined)
        encoded = self._codec.encode(RecordBatch("", NumberPosition(0), 0, made))
        return msgspec.structs.replace(
            encoded,
            quarantined=[*lost, *encoded.quarantined],
            filtered=filtered,
            omitted=omitted,
        )


def joined(
    parts: Sequence[EncodedRecords], lost: Sequence[Quarantined], omitted: int
) -> EncodedRecords:
    """Return the parts of one batch joined, without facts."""
    omitted += sum(part.omitted for part in parts)
    if len(parts) == 1:
        quarantined = [*lost, *parts[0].quarantined]
        return msgspec.structs.replace(parts[0], quarantined=quarantined, omitted=omitted)
    tombstones: list[int] = []
    filtered: Counter[str] = Counter()
    before = 0
    for part in parts:
        tombstones += [before + index for index in part.tombstones]
        filtered.update(part.filtered)
        before += len(part)
    topics = [topic for part in parts for topic in part.topics or ()]
    return EncodedRecords(
        keys=[key for part in parts for key in part.keys],
        values=[value for part in parts for value in part.values],
        headers=[headers for part in parts for headers in part.headers],
        tables=[table for part in parts for table in part.tables],
        quarantined=[*lost, *(each for part in parts for each in part.quarantined)],
        tombstones=tombstones,
        topics=topics or None,
        filtered=filtered,
        checksums=Checksums.of(each for part in parts for each in part.checksums or ()),
        omitted=omitted,
    )


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

"""JSON: a record's document as one object without whitespace; the key is its member `key`.

Bytes are base64. A number that JSON cannot express is the string `NaN`, `Infinity` or `-Infinity`.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headrace.connector.serde.codecs.records import ShapedRecord, UnfitRecordError
from headrace.connector.serde.conversion import piece_of
from headrace.connector.serde.transcode.json_bytes import JsonWriter
from headrace.connector.serde.transcode.reshape import runs
from headrace.connector.serde.transcode.walk import Piece
from headrace.plugins import Codec, Document, EncodedRecords, Record, RecordSchema

_ENCODER: Final = msgspec.json.Encoder()
_NO_NUMBERS: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}


class JsonCodec(Codec):
    """Encodes `record.key_document()` and `record.document()`.

    A record already in Avro is written directly from its bytes, with the same result.
    """

    def __init__(self) -> None:
        """Start without schemas."""
        self._writer = JsonWriter()
        self._pieces: dict[int, tuple[Document, Piece]] = {}  # By the schema's identity.

    def key(self, record: Record) -> bytes | None:
        """Return the JSON of the document's key."""
        made = record.key_in_avro() if isinstance(record, ShapedRecord) else None
        if made is not None:
            return self._writer.text(self._piece(record.schema.key), made)
        key = record.key_document()
        return None if key is None else _fitting(key, record)

    def value(self, record: Record) -> bytes:
        """Return the JSON of the document."""
        made = record.value_in_avro() if isinstance(record, ShapedRecord) else None
        if made is not None:
            return self._writer.text(self._piece(record.schema.value), made)
        return _fitting(record.document(), record)

    def written(
        self, given: EncodedRecords, schemas: Mapping[bytes, RecordSchema], *, keys: bool
    ) -> EncodedRecords:
        """Convert Avro records to JSON, all at once; with *keys*, their keys too.

        *schemas* are the schemas of the records, by id.
        """
        text, texts = self._writer.text, self._writer.texts
        made: list[bytes | None] = []
        values: list[bytes] = []
        for begin, end, schema_id in runs(list(given.headers)):
            schema = schemas[schema_id]
            values += texts(self._piece(schema.value), list(given.values[begin:end]))
            if keys:
                piece = self._piece(schema.key)
                made += [k if k is None else text(piece, k) for k in given.keys[begin:end]]
        return msgspec.structs.replace(given, keys=made if keys else given.keys, values=values)

    def _piece(self, schema: Document) -> Piece:
        known = self._pieces.get(id(schema))
        if known is None:
            known = self._pieces[id(schema)] = schema, piece_of(schema)
        return known[1]


def _fitting(document: Document, record: Record) -> bytes:
    try:
        return _ENCODER.encode(_finite(document))
    except (TypeError, ValueError, RecursionError) as error:
        raise UnfitRecordError(
            f"the record is not JSON ({type(error).__name__})", place=record.schema.table
        ) from error


def _finite(value: Any) -> Any:  # noqa: ANN401 (any part of a document)
    """Return *value* with strings instead of NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else _NO_NUMBERS.get(value, "NaN")
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value

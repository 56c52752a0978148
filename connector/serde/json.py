"""JSON: a record's document as one object without blanks; the key is its member `key`.

Bytes are base64. A number that is none is the text `NaN`, `Infinity` or `-Infinity`.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

import msgspec

from headrace.connector.serde.json_bytes import JsonPiece, JsonWriter, json_piece
from headrace.connector.serde.records import UnfitRecordError
from headrace.plugins import Codec, Document, EncodedRecords, Record, RecordSchema

_ENCODER: Final = msgspec.json.Encoder()
_NO_NUMBERS: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}


class JsonCodec(Codec):
    """Encodes `record.key_document()` and `record.document()`."""

    def key(self, record: Record) -> bytes | None:
        """Return the JSON of the document's key."""
        key = record.key_document()
        return None if key is None else _fitting(key, record)

    def value(self, record: Record) -> bytes:
        """Return the JSON of the document."""
        return _fitting(record.document(), record)


class JsonTexts:
    """Makes JSON of records in Avro, all of a batch at once; the bytes are those of the codec."""

    def __init__(self, *, keys: bool) -> None:
        """Make it of keys too, if they are wanted so."""
        self._keys = keys
        self._writer = JsonWriter()
        self._plans: dict[bytes, tuple[JsonPiece, JsonPiece]] = {}

    def apply(self, given: EncodedRecords, schemas: Mapping[bytes, RecordSchema]) -> EncodedRecords:
        """Return *given* with texts; *schemas* are those of its bytes, by their ids."""
        keys: list[bytes | None] = []
        values: list[bytes] = []
        for schema_id, run in groupby(range(len(given)), lambda i: given.headers[i][0][1]):
            begin = len(values)
            end = begin + sum(1 for _ in run)
            key, value = self._plan(schema_id, schemas)
            text = self._writer.text
            if self._keys:
                keys += [None if k is None else text(key, k) for k in given.keys[begin:end]]
            values += [text(value, each) for each in given.values[begin:end]]
        return replace(given, keys=keys if self._keys else given.keys, values=values)

    def _plan(
        self, schema_id: bytes, schemas: Mapping[bytes, RecordSchema]
    ) -> tuple[JsonPiece, JsonPiece]:
        plan = self._plans.get(schema_id)
        if plan is None:
            schema = schemas[schema_id]
            plan = self._plans[schema_id] = json_piece(schema.key), json_piece(schema.value)
        return plan


def _fitting(document: Document, record: Record) -> bytes:
    try:
        return _ENCODER.encode(_finite(document))
    except (TypeError, ValueError, RecursionError) as error:
        raise UnfitRecordError(
            f"the record is not JSON ({type(error).__name__})", place=record.schema.table
        ) from error


def _finite(value: Any) -> Any:  # noqa: ANN401 (any part of a document)
    """Return *value* with texts in the place of what is no number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else _NO_NUMBERS.get(value, "NaN")
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value

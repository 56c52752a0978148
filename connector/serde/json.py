"""JSON: a record's document as one object without blanks; the key is its member `key`.

Bytes are base64. A number that is none is the text `NaN`, `Infinity` or `-Infinity`.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headrace.connector.serde.records import UnfitRecordError
from headrace.plugins import Codec, Document, Record

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

"""JSON: a record's document as one object without blanks; the key is its member `key`."""

from typing import Final

import msgspec

from headrace.connector.serde.records import UnfitRecordError
from headrace.plugins import Codec, Document, Record

_ENCODER: Final = msgspec.json.Encoder()


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
        return _ENCODER.encode(document)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnfitRecordError(
            f"the record is not JSON ({type(error).__name__})", place=record.schema.table
        ) from error

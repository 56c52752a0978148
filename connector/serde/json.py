"""JSON: a record's document as one object without blanks; the key is its member `key`."""

from typing import Final

import msgspec

from headrace.connector.serde.records import RecordCodec, UnfitRecordError
from headrace.plugins import Record

_ENCODER: Final = msgspec.json.Encoder()


class JsonCodec(RecordCodec):
    """Encodes `record.document()`."""

    def encode_record(self, record: Record) -> tuple[bytes | None, bytes]:
        """Return the JSON of the document's key, and of the document."""
        document = record.document()
        key = document.get("key")
        try:
            return None if key is None else _ENCODER.encode(key), _ENCODER.encode(document)
        except (TypeError, ValueError, RecursionError) as error:
            raise UnfitRecordError(
                f"the record is not JSON ({type(error).__name__})", place=record.schema.table
            ) from error

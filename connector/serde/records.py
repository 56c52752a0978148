"""What every codec does around the encoding of one record: headers, and records that do not fit."""

from collections.abc import Callable
from typing import Final

import msgspec

from headrace.plugins import (
    BadRecordError,
    Batch,
    Codec,
    EncodedRecords,
    Headers,
    Quarantined,
    Record,
)
from headrace.plugins.discovery import load

SCHEMA_ID_HEADER: Final = "schemaId"

EncodeRecord = Callable[[Record], tuple[bytes | None, bytes]]


class UnfitRecordError(BadRecordError):
    """A record does not fit its schema, or holds what the format cannot express."""

    code = "unfit_record"


def codec(name: str) -> Codec:
    """Return the codec *name*: `avro`, `json`, `none`, or a plugin's.

    Raises:
        ConfigError: there is none of that name.

    """
    made: Codec = load("codecs", name)()
    return made


class RecordCodec(Codec):
    """A codec that encodes record by record; a subclass says how one is encoded."""

    def __init__(self) -> None:
        """Know no schema yet."""
        self._headers: dict[bytes, Headers] = {}

    def encode_record(self, record: Record) -> tuple[bytes | None, bytes]:
        """Return key and value.

        Raises:
            BadRecordError: it cannot be encoded, or the record cannot make its document.

        """
        raise NotImplementedError

    def encode(self, batch: Batch) -> EncodedRecords:
        """Encode every record; one that does not fit is quarantined, the others go on (I8)."""
        keys: list[bytes | None] = []
        values: list[bytes] = []
        headers: list[Headers] = []
        tables: list[str] = []
        quarantined = list(batch.quarantined())
        for record in batch.records():
            try:
                key, value = self.encode_record(record)
            except BadRecordError as error:
                quarantined.append(_quarantined(record, error))
                continue
            keys.append(key)
            values.append(value)
            headers.append(self._headers_of(record))
            tables.append(record.schema.table)
        return EncodedRecords(keys, values, headers, tables, quarantined)

    def _headers_of(self, record: Record) -> Headers:
        schema_id = record.schema.schema_id
        shared = self._headers.get(schema_id)
        if shared is None:
            shared = self._headers[schema_id] = ((SCHEMA_ID_HEADER, schema_id),)
        return shared + record.headers if record.headers else shared


def _quarantined(record: Record, error: BadRecordError) -> Quarantined:
    place = ", ".join(f"{name} {where}" for name, where in record.origin.items())
    content = msgspec.json.encode({"key": record.key, "value": record.value}, enc_hook=repr)
    return Quarantined(place or error.place, error.code, error.message, content)

"""Avro: schemaless bytes of key and value; the schema's id is in a header."""

import struct
from io import BytesIO
from typing import TYPE_CHECKING, Final

import msgspec

from headrace.connector.serde.codecs.records import ShapedRecord, UnfitRecordError
from headrace.plugins import Codec, Document, Record, RecordSchema

# Importing fastavro is slow, and jobs whose source writes Avro do not need it.
if TYPE_CHECKING:
    from fastavro.types import Schema

# The errors of fastavro for an unfit value, by type of field.
_MISFITS: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    struct.error,
)


class _Parsed(msgspec.Struct, frozen=True):
    """The Avro schemas of a table's records, parsed once."""

    of: RecordSchema
    key: "Schema"
    value: "Schema"


class AvroCodec(Codec):
    """Encodes with fastavro; tests compare all faster ways with it."""

    def __init__(self) -> None:
        """Start without schemas."""
        self._parsed: dict[bytes, list[_Parsed]] = {}

    def key(self, record: Record) -> bytes | None:
        """Return the key's Avro bytes, without any framing."""
        made = record.key_in_avro() if isinstance(record, ShapedRecord) else None
        if made is not None or record.key is None:
            return made
        return _fitting(self._of(record).key, record.key, record)

    def value(self, record: Record) -> bytes:
        """Return the value's Avro bytes, without any framing."""
        made = record.value_in_avro() if isinstance(record, ShapedRecord) else None
        return _fitting(self._of(record).value, record.value, record) if made is None else made

    def _of(self, record: Record) -> _Parsed:
        """Return the parsed schema; several forms of a table may have the same id."""
        schema = record.schema
        forms = self._parsed.setdefault(schema.schema_id, [])
        for parsed in forms:
            if parsed.of is schema:
                return parsed
        for parsed in forms:
            if (parsed.of.key, parsed.of.value) == (schema.key, schema.value):
                return parsed
        forms.append(_parse(schema))
        return forms[-1]


def _parse(schema: RecordSchema) -> _Parsed:
    import fastavro  # noqa: PLC0415 (see above)

    return _Parsed(
        schema,
        fastavro.parse_schema(dict(schema.key), {}),
        fastavro.parse_schema(dict(schema.value), {}),
    )


def _fitting(schema: "Schema", datum: Document, record: Record) -> bytes:
    import fastavro  # noqa: PLC0415 (see above)

    out = BytesIO()
    try:
        fastavro.schemaless_writer(out, schema, datum)
    except _MISFITS as error:
        raise UnfitRecordError(
            f"the record does not fit its Avro schema ({type(error).__name__})",
            place=record.schema.table,
        ) from error
    return out.getvalue()

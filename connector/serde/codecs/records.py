"""Common parts of codecs: loading a codec, errors of records that do not fit, shaped records."""

from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import Any

from headrace.connector.serde.avro_types import without_logic
from headrace.plugins import (
    BadRecordError,
    Batch,
    Codec,
    Document,
    EncodedRecords,
    Headers,
    Operation,
    Record,
    RecordSchema,
)
from headrace.plugins.discovery import load
from headrace.plugins.records.codecs import SCHEMA_ID_HEADER


class UnfitRecordError(BadRecordError):
    """A record does not fit its schema, or has a value that the format cannot express."""

    code = "unfit_record"


def codec(name: str) -> Codec:
    """Return the codec *name*: `avro`, `json`, `none`, or a plugin's.

    Raises:
        ConfigError: the codec does not exist.

    """
    made: Codec = load("codecs", name)()
    return made


class BytesLeftError(BadRecordError):
    """Bytes are longer than their schema describes: they were written with another one."""

    code = "bytes_left"


def whole_reader_of(schema: Document) -> Callable[[bytes], Any]:  # Any: what the schema describes.
    """Return the same as `reader_of`, but reading raises BytesLeftError for extra bytes."""
    # Imported here: see `reader_of`.
    import fastavro  # noqa: PLC0415

    parsed: Any = fastavro.parse_schema(without_logic(schema), {})

    def read(content: bytes) -> Any:  # noqa: ANN401 (what the schema describes)
        left = BytesIO(content)
        value = fastavro.schemaless_reader(left, parsed, None)
        if left.tell() != len(content):
            raise BytesLeftError(f"expected the end at byte {left.tell()} of {len(content)}")
        return value

    return read


def reader_of(schema: Document) -> Callable[[bytes], Any]:  # Any: what the schema describes.
    """Return a reader of bytes of *schema*; it returns UUIDs as strings."""
    # Imported here: jobs whose source encodes the records do not need it.
    import fastavro  # noqa: PLC0415

    parsed: Any = fastavro.parse_schema(without_logic(schema), {})
    return lambda content: fastavro.schemaless_reader(BytesIO(content), parsed, None)


def writer_of(schema: Document) -> Callable[[Any], bytes]:  # Any: what the schema describes.
    """Return a writer for values of *schema*, as `reader_of` returns them."""
    import fastavro  # noqa: PLC0415 (slow, and only needed for records)

    parsed: Any = fastavro.parse_schema(without_logic(schema), {})

    def write(value: Any) -> bytes:  # noqa: ANN401 (what the schema describes)
        out = BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        return out.getvalue()

    return write


class ShapedSchema:
    """The schema of shaped changes, with readers of their keys and values."""

    __slots__ = ("key", "schema", "value")

    def __init__(self, schema: RecordSchema) -> None:
        """Prepare for messages of *schema*."""
        self.schema = schema
        self.key = reader_of(schema.key)
        self.value = reader_of(schema.value)


class ShapedRecord(Record):
    """A change in Avro, in the form in which it is sent; key and value are decoded on demand.

    *original* are its key and value from the source, which are stored if it fails.
    """

    __slots__ = (
        "_key",
        "_key_bytes",
        "_original",
        "_shaped",
        "_value",
        "_value_bytes",
        "tombstone",
        "topic",
    )

    def __init__(  # noqa: PLR0913 (the parts of a message)
        self,
        shaped: ShapedSchema,
        key: bytes | None,
        value: bytes,
        *,
        operation: Operation,
        timestamp_us: int,
        headers: Headers,
        original: tuple[bytes | None, bytes],
        checksum: int = 0,
    ) -> None:
        """Keep everything without decoding."""
        self._shaped = shaped
        self._key: Document | None = None
        self._value: Document | None = None
        self._key_bytes: bytes | None = key
        self._value_bytes: bytes | None = value
        self._original = original
        self.schema = shaped.schema
        self.operation = operation
        self.timestamp_us = timestamp_us
        self.headers = headers
        self.origin = {}
        self.checksum = checksum
        self.tombstone = False
        self.topic: str | None = None

    @property
    def key(self) -> Document | None:
        """The key, decoded from its bytes at the first access."""
        if self._key is None and self._key_bytes is not None:
            self._key = self._shaped.key(self._key_bytes)
        return self._key

    @key.setter
    def key(self, key: Document | None) -> None:
        self._key, self._key_bytes = key, None

    @property
    def value(self) -> Document:
        """The value, decoded from its bytes at the first access."""
        if self._value is None:
            self._value = self._shaped.value(self._value_bytes or b"")
        return self._value

    @value.setter
    def value(self, value: Document) -> None:
        self._value, self._value_bytes = value, None

    def key_in_avro(self) -> bytes | None:
        """Return the key's bytes, unless the key was changed."""
        return self._key_bytes if self.schema.key is self._shaped.schema.key else None

    def value_in_avro(self) -> bytes | None:
        """Return the value's bytes, unless the value was changed."""
        return self._value_bytes if self.schema.value is self._shaped.schema.value else None

    def key_document(self) -> Document | None:
        """Return the key in the form for JSON."""
        return self.key

    def document(self) -> Document:
        """Return the value in the form for JSON."""
        return self.value

    def kept(self) -> tuple[bytes, Document]:
        """Return the original change, which is stored if it fails."""
        key, value = self._original
        return value, origin_of(self.schema.table, self.schema.schema_id, key)


def origin_of(table: str, schema_id: bytes, key: bytes | None) -> Document:
    """Return what is stored for a failed change in addition to its value in Avro."""
    origin = {"table": table, "schema": schema_id.hex()}
    return origin if key is None else {**origin, "key": key.hex()}


class KeptBatch(Batch):
    """One change that failed before, from its stored form."""

    encodings = frozenset({"avro"})

    def __init__(self, content: bytes, origin: Document, schema: RecordSchema) -> None:
        """Use the stored *content* and *origin*, and the *schema* that *origin* names."""
        self.split = ""
        self.has_end = False
        self.size_bytes = len(content)
        key = origin.get("key")
        self._key = None if key is None else bytes.fromhex(key)
        self._value = content
        self._schema = schema

    def schemas(self) -> Sequence[RecordSchema]:
        """Return its schema."""
        return [self._schema]

    def records(self) -> Iterator[Record]:
        """Yield the change."""
        value = reader_of(self._schema.value)(self._value)
        yield Record(
            key=None if self._key is None else reader_of(self._schema.key)(self._key),
            value=value,
            operation=Operation(value["operationType"]),
            timestamp_us=value["timestampMicros"],
            schema=self._schema,
        )

    def encode(self, encoding: str) -> EncodedRecords:
        """Return the change unchanged."""
        del encoding
        headers = ((SCHEMA_ID_HEADER, self._schema.schema_id),)
        return EncodedRecords([self._key], [self._value], [headers], [self._schema.table])

"""Reads from messages the name and the content of their change, in every envelope.

The content of a message is its value without the place where its change was read: another reading
of the logs finds it elsewhere. Logs and topic are compared by it.
"""

from base64 import b64decode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from headrace.connector.serde.avro_types import field_of
from headrace.connector.serde.change_names import hash_of, name_of
from headrace.connector.serde.decoding import Decoder, UndecodableError
from headrace.connector.serde.transcode.edit import Edit, Editor
from headrace.connector.serde.transforms.edits import without
from headrace.plugins import (
    ConfigError,
    Document,
    EncodedRecords,
    Encoding,
    Headers,
    Operation,
    Origin,
    Problem,
    RecordSchema,
    Sink,
    Stored,
)
from headrace.plugins.records.codecs import CONTROL_HEADER, SCHEMA_ID_HEADER
from headrace.plugins.records.record import MUTATION_ID_BYTES

_HASHED: Final = msgspec.msgpack.Encoder(order="deterministic", enc_hook=repr)
_CONTENT_BYTES: Final = 16
_SUM_BYTES: Final = 8
_DEBEZIUM: Final = "debezium"
_DOCUMENT: Final = "document"  # A change that is its own document in JSON.
_SOURCE: Final = "source"
_OPS: Final[Mapping[str, str]] = {
    "i": Operation.INSERT.value,
    "u": Operation.UPDATE.value,
    "d": Operation.DELETE.value,
    "r": Operation.DELETE_RANGE.value,
}


class ChangeRow(NamedTuple):
    """A single change of one side; `origin` has the fields of its source, if they are known.

    `name` is the result of `name_of`, and empty if the message does not have it.
    """

    name: bytes
    table: str
    key: bytes
    operation: str
    time_us: int
    origin: tuple[int | str | None, ...] = ()
    expires_s: int | None = None
    content: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fields:
    """The names of the fields of a change in one envelope.

    `source` holds all of its origin; `of_schema` are about its schema.
    """

    time: str
    operation: str
    expires: str = ""
    mutation: str = ""
    index: str = ""
    origin: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    of_schema: Sequence[str] = ()

    @property
    def apart(self) -> Sequence[str]:
        """The fields with the place where a change was read."""
        return [self.source] if self.source else list(self.origin.values())


def _fields_in(names: Collection[str], envelope: str, origin: Origin) -> _Fields:
    """Return the fields of a change whose value has *names*."""
    if envelope == _DEBEZIUM:
        return _Fields(time="ts_us", operation="op", source=_SOURCE)
    own = {name: name for name in origin.fields}
    if envelope == "flat":

        def found(name: str) -> str:
            name = f"__{name}"
            while f"{name}_" in names:  # The name is that of a column.
                name += "_"
            return name

        return _Fields(
            time=found("timestamp"),
            operation=found("op"),
            expires=found("expires"),
            mutation=found("mutation"),
            index=found("index"),
            origin={name: found(name) for name in own},
        )
    is_document = envelope == _DOCUMENT
    return _Fields(
        time="timestamp" if is_document else "timestampMicros",
        operation="op" if is_document else "operationType",
        expires="expires",
        mutation="mutation",
        index="index",
        origin=own,
        of_schema=() if is_document else ("schemaUuid", "version"),
    )


def envelope_of(wanted: Encoding) -> str:
    """Return the envelope of messages in a form."""
    return wanted.envelope or (_DOCUMENT if wanted.codec == "json" else "cep44")


def check_fields(schemas: Iterable[RecordSchema], envelope: str, origin: Origin) -> None:
    """Raise if the write time or the operation of messages cannot be read.

    Raises:
        ConfigError: transforms removed or changed a field.

    """
    for schema in schemas if envelope != _DOCUMENT else ():
        names = [each["name"] for each in schema.value.get("fields", ())]
        fields = _fields_in(names, envelope, origin)
        for name in [fields.source] if fields.source else [fields.time, fields.operation]:
            found = field_of(schema.value, name)
            if found is None or (name == fields.time and found["type"] != "long"):
                said = f"remove or change {name} of {schema.table}"
                hint = "messages are compared by it: keep it as it is"
                raise ConfigError([Problem("sink.transforms", said, hint)])


class MessageReader:
    """Reads the messages of one sink. For one thread."""

    def __init__(self, sink: Sink, origin: Origin, folder: Path) -> None:
        """*origin* is that of the source; relative paths of *sink* are relative to *folder*."""
        wanted = sink.encoding()
        self._envelope = envelope_of(wanted)
        self._is_avro = wanted.codec == "avro"
        self._origin = origin
        self._schemas: dict[bytes, RecordSchema] = {}
        self._values: dict[bytes, Document] = {}
        self._decoder = Decoder.of(sink, self._values, folder)
        self._fields: dict[bytes, _Fields] = {}
        self._editor = Editor()
        self._edits: dict[bytes, tuple[Sequence[Edit], Sequence[Edit]]] = {}

    def learn(self, schemas: Iterable[RecordSchema]) -> None:
        """Add schemas in the form of the sink's messages."""
        for schema in schemas:
            names = [each["name"] for each in schema.value.get("fields", ())]
            fields = _fields_in(names, self._envelope, self._origin)
            self._schemas[schema.schema_id] = schema
            self._values[schema.schema_id] = schema.value
            self._fields[schema.schema_id] = fields
            apart = [name for name in fields.apart if name in names]
            if self._is_avro:
                self._edits[schema.schema_id] = (), [without(schema.value, apart)]

    def document(self, stored: Stored) -> Document | None:
        """Return the value of a change; None for a tombstone and for other messages.

        Raises:
            BadRecordError: it cannot be decoded.

        """
        if any(name == CONTROL_HEADER for name, _ in stored.headers):
            return None
        return self._decoder.value(stored)

    def row(self, document: Document, stored: Stored) -> ChangeRow:
        """Return a message with this value as a row, without its content.

        Raises:
            BadRecordError: it is in another envelope.

        """
        schema_id = _schema_id(stored.headers)
        schema = self._schemas.get(schema_id)
        fields = self._fields_of(document, schema_id)
        try:
            holder = document[fields.source] if fields.source else document
            time_us, operation = holder[fields.time], document[fields.operation]
            table = schema.table if schema is not None else _table_of(document)
            if fields.source:
                is_read = holder.get("snapshot") == "true"  # A deleted range has the same `op`.
                operation = _OPS["i" if is_read else operation]
            name = b""
            if fields.mutation and document.get(fields.mutation) is not None:
                name = name_of(_octets(document[fields.mutation]), document[fields.index])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            said = f"is in another envelope: {type(error).__name__}: {error}"
            raise UndecodableError(said, place=f"message {stored.place}") from error
        own = tuple(document.get(fields.origin.get(each, "")) for each in self._origin.fields)
        return ChangeRow(
            name, table, stored.key or b"", operation, time_us, own, document.get(fields.expires)
        )

    def is_of_table(self, document: Document, row: ChangeRow) -> bool:
        """Return whether a change was read from a table: no log has it."""
        if self._envelope == _DEBEZIUM:
            return bool(document[_SOURCE].get("snapshot") == "true")
        return self._origin.is_of_table(dict(zip(self._origin.fields, row.origin, strict=True)))

    def content(self, document: Document, row: ChangeRow, headers: Headers) -> bytes:
        """Return a hash of a message's key and content; fields without a value do not count.

        So a change is the same with any schema of its table.
        """
        if row.name and self._is_of_now(headers):
            return row.name
        fields = self._fields_of(document, _schema_id(headers))
        apart = {*fields.apart, *fields.of_schema}
        kept = {name: each for name, each in document.items() if name not in apart}
        content = _HASHED.encode(plain(kept)) + row.key
        return blake2b(content, digest_size=_CONTENT_BYTES).digest()

    def sums(self, rows: Sequence[ChangeRow], encoded: EncodedRecords) -> Sequence[int]:
        """Return 64 bits of the content of each encoded record, which belongs to one of *rows*.

        Faster than `content`, but it may differ for the same change in two schemas.

        Raises:
            BadRecordError: a value does not fit its schema.

        """
        if self._is_avro:
            contents = self._without_origin(encoded.values, encoded.headers)
        else:
            columns = zip(rows, encoded.values, encoded.headers, strict=True)
            contents = [
                self.content(self._decoder.value(Stored(0, None, value, own)) or {}, row, own)
                for row, value, own in columns
            ]
        return [self._summed(*each) for each in zip(rows, contents, encoded.headers, strict=True)]

    def sum_of(self, row: ChangeRow, document: Document, stored: Stored) -> int:
        """Return the same for a message with the value *document*."""
        assert stored.value is not None  # noqa: S101 (a row has one)
        headers = stored.headers
        if self._is_avro:
            value = self._decoder.content(stored, stored.value, dict(headers))
            content = self._without_origin([value], [headers])[0]
        else:
            content = self.content(document, row, headers)
        return self._summed(row, content, headers)

    def _without_origin(
        self, values: Sequence[bytes], headers: Sequence[Headers]
    ) -> Sequence[bytes]:
        ids = {each: ((SCHEMA_ID_HEADER, _schema_id(each)),) for each in {*headers}}
        first = [ids[each] for each in headers]
        count = len(values)
        _, made = self._editor.apply(self._edits, [None] * count, values, first, [0] * count)
        return made

    def _summed(self, row: ChangeRow, content: bytes, headers: Headers) -> int:
        if row.name and self._is_of_now(headers):
            return hash_of(row.name)
        hashed = blake2b(content + row.key, digest_size=_SUM_BYTES).digest()
        return int.from_bytes(hashed, "little")

    def _is_of_now(self, headers: Headers) -> bool:
        return len(headers) > 1 and any(name == self._origin.of_now for name, _ in headers)

    def _fields_of(self, document: Document, schema_id: bytes) -> _Fields:
        known = None if self._envelope == _DOCUMENT else self._fields.get(schema_id)
        return known or _fields_in(document.keys(), self._envelope, self._origin)


def _schema_id(headers: Headers) -> bytes:
    return dict(headers).get(SCHEMA_ID_HEADER, b"")


def _table_of(document: Document) -> str:
    """Return the table of a message whose schema is unknown."""
    if "sourceTable" in document:
        return f"{document['sourceKeyspace']}.{document['sourceTable']}"
    return str(document["table"])


def _octets(value: bytes | str) -> bytes:
    """Return the original bytes: values decoded from JSON have them in base64 or hexadecimal."""
    if isinstance(value, bytes):
        return value
    is_hex = len(value) == 2 * MUTATION_ID_BYTES
    return bytes.fromhex(value) if is_hex else b64decode(value, validate=True)


def plain(value: Any) -> Any:  # noqa: ANN401 (what a schema describes)
    """Return *value* without null fields: older schemas of a type may not have them."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items() if each is not None}
    return [plain(each) for each in value] if isinstance(value, list) else value

"""Finds the schemas of a message, for consumers: in a job's state, or in a schema store."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from headrace.connector.serde.encoder import Encoder
from headrace.connector.serde.schemas.publishing import SUFFIX_DIGITS
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import (
    BadRecordError,
    ConfigError,
    Document,
    Problem,
    Published,
    RecordSchema,
    SchemaStore,
)
from headrace.plugins.records.codecs import SCHEMA_ID_HEADER

_PREFIX: Final = struct.Struct(">bI")  # A zero byte, and the number: as in `framing`.
_KEY: Final = "Key"  # The record of keys, in every envelope.
_NAMESPACE: Final = "headrace."


class SchemaUnknownError(BadRecordError):
    """A message does not name its schema, or the schema was not found."""

    code = "schema_unknown"


class MessageSchemas(Protocol):
    """Finds the schemas of messages. For one thread."""

    def find(self, message: "Named") -> RecordSchema:
        """Return the schemas of a message's key and value, in their encoded form.

        Raises:
            SchemaUnknownError: the message does not name its schema, or names an unknown one.
            RetriableError: the store does not answer.

        """

    def close(self) -> None:
        """Close the connections."""


class Named(msgspec.Struct, frozen=True):
    """A message, which names its schemas in its value, its key or its headers.

    `offset` is -1 if it is unknown.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes
    headers: Mapping[str, bytes]
    offset: int = -1

    @property
    def schema_id(self) -> bytes:
        """The table's schema id. Raises SchemaUnknownError without a header."""
        found = self.headers.get(SCHEMA_ID_HEADER)
        if found is None:
            raise SchemaUnknownError(
                f"a message has no header {SCHEMA_ID_HEADER}",
                place=f"topic {self.topic}",
                hint="the sink's option headers must have schemaId, or schema.framing a form",
            )
        return found


class JobSchemas:
    """The schemas in a job's store. For the thread that created it."""

    def __init__(self, path: str | Path, encoder: Encoder | None = None) -> None:
        """Open the store at *path*, which a worker created. Raises as `open_notes`.

        *encoder* belongs to the sink that wrote the messages: it applies the envelope, types and
        transforms to a schema. Without it, messages have the source's form.
        """
        self._path = path
        self._notes = open_notes(Path(path), create=False)
        self._store = self._notes.store("")  # Schemas are independent of jobs.
        self._encoder = encoder
        self._found: dict[bytes, RecordSchema] = {}

    def get(self, schema_id: bytes) -> RecordSchema:
        """Return the schema with this id.

        Raises:
            SchemaUnknownError: the store does not have it. A worker stores a schema before it sends
                the first message with it.

        """
        found = self._found.get(schema_id)
        if found is not None:
            return found
        schema = self._store.schema(schema_id)
        if schema is None:
            raise SchemaUnknownError(
                f"no schema has the id {schema_id.hex()}",
                place=str(self._path),
                hint="give the state file of the job that wrote the message",
            )
        made = schema if self._encoder is None else self._encoder.schema(schema)
        self._found[schema_id] = made
        return made

    def find(self, message: Named) -> RecordSchema:
        """Return the schemas of a message. Raises as `get`."""
        return self.get(message.schema_id)

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        self._notes.close()


class StoreSchemas:
    """The schemas that a sink publishes to a schema store, found by framing or schema id."""

    def __init__(self, store: SchemaStore, *, framing: str, place: str) -> None:
        """*place* identifies the store in errors.

        Raises:
            ConfigError: the store only finds schemas by number, and messages have none.

        """
        if store.numbered and framing == "none":
            found = f"{place} finds a schema by its number only, and the messages have none"
            hint = "give schema.framing: confluent, here and for the job, or the job's state file"
            raise ConfigError([Problem("schema.framing", found, hint)])
        self._store = store
        self._framing = framing
        self._place = place
        self._found: dict[object, RecordSchema] = {}

    def find(self, message: Named) -> RecordSchema:
        """Return the schemas of a message."""
        if self._framing == "none":
            known: object = (message.topic, message.schema_id)
            made = self._found.get(known)
            if made is None:
                made = self._found[known] = self._by_id(message)
            return made
        numbers = self._number(message, "value"), self._number(message, "key")
        made = self._found.get(numbers)
        if made is None:
            made = self._found[numbers] = self._by_number(message, *numbers)
        return made

    def close(self) -> None:
        """Close the connections."""
        self._store.close()

    def _by_id(self, message: Named) -> RecordSchema:
        schema_id = message.schema_id
        found = self._store.find(schema_id, Published())
        value, key = (_fitting(found, message.topic, schema_id, part) for part in ("value", "key"))
        if value is None:
            raise self._unknown(f"the id {schema_id.hex()}", message)
        return _schema_of(message, schema_id, key, value)

    def _by_number(
        self, message: Named, number: Published | None, key_number: Published | None
    ) -> RecordSchema:
        if number is None:
            raise SchemaUnknownError(
                "a value does not name its schema",
                place=f"topic {message.topic}",
                hint="schema.framing must be that of the job that wrote it",
            )
        found = [
            None if each is None else next(iter(self._store.find(b"", each).values()), None)
            for each in (number, key_number)
        ]
        value, key = (None if text is None else _parsed(text) for text in found)
        if value is None:
            name = number.guid.hex() if number.guid else f"the number {number.number}"
            raise self._unknown(name, message)
        return _schema_of(message, message.headers.get(SCHEMA_ID_HEADER, b""), key, value)

    def _number(self, message: Named, part: str) -> Published | None:
        """Return the identifier of the key's or value's schema in a message."""
        if self._framing == "confluent-headers":
            guid = message.headers.get(f"__{part}_schema_id")
            return None if guid is None else Published(guid=guid[1:])
        content = message.key if part == "key" else message.value
        if content is None or len(content) < _PREFIX.size or content[0]:
            return None
        return Published(_PREFIX.unpack_from(content)[1])

    def _unknown(self, name: str, message: Named) -> SchemaUnknownError:
        return SchemaUnknownError(
            f"no schema has {name}",
            place=f"{self._place}, topic {message.topic}",
            hint="a schema is published in the background: it may come soon after its first record",
        )


def _fitting(found: Mapping[str, str], topic: str, schema_id: bytes, part: str) -> Document | None:
    """Return the schema of a key or a value among those of one table, by subject.

    Jobs with other envelopes may publish the same table for their topics, so a subject with the
    topic's name has priority.
    """
    moved = f"-{schema_id.hex()[:SUFFIX_DIGITS]}"
    others = []
    for subject, text in found.items():
        schema = _parsed(text)
        if (schema.get("name") == _KEY) != (part == "key"):
            continue
        name = f"{schema.get('namespace', '')}.{schema.get('name')}"
        if subject.removesuffix(moved) in (f"{topic}-{part}", f"{topic}-{name}"):
            return schema
        if subject.removesuffix(moved) == name:
            others.append(schema)
    return others[0] if others else None


def _parsed(text: str) -> Document:
    try:
        found: Document = json.loads(text)
    except ValueError as error:
        raise SchemaUnknownError(f"a schema is not JSON: {error}") from error
    return found


def _schema_of(
    message: Named, schema_id: bytes, key: Document | None, value: Document
) -> RecordSchema:
    """Return a schema without text; its table is named by a header or its namespace."""
    table = message.headers.get("table", b"").decode()
    table = table or str(value.get("namespace", "")).removeprefix(_NAMESPACE)
    return RecordSchema(table, "", schema_id, key or {}, value)

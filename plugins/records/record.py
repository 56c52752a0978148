"""Records, on their way from a source to a sink, in batches.

Values here are immutable. A batch makes its records lazily, so a batch that can encode itself never
makes them.
"""

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

Headers = tuple[tuple[str, bytes], ...]
# Any: the schema determines the type of a record's value at run time.
Document = Mapping[str, Any]


def readable(value: object) -> str:
    """Return a value without a JSON form as text: bytes as UTF-8 or, if invalid, in hex."""
    if not isinstance(value, bytes | bytearray | memoryview):
        return str(value)
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        return f"0x{bytes(value).hex()}"


class Operation(StrEnum):
    """The kind of a change to a row, a range of rows or a partition."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    DELETE_RANGE = "DELETE_RANGE"
    DELETE_PARTITION = "DELETE_PARTITION"


OPERATIONS: Final = tuple(Operation)
MUTATION_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """The shape of a table's records.

    `schema_id` is 16 bytes, the MD5 of `text`, so it can be derived from the text. `key` and
    `value` are Avro schemas as parsed JSON; a record's key and value fit them.
    """

    table: str
    text: str
    schema_id: bytes
    key: Document = field(compare=False)
    value: Document = field(compare=False)

    @classmethod
    def of(cls, table: str, text: str, *, key: Document, value: Document) -> "RecordSchema":
        """Return a schema with the id of *text*."""
        schema_id = hashlib.md5(text.encode(), usedforsecurity=False).digest()
        return cls(table, text, schema_id, key, value)


class Record:
    """One change of one row. Subclass it to make `document` cheaper or richer.

    `key` and `value` fit `schema.key` and `schema.value`; `timestamp_us` is the write time in µs
    since 1970; `origin` is the place where the record was read, in words of the source. `checksum`
    is its part of the `checksum` of its batch, if that has one.
    """

    __slots__ = (
        *("checksum", "headers", "key", "operation"),
        *("origin", "schema", "timestamp_us", "value"),
    )
    tombstone: bool = False
    topic: str | None = None

    def __init__(  # noqa: PLR0913 (these eight are the record)
        self,
        *,
        key: Document | None,
        value: Document,
        operation: Operation,
        timestamp_us: int,
        schema: RecordSchema,
        headers: Headers = (),
        origin: Document | None = None,
        checksum: int = 0,
    ) -> None:
        """Keep the arguments, without a copy."""
        self.key = key
        self.value = value
        self.operation = operation
        self.timestamp_us = timestamp_us
        self.schema = schema
        self.headers = headers
        self.origin = origin or {}
        self.checksum = checksum

    def changed(self, **parts: Any) -> "Record":  # noqa: ANN401 (as the constructor has them)
        """Return a copy with these *parts* replaced."""
        made = copy.copy(self)
        for name, part in parts.items():
            setattr(made, name, part)
        return made

    def key_document(self) -> Document | None:
        """Return the key in its JSON form."""
        key: Document | None = self.document().get("key")
        return key

    def kept(self) -> tuple[bytes, Document]:
        """Return the content for quarantine: bytes, and a document that describes them."""
        pair = {"key": self.key, "value": self.value}
        content = json.dumps(pair, default=readable, separators=(",", ":")).encode()
        return content, {"table": self.schema.table}

    def document(self) -> Document:
        """Return the record as a mapping that JSON can express.

        Raises:
            BadRecordError: JSON cannot express it; the record is quarantined (I8).

        """
        return {
            "table": self.schema.table,
            "op": self.operation.value,
            "key": self.key,
            "timestamp": self.timestamp_us,
            **self.value,
            **self.origin,
        }


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A control record: information for consumers that is not a change, such as a gap."""

    kind: str
    key: Document
    document: Document


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A change that was read and agreed but could not be made into records, with its bytes (I8).

    `stage` is where it failed, in Kafka Connect's words: TASK_POLL is the source. `origin` has the
    numbers and strings that the source needs to make records of the bytes later. Its `table`, if
    any, is the table in whose books it is counted. `checksum` is its part of the `checksum` of its
    batch, if that has one.
    """

    place: str
    code: str
    message: str
    content: bytes
    stage: str = "TASK_POLL"
    origin: Document = field(default_factory=dict)
    checksum: int = field(default=0, compare=False, repr=False)


class Stored(NamedTuple):
    """A record as a sink wrote it; `place` is its number there, for messages.

    Equal headers may be one object for many records.
    """

    place: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    def __repr__(self) -> str:
        """Return it without the row's content."""
        return f"Stored(place={self.place})"

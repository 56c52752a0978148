"""What a codec is: records to bytes, one by one. And what a sink may ask for around them."""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

from headrace.plugins.errors import BadRecordError, Problem
from headrace.plugins.records import (
    Batch,
    EncodedRecords,
    FactColumns,
    Headers,
    Quarantined,
    Record,
)

SCHEMA_ID_HEADER: Final = "schemaId"
CLAIM_HEADER: Final = "claimCheck"  # The value is a reference to where it is kept.
# The value is a part of one: of which, the part's number from 0, and how many there are.
CHUNK_ID_HEADER: Final = "chunk.id"
CHUNK_INDEX_HEADER: Final = "chunk.index"
CHUNK_COUNT_HEADER: Final = "chunk.count"
_CHUNK_ID_BYTES: Final = 16
CONTROL_HEADER: Final = "headrace.control"  # The message is no change: a `Notice` of this kind.
CONTROL_TABLE: Final = "headrace.control"  # What stands for the table of such a message.
_STAGE: Final = "VALUE_CONVERTER"  # As Kafka Connect names it.
# Equal for all records of a schema and a lease, so that one list serves them all.
CONSTANT_HEADERS: Final = (SCHEMA_ID_HEADER, "table", "keyspace", "token")
# Of one record: each costs time.
RECORD_HEADERS: Final = (
    "mutation",
    "index",
    "of",
    "op",
    "timestamp",
    "copies",
    "node",
    "segment",
    "position",
    "traceparent",
)


def chunk_id_of(value: bytes) -> bytes:
    """Return the id of the parts of *value*: by it a consumer knows that they belong together."""
    return hashlib.sha256(value).digest()[:_CHUNK_ID_BYTES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """What a sink wants to be given; the names of headers are those in this module.

    `codec` names the format of values, `key_codec` that of keys when it is another. `envelope` is
    what stands around a change: without one, its own document in JSON, and `cep44` in the other
    formats. `types` are `lossless`, or those of CEP-44's text, `cep44`. `key` says which columns
    the key has: `partition` or `primary`. With `tombstones` a deletion of all that is under its key
    says so (`EncodedRecords.tombstones`). A value of more than `value_bytes_max` is too large for
    the sink; 0 says that none is.
    """

    codec: str = "json"
    key_codec: str = ""
    envelope: str = ""
    types: str = "lossless"
    key: str = "partition"
    tombstones: bool = False
    value_bytes_max: int = 0
    headers: tuple[str, ...] = (SCHEMA_ID_HEADER,)


def header_problems(headers: tuple[str, ...], *, key: str = "headers") -> list[Problem]:
    """Return what is wrong with the names of *headers*, which the option *key* gave."""
    known = (*CONSTANT_HEADERS, *RECORD_HEADERS)
    hint = f"there are {', '.join(known)}"
    return [Problem(key, f"{name!r} is no header", hint) for name in headers if name not in known]


class Codec(ABC):
    """Turns records into bytes. Found by name in the entry-point group `headrace.codecs`.

    A record's `key` and `value` fit the Avro schemas in its `schema`; what cannot be expressed
    raises BadRecordError, and sets this record aside.
    """

    @abstractmethod
    def key(self, record: Record) -> bytes | None:
        """Return the key's bytes; None for a record without key."""

    @abstractmethod
    def value(self, record: Record) -> bytes:
        """Return the value's bytes."""

    def encode(self, batch: Batch) -> EncodedRecords:
        """Encode every record; one that does not fit is quarantined, the others go on (I8)."""
        keys: list[bytes | None] = []
        values: list[bytes] = []
        headers: list[Headers] = []
        tables: list[str] = []
        quarantined: list[Quarantined] = []
        tombstones: list[int] = []
        topics: list[str] = []
        shared: dict[bytes, Headers] = {}
        facts = FactColumns()
        for record in batch.records():
            try:
                key, value = self.key(record), self.value(record)
            except BadRecordError as error:
                quarantined.append(set_aside(record, error, _STAGE))
                continue
            if record.tombstone:
                tombstones.append(len(keys))
            keys.append(key)
            values.append(value)
            facts.add(record.timestamp_us, record.operation, origin=record.origin)
            schema_id = record.schema.schema_id
            common = shared.setdefault(schema_id, ((SCHEMA_ID_HEADER, schema_id),))
            headers.append(common + record.headers if record.headers else common)
            tables.append(record.schema.table)
            if record.topic is not None:
                topics.append(record.topic)
        quarantined = [*batch.quarantined(), *quarantined]  # It may know after the records.
        routed = topics or None
        return EncodedRecords(
            keys,
            values,
            headers,
            tables,
            quarantined,
            tombstones,
            routed,
            facts=facts.facts(),
        )


def set_aside(record: Record, error: BadRecordError, stage: str) -> Quarantined:
    """Return what is kept of a record that *error* keeps from going on."""
    place = ", ".join(f"{name} {where}" for name, where in record.origin.items())
    content, origin = record.kept()
    return Quarantined(place or error.place, error.code, error.message, content, stage, origin)

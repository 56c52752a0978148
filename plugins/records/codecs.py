"""Codecs, which convert records to bytes one by one, and the encoding that a sink requests."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import msgspec

from headrace.plugins.discovery import load, names
from headrace.plugins.errors import BadRecordError, HeadraceError, Problem
from headrace.plugins.origin import NO_ORIGIN, Origin
from headrace.plugins.records.batches import Batch
from headrace.plugins.records.checksums import Checksums
from headrace.plugins.records.encoded import EncodedRecords, FactColumns
from headrace.plugins.records.record import Headers, Quarantined, Record

SCHEMA_ID_HEADER: Final = "schemaId"
CLAIM_HEADER: Final = "claimCheck"  # The value is a reference to the claim store.
# The value is a part of a value: its id, the part's number from 0, and the number of parts.
CHUNK_ID_HEADER: Final = "chunk.id"
CHUNK_INDEX_HEADER: Final = "chunk.index"
CHUNK_COUNT_HEADER: Final = "chunk.count"
_CHUNK_ID_BYTES: Final = 16
CONTROL_HEADER: Final = "headrace.control"  # The message is not a change: a `Notice` of this kind.
RUN_HEADER: Final = "replay_id"  # The message was sent by this replay.
CONTROL_TABLE: Final = "headrace.control"  # The table of such a message.
# The prefixes of headers of dead letters: those of Kafka Connect, and our own.
CONNECT_ERRORS: Final = "__connect.errors."
OWN_ERRORS: Final = "__headrace.errors."
_STAGE: Final = "VALUE_CONVERTER"  # As in Kafka Connect.
# Equal for all records of a schema and a lease, so that one list serves all of them.
CONSTANT_HEADERS: Final = (SCHEMA_ID_HEADER, "table", "keyspace", "token")
# Of one record: each costs time. Those of a source's origin come before the last.
_FACTS: Final = ("mutation", "index", "of", "op", "timestamp")
_TRACE: Final = "traceparent"


def chunk_id_of(value: bytes) -> bytes:
    """Return the id of the parts of *value*, by which a consumer joins them."""
    return hashlib.sha256(value).digest()[:_CHUNK_ID_BYTES]


class Encoding(msgspec.Struct, frozen=True, kw_only=True):
    """The encoding that a sink requests; the names of headers are those in this module.

    `codec` names the format of values, `key_codec` that of keys if it differs. `envelope` names the
    envelope: if empty, the change's own document in JSON, and `cep44` in the other formats. `types`
    are `lossless`, or those of CEP-44's text, `cep44`. `key` selects the columns of the key:
    `partition` or `primary`. With `tombstones`, a deletion of everything under its key is marked
    (`EncodedRecords.tombstones`). A value of more than `value_bytes_max` is too large for the sink;
    0 means no limit.
    """

    codec: str = "json"
    key_codec: str = ""
    envelope: str = ""
    types: str = "lossless"
    key: str = "partition"
    tombstones: bool = False
    value_bytes_max: int = 0
    headers: tuple[str, ...] = (SCHEMA_ID_HEADER,)


def record_headers(origin: Origin) -> tuple[str, ...]:
    """Return the names of the headers of one record, in order, for a source of *origin*."""
    return (*_FACTS, *(name for name in origin.fields if name not in _FACTS), _TRACE)


def header_problems(headers: tuple[str, ...], *, key: str = "headers") -> list[Problem]:
    """Return the problems of the names in *headers*, a value of the option *key*.

    A header that is a field of a source is known if an installed source has it.
    """
    known = (*CONSTANT_HEADERS, *record_headers(NO_ORIGIN))
    if not {*headers} <= {*known}:
        known = tuple(dict.fromkeys((*known, *_origin_fields())))
    hint = f"there are {', '.join(known)}"
    return [
        Problem(key, f"{name!r} is not a header", hint) for name in headers if name not in known
    ]


def _origin_fields() -> Iterator[str]:
    """Yield the fields of all installed sources that can be imported."""
    for name in names("sources"):
        with suppress(HeadraceError):
            yield from load("sources", name).origin.fields


class Codec(ABC):
    """Converts records to bytes. Found by name in the entry-point group `headrace.codecs`.

    A record's `key` and `value` fit the Avro schemas in its `schema`; if they cannot be expressed,
    it raises BadRecordError, and this record is quarantined.
    """

    @abstractmethod
    def key(self, record: Record) -> bytes | None:
        """Return the key's bytes; None for a record without key."""

    @abstractmethod
    def value(self, record: Record) -> bytes:
        """Return the value's bytes."""

    def encode(self, batch: Batch) -> EncodedRecords:
        """Encode every record; one that does not fit is quarantined, the others continue (I8)."""
        keys: list[bytes | None] = []
        values: list[bytes] = []
        headers: list[Headers] = []
        tables: list[str] = []
        quarantined: list[Quarantined] = []
        tombstones: list[int] = []
        topics: list[str] = []
        shared: dict[bytes, Headers] = {}
        checksums: list[int] = []
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
            checksums.append(record.checksum)
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
            checksums=Checksums.of(checksums),
            omitted=batch.omitted(),
        )


def set_aside(record: Record, error: BadRecordError, stage: str) -> Quarantined:
    """Return the content of quarantine for a record that failed with *error*."""
    place = ", ".join(f"{name} {where}" for name, where in record.origin.items())
    content, origin = record.kept()
    where = place or error.place
    return Quarantined(
        where, error.code, error.message, content, stage, origin, checksum=record.checksum
    )

"""The newest row of each key of a topic, as SELECT would show it, in a Faust table.

The messages are in the envelope `cep44`, in Avro, keyed by the partition key, so that all that is
about a partition is in one partition of the topic. Each is decoded with the schema that its header
names.
"""

import time
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Final, Protocol

import msgspec

from headrace.connector.rows.folding import (
    TableView,
    add,
    partition_key,
    readable,
    row_key,
    row_of,
    static_row,
)
from headrace.connector.serde.codecs.records import reader_of
from headrace.connector.serde.schemas.lookup import SchemaUnknownError
from headrace.plugins import Document, RecordSchema
from headrace.plugins.records.codecs import SCHEMA_ID_HEADER

_PACK: Final = msgspec.msgpack.Encoder()
_UNPACK: Final = msgspec.msgpack.Decoder()


class Schemas(Protocol):
    """Where the schemas of messages are found."""

    def get(self, schema_id: bytes) -> RecordSchema:
        """Return the schema with that id. Raises SchemaUnknownError."""


class LatestRows:
    """Rows in *table*, which may be any mapping of bytes to bytes; for one thread."""

    def __init__(self, schemas: Schemas, table: MutableMapping[bytes, bytes]) -> None:
        """Fold into what *table* has already."""
        self._schemas = schemas
        self._table = table
        self._readers: dict[bytes, tuple[TableView, Any]] = {}  # Any: reads what a schema says.
        self._views: dict[str, TableView] = {}

    def take(self, content: bytes | None, headers: Mapping[str, bytes]) -> None:
        """Fold one message; a tombstone says nothing that the message before it did not.

        Raises:
            SchemaUnknownError: it names no schema, or an unknown one.

        """
        if content is None:
            return
        schema_id = headers.get(SCHEMA_ID_HEADER)
        if schema_id is None:
            raise SchemaUnknownError(f"a message has no header {SCHEMA_ID_HEADER}")
        view, read = self._readers.get(schema_id) or self._reader(schema_id)
        value = read(content)
        key = row_key(value, view)
        known = self._table.get(key)
        state = add(None if known is None else _UNPACK.decode(known), value)
        self._table[key] = _PACK.encode(state)

    def rows(self, table: str, now_s: int | None = None) -> Iterator[Document]:
        """Yield the rows of `keyspace.table` that a SELECT shows, now or at *now_s*."""
        view = self._views.get(table)
        if view is None:
            return
        now_s = int(time.time()) if now_s is None else now_s
        shown = set()
        alone: list[tuple[bytes, list[Any], Any]] = []  # Partitions, of which some have no rows.
        for packed, content in list(self._table.items()):
            name, partition, clustering = _UNPACK.decode(packed)
            if name != table:
                continue
            if clustering is None:
                alone.append((packed, partition, _UNPACK.decode(content)))
                continue
            whole_key = partition_key(name, partition)
            whole = self._table.get(whole_key)
            found = None if whole is None else _UNPACK.decode(whole)
            key = partition, clustering
            row = row_of(view, key, _UNPACK.decode(content), found, now_s)
            if row is not None:
                shown.add(whole_key)
                yield readable(view, row)
        for packed, partition, state in alone:
            row = None if packed in shown else static_row(view, partition, state, now_s)
            if row is not None:
                yield readable(view, row)

    def _reader(self, schema_id: bytes) -> tuple[TableView, Any]:  # Any: as above.
        schema = self._schemas.get(schema_id)
        view = self._views[schema.table] = TableView(schema)
        made = self._readers[schema_id] = view, reader_of(schema.value)
        return made

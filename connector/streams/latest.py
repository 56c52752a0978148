"""The newest row of each key of a topic, as SELECT would show it, in a mapping of bytes.

The messages are in the envelope `cep44`, in Avro, keyed by the partition key, so that each
partition of a table is in one partition of the topic.
"""

import time
from collections.abc import Iterator, MutableMapping
from typing import Any, Final

import msgspec

from headrace.connector.rows.folding import (
    TableView,
    partition_key,
    readable,
    row_key,
    row_of,
    static_row,
)
from headrace.plugins import Document, RecordSchema

_PACK: Final = msgspec.msgpack.Encoder()
_UNPACK: Final = msgspec.msgpack.Decoder()
_KEY_PARTS: Final = 3  # Of a row: table, partition, clustering. Of a schema: table, partition.


class LatestRows:
    """Rows in *table*, which may be any mapping of bytes to bytes; for one thread.

    It also keeps the schemas, so that kept rows can be shown before another message arrives.
    """

    def __init__(self, table: MutableMapping[bytes, bytes]) -> None:
        """Fold into the existing content of *table*."""
        self._table = table
        self._views: dict[str, TableView] = {}
        self._kept: dict[tuple[str, int], RecordSchema] = {}

    def take(self, document: Document, schema: RecordSchema, partition: int = 0) -> None:
        """Fold one change with this *schema*, from a *partition* of the topic."""
        place = schema.table, partition
        if self._kept.get(place) is not schema:
            self._keep(schema, partition)
            self._kept[place] = schema
        key = row_key(document, self._views[schema.table])
        known = self._table.get(key)
        self._table[key] = self._views[schema.table].folded(known, document)

    def rows(self, table: str, now_s: int | None = None) -> Iterator[Document]:
        """Yield the rows of `keyspace.table` that a SELECT shows, now or at *now_s*."""
        view = self._views.get(table) or self._kept_view(table)
        if view is None:
            return
        now_s = int(time.time()) if now_s is None else now_s
        shown = set()
        alone: list[tuple[bytes, list[Any], Any]] = []  # Partitions, some of which have no rows.
        for packed, content in list(self._table.items()):
            parts = _UNPACK.decode(packed)
            if parts[0] != table or len(parts) != _KEY_PARTS:
                continue
            name, partition, clustering = parts
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

    def _keep(self, schema: RecordSchema, partition: int) -> None:
        """Keep a schema with the rows of its partition, which may move to another process."""
        self._views[schema.table] = TableView(schema)
        content = _PACK.encode([schema.text, schema.schema_id, schema.value])
        key = _PACK.encode([schema.table, partition])
        if self._table.get(key) != content:
            self._table[key] = content

    def _kept_view(self, table: str) -> TableView | None:
        """Return the view of a table that had no message after the start."""
        for packed, content in list(self._table.items()):
            parts = _UNPACK.decode(packed)
            if parts[0] == table and len(parts) != _KEY_PARTS:
                text, schema_id, value = _UNPACK.decode(content)
                view = self._views[table] = TableView(
                    RecordSchema(table, text, schema_id, {}, value)
                )
                return view
        return None

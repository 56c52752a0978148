"""Changes of a table of tests, made without a log: in the envelope `cep44`, as a source encodes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.connector.serde.codecs.records import writer_of
from headrace.plugins import Delivery, EncodedRecords, RecordSchema
from headrace.plugins.positions import NumberPosition
from headrace.plugins.records.batches import RecordBatch
from headrace.plugins.records.codecs import SCHEMA_ID_HEADER
from headrace.sources.cassandra.encode.avro_schema import key_schema, value_schema
from headrace.sources.cassandra.schema.ddl import parse_schema
from helpers.histories.whole_changes import whole

DDL: Final = """
CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
CREATE TABLE shop.orders (id int, at int, note text, total int, PRIMARY KEY (id, at))
WITH ID = 00000000-0000-1000-8000-000000000001 AND cdc = true;
"""
TABLE: Final = "shop.orders"


def schema() -> RecordSchema:
    """Return the schema of the table."""
    (table,) = parse_schema(DDL).tables.values()
    key, value = key_schema(table), value_schema(table)
    return RecordSchema.of(table.qualified, table.text, key=key, value=value)


SCHEMA: Final = schema()
_KEY: Final = writer_of(SCHEMA.key)
_VALUE: Final = writer_of(SCHEMA.value)


def change(
    operation: str = "INSERT",
    *,
    written_us: int,
    expires: int | None = None,
    of: Sequence[int] = (1, 1),
    between: tuple[int, int] | None = None,
    **columns: Any,  # noqa: ANN401 (of the table)
) -> Mapping[str, Any]:
    """Return a change of the row *of*, which writes these columns.

    Of a range deletion, of the rows *between* two, both included.
    """
    payload = {"id": of[0], "at": of[1] if len(of) > 1 else None, "note": None, "total": None}
    return whole(
        operation,
        written_us,
        payload,
        columns,
        sourceKeyspace="shop",
        sourceTable="orders",
        schemaUuid=SCHEMA.schema_id,
        ttl=None if expires is None else 1,
        expires=expires,
        range=between and dict(zip(("start", "end"), map(_bound, between), strict=True)),
    )


def _bound(at: int) -> Mapping[str, Any]:
    return {"values": {"at": at}, "count": 1, "inclusive": True}


def delivery(*changes: Mapping[str, Any], table: str = TABLE) -> Delivery:
    """Return what a sink gets of these changes."""
    count = len(changes)
    encoded = EncodedRecords(
        [_KEY({"id": each["payload"]["id"]}) for each in changes],
        [_VALUE(each) for each in changes],
        [((SCHEMA_ID_HEADER, SCHEMA.schema_id),)] * count,
        [table] * count,
    )
    batch = RecordBatch("1-of-1", NumberPosition(0), 0, made=(), announced=(SCHEMA,))
    return Delivery(batch, encoded, {SCHEMA.schema_id: SCHEMA})

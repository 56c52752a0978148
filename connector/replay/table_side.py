"""What a table holds, range by range, as the rows that a topic should fold to."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.connector.replay.comparing import (
    Comparison,
    RowSide,
    SideReport,
    compared_as,
    decoder_of,
)
from headrace.connector.replay.delivery import sink_and_encoder
from headrace.connector.replay.rows import RowReader
from headrace.connector.replay.shards import Shard, batches, encoded_changes, opened
from headrace.connector.serde import Encoder
from headrace.plugins import Batch, HeadraceError, RecordSchema, Stored
from headrace.plugins.codecs import SCHEMA_ID_HEADER


@dataclass(frozen=True, slots=True)
class TableSide:
    """The rows of a range of a table's tokens, each made a change as a backfill makes it."""

    shard: Shard
    comparison: Comparison

    def __call__(self) -> SideReport:
        """Read them."""
        rows = RowSide(self.comparison)
        tables: dict[str, RecordSchema] = {}
        records = 0
        try:
            with (
                sink_and_encoder(compared_as(self.comparison.sink), "reconcile") as (_, encoder),
                opened(self.shard) as source,
            ):
                for batch in batches(source, self.shard):
                    for schema in batch.schemas():
                        tables[schema.table] = encoder.schema(schema)
                    records += self._take(encoder, batch, rows, tables)
        except HeadraceError as error:
            return SideReport(problem=f"{error.code}: {error}")
        return SideReport(row_sums=rows.sums(), states=rows.states, tables=tables, records=records)

    def _take(
        self,
        encoder: Encoder,
        batch: Batch,
        rows: RowSide,
        tables: Mapping[str, RecordSchema],
    ) -> int:
        schemas = {schema.schema_id: schema.value for schema in tables.values()}
        decoder = decoder_of(self.comparison, schemas)
        reader = RowReader(tables, self.comparison.at_s)
        encoded = replace(self.comparison.selection, from_us=None, to_us=None).apply(
            encoded_changes(encoder, batch)
        )
        columns = zip(encoded.tables, encoded.keys, encoded.values, encoded.headers, strict=True)
        for number, (table, key, value, headers) in enumerate(columns):
            if not rows.asks_for(table, key or b""):
                continue
            schema_id = dict(headers).get(SCHEMA_ID_HEADER, b"")
            document = decoder.value(Stored(number, key, value, headers))
            view = reader.view(schema_id, schemas[schema_id], table)
            assert document is not None  # noqa: S101 (a row is no tombstone)
            assert view is not None  # noqa: S101 (the schema was announced)
            rows.add(reader.of_one(view, document, key or b""))
        return len(encoded)

"""What a live cluster says of its tables: `system_schema`, read once through cassandra-driver.

Blocking network I/O, bounded by the driver's connect and request time-outs.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Final

from cassandra import DriverException, OperationTimedOut
from cassandra.cluster import Cluster, NoHostAvailable, Session

from headrace.plugins import MissingRequirementError
from headrace.sources.cassandra.schema import (
    ColumnKind,
    ColumnSchema,
    KeyspaceSchema,
    Schema,
    TableSchema,
    column_order,
)
from headrace.sources.cassandra.types import CqlType, parse_type

CONNECT_SECONDS_MAX: Final = 10
_PORT: Final = 9042
_US_PER_MS: Final = 1000

Row = Any  # The driver's rows have the columns of the query as attributes.


class ClusterUnreachableError(MissingRequirementError):
    """None of the contact points answers."""

    code = "cluster_unreachable"


def read_live_schema(contact_points: Sequence[str]) -> Schema:
    """Return the tables of all keyspaces but Cassandra's own.

    Raises:
        ClusterUnreachableError: no contact point answers, or a query fails.

    """
    with _connected(contact_points) as session:
        return _Reading(session).schema()


@contextmanager
def _connected(contact_points: Sequence[str]) -> Iterator[Session]:
    endpoints = [_endpoint(point) for point in contact_points]
    cluster = Cluster(
        [host for host, _ in endpoints],
        port=endpoints[0][1],
        connect_timeout=CONNECT_SECONDS_MAX,
        control_connection_timeout=CONNECT_SECONDS_MAX,
        schema_metadata_enabled=False,
        token_metadata_enabled=False,
    )
    try:
        yield cluster.connect()
    except (NoHostAvailable, OperationTimedOut, DriverException) as error:
        raise ClusterUnreachableError(
            f"{type(error).__name__}: {error}",
            place=f"contact_points {', '.join(contact_points)}",
            hint="give host:port of the native transport of a running node",
        ) from error
    finally:
        cluster.shutdown()


def _endpoint(point: str) -> tuple[str, int]:
    host, _, port = point.rpartition(":")
    return (host, int(port)) if host and port.isdigit() else (point, _PORT)


@dataclass
class _Reading:
    """One pass over `system_schema`."""

    session: Session

    def schema(self) -> Schema:
        keyspaces = {row.keyspace_name: row for row in self._rows("keyspaces")}
        own = {name for name in keyspaces if not name.startswith("system")}
        self._udts = {(row.keyspace_name, row.type_name): row for row in self._rows("types")}
        self._columns = self._grouped("columns")
        self._dropped = self._grouped("dropped_columns")
        tables = [self._table(row) for row in self._rows("tables") if row.keyspace_name in own]
        return Schema(
            {name: KeyspaceSchema(name, dict(keyspaces[name].replication)) for name in own},
            {table.table_id: table for table in tables},
        )

    def _rows(self, table: str) -> Sequence[Row]:
        return list(self.session.execute(f"SELECT * FROM system_schema.{table}"))

    def _grouped(self, table: str) -> Mapping[tuple[str, str], Sequence[Row]]:
        groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in self._rows(table):
            groups[row.keyspace_name, row.table_name].append(row)
        return groups

    def _table(self, row: Row) -> TableSchema:
        key = (row.keyspace_name, row.table_name)
        dropped_us = {r.column_name: _microseconds(r) for r in self._dropped.get(key, ())}
        columns = [
            ColumnSchema(
                c.column_name,
                ColumnKind(c.kind),
                c.position,
                self._type(row.keyspace_name, c.type),
                descending=c.clustering_order == "desc",
                dropped_us=dropped_us.get(c.column_name),
            )
            for c in self._columns[key]
        ]
        present = {column.name for column in columns}
        columns += [
            ColumnSchema(
                r.column_name,
                ColumnKind(r.kind),
                -1,
                self._type(row.keyspace_name, r.type),
                dropped_us=_microseconds(r),
                is_dropped=True,
            )
            for r in self._dropped.get(key, ())
            if r.column_name not in present
        ]
        flags = set(row.flags or ())
        return TableSchema(
            row.keyspace_name,
            row.table_name,
            row.id,
            bool(getattr(row, "cdc", None)),  # Only nodes with CDC on have the column.
            tuple(sorted(columns, key=column_order)),
            is_counter="counter" in flags,
            is_compact=bool(flags) and "compound" not in flags,
        )

    def _type(self, keyspace: str, text: str) -> CqlType:
        return parse_type(text, keyspace, self._udt)

    def _udt(self, keyspace: str, name: str) -> CqlType | None:
        row = self._udts.get((keyspace, name))
        if row is None:
            return None
        pairs = zip(row.field_names, row.field_types, strict=True)
        fields = tuple((field, self._type(keyspace, text)) for field, text in pairs)
        return CqlType(name=name, keyspace=keyspace, fields=fields)


def _microseconds(row: Row) -> int:
    moment = row.dropped_time.replace(tzinfo=UTC)  # The driver gives UTC without saying so.
    return int(moment.timestamp() * 1000) * _US_PER_MS

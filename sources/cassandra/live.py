"""What a live cluster says of its tables: `system_schema`, read once through cassandra-driver.

Blocking network I/O, bounded by the driver's connect and request time-outs.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from cassandra import DriverException, OperationTimedOut
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    Session,
)
from cassandra.policies import WhiteListRoundRobinPolicy

from headrace.plugins import MissingRequirementError
from headrace.sources.cassandra.schema import (
    SYSTEM_KEYSPACES,
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
_PROTOCOL_VERSION: Final = 4  # Of every version from 4.0 on.
_US_PER_MS: Final = 1000
# A system table has columns dropped at the end of time, which the driver cannot read as a date.
_DROPPED: Final = (
    "keyspace_name, table_name, column_name, kind, type, toUnixTimestamp(dropped_time) AS ms"
)

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
    hosts = [host for host, _ in endpoints]
    profile = ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy(hosts))
    cluster = Cluster(
        hosts,
        port=endpoints[0][1],
        protocol_version=_PROTOCOL_VERSION,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
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
        own = keyspaces.keys() - SYSTEM_KEYSPACES
        self._udts = {(row.keyspace_name, row.type_name): row for row in self._rows("types")}
        self._columns = self._grouped("columns")
        self._dropped = self._grouped("dropped_columns", _DROPPED)
        tables = [self._table(row) for row in self._rows("tables") if row.keyspace_name in own]
        return Schema(
            {name: KeyspaceSchema(name, dict(keyspaces[name].replication)) for name in own},
            {table.table_id: table for table in tables},
        )

    def _rows(self, table: str, columns: str = "*") -> Sequence[Row]:
        query = f"SELECT {columns} FROM system_schema.{table}"  # noqa: S608 (constants)
        return list(self.session.execute(query))

    def _grouped(self, table: str, columns: str = "*") -> Mapping[tuple[str, str], Sequence[Row]]:
        groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in self._rows(table, columns):
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
    return int(row.ms) * _US_PER_MS

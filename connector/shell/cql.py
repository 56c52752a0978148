"""The shell's connection to Cassandra, which executes all CQL.

All calls block, bounded by the time-outs of the connection and of a request.
"""

import contextlib
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from cassandra import ConsistencyLevel, DriverException
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    ResultSet,
)
from cassandra.policies import WhiteListRoundRobinPolicy
from cassandra.protocol import ErrorMessage
from cassandra.query import SimpleStatement, tuple_factory

from headrace.connector.language.rendering import STATEMENT_COLUMN, ResultTable
from headrace.connector.shell.cql_values import Value, cql_style, cql_text
from headrace.plugins import HeadraceError
from headrace.plugins.cql_text import Cursor

PROTOCOL_VERSION: Final = 5  # Supported from Cassandra 4.0 on.
TRACE_SECONDS_MAX: Final = 10

_ERRORS: Final = (NoHostAvailable, DriverException, ErrorMessage)


class CqlError(HeadraceError):
    """Cassandra refused a request, or failed; `title` is Cassandra's name of the error."""

    code: ClassVar[str] = "cql"
    exit_status: ClassVar[int] = 2

    def __init__(self, title: str, message: str) -> None:
        """Keep title and message."""
        super().__init__(message)
        self.title = title

    def __str__(self) -> str:
        """Return `InvalidRequest: …`."""
        return f"{self.title}: {self.message}"


class CqlUnreachableError(CqlError):
    """No connection: no node answers, or it does not accept the name and the password."""

    code = "cql_unreachable"
    exit_status = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CqlTarget:
    """The node to connect to, and the login."""

    host: str
    port: int = 9042
    username: str = ""
    password: str = field(default="", repr=False)
    keyspace: str = ""
    connect_seconds: float = 5
    request_seconds: float = 10
    protocol_version: int = PROTOCOL_VERSION
    tls: ssl.SSLContext | None = None


class CqlConnection:
    """See the module. Belongs to the thread that made it."""

    def __init__(self, target: CqlTarget) -> None:
        """Connect. Raises CqlUnreachableError, which has the reason."""
        self.target = target
        profile = ExecutionProfile(
            load_balancing_policy=WhiteListRoundRobinPolicy([target.host]),
            row_factory=tuple_factory,
            request_timeout=target.request_seconds,
            consistency_level=ConsistencyLevel.ONE,
        )
        options = {"protocol_version": target.protocol_version}
        if target.username:
            options["auth_provider"] = PlainTextAuthProvider(target.username, target.password)
        self._cluster = Cluster(
            [target.host],
            port=target.port,
            ssl_context=target.tls,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            connect_timeout=target.connect_seconds,
            control_connection_timeout=target.connect_seconds,
            **options,
        )
        try:
            self._session = self._cluster.connect(target.keyspace or None)
            self.versions = self._session.execute(
                "SELECT release_version, cql_version, native_protocol_version, cluster_name "
                "FROM system.local"
            ).one()
        except _ERRORS as error:
            self._cluster.shutdown()
            place = f"{target.host}:{target.port}"
            raise CqlUnreachableError(
                "Connection error", f"could not connect to {place}: {_reason(error)}"
            ) from error

    @property
    def keyspace(self) -> str:
        """The current keyspace, or an empty string."""
        return self._session.keyspace or ""

    @property
    def consistency(self) -> str:
        """The name of the consistency level of statements."""
        profile = self._cluster.profile_manager.default
        return str(ConsistencyLevel.value_to_name[profile.consistency_level])

    @consistency.setter
    def consistency(self, name: str) -> None:
        level = ConsistencyLevel.name_to_value[name]  # KeyError: the level is unknown.
        self._cluster.profile_manager.default.consistency_level = level

    def execute(self, text: str, *, page_rows: int, tracing: bool = False) -> Iterator[ResultTable]:
        """Execute one statement; yield its answer in pages, at least one.

        Raises:
            CqlError: Cassandra refused it, or did not respond.

        """
        with _errors_named():
            statement = SimpleStatement(text, fetch_size=page_rows)
            found = self._session.execute(statement, trace=tracing)
            names = tuple(found.column_names or ())
            while True:
                rows = list(found.current_rows)
                yield self._table(text, names, rows)
                if not found.has_more_pages:
                    break
                found.fetch_next_page()
            if tracing:
                yield _trace(found)

    @property
    def cluster(self) -> str:
        """The cluster's name."""
        return str(self.versions[3])

    def rows(self, text: str, *values: str) -> Sequence[Mapping[str, object]]:
        """Execute *text* with *values*, and return all rows. Raises CqlError."""
        with _errors_named():
            found = self._session.execute(text, values or None)
            return [dict(zip(found.column_names, row, strict=True)) for row in found]

    def tables(self) -> Sequence[tuple[str, str, bool]]:
        """Return keyspace and name of every table, and whether CDC is on for it."""
        return [
            (keyspace.name, table.name, bool(table.options.get("cdc")))
            for keyspace in self._cluster.metadata.keyspaces.values()
            for table in keyspace.tables.values()
        ]

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        self._cluster.shutdown()

    def _table(
        self, text: str, names: tuple[str, ...], rows: Sequence[Sequence[Value]]
    ) -> ResultTable:
        if STATEMENT_COLUMN in names:  # An answer to DESCRIBE, which is shown as statements.
            at = names.index(STATEMENT_COLUMN)
            return ResultTable((STATEMENT_COLUMN,), tuple((str(row[at]),) for row in rows))
        heads = self._head_styles(text)
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        firsts = (next((v for v in column if v is not None), "") for column in columns)
        styles = tuple(
            (heads.get(name, "column"), cql_style(value))
            for name, value in zip(names, firsts, strict=True)
        )
        cells = tuple(tuple(cql_text(value) for value in row) for row in rows)
        return ResultTable(names, cells, styles)

    def _head_styles(self, text: str) -> dict[str, str]:
        keyspace, name = table_read(text)
        known = self._cluster.metadata.keyspaces.get(keyspace or self.keyspace)
        table = known and known.tables.get(name)
        if not table:
            return {}
        styles = {column.name: "static" for column in table.columns.values() if column.is_static}
        styles |= {column.name: "clustering" for column in table.clustering_key}
        return styles | {column.name: "partition_key" for column in table.partition_key}


def table_read(text: str) -> tuple[str, str]:
    """Return the keyspace and the name after FROM, each empty if it is missing."""
    cursor = Cursor(text)
    while not cursor.at_end and not cursor.accept("from"):
        cursor.advance()
    name = cursor.advance().folded
    return (name, cursor.advance().folded) if cursor.accept(".") else ("", name)


def _trace(found: ResultSet) -> ResultTable:
    trace = found.get_query_trace(max_wait_sec=TRACE_SECONDS_MAX)
    rows = [
        (event.description, str(event.source), str(event.source_elapsed)) for event in trace.events
    ]
    return ResultTable(("activity", "source", "source_elapsed"), tuple(rows))


@contextlib.contextmanager
def _errors_named() -> Iterator[None]:
    try:
        yield
    except _ERRORS as error:
        raise CqlError(type(error).__name__, _reason(error)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, NoHostAvailable) and error.errors:
        return "; ".join(f"{type(e).__name__}: {e}" for e in error.errors.values())
    return str(error.message if isinstance(error, ErrorMessage) else error)

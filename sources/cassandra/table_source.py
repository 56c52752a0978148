"""The source `cassandra-table`: a table's current rows, by token ranges, with write times.

For bulk work: it ends, and a range that is read again has the same changes. Blocking network I/O.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from cassandra import ConsistencyLevel, DriverException
from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile, NoHostAvailable, Session
from cassandra.concurrent import execute_concurrent
from cassandra.query import SimpleStatement, tuple_factory

from headrace.plugins import (
    Batch,
    BulkReading,
    CloseReason,
    ConfigError,
    Context,
    Demand,
    Document,
    Done,
    Idle,
    NumberPosition,
    Position,
    Problem,
    Reader,
    RecordBatch,
    RowReading,
    Source,
    Split,
    TypedColumns,
    option,
)
from headrace.plugins.records.columns import TableType, TypedChanges
from headrace.sources.cassandra.columns.column_types import table_type
from headrace.sources.cassandra.columns.from_avro import typed_values
from headrace.sources.cassandra.encode.avro_objects import Provenance
from headrace.sources.cassandra.encode.change_record import ChangeRecord
from headrace.sources.cassandra.encode.origin import TABLE_NODE, TABLE_ORIGIN
from headrace.sources.cassandra.mutation.changes import Change
from headrace.sources.cassandra.mutation.snapshot import Selected, Snapshot, identity
from headrace.sources.cassandra.reading.deliveries import Deliveries, TableShape
from headrace.sources.cassandra.schema.contact import Contact
from headrace.sources.cassandra.schema.live import (
    ClusterUnreachableError,
    RawProtocol,
    connected,
    read_live_schema,
    tells_times,
)
from headrace.sources.cassandra.schema.tables import TableSchema

ROWS_AT_ONCE: Final = 16
REQUEST_SECONDS_MAX: Final = 120.0
_LOWEST, _RING = -(1 << 63), 1 << 64


class TableQueryError(ClusterUnreachableError):
    """A range of a table could not be read."""

    code = "table_query"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConfig:
    """Options of the source `cassandra-table`."""

    table: str = option("The table: keyspace.table.")
    contact_points: tuple[str, ...] = option("host:port of live nodes.")
    username: str | None = option("The role.", default=None)
    password: str | None = option("The password of that role.", default=None, secret=True)
    tls_ca: str | None = option(
        "Certificates that the nodes' must be signed by, in PEM; turns TLS on.", default=None
    )
    splits: int = option("Ranges of tokens.", default=64, minimum=1, maximum=4096)
    page_rows: int = option(
        "The number of rows in a page that a node returns.",
        default=1_000,
        minimum=1,
        maximum=100_000,
    )
    read_consistency: str = option(
        "The consistency level of reads.",
        default="LOCAL_QUORUM",
        choices=("ONE", "LOCAL_ONE", "QUORUM", "LOCAL_QUORUM", "ALL"),
    )

    @property
    def level(self) -> int:
        """The consistency level of reads, by the driver's number."""
        number: int = ConsistencyLevel.name_to_value[self.read_consistency]
        return number

    @property
    def contact(self) -> Contact:
        """Which nodes are queried, and with which role."""
        return Contact(self.contact_points, self.username, self.password, self.tls_ca)


class ChangeBatch(RecordBatch):
    """A page of a table."""

    made: Sequence[ChangeRecord]

    def typed(self, target: TableType, *, with_messages: bool) -> TypedChanges:
        """Write typed columns; the framework makes messages of records."""
        del with_messages
        schema_texts = {each.schema.schema_id: each.schema.text for each in self.made}
        return typed_values(target, [record.value for record in self.made], schema_texts)


class TableSource(Source, BulkReading, RowReading, TypedColumns):
    """The source of one table's rows."""

    config_class = TableConfig
    origin = TABLE_ORIGIN
    config: TableConfig

    def __init__(self, config: TableConfig, context: Context) -> None:
        """Connect to nothing yet."""
        super().__init__(config, context)
        self._tokens: Sequence[tuple[int, int]] = ()
        self._splits = config.splits
        self._table: TableSchema | None = None

    def plan(self) -> Sequence[Split]:
        """Return the requested ranges of tokens, each as `after:until`."""
        table = self.table
        if table.is_counter:
            raise ConfigError([Problem("table", f"{table.qualified} holds counters")])
        edges = [_LOWEST + _RING * n // self._splits for n in range(self._splits + 1)]
        edges[-1] -= 1
        whole = list(pairwise(edges))
        wanted = self._tokens or [(edges[0], edges[-1])]
        parts = [
            (max(low, after), min(high, until)) for low, high in whole for after, until in wanted
        ]
        return [Split(f"{after}:{until}") for after, until in parts if after < until]

    def cut(self, parts: int) -> None:
        """Plan *parts* ranges of tokens, regardless of the configuration."""
        self._splits = parts

    def limit(
        self,
        *,
        until: Position | None = None,
        tokens: Sequence[tuple[int, int]] = (),
        elapsed_ms: int = 0,
    ) -> None:
        """Read only these ranges of tokens; a table has no position to end at, and nothing ages."""
        del elapsed_ms
        if until is not None:
            raise ConfigError([Problem("--until", "a table has no positions")])
        self._tokens = tokens

    def open(self, split: Split, resume: Position | None) -> Reader:
        """Start to read a range after the token in *resume*."""
        after, _, until = split.split_id.partition(":")
        start = resume.number if isinstance(resume, NumberPosition) else int(after)
        return TableReader(self.config, self.table, split.split_id, start, int(until))

    def rows(self, keys: Sequence[Document], level: str) -> Batch:
        """Implement `RowReading.rows`; reads several rows at a time.

        Raises:
            TableQueryError: a row could not be read.

        """
        shape = Deliveries((self.table.qualified,), lambda _: 0).shape(self.table)
        with connected(self.config.contact) as session:
            selected = Selected(self.table, tells_times(session))
            profile = _profile(session, ConsistencyLevel.name_to_value[level])
            session.client_protocol_handler = RawProtocol
            statements = [_statement_of(selected, key) for key in keys]
            with _named_errors(self.table, f"{len(keys)} rows", "read them again"):
                results = execute_concurrent(
                    session, statements, concurrency=ROWS_AT_ONCE, execution_profile=profile
                )
        found = [row for _, result in results for row in result.current_rows]
        changes = [each for row in found for each in Snapshot(selected).changes(row)]
        return ChangeBatch("rows", NumberPosition(0), 0, records_of(changes, shape), [shape.schema])

    def token_of(self, key: Document) -> int | None:
        """Implement `RowReading.token_of`. Raises as `rows`."""
        columns = [column.name for column in self.table.partition_key]
        _check_names(self.table, key, columns, "give each column of the partition key, once")
        with connected(self.config.contact) as session:
            selected = Selected(self.table, tells_times(session))
            statement = SimpleStatement(selected.statement_of_token())
            profile = _profile(session, self.config.level)
            session.client_protocol_handler = RawProtocol
            values = [json.dumps(key[name]) for name in columns]
            hint = "is each value one of its column's type?"
            with _named_errors(self.table, "a partition", hint):
                found = session.execute(statement, values, execution_profile=profile).current_rows
        return int.from_bytes(found[0][0], "big", signed=True) if found else None

    def table_type(self, table: str) -> TableType:
        """Return the types of the table as it is now."""
        del table
        return table_type(self.table)

    def typed_values(
        self, target: TableType, values: Sequence[Document], schema_texts: Mapping[bytes, str]
    ) -> TypedChanges:
        """Make typed columns of the values."""
        return typed_values(target, values, schema_texts)

    @property
    def table(self) -> TableSchema:
        """The table as it is now.

        Raises:
            ConfigError: it does not exist.
            ClusterUnreachableError: no contact point answers.

        """
        if self._table is None:
            self._table = read_live_schema(self.config.contact).table(self.config.table)
            if self._table is None:
                problem = Problem("table", f"{self.config.table} is not in the schema")
                raise ConfigError([problem])
        return self._table


class TableReader(Reader):
    """One range of tokens, page by page."""

    def __init__(
        self, config: TableConfig, table: TableSchema, split: str, after: int, until: int
    ) -> None:
        """Connect when the first page is read."""
        self._config = config
        self._split = split
        self._range = after, until
        self._deliveries = Deliveries((table.qualified,), lambda _: 0)
        self._shape: TableShape = self._deliveries.shape(table)
        self._table = table
        self._announced = False
        self._pages: Iterator[Sequence[tuple[bytes | None, ...]]] | None = None

    def read(self, demand: Demand) -> Batch | Idle | Done:
        """Return the changes of the next page. It may exceed *demand*: a page is small."""
        del demand
        if self._pages is None:
            self._pages = self._queried()
        rows = next(self._pages, None)
        if rows is None:
            if self._announced:
                return Done()
            rows = ()  # The schema of an empty range is announced too.
        changes = [change for row in rows for change in self._snapshot.changes(row)]
        records = records_of(changes, self._shape)
        announced = [] if self._announced else [self._shape.schema]
        self._announced = True
        last = int.from_bytes(rows[-1][0] or b"", "big", signed=True) if rows else self._range[1]
        # The last Cassandra partition may have more rows: it is read again after a restart.
        end = NumberPosition(max(self._range[0], last - 1))
        size = sum(len(part or b"") for row in rows for part in row)
        return ChangeBatch(self._split, end, size, records, announced, more=True)

    def close(self, reason: CloseReason) -> None:
        """Disconnect."""
        del reason
        if self._pages is not None:
            self._pages.close()  # type: ignore[attr-defined]  # It is a generator.
            self._pages = None

    def _queried(self) -> Iterator[Sequence[tuple[bytes | None, ...]]]:
        with connected(self._config.contact) as session:
            selected = Selected(self._table, tells_times(session))
            self._snapshot = Snapshot(selected)
            profile = _profile(session, self._config.level)
            session.client_protocol_handler = RawProtocol
            statement = SimpleStatement(selected.statement(), fetch_size=self._config.page_rows)
            hint = "run it again: ranges that were read are not read again"
            with _named_errors(self._table, f"tokens {self._split}", hint):
                result = session.execute(statement, self._range, execution_profile=profile)
                while True:
                    rows = result.current_rows
                    if rows:
                        yield rows
                    if not result.has_more_pages:
                        return
                    result.fetch_next_page()


def _profile(session: Session, level: int) -> ExecutionProfile:
    return session.execution_profile_clone_update(
        EXEC_PROFILE_DEFAULT,
        row_factory=tuple_factory,
        request_timeout=REQUEST_SECONDS_MAX,
        consistency_level=level,
    )


@contextmanager
def _named_errors(table: TableSchema, what: str, hint: str) -> Iterator[None]:
    try:
        yield
    except (NoHostAvailable, DriverException) as error:
        raise TableQueryError(
            f"{type(error).__name__}: {error}",
            place=f"table {table.qualified}, {what}",
            hint=hint,
        ) from error


def _statement_of(selected: Selected, key: Document) -> tuple[SimpleStatement, list[str]]:
    """Return the query of a row, or of static columns, and its values."""
    columns = selected.keys if len(key) == len(selected.keys) else selected.table.partition_key
    names = [column.name for column in columns]
    hint = "a column of the key was renamed: read what was written since"
    _check_names(selected.table, key, names, hint)
    is_static = len(columns) < len(selected.keys)
    statement = SimpleStatement(selected.statement_of_row(is_static=is_static))
    return statement, [json.dumps(key[name]) for name in names]


def _check_names(table: TableSchema, key: Document, names: Sequence[str], hint: str) -> None:
    if set(names) != set(key):
        raise TableQueryError(
            f"found a key of {', '.join(key)}, expected {', '.join(names)}",
            place=f"table {table.qualified}",
            hint=hint,
        )


def records_of(changes: Sequence[Change], shape: TableShape) -> list[ChangeRecord]:
    """Return the records of a table's rows."""
    return [
        ChangeRecord(
            change,
            Provenance(
                mutation_id=identity(change),
                index=0,
                of=1,
                copies=0,
                node=TABLE_NODE,
                segment_id=0,
                position=0,
            ),
            shape.schema,
        )
        for change in changes
    ]

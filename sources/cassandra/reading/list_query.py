"""Reads lists from the nodes: one query per row, many at a time.

This module is separate because it needs the driver, which other jobs do not load.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from threading import Lock
from typing import Final

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    DriverException,
    InvalidRequest,
    Unauthorized,
)
from cassandra.cluster import EXEC_PROFILE_DEFAULT, NoHostAvailable, Session
from cassandra.concurrent import execute_concurrent
from cassandra.query import BoundStatement, PreparedStatement, tuple_factory

from headrace.plugins import HeadraceError
from headrace.sources.cassandra.mutation.snapshot import quoted, ttls_of
from headrace.sources.cassandra.mutation.values import BadValueError, to_python
from headrace.sources.cassandra.reading.lists import (
    Found,
    ListsRefusedError,
    ListsUnreadError,
    ListValue,
    Wanted,
)
from headrace.sources.cassandra.schema.contact import Contact
from headrace.sources.cassandra.schema.live import RawProtocol, connected, tells_times
from headrace.sources.cassandra.schema.tables import ColumnSchema

_STATEMENTS_MAX: Final = 1_000
_ROUNDS: Final = 4  # Number of rounds of queries; after each it is clear whether any node answers.
_COLUMN: Final = (
    "SELECT type FROM system_schema.columns "
    "WHERE keyspace_name = %s AND table_name = %s AND column_name = %s"
)
_HINT: Final = "lists_unread: cells publishes what the log has of a list that cannot be read"


class CqlLists:
    """Reads lists through the contact points; connects at the first read."""

    def __init__(
        self, contact: Contact, *, consistency: str, concurrency: int, seconds_max: float
    ) -> None:
        """Read at the level *consistency*, *concurrency* rows at a time, each with a timeout."""
        self._contact = contact
        self._level: int = ConsistencyLevel.name_to_value[consistency]
        self._concurrency = concurrency
        self._seconds_max = seconds_max
        self._connection = ExitStack()
        self._session: Session | None = None
        self._tells_ttls = False
        self._closed = False
        self._lock = Lock()  # Guards the connection: another thread closes it.
        self._prepared: dict[tuple[object, ...], PreparedStatement] = {}

    def read(self, rows: Sequence[Wanted]) -> Sequence[Found | HeadraceError]:
        """Read lists, as described for `ListQuery.read`."""
        try:
            session = self._connected()
        except HeadraceError as error:
            return [ListsUnreadError(error.message, place=error.place, hint=_HINT)] * len(rows)
        answers: list[Found | HeadraceError] = []
        while len(answers) < len(rows):
            some = rows[len(answers) :][: self._concurrency * _ROUNDS]
            came = self._asked(session, some)
            answers += came
            if all(isinstance(each, ListsUnreadError) for each in came):
                answers += came[:1] * (len(rows) - len(answers))  # No node answers: do not wait.
        return answers

    def _asked(self, session: Session, rows: Sequence[Wanted]) -> list[Found | HeadraceError]:
        answers: list[Found | HeadraceError] = [{}] * len(rows)
        asked: list[int] = []
        statements: list[tuple[BoundStatement, None]] = []
        for place, row in enumerate(rows):
            try:
                statements.append((self._bound(session, row), None))
                asked.append(place)
            except (DriverException, NoHostAvailable) as error:
                answers[place] = self._failed(session, row, error)
        profile = session.execution_profile_clone_update(
            EXEC_PROFILE_DEFAULT,
            row_factory=tuple_factory,
            request_timeout=self._seconds_max,
            consistency_level=self._level,
        )
        results = execute_concurrent(
            session,
            statements,
            concurrency=self._concurrency,
            raise_on_first_error=False,
            execution_profile=profile,
        )
        for place, (succeeded, result) in zip(asked, results, strict=True):
            row = rows[place]
            answers[place] = (
                self._values(row, result.one()) if succeeded else self._failed(session, row, result)
            )
        return answers

    def _connected(self) -> Session:
        with self._lock:
            if self._session is None:
                if self._closed:
                    raise ListsUnreadError("the connection is closed")
                session = self._connection.enter_context(connected(self._contact))
                self._tells_ttls = tells_times(session)
                session.client_protocol_handler = RawProtocol
                self._session = session
            return self._session

    def _bound(self, session: Session, row: Wanted) -> BoundStatement:
        is_static = row.name.clustering is None
        name = (row.table.table_id, is_static, *(column.name for column in row.columns))
        prepared = self._prepared.get(name)
        if prepared is None:
            if len(self._prepared) >= _STATEMENTS_MAX:
                self._prepared.clear()
            prepared = self._prepared[name] = session.prepare(self._statement(row))
        bound = BoundStatement(prepared)
        bound.values = [*row.name.key, *(row.name.clustering or ())]  # Raw bytes.
        return bound

    def _statement(self, row: Wanted) -> str:
        selected = [quoted(column) for column in row.columns]
        if self._tells_ttls:
            selected += [f"TTL({quoted(column)})" for column in row.columns]
        table = row.table
        keys = table.partition_key
        limit = ""
        if row.name.clustering is None:
            limit = " LIMIT 1"  # All rows of the partition have it.
        else:
            keys = (*keys, *table.clustering)
        where = " AND ".join(f"{quoted(column)} = ?" for column in keys)
        place = f'"{table.keyspace}"."{table.name}"'
        return f"SELECT {', '.join(selected)} FROM {place} WHERE {where}{limit}"  # noqa: S608 (names)

    def _values(self, row: Wanted, found: tuple[bytes | None, ...] | None) -> Found:
        """Return the lists of a row, except those whose element type has changed."""
        count = len(row.columns)
        values = found or (None,) * (2 * count)
        ttls = values[count:] if self._tells_ttls else (None,) * count
        return {
            column.name: ListValue(raw, ttls_of(ttl))
            if raw is not None and _fits(column, raw)
            else ListValue(None)
            for column, raw, ttl in zip(row.columns, values, ttls, strict=False)
        }

    def _failed(self, session: Session, row: Wanted, error: Exception) -> Found | HeadraceError:
        place = f"table {row.table.qualified}"
        said = f"{type(error).__name__}: {error}"
        if isinstance(error, InvalidRequest):
            try:
                if not all(self._is_there(session, row, column) for column in row.columns):
                    return {column.name: ListValue(None) for column in row.columns}
            except (DriverException, NoHostAvailable) as unknown:
                return ListsUnreadError(type(unknown).__name__, place=place, hint=_HINT)
        if isinstance(error, InvalidRequest | Unauthorized | AuthenticationFailed):
            hint = "lists: cells needs no query"
            return ListsRefusedError(said, place=place, hint=hint)
        return ListsUnreadError(said, place=place, hint=_HINT)

    @staticmethod
    def _is_there(session: Session, row: Wanted, column: ColumnSchema) -> bool:
        name = (row.table.keyspace, row.table.name, column.name)
        found = session.execute(_COLUMN, name).one()
        return found is not None and found[0] == str(column.type).encode()

    def close(self) -> None:
        """Disconnect, so running queries fail. Safe to call from any thread."""
        with self._lock:
            self._closed = True
            self._session = None
            self._connection.close()


def _fits(column: ColumnSchema, raw: bytes) -> bool:
    """Return whether bytes are a list of the column's type, which may have changed."""
    try:
        to_python(column.type, raw)
    except BadValueError:
        return False
    return True

"""The Cassandra store's connection: its options, its tables, and statements with named errors.

Lightweight transactions decide conditions, so every process sees one order of the writes to a row;
such rows are never written in another way. All calls block, bounded by `request_seconds_max`.
"""

import contextlib
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cassandra import ConsistencyLevel, DriverException, InvalidRequest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    ResponseFuture,
    Session,
)
from cassandra.concurrent import execute_concurrent
from cassandra.connection import ConnectionBusy
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.protocol import ErrorMessage
from cassandra.query import (
    BatchStatement,
    BatchType,
    BoundStatement,
    PreparedStatement,
    dict_factory,
)

from headrace.connector.stores import StateNewerError, StoreUnavailableError
from headrace.plugins import ConfigError, MissingRequirementError, Problem, option
from headrace.plugins.cql_text import quoted_name

VERSION: Final = 4  # 1 to 3 were before the first release.
SERVICE: Final = "headrace.store"  # The service in `configs` with the tables' version.
CONNECT_SECONDS_MAX: Final = 10
SCHEMA_SECONDS_MAX: Final = 60
CONCURRENT_MAX: Final = 32
BUSY_PAUSE_SECONDS: Final = 0.01
SCHEMA_TRIES: Final = 10
SCHEMA_PAUSE_SECONDS: Final = 0.5  # Between two schema changes.
RECONNECT_SECONDS: Final = (0.5, 10.0)  # The first pause and the longest one.
_PORT: Final = 9042
_PROTOCOL_VERSION: Final = 4  # Supported from Cassandra 4.0 on.
_READ_VERSION: Final = "SELECT config FROM configs WHERE service = ?"
_PUT_VERSION: Final = "INSERT INTO configs (service, config) VALUES (?, ?) IF NOT EXISTS"
_IDS: Final = uuid.UUID("6f0a8a52-6d0b-4c86-9a5e-0d1a0b7e2f45")  # The namespace of tables' ids.
_ERRORS: Final = (NoHostAvailable, DriverException, ErrorMessage)

# `configs` and `cdc_state` are those of CEP-44. Nothing a job depends on has a TTL. Names of
# important plain rows are never reused, so a deletion that a node missed can be forgotten at once.
TABLES: Final[Mapping[str, str]] = {
    "configs": "service text PRIMARY KEY, config map<text, text>)",
    "cdc_state": """
        job_id text, split smallint, start varint, "end" varint, state blob,
        PRIMARY KEY ((job_id, split), start, "end")
    ) WITH CLUSTERING ORDER BY (start ASC, "end" ASC)
        AND compaction = {'class': 'TimeWindowCompactionStrategy',
            'compaction_window_size': '1', 'compaction_window_unit': 'DAYS'}
        AND default_time_to_live = 2592000 AND gc_grace_seconds = 0""",
    "cdc_state_chunks": """
        job_id text, split smallint, start varint, "end" varint, name text, content blob,
        PRIMARY KEY ((job_id, split), start, "end", name)
    ) WITH compaction = {'class': 'TimeWindowCompactionStrategy',
            'compaction_window_size': '1', 'compaction_window_unit': 'DAYS'}
        AND default_time_to_live = 2592000 AND gc_grace_seconds = 0""",
    "decided": """
        partition text, name text, stamp bigint, value blob, PRIMARY KEY (partition, name)
    )""",
    "plain": """
        partition text, name text, value blob, PRIMARY KEY (partition, name)
    ) WITH gc_grace_seconds = 0""",
}


Statement = tuple[str, Sequence[object]]


class StoreUnreachableError(MissingRequirementError):
    """The store's cluster refuses the connection, or its tables are missing."""

    code = "store_unreachable"


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraStoreConfig:
    """The options of the store `cassandra`."""

    contact_points: tuple[str, ...] = option(
        "Nodes of the cluster that keeps the state: `host` or `host:port`, one port for all."
    )
    keyspace: str = option("The keyspace of the store's tables.", default="headrace")
    replication_factor: int = option(
        "Replication factor of the keyspace in each data centre, if headrace creates it.",
        default=3,
        minimum=1,
        maximum=16,
    )
    datacenter: str | None = option(
        "The data centre whose nodes are used, if there are several.", default=None
    )
    consistency: str = option(
        "QUORUM; or LOCAL_QUORUM, when all workers of a job are in one data centre.",
        default="QUORUM",
        choices=("QUORUM", "LOCAL_QUORUM"),
    )
    username: str | None = option("The role to log in as.", default=None)
    password: str | None = option("Its password.", default=None, secret=True)
    ssl_ca: str | None = option("A file of certificates to trust; turns TLS on.", default=None)
    ssl_certificate: str | None = option("The client's own certificate, a file.", default=None)
    ssl_key: str | None = option("The key of that certificate, a file.", default=None)
    request_seconds_max: float = option(
        "The time limit of a statement.", default=5.0, minimum=0.1, maximum=60
    )


class CassandraSession:
    """A connection to the tables of one keyspace."""

    def __init__(self, config: CassandraStoreConfig, *, create: bool) -> None:
        """Connect; make the keyspace and the tables that are missing, if *create*.

        Raises:
            ConfigError: an option is invalid.
            StoreUnreachableError: no node answers, or the tables or the permissions are missing.
            StateNewerError: a newer headrace made the tables.

        """
        local = config.consistency == "LOCAL_QUORUM"
        self._quorum = ConsistencyLevel.LOCAL_QUORUM if local else ConsistencyLevel.QUORUM
        self._serial = ConsistencyLevel.LOCAL_SERIAL if local else ConsistencyLevel.SERIAL
        self._prepared: dict[str, PreparedStatement] = {}
        self._keyspace = config.keyspace
        self._request_seconds_max = config.request_seconds_max
        self.place = f"{config.keyspace} at {', '.join(config.contact_points)}"
        self._cluster = _cluster(config)
        try:
            self._session: Session = self._cluster.connect()
            _prepare(self._session, config, create=create)
            _agreed(lambda: self._session.set_keyspace(config.keyspace))
            self._check_version(create=create)
        except (*_ERRORS, StoreUnavailableError) as error:
            self._cluster.shutdown()
            raise StoreUnreachableError(
                f"{type(error).__name__}: {_reason(error)}",
                place=self.place,
                hint="give running nodes, and a role that may use the keyspace; "
                "`headrace run` makes it",
            ) from error
        except BaseException:
            self._cluster.shutdown()
            raise

    def close(self) -> None:
        """Close the connections. Safe to call twice."""
        self._cluster.shutdown()

    def rows(self, query: str, *values: object, serial: bool = False) -> list[dict[str, Any]]:
        """Return the rows of a query; *serial* also finishes undecided transactions of others.

        Raises:
            StoreUnavailableError: the query was not answered.

        """
        bound = self._bound(query, values)
        bound.consistency_level = self._serial if serial else self._quorum
        with self.named_errors():
            return list(self._session.execute(bound))

    def results(
        self, query: str, keys: Sequence[Sequence[object]], *, serial: bool = False
    ) -> list[list[dict[str, Any]]]:
        """Return the rows of a query for each of *keys*, several at a time. Raises as `rows`."""
        return self._all([(query, key) for key in keys], serial=serial)

    def rows_of(self, query: str, keys: Sequence[Sequence[object]]) -> list[dict[str, Any]]:
        """Return the rows of a query for all *keys* together. Raises as `rows`."""
        return [row for rows in self.results(query, keys) for row in rows]

    def write(self, statements: Sequence[Statement]) -> None:
        """Execute writes without conditions, several at a time, in no order. Raises as `rows`."""
        self._all(statements)

    def write_batches(self, batches: Sequence[Sequence[Statement]]) -> None:
        """Execute writes without conditions, several batches at a time. Raises as `rows`.

        A batch to one partition is atomic, another one is not.
        """
        with self.named_errors():
            self._at_once([self._whole(batch, BatchType.UNLOGGED) for batch in batches if batch])

    def streams(
        self, query: str, keys: Sequence[Sequence[object]], page_rows: int
    ) -> list[Iterator[dict[str, Any]]]:
        """Return an iterator over the rows of a query for each of *keys*; it may raise as `rows`.

        The first pages are requested at once, later ones when they are needed.
        """
        with self.named_errors():
            futures = []
            for key in keys:
                bound = self._bound(query, key)
                bound.fetch_size = page_rows
                futures.append(self._session.execute_async(bound))
        return [self._stream(future) for future in futures]

    def _stream(self, future: ResponseFuture) -> Iterator[dict[str, Any]]:
        with self.named_errors():
            yield from future.result()

    def make(self, tables: Mapping[str, str]) -> None:
        """Make those of *tables* that are missing. Raises as `rows`."""
        with self.named_errors():
            for table in _missing(self._session, self._keyspace, tables):
                _make_table(self._session, self._keyspace, table, tables[table])

    def write_later(self, statement: str, values: Sequence[object]) -> None:
        """Start a write that nothing depends on; ignore its result."""
        with contextlib.suppress(*_ERRORS):
            self._session.execute_async(self._bound(statement, values)).add_errback(lambda _: None)

    def apply(self, statement: str, *values: object) -> dict[str, Any]:
        """Execute a conditional write; return `[applied]` and, if false, the current row.

        Raises:
            StoreUnavailableError: whether it was applied is not known.

        """
        with self.named_errors():
            return self._outcome(self._session.execute_async(self._bound(statement, values)))

    def apply_all(self, changes: Sequence[Sequence[Statement]]) -> list[bool | None]:
        """Apply changes concurrently; return which were applied. None: unknown.

        Each is one conditional statement, or several to one partition, of which some are
        conditional.
        """
        outcomes: list[bool | None] = []
        for start in range(0, len(changes), CONCURRENT_MAX):
            futures: list[ResponseFuture | None] = []
            for statements in changes[start : start + CONCURRENT_MAX]:
                try:
                    futures.append(self._session.execute_async(self._whole(statements)))
                except _ERRORS:
                    futures.append(None)
            for future in futures:
                try:
                    row = None if future is None else self._outcome(future)
                    outcomes.append(None if row is None else bool(row["[applied]"]))
                except _ERRORS:
                    outcomes.append(None)
        return outcomes

    def _whole(
        self, statements: Sequence[Statement], kind: BatchType = BatchType.LOGGED
    ) -> BoundStatement | BatchStatement:
        if len(statements) == 1:
            return self._bound(*statements[0])
        batch = BatchStatement(
            kind, consistency_level=self._quorum, serial_consistency_level=self._serial
        )
        for statement, values in statements:
            batch.add(self._bound(statement, values))
        return batch

    @contextlib.contextmanager
    def named_errors(self) -> Iterator[None]:
        """Convert the driver's errors to StoreUnavailableError."""
        try:
            yield
        except _ERRORS as error:
            raise StoreUnavailableError(
                f"{type(error).__name__}: {_reason(error)}", place=self.place
            ) from error

    def _all(self, statements: Sequence[Statement], *, serial: bool = False) -> list[Any]:
        with self.named_errors():
            bound = [self._bound(query, values) for query, values in statements]
            for each in bound if serial else ():
                each.consistency_level = self._serial
            return [list(result) if result else [] for result in self._at_once(bound)]

    def _at_once(self, asked: Sequence[BoundStatement | BatchStatement]) -> list[Any]:
        """Execute statements, several at a time; return their results.

        Statements that a full connection did not send are sent later.
        """
        results: dict[int, Any] = {}
        until = time.monotonic() + self._request_seconds_max
        left = list(range(len(asked)))
        while left:
            sent = execute_concurrent(
                self._session,
                [(asked[number], ()) for number in left],
                concurrency=CONCURRENT_MAX,
                raise_on_first_error=False,
                results_generator=True,
            )
            for number, (succeeded, result) in zip(left, sent, strict=True):
                if succeeded:
                    results[number] = result
                elif not _is_busy(result) or time.monotonic() > until:
                    raise result
            left = [number for number in left if number not in results]
            if left:
                threading.Event().wait(BUSY_PAUSE_SECONDS)
        return [results[number] for number in range(len(asked))]

    def _bound(self, statement: str, values: Sequence[object]) -> BoundStatement:
        prepared = self._prepared.get(statement)
        if prepared is None:
            with self.named_errors():
                prepared = self._prepared[statement] = self._session.prepare(statement)
        bound = prepared.bind(values)
        bound.consistency_level = self._quorum
        bound.serial_consistency_level = self._serial
        return bound

    @staticmethod
    def _outcome(future: ResponseFuture) -> dict[str, Any]:
        row: dict[str, Any] = future.result().one()
        return row

    def _check_version(self, *, create: bool) -> None:
        version = self._version(create=create)
        if version != VERSION:
            raise StateNewerError(
                f"has version {version}, this headrace knows {VERSION}",
                place=self.place,
                hint="run the newer headrace, or give another keyspace",
            )

    def _version(self, *, create: bool) -> int:
        """Return the version of the tables; write it if it is missing and *create*.

        Processes that start at the same time contend for it, also through nodes that do not have
        the tables yet: so some get no response, and read it again.
        """
        pause = threading.Event()
        for left in reversed(range(SCHEMA_TRIES if create else 1)):
            try:
                rows = self.rows(_READ_VERSION, SERVICE, serial=True)
                if rows:
                    return int(rows[0]["config"]["version"])
                if create:
                    self.apply(_PUT_VERSION, SERVICE, {"version": str(VERSION)})
            except StoreUnavailableError:
                if not left:
                    raise
                pause.wait(SCHEMA_PAUSE_SECONDS)
        return 0


def _cluster(config: CassandraStoreConfig) -> Cluster:
    endpoints = [_endpoint(point) for point in config.contact_points]
    if not endpoints or len({port for _, port in endpoints}) > 1:
        problem = Problem("contact_points", "expected hosts with one port for all")
        raise ConfigError([problem])
    if config.datacenter is None:
        balancing = RoundRobinPolicy()
    else:
        balancing = DCAwareRoundRobinPolicy(config.datacenter)
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(balancing),
        request_timeout=config.request_seconds_max,
        row_factory=dict_factory,
    )
    login = None
    if config.username is not None:
        login = PlainTextAuthProvider(config.username, config.password or "")
    return Cluster(
        [host for host, _ in endpoints],
        port=endpoints[0][1],
        protocol_version=_PROTOCOL_VERSION,
        auth_provider=login,
        ssl_context=_tls(config),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=CONNECT_SECONDS_MAX,
        control_connection_timeout=CONNECT_SECONDS_MAX,
        reconnection_policy=ExponentialReconnectionPolicy(*RECONNECT_SECONDS),
        schema_metadata_enabled=False,
        max_schema_agreement_wait=SCHEMA_SECONDS_MAX,
    )


def _tls(config: CassandraStoreConfig) -> ssl.SSLContext | None:
    if config.ssl_ca is None:
        if config.ssl_certificate is not None:
            raise ConfigError([Problem("ssl_ca", "is required with ssl_certificate")])
        return None
    try:
        context = ssl.create_default_context(cafile=config.ssl_ca)
        context.check_hostname = False  # Certificates of nodes seldom contain addresses.
        if config.ssl_certificate is not None:
            context.load_cert_chain(config.ssl_certificate, config.ssl_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError([Problem("ssl_ca", f"cannot be used: {error}")]) from error
    return context


def _endpoint(point: str) -> tuple[str, int]:
    host, _, port = point.rpartition(":")
    return (host, int(port)) if host and port.isdigit() else (point, _PORT)


def _prepare(session: Session, config: CassandraStoreConfig, *, create: bool) -> None:
    """Make the missing tables. Processes that start at the same time should find them made."""
    missing = _missing(session, config.keyspace, TABLES)
    if not missing:
        return
    if not create:
        raise InvalidRequest(f"there is no table {missing[0]} in keyspace {config.keyspace}")
    name = quoted_name(config.keyspace)
    copies = config.replication_factor
    _change(
        session,
        f"CREATE KEYSPACE IF NOT EXISTS {name} WITH replication = "
        f"{{'class': 'NetworkTopologyStrategy', 'replication_factor': {copies}}}",
    )
    for table in missing:
        _make_table(session, config.keyspace, table, TABLES[table])


def _missing(session: Session, keyspace: str, tables: Iterable[str]) -> list[str]:
    query = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s"
    found = {row["table_name"] for row in session.execute(query, [keyspace])}
    return [name for name in tables if name not in found]


def _make_table(session: Session, keyspace: str, table: str, content: str) -> None:
    """Make a table, perhaps while others make it through other nodes.

    Each node without the table gives it an id, and only one id can stay. So the id is derived from
    the name, like those of Cassandra's own shared tables.
    """
    name = quoted_name(keyspace)
    of = uuid.uuid5(_IDS, f"{keyspace}.{table}")
    joined = "AND" if " WITH " in content else "WITH"
    _change(session, f"CREATE TABLE IF NOT EXISTS {name}.{table} ({content} {joined} ID = {of}")


def _change(session: Session, statement: str) -> None:
    """Change the schema. All nodes must agree on it, so this takes longer than other statements."""
    _agreed(lambda: session.execute(statement, timeout=SCHEMA_SECONDS_MAX))


def _agreed(call: Callable[[], object]) -> None:
    """Call *call*; retry while a node does not have the tables that another node made."""
    pause = threading.Event()
    for left in reversed(range(SCHEMA_TRIES)):
        try:
            call()
        except InvalidRequest as error:
            if not left or "exist" not in str(error):
                raise
            pause.wait(SCHEMA_PAUSE_SECONDS)
        else:
            return


def _is_busy(error: Exception) -> bool:
    """Return whether the request was not sent to any node because of the network."""
    if not isinstance(error, NoHostAvailable) or not isinstance(error.errors, Mapping):
        return False
    return {type(each) for each in error.errors.values()} == {ConnectionBusy}


def _reason(error: Exception) -> str:
    if not isinstance(error, NoHostAvailable):
        return str(error)
    if not isinstance(error.errors, Mapping):  # The driver lists only nodes it did not ask.
        return "none of the nodes is in the data centre"
    reasons = {f"{type(each).__name__}: {each}" for each in error.errors.values()}
    return "; ".join(sorted(reasons)) or "no node answers"

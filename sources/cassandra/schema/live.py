"""The tables of a live cluster: `system_schema`, read once through cassandra-driver.

Also reads rows of its tables as the bytes that a node sends, which equal those in a log.

Blocking network I/O, bounded by the driver's connect and request time-outs.
"""

import re
import ssl
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from cassandra import DriverException, OperationTimedOut
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    Session,
)
from cassandra.policies import WhiteListRoundRobinPolicy
from cassandra.protocol import ResultMessage, _ProtocolHandler, read_int, read_short, read_string

from headrace.plugins import ConfigError, MissingRequirementError, Problem
from headrace.plugins.cql_text import TokenKind, quote_name, tokens
from headrace.sources.cassandra.schema.contact import Contact, NodeSettings
from headrace.sources.cassandra.schema.system_schema_rows import TableRows, Values, keyspace_of
from headrace.sources.cassandra.schema.tables import SYSTEM_KEYSPACES, Schema

CONNECT_SECONDS_MAX: Final = 10
_PORT: Final = 9042
_PROTOCOL_VERSION: Final = 4  # Supported by every version from 4.0 on.
_SETTING: Final = "SELECT value FROM system_views.settings WHERE name = %s"
_REPAIR: Final = "cdc_on_repair_enabled"
# The name of the limit in 4.1 and in 4.0, with the unit that the value does not contain.
_SPACES: Final = {"cdc_total_space": "", "cdc_total_space_in_mb": "MiB"}
_SIZE: Final = re.compile(r"(\d+)(B|KiB|MiB|GiB)")
_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_US_PER_MS: Final = 1000
_MODES: Final = ("transactional_mode", "transactional_migration_from")
_FIRST_WITH_TIMES: Final = 5  # The first release that reports times of elements.
_RELEASES: Final = (
    "SELECT release_version FROM system.local",
    "SELECT release_version FROM system.peers",
)
_SINCE_60: Final = "fast_path"  # A column of `tables` since Accord.
# A system table has columns dropped at the end of time: the driver cannot read this as a date.
_DROPPED: Final = (
    "keyspace_name, table_name, column_name, kind, type, toUnixTimestamp(dropped_time) AS ms"
)


class ClusterUnreachableError(MissingRequirementError):
    """None of the contact points answers."""

    code = "cluster_unreachable"


def read_live_schema(contact: Contact) -> Schema:
    """Return the tables of all keyspaces except Cassandra's own.

    Raises:
        ClusterUnreachableError: no contact point answers or accepts the login, or a query fails.
        ConfigError: the certificates cannot be used.

    """
    with connected(contact) as session:
        return _Reading(session).schema()


def read_live(contact: Contact) -> tuple[Schema, NodeSettings]:
    """Return the tables, and the settings of a contact point. Raises as `read_live_schema`."""
    with connected(contact) as session:
        return _Reading(session).schema(), _settings(session)


def connected_cluster(contact: Contact) -> Cluster:
    """Return a connected cluster, whose metadata follows the ring; the caller shuts it down.

    Raises as `read_live_schema`.
    """
    cluster = _cluster(contact, follows_ring=True)
    try:
        with _named_errors(contact):
            cluster.connect()
    except BaseException:
        cluster.shutdown()
        raise
    return cluster


def _settings(session: Session) -> NodeSettings:
    found = {
        name: row.value
        for name in (_REPAIR, *_SPACES)
        if (row := session.execute(_SETTING, (name,)).one()) is not None
    }
    strings = (found[name] + unit for name, unit in _SPACES.items() if found.get(name))
    sizes = [matched for text in strings if (matched := _SIZE.fullmatch(text))]
    size = int(sizes[0][1]) * _UNITS[sizes[0][2]] if sizes else None
    return NodeSettings(found.get(_REPAIR) == "true", size)


@contextmanager
def connected(contact: Contact, *, seconds: float = CONNECT_SECONDS_MAX) -> Iterator[Session]:
    """Yield a session with the contact points; each has *seconds* to answer.

    Raises:
        ClusterUnreachableError: no contact point answers or accepts the login, or a query in the
            block fails.
        ConfigError: the certificates cannot be used.

    """
    cluster = _cluster(contact, follows_ring=False, seconds=seconds)
    try:
        with _named_errors(contact):
            yield cluster.connect()
    finally:
        cluster.shutdown()


def _cluster(
    contact: Contact, *, follows_ring: bool, seconds: float = CONNECT_SECONDS_MAX
) -> Cluster:
    endpoints = [_endpoint(point) for point in contact.points]
    hosts = [host for host, _ in endpoints]
    profile = ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy(hosts))
    return Cluster(
        hosts,
        port=endpoints[0][1],
        protocol_version=_PROTOCOL_VERSION,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=seconds,
        control_connection_timeout=seconds,
        schema_metadata_enabled=False,
        token_metadata_enabled=follows_ring,
        ssl_context=_tls(contact.ca) if contact.ca else None,
        auth_provider=_login(contact) if contact.username else None,
    )


@contextmanager
def _named_errors(contact: Contact) -> Iterator[None]:
    try:
        yield
    except (NoHostAvailable, OperationTimedOut, DriverException) as error:
        raise ClusterUnreachableError(
            f"{type(error).__name__}: {error}",
            place=f"contact_points {', '.join(contact.points)}",
            hint="give host:port of the native transport of a running node",
        ) from error


def _login(contact: Contact) -> PlainTextAuthProvider:
    return PlainTextAuthProvider(contact.username, contact.password)


def _tls(authority: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError([Problem("tls_ca", f"cannot be used: {reason}")]) from error
    context.check_hostname = False  # Nodes are named by address.
    return context


def _endpoint(point: str) -> tuple[str, int]:
    host, _, port = point.rpartition(":")
    return (host, int(port)) if host and port.isdigit() else (point, _PORT)


class _Reading(msgspec.Struct):
    """One pass over `system_schema`."""

    session: Session

    def schema(self) -> Schema:
        keyspaces = {row["keyspace_name"]: row for row in self._rows("keyspaces")}
        own = keyspaces.keys() - SYSTEM_KEYSPACES
        tables = (rows.table() for rows in self._tables() if rows.keyspace in own)
        return Schema(
            {name: keyspace_of(name, keyspaces[name]) for name in own},
            {table.table_id: table for table in tables},
        )

    def _tables(self) -> Iterator[TableRows]:
        """Yield all tables and views."""
        types: dict[str, dict[str, Values]] = defaultdict(dict)
        for row in self._rows("types"):
            types[row["keyspace_name"]][row["type_name"]] = row
        columns = self._grouped("columns")
        dropped = self._grouped("dropped_columns", _DROPPED)
        for kind, name in (("tables", "table_name"), ("views", "view_name")):
            for row in self._rows(kind):
                key = row["keyspace_name"], row[name]
                own = row if kind == "views" else self._with_modes(*key, row)
                yield TableRows(
                    *key, own, columns[key], dropped[key], types[key[0]], kind == "views"
                )

    def _with_modes(self, keyspace: str, name: str, row: Values) -> Values:
        """Add to a table's row the options that 6.0 shows only in DESCRIBE: those of Accord."""
        if not row.get("cdc") or _SINCE_60 not in row or _MODES[0] in row:
            return row
        query = f"DESCRIBE TABLE {quote_name(keyspace)}.{quote_name(name)}"
        found = self.session.execute(query).one()
        text = "" if found is None else found.create_statement
        words = list(tokens(text))
        modes = {
            option.folded: value.value.lower()
            for option, sign, value in zip(words, words[1:], words[2:], strict=False)
            if option.kind is TokenKind.WORD and option.folded in _MODES and sign.keyword == "="
        }
        return {**row, **modes}

    def _rows(self, table: str, columns: str = "*") -> Sequence[Values]:
        query = f"SELECT {columns} FROM system_schema.{table}"  # noqa: S608 (constants)
        return [row._asdict() for row in self.session.execute(query)]

    def _grouped(self, table: str, columns: str = "*") -> dict[tuple[str, str], dict[str, Values]]:
        groups: dict[tuple[str, str], dict[str, Values]] = defaultdict(dict)
        for row in self._rows(table, columns):
            described = {**row, "dropped_time": row["ms"] * _US_PER_MS} if "ms" in row else row
            groups[row["keyspace_name"], row["table_name"]][row["column_name"]] = described
        return groups


_CUSTOM: Final = 0x00  # Types of the native protocol that contain types, or a name.
_USER_TYPE: Final = 0x30
_TUPLE: Final = 0x31
_TYPES_INSIDE: Final = {0x20: 1, 0x21: 2, 0x22: 1}  # A list, a map, a set.


class RawResult(ResultMessage):  # type: ignore[misc]  # The driver has no types.
    """Rows as the bytes that the node sent, which equal those in a log."""

    @classmethod
    def read_type(cls, f: Any, user_type_map: Any) -> None:  # noqa: ANN401 (the driver's)
        """Skip a type: raw values need none, and the driver does not know all types of a vector."""
        kind, inside = read_short(f), 0
        if kind == _CUSTOM:
            read_string(f)
        elif kind == _USER_TYPE:
            read_string(f)
            read_string(f)
            for _ in range(read_short(f)):
                read_string(f)
                cls.read_type(f, user_type_map)
        elif kind == _TUPLE:
            inside = read_short(f)
        else:
            inside = _TYPES_INSIDE.get(kind, 0)
        for _ in range(inside):
            cls.read_type(f, user_type_map)

    def recv_results_rows(self, f: Any, *arguments: Any) -> None:  # noqa: ANN401 (the driver's)
        """Read the rows of a response."""
        _, user_types, metadata, *_ = arguments
        self.recv_results_metadata(f, user_types)
        columns = self.column_metadata or metadata
        self.column_names = [column[2] for column in columns]
        self.column_types = [column[3] for column in columns]
        self.parsed_rows = [tuple(self.recv_row(f, len(columns))) for _ in range(read_int(f))]


class RawProtocol(_ProtocolHandler):  # type: ignore[misc]  # The driver has no types.
    """The native protocol, with raw rows in responses."""

    message_types_by_opcode = _ProtocolHandler.message_types_by_opcode | {
        ResultMessage.opcode: RawResult
    }


def tells_times(session: Session) -> bool:
    """Return whether every node reports write times and TTLs of elements of collections."""
    reported = [row.release_version for each in _RELEASES for row in session.execute(each)]
    releases = [int(str(each).partition(".")[0]) for each in reported if each]  # None if joining.
    return min(releases) >= _FIRST_WITH_TIMES

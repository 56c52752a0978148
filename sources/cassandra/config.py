"""The options of the Cassandra source."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.plugins import ConfigError, Problem, RealtimeOptions, TableWarning, option
from headrace.plugins.config.options import shown
from headrace.plugins.errors import meant
from headrace.sources.cassandra.agent.protocol import AgentAccess
from headrace.sources.cassandra.encode.list_modes import CELLS, READ
from headrace.sources.cassandra.keystore.keys import KeyOptions
from headrace.sources.cassandra.retention.disposal import Disposal
from headrace.sources.cassandra.retention.hold import HoldOptions
from headrace.sources.cassandra.ring.splits import SPLITS_MAX
from headrace.sources.cassandra.ring.topology import LEVELS
from headrace.sources.cassandra.ring.topology_file import node_problems
from headrace.sources.cassandra.schema.contact import Contact
from headrace.sources.cassandra.schema.tables import SYSTEM_KEYSPACES, Schema, TableSchema
from headrace.sources.cassandra.schema.unlogged import Announcer, unlogged
from headrace.sources.cassandra.state.gaps import FAIL, POLICIES
from headrace.sources.cassandra.state.unavailable_logs import (
    GAP,
    PUBLISH,
    RETURNS,
    LogUnavailablePolicy,
)

LIVE: Final = "live"
WAIT: Final = "wait"
KEEP: Final = "keep"
_MS: Final = 1_000  # In a second.
_NODE_STRINGS = ("path", "commitlog", "hold", "host", "url")  # In addition to those in a ring.
_CDC_HINT: Final = "ALTER TABLE … WITH cdc = true, then give the job the new schema"


@dataclass(frozen=True, kw_only=True)
class CassandraConfig(KeyOptions, HoldOptions, RealtimeOptions):
    """Options of the Cassandra source."""

    nodes: Mapping[str, object] = option(
        "Each replica by name: its cdc_raw directory, or {path: …, tokens: […], dc: …, "
        "rack: …, commitlog: …, hold: …, host: …}; for a node elsewhere its agent: {url: "
        "https://host:9142, …}.",
        reads=True,
    )
    schema: str | None = option(
        "A schema.cql with table ids (DESCRIBE SCHEMA WITH INTERNALS).", default=None, reads=True
    )
    contact_points: tuple[str, ...] = option(
        "host:port of live nodes; their schema takes precedence over the file's.",
        default=(),
    )
    username: str | None = option("The role that asks the contact points.", default=None)
    password: str | None = option("The password of that role.", default=None, secret=True)
    tls_ca: str | None = option(
        "Certificates that the contact points' must be signed by, in PEM; turns TLS on.",
        default=None,
    )
    agent_token: str | None = option("The token of the agents.", default=None, secret=True)
    agent_ca: str | None = option(
        "Certificates that the agents' must be signed by, in PEM; default: the machine's.",
        default=None,
    )
    agent_certificate: str | None = option(
        "The client certificate for the agents, in PEM.", default=None
    )
    agent_key: str | None = option("Its key, in PEM.", default=None)
    consistency: str = option("How many copies must agree.", default="QUORUM", choices=LEVELS)
    datacenter: str | None = option(
        "The data centre of LOCAL_ONE and LOCAL_QUORUM; default: the only one.", default=None
    )
    topology: str | None = option(
        "live, which asks the contact points, or a YAML file of the ring: {node: {tokens: […], "
        "dc: …, rack: …, joining: true}, …}; both are followed while they change.",
        default=None,
    )
    max_hint_window_seconds: int = option(
        "The nodes' max_hint_window: how long mutations are also checked against an older ring.",
        default=3 * 3600,
        minimum=0,
    )
    tables: tuple[str, ...] = option("ks.table, …; default: all with cdc = true.", default=())
    tables_missing: str = option(
        "What to do when one of `tables` is missing or has no CDC: fail, or wait for it "
        "and deliver the others.",
        default=FAIL,
        choices=(FAIL, WAIT),
    )
    disposal: object = option(
        "What becomes of finished segments: keep, delete or {archive: DIR}.", default=KEEP
    )
    gaps: str = option(
        "What to do when part of a log is lost before it was read, or damaged and perhaps in no "
        "other log: fail, expire (continue), or assume (continue, and count the copies that it "
        "could have had).",
        default=FAIL,
        choices=POLICIES,
    )
    absent_after_seconds: int | None = option(
        "How long to wait for a log that cannot be read before split time continues "
        "without it; default: max_hint_window_seconds.",
        default=None,
        minimum=1,
    )
    absent: tuple[str, ...] = option(
        "Nodes whose logs are not waited for while they cannot be read.", default=()
    )
    returned: str = option(
        "What becomes of the part of a log that was away for longer than dedup_window_seconds: "
        "gap, or publish, also what was published before.",
        default=GAP,
        choices=RETURNS,
    )
    lists: str = option(
        "What a change has of lists that are not frozen: cells, what the log has, or "
        "read, the whole list, as a query at the contact points finds it.",
        default=CELLS,
        choices=(CELLS, READ),
    )
    lists_consistency: str | None = option(
        "The level of those queries; default: that of consistency.", default=None, choices=LEVELS
    )
    lists_concurrency: int = option(
        "Queries for lists at a time.", default=32, minimum=1, maximum=1_024
    )
    lists_seconds_max: float = option(
        "How long one of them may take.", default=10.0, minimum=0.1, maximum=600
    )
    lists_unread: str = option(
        "What becomes of changes whose lists cannot be read: fail, which retries and then"
        " stops the split, or cells, which publishes what the log has.",
        default="fail",
        choices=("fail", CELLS),
    )
    splits: int | None = option(
        "The number of parts of the ring; default: by its nodes and the workers.",
        default=None,
        minimum=1,
        maximum=SPLITS_MAX,
    )
    segments_per_batch_max: int = option(
        "Segments of one log started in a pass.", default=16, minimum=1
    )
    expiry_seconds: int = option(
        "Split time after which a mutation without enough copies expires.",
        default=4 * 3600,
        minimum=1,
    )
    expired: str = option(
        "What becomes of an expired mutation: drop, or publish with the copies it has.",
        default="drop",
        choices=("drop", "publish"),
    )
    streamed: str | None = option(
        "What becomes of mutations that may come from a stream (repair, bootstrap) and are not "
        "known: publish, or suppress.",
        default=None,
        choices=("publish", "suppress"),
    )
    dedup_window_seconds: int = option(
        "How long incomplete records are kept; at least max_hint_window and an hour.",
        default=4 * 3600,
        minimum=1,
    )
    complete_seconds: int = option(
        "How long records seen on all replicas are kept.", default=600, minimum=0
    )
    records_max: int = option(
        "Records kept over all splits of the job; without `splits`, by eight of them.",
        default=200_000,
        minimum=1_000,
    )

    @property
    def names(self) -> Mapping[str, str]:
        """The names of the nodes, by their address or id in a live ring."""
        return {_host(name, node): name for name, node in self.nodes.items()}

    @property
    def agent_access(self) -> AgentAccess:
        """The credentials for the agents."""
        return AgentAccess(self.agent_token, self.agent_ca, self.agent_certificate, self.agent_key)

    @property
    def disposal_of(self) -> Disposal:
        """The disposal of finished segments."""
        if isinstance(self.disposal, Mapping):
            return self.disposing(Path(str(self.disposal["archive"])))
        return Disposal() if self.disposal == KEEP else self.disposing()

    @property
    def contact(self) -> Contact:
        """Which nodes are queried, and with which role."""
        return Contact(self.contact_points, self.username, self.password, self.tls_ca)

    @property
    def unavailable_policy(self) -> LogUnavailablePolicy:
        """How long the source waits for logs that cannot be read."""
        after_s = self.absent_after_seconds
        after_s = self.max_hint_window_seconds if after_s is None else after_s
        memory_ms, publishes = self.dedup_window_seconds * _MS, self.returned == PUBLISH
        return LogUnavailablePolicy(after_s * _MS, memory_ms, self.absent, publishes=publishes)

    def __post_init__(self) -> None:
        """Check the options beyond their single types."""
        problems = self.key_problems()
        if not self.nodes:
            problems.append(Problem("nodes", "is empty", "name each replica and its cdc_raw"))
        for name, node in self.nodes.items():
            problems += _node_problems(f"nodes.{name}", node)
        problems += _token_problems(self.nodes)
        problems += _host_problems(self.nodes)
        unknown = [name for name in self.absent if name not in self.nodes]
        problems += [Problem("absent", f"{name} is not under nodes") for name in unknown]
        if self.schema is None and not self.contact_points:
            hint = "give one of them, or both"
            problems.append(Problem("schema", "neither schema nor contact_points is given", hint))
        if self.topology == LIVE and not self.contact_points:
            hint = "give host:port of live nodes"
            problems.append(Problem("contact_points", "is required for topology: live", hint))
        if self.lists == READ and not self.contact_points:
            hint = "give host:port of live nodes, or lists: cells"
            problems.append(Problem("contact_points", "is required for lists: read", hint))
        if (self.username is None) is not (self.password is None):
            problems.append(Problem("password", "belongs to username: give both"))
        if not _is_disposal(self.disposal):
            expected = f"expected keep, delete or {{archive: DIR}}, found {shown(self.disposal)}"
            problems.append(Problem("disposal", expected))
        if self.expiry_seconds < self.dedup_window_seconds:
            hint = "a late copy would count for a mutation already forgotten"
            problems.append(Problem("expiry_seconds", "is less than dedup_window_seconds", hint))
        if problems:
            raise ConfigError(problems)


def _node_problems(key: str, node: object) -> Iterator[Problem]:
    if isinstance(node, str) and node:
        return
    if not isinstance(node, Mapping):
        yield Problem(key, f"expected a path, found {shown(node)}", "node1: path/to/cdc_raw")
        return
    if ("path" in node) is ("url" in node):
        yield Problem(key, "expected a path or a url", "{path: path/to/cdc_raw}")
    url = str(node.get("url", "https://"))
    if not url.startswith(("https://", "http://127.", "http://localhost:", "http://[::1]:")):
        yield Problem(f"{key}.url", f"expected https, found {shown(url)}", "https://host:9142")
    for name in _NODE_STRINGS:
        text = node.get(name, "default")
        if not isinstance(text, str) or not text:
            yield Problem(f"{key}.{name}", f"expected a text, found {shown(text)}")
    yield from node_problems(key, node, _NODE_STRINGS)


def _token_problems(nodes: Mapping[str, object]) -> Iterator[Problem]:
    owners: dict[object, str] = {}
    for name, node in nodes.items():
        tokens = node.get("tokens") if isinstance(node, Mapping) else None
        for token in tokens if isinstance(tokens, Sequence) else ():
            if owners.setdefault(token, name) != name:
                yield Problem(f"nodes.{name}.tokens", f"{token} is {owners[token]}'s already")


def _host_problems(nodes: Mapping[str, object]) -> Iterator[Problem]:
    owners: dict[str, str] = {}
    for name, node in nodes.items():
        host = _host(name, node)
        if owners.setdefault(host, name) != name:  # One copy would count as two.
            yield Problem(f"nodes.{name}.host", f"{host} is {owners[host]} already")


def _host(name: str, node: object) -> str:
    """Return the identity of a node in a live ring: an address or host id."""
    return str(node.get("host", name)) if isinstance(node, Mapping) else name


def _is_disposal(given: object) -> bool:
    if isinstance(given, Mapping):
        return set(given) == {"archive"} and isinstance(given["archive"], str)
    return given in {KEEP, "delete"}


def tables_with_cdc(schema: Schema, announcer: Announcer) -> Sequence[TableSchema]:
    """Return all tables with CDC, including dropped ones: logs can still have their changes.

    A table whose keyspace was dropped too is skipped: the number of its copies is unknown. So is a
    table without deliverable writes in any log; *announcer* reports it.

    Raises:
        ConfigError: there are no tables with CDC.

    """
    found = [
        table
        for table in schema.tables.values()
        if table.cdc
        and table.keyspace not in SYSTEM_KEYSPACES
        and not (table.is_dropped and table.keyspace not in schema.keyspaces)
    ]
    if not found:
        raise ConfigError([Problem("tables", "no table of the schema has CDC", _CDC_HINT)])
    problems = {table.table_id: problem for table in found if (problem := _flaw(schema, table))}
    if len(problems) == len(found):
        raise ConfigError(problems.values())
    for table in found:
        announcer.tell(table, schema.keyspaces.get(table.keyspace))
    return [table for table in found if table.table_id not in problems]


def tables_named(
    schema: Schema, names: Collection[str], announcer: Announcer, *, waits: bool
) -> tuple[Sequence[TableSchema], Mapping[str, Problem]]:
    """Return the tables in *names* that can be delivered, and the problems of the others.

    Raises:
        ConfigError: one has a problem or, if the job *waits* for tables, all have one.

    """
    named = {name: schema.table(name) for name in names}
    missing_tables = {
        n: problem for n, table in named.items() if (problem := _problem(schema, n, table))
    }
    if missing_tables and not (waits and len(missing_tables) < len(named)):
        raise ConfigError(missing_tables.values())
    found = [t for name, t in named.items() if t is not None and name not in missing_tables]
    for table in found:
        announcer.tell(table, schema.keyspaces.get(table.keyspace))
    return found, missing_tables


def warnings_of(schema: Schema, names: Collection[str]) -> Sequence[TableWarning]:
    """Return a warning for each table in *names* of which not all changes are delivered."""
    warnings = []
    for name in names:
        table = schema.table(name)
        if table is not None and (lost := unlogged(table, schema.keyspaces.get(table.keyspace))):
            warnings.append(lost.warning(table.qualified))
        elif problem := _problem(schema, name, table):
            warnings.append(TableWarning("table_missing", problem.message, problem.hint))
    return warnings


def _problem(schema: Schema, name: str, table: TableSchema | None) -> Problem | None:
    if table is None:
        known = [each.qualified for each in schema.tables.values()]
        hint = meant(name, known, "give keyspace.table as the schema has it")
        return Problem("tables", f"{name} is not in the schema", hint)
    return _flaw(schema, table) or (
        None if table.cdc else Problem("tables", f"{name} has no CDC", _CDC_HINT)
    )


def _flaw(schema: Schema, table: TableSchema) -> Problem | None:
    """Return why a table cannot be delivered at all."""
    found = unlogged(table, schema.keyspaces.get(table.keyspace))
    if found is None or found.part:
        return None
    return found.problem(table.qualified)

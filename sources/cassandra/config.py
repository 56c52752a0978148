"""The options of the Cassandra source."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.plugins import ConfigError, Problem, option
from headrace.plugins.config import shown
from headrace.sources.cassandra.absence import GAP, PUBLISH, RETURNS, Patience
from headrace.sources.cassandra.agent_protocol import AgentAccess
from headrace.sources.cassandra.contact import Contact
from headrace.sources.cassandra.gaps import FAIL, POLICIES
from headrace.sources.cassandra.hold_options import HoldOptions
from headrace.sources.cassandra.keeper import Disposal
from headrace.sources.cassandra.keys import KeyOptions
from headrace.sources.cassandra.splits import SPLITS_MAX
from headrace.sources.cassandra.topology import LEVELS
from headrace.sources.cassandra.topology_file import node_problems

LIVE: Final = "live"
CELLS, READ = "cells", "read"
WAIT: Final = "wait"
_MS: Final = 1_000  # In a second.
_NODE_TEXTS = ("path", "commitlog", "hold", "host", "url")  # Besides what a ring says of a node.


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraConfig(HoldOptions):
    """Options of the Cassandra source."""

    nodes: Mapping[str, object] = option(
        "Each replica by name: its cdc_raw directory, or {path: …, tokens: […], dc: …, rack: …, "
        "commitlog: …, hold: …, host: …}; of a node elsewhere its agent: "
        "{url: https://host:9142, …}."
    )
    schema: str | None = option(
        "A schema.cql with table ids (DESCRIBE SCHEMA WITH INTERNALS).", default=None
    )
    contact_points: tuple[str, ...] = option(
        "host:port of live nodes; their schema wins over the file for tables both have.",
        default=(),
    )
    username: str | None = option("Who asks the contact points.", default=None)
    password: str | None = option("Who asks proves it with that.", default=None, secret=True)
    tls_ca: str | None = option(
        "Whose certificates the contact points may have, in PEM: they are asked by TLS.",
        default=None,
    )
    agent_token: str | None = option("What the agents ask for.", default=None, secret=True)
    agent_ca: str | None = option(
        "Whose certificates the agents may have, in PEM; default: the machine's.", default=None
    )
    agent_certificate: str | None = option(
        "The certificate to come to the agents with, in PEM.", default=None
    )
    agent_key: str | None = option("Its key, in PEM.", default=None)
    consistency: str = option("How many copies must agree.", default="QUORUM", choices=LEVELS)
    datacenter: str | None = option(
        "Which data centre LOCAL_ONE and LOCAL_QUORUM mean; default: the only one.", default=None
    )
    topology: str | None = option(
        "live, which asks the contact points, or a YAML file of the ring: {node: {tokens: […], "
        "dc: …, rack: …, joining: true}, …}; both are followed while they change.",
        default=None,
    )
    max_hint_window_seconds: int = option(
        "The nodes' max_hint_window: how long mutations are also judged by an older ring.",
        default=3 * 3600,
        minimum=0,
    )
    tables: tuple[str, ...] = option("ks.table, …; default: all with cdc = true.", default=())
    tables_missing: str = option(
        "What is done when one of `tables` is not there or has no CDC: fail, or wait for it and "
        "deliver the others.",
        default=FAIL,
        choices=(FAIL, WAIT),
    )
    disposal: object = option(
        "What becomes of finished segments: keep, delete or {archive: DIR}.", default="keep"
    )
    gaps: str = option(
        "What is done when part of a log is lost before it was read: fail, expire (go on), or "
        "assume (go on, and count the copies that it could have held).",
        default=FAIL,
        choices=POLICIES,
    )
    absent_after_seconds: int | None = option(
        "How long a log that cannot be read is waited for before split time goes on without it; "
        "default: max_hint_window_seconds.",
        default=None,
        minimum=1,
    )
    absent: tuple[str, ...] = option(
        "Nodes whose logs are not waited for while they cannot be read.", default=()
    )
    returned: str = option(
        "What becomes of the part of a log that was away for longer than memory_seconds: gap, or "
        "publish, also what was published before.",
        default=GAP,
        choices=RETURNS,
    )
    lists: str = option(
        "What a change says of lists that are not frozen: cells, what the log has of them, or "
        "read, all of the list, as a query at the contact points finds it.",
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
        "What becomes of changes whose lists cannot be read: fail, which tries again and then "
        "stops the split, or cells, which publishes what the log has.",
        default="fail",
        choices=("fail", CELLS),
    )
    splits: int | None = option(
        "How many parts the ring is cut into; default: as suits its nodes and the workers.",
        default=None,
        minimum=1,
        maximum=SPLITS_MAX,
    )
    segments_per_batch_max: int = option(
        "Segments of one log begun in a micro-batch.", default=16, minimum=1
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
    memory_seconds: int = option(
        "How long incomplete records are remembered; at least max_hint_window and an hour.",
        default=4 * 3600,
        minimum=1,
    )
    complete_seconds: int = option(
        "How long records seen on all replicas are remembered.", default=600, minimum=0
    )
    records_max: int = option(
        "Records remembered over all splits of the job; where `splits` is left open, by eight of "
        "them.",
        default=200_000,
        minimum=1_000,
    )
    keystore: str | None = option(
        "A copy of the nodes' key store (JCEKS or PKCS12), for encrypted segments.", default=None
    )
    keystore_password: str | None = option("Opens the key store.", default=None, secret=True)
    key_password: str | None = option(
        "Opens the keys in it; default: keystore_password.", default=None, secret=True
    )
    raw_key: str | None = option(
        "Instead of a key store: the AES key of all segments, in hexadecimal digits.",
        default=None,
        secret=True,
    )

    @property
    def names(self) -> Mapping[str, str]:
        """The names of the nodes, by what a live ring has for them."""
        return {_host(name, node): name for name, node in self.nodes.items()}

    @property
    def agent_access(self) -> AgentAccess:
        """With what the agents are asked."""
        return AgentAccess(self.agent_token, self.agent_ca, self.agent_certificate, self.agent_key)

    @property
    def disposal_of(self) -> Disposal:
        """What becomes of finished segments."""
        if isinstance(self.disposal, Mapping):
            return self.disposing(Path(str(self.disposal["archive"])))
        return Disposal() if self.disposal == "keep" else self.disposing()

    @property
    def contact(self) -> Contact:
        """Which nodes are asked, and as whom."""
        return Contact(self.contact_points, self.username, self.password, self.tls_ca)

    @property
    def patience(self) -> Patience:
        """How long is waited for logs that cannot be read."""
        after_s = self.absent_after_seconds
        after_s = self.max_hint_window_seconds if after_s is None else after_s
        memory_ms, publishes = self.memory_seconds * _MS, self.returned == PUBLISH
        return Patience(after_s * _MS, memory_ms, self.absent, publishes=publishes)

    @property
    def key_options(self) -> KeyOptions:
        """What is said of keys."""
        return KeyOptions(
            keystore=self.keystore,
            keystore_password=self.keystore_password,
            key_password=self.key_password,
            raw_key=self.raw_key,
        )

    def __post_init__(self) -> None:
        """Check what one option's type cannot say."""
        problems = self.key_options.problems()
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
        if self.expiry_seconds < self.memory_seconds:
            hint = "a late copy would count for a mutation already forgotten"
            problems.append(Problem("expiry_seconds", "is less than memory_seconds", hint))
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
    for name in _NODE_TEXTS:
        text = node.get(name, "default")
        if not isinstance(text, str) or not text:
            yield Problem(f"{key}.{name}", f"expected a text, found {shown(text)}")
    yield from node_problems(key, node, _NODE_TEXTS)


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
        if owners.setdefault(host, name) != name:  # One copy would count for two.
            yield Problem(f"nodes.{name}.host", f"{host} is {owners[host]} already")


def _host(name: str, node: object) -> str:
    """Return what a live ring has for a node: an address or host id."""
    return str(node.get("host", name)) if isinstance(node, Mapping) else name


def _is_disposal(given: object) -> bool:
    if isinstance(given, Mapping):
        return set(given) == {"archive"} and isinstance(given["archive"], str)
    return given in {"keep", "delete"}

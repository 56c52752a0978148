"""Cassandra's users at the HTTP doors: let in by it, and judged by its words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace.connector.commands.worker import authenticator_of
from headrace.connector.control.access.permission import CACHE_SECONDS
from headrace.connector.rest import logins as module
from headrace.connector.rest.auth import Authenticator
from headrace.connector.rest.config import RestConfig
from headrace.connector.rest.logins import CassandraLogins
from headrace.connector.rest.server import RestServer
from headrace.plugins import ConfigError
from headrace.plugins.testing.doubles import DrivenClock, context
from helpers.servers.rest_server import Client, basic, serving

SUPER, WITH, WITHOUT = "cassandra", "alice", "bob"


@dataclass
class Cluster:
    """A toy of a cluster: who is known, and what each may."""

    passwords: dict[str, str] = field(
        default_factory=lambda: {name: f"{name}-pw" for name in (SUPER, WITH, WITHOUT)}
    )
    opened: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)

    def connect(self, name: str, password: str) -> "Connection":
        """Let in who is known."""
        if self.passwords.get(name) != password:
            raise PermissionError(name)
        self.opened.append(name)
        return Connection(self, name)


@dataclass
class Connection:
    """A user's connection to the toy."""

    to: Cluster
    name: str
    cluster: str = "toy"

    def rows(self, text: str, *values: str) -> Sequence[Mapping[str, object]]:
        """Answer what an authority asks."""
        if text.startswith("LIST ROLES"):
            return [{"role": self.name, "super": self.name == SUPER}]
        if text.startswith("LIST SELECT"):
            return [{}] if self.name == WITH and "shop.orders" in text else []
        granted = {"resource": "cluster", "permissions": {"CDC"}}
        return [granted] if values == (WITH,) else []

    def close(self) -> None:
        """Note it."""
        self.to.closed.append(self.name)


@pytest.fixture
def cluster() -> Cluster:
    """Return a cluster with three users."""
    return Cluster()


@pytest.fixture
def client(state: Path, cluster: Cluster) -> Iterator[Client]:
    """Return a client of a server that asks the cluster who may come in."""
    logins = CassandraLogins(cluster.connect)
    authenticator = Authenticator(logins=logins)
    with serving(RestServer(state, log=context().log, authenticator=authenticator)) as address:
        yield Client(address.port)
    assert sorted(cluster.opened) == sorted(cluster.closed)


def login(name: str, password: str = "") -> dict[str, str]:
    """Return the header of a login."""
    return basic(name, password or f"{name}-pw")


def test_who_may(client: Client) -> None:
    """A superuser may all; CDC lets one change, and SELECT take a table; others may look."""

    def asked(user: str, method: str, path: str, document: object = None) -> tuple[int, str]:
        answer = client(method, path, document, **login(user))
        return answer.status, answer.json["message"] if answer.status > 399 else ""

    no_cdc = "Unauthorized: User bob has no CDC permission on <toy> or any of its parents"
    sink = {"name": "b", "uri": "bus://x"}
    config = {"connector.class": "BrookBrookSource", "keyspace": "shop", "sink": "k"}
    orders = {"name": "o", "config": config | {"table": "orders"}}
    hidden = {"name": "h", "config": config | {"table": "hidden"}}
    assert (403, no_cdc) == asked(WITHOUT, "POST", "/api/v1/sinks", sink)
    assert (201, "") == asked(WITH, "POST", "/api/v1/sinks", sink)
    assert (403, no_cdc) == asked(WITHOUT, "POST", "/connectors", orders)
    assert (201, "") == asked(WITH, "POST", "/connectors", orders)
    no_select = "Unauthorized: User alice has no SELECT permission on <table shop.hidden>"
    status, message = asked(WITH, "POST", "/connectors", hidden)
    assert (403, True) == (status, message.startswith(no_select))
    assert (201, "") == asked(SUPER, "POST", "/connectors", hidden)
    assert (403, no_cdc) == asked(WITHOUT, "PUT", "/connectors/o/pause")
    pause = {"statement": "PAUSE DATA_SOURCE brook ON TABLE shop.orders"}
    assert (403, no_cdc) == asked(WITHOUT, "POST", "/api/v1/statements", pause)
    service = {"config": {"topic": "x"}}
    assert (403, no_cdc) == asked(WITHOUT, "PUT", "/api/v1/services/cdc/config", service)
    assert (200, "") == asked(WITHOUT, "GET", "/connectors/o/status")


@pytest.mark.parametrize(
    "headers",
    [{}, login(WITH, "wrong"), login("mallory"), login(""), {"Authorization": "Bearer x"}],
)
def test_nobody(client: Client, headers: dict[str, str]) -> None:
    """Who cannot log in to Cassandra does not get in here."""
    answer = client("GET", "/connectors", None, **headers)

    assert (401, True) == (answer.status, answer.headers["www-authenticate"].startswith("Basic"))


def test_what_is_kept(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A login counts for a minute, its password only; connections are bounded."""
    monkeypatch.setattr(module, "USERS_MAX", 2)
    clock = DrivenClock()
    logins = CassandraLogins(cluster.connect, clock=lambda: clock.monotonic_ms() / 1000)
    assert logins.knows(WITH, "alice-pw")
    assert logins.knows(WITH, "alice-pw")
    assert [WITH] == cluster.opened
    assert not logins.knows(WITH, "wrong")
    clock.advance(round(CACHE_SECONDS * 1000) + 1)
    cluster.passwords[WITH] = "another"
    assert not logins.knows(WITH, "alice-pw")
    assert logins.knows(WITH, "another")
    assert [WITH] == cluster.closed
    assert logins.knows(SUPER, "cassandra-pw")
    assert logins.knows(WITHOUT, "bob-pw")
    assert [WITH, WITH] == cluster.closed
    logins.close()
    assert sorted(cluster.opened) == sorted(cluster.closed)


def test_options(tmp_path: Path) -> None:
    """The option says which node; where no one answers, no one is let in."""
    made = authenticator_of(RestConfig(cassandra="127.0.0.1:1"), tmp_path)
    assert made.logins is not None
    assert not made.open_to_all
    assert not made.logins.knows(WITH, "x")
    with pytest.raises(ConfigError, match="is not host:port"):
        RestConfig(cassandra="nowhere")
    with pytest.raises(ConfigError, match="needs cassandra"):
        RestConfig(cassandra_ca="x.pem")
    with pytest.raises(ConfigError, match="cannot be used"):
        authenticator_of(RestConfig(cassandra="h:1", cassandra_ca="none.pem"), tmp_path)

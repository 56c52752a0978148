"""Bodies are read when the sender is known; those that are slow or long lock no one out."""

import contextlib
import http.client
import json
import selectors
import socket
from collections.abc import Iterator
from pathlib import Path

import argon2
import pytest

from headrace.connector.control.access.permission import Role
from headrace.connector.rest.auth import Authenticator
from headrace.connector.rest.bodies import ARRIVING_OF_ONE_MAX, BODY_BYTES_MAX, SMALL_BYTES_MAX
from headrace.connector.rest.server import REQUESTS_MAX, RestServer
from headrace.connector.rest.users import User
from headrace.plugins.testing.doubles import context
from helpers.servers.rest_server import Client, RestWorker, basic, serving

HASHER = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
MANY = REQUESTS_MAX + 44
VALIDATE = "/connector-plugins/PondSink/config/validate"


@pytest.fixture(scope="module")
def client(shared_state: Path) -> Iterator[Client]:
    """Return a client of a server that asks for a password."""
    users = {
        role.name.lower(): User(HASHER.hash("pw"), role)
        for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
    }
    server = RestServer(shared_state, log=context().log, authenticator=Authenticator(users=users))
    with serving(server) as address:
        yield Client(address.port)


@contextlib.contextmanager
def slow(port: int, count: int, **headers: str) -> Iterator[list[socket.socket]]:
    """Begin *count* requests whose bodies never arrive."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = (
        f"PUT {VALIDATE} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: 60000\r\n{lines}\r\n{{"
    ).encode()
    with contextlib.ExitStack() as stack:
        peers = []
        for _ in range(count):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
            peer.sendall(head)
            peers.append(peer)
        yield peers


def status_of(peer: socket.socket) -> int:
    """Return the status that *peer* is answered with."""
    response = http.client.HTTPResponse(peer)
    response.begin()
    response.read()
    return response.status


def sent_away(peers: list[socket.socket]) -> list[int]:
    """Return the statuses of all but as many as may wait, once all others are answered."""
    selector = selectors.DefaultSelector()
    answered: list[int] = []
    with contextlib.closing(selector):
        for peer in peers:
            selector.register(peer, selectors.EVENT_READ)
        while len(answered) < MANY - ARRIVING_OF_ONE_MAX:
            ready = [key.fileobj for key, _ in selector.select(30)]
            assert ready, f"{len(answered)} were answered"
            for found in ready:
                assert isinstance(found, socket.socket)
                selector.unregister(found)
                answered.append(status_of(found))
    return answered


def test_nobody_occupies_nothing(client: Client) -> None:
    """Who is not logged in is answered before the body is read, however many there are."""
    with slow(client.port, MANY) as peers:
        assert 200 == client("GET", "/health").status
        assert 200 == client("GET", "/connectors", None, **basic("admin", "pw")).status
        assert {401} == {status_of(peer) for peer in peers}


def test_slow_ones_occupy_a_part(client: Client) -> None:
    """One user's slow bodies take neither the places of others nor those of requests without."""
    assert 200 == client("GET", "/connectors", None, **basic("viewer", "pw")).status
    with slow(client.port, MANY, **basic("viewer", "pw")) as peers:
        assert [503] * (MANY - ARRIVING_OF_ONE_MAX) == sent_away(peers)
        assert 200 == client("GET", "/health").status
        assert 200 == client("GET", "/connectors", None, **basic("viewer", "pw")).status
        assert 503 == client("PUT", VALIDATE, {}, **basic("viewer", "pw")).status
        assert 400 == client("PUT", VALIDATE, {}, **basic("operator", "pw")).status


def test_who_goes_away_is_no_error(shared: RestWorker, caplog: pytest.LogCaptureFixture) -> None:
    """A client that leaves before its body has arrived leaves no error in the log."""
    with slow(shared.client.port, 8):
        assert 200 == shared.client("GET", "/health").status
    assert 200 == shared.client("GET", "/health").status

    assert [] == [record.message for record in caplog.records]


def test_slow_ones_without_logins(shared: RestWorker) -> None:
    """The same where no one needs to log in."""
    with slow(shared.client.port, MANY) as peers:
        assert [503] * (MANY - ARRIVING_OF_ONE_MAX) == sent_away(peers)
        assert 200 == shared.client("GET", "/health").status
        assert 200 == shared.client("GET", "/connectors").status


@pytest.mark.parametrize(
    ("user", "size", "status"),
    [
        ("viewer", SMALL_BYTES_MAX, 400),
        ("viewer", SMALL_BYTES_MAX + 1, 413),
        ("operator", SMALL_BYTES_MAX + 1, 413),
        ("admin", SMALL_BYTES_MAX + 1, 400),
        ("admin", BODY_BYTES_MAX, 400),
        ("admin", BODY_BYTES_MAX + 1, 413),
        ("nobody", BODY_BYTES_MAX + 1, 401),
    ],
)
def test_bounds_by_role(client: Client, user: str, size: int, status: int) -> None:
    """How long a body may be depends on who sends it, with a length or in chunks."""
    body = b"x" * size

    assert status == client("PUT", VALIDATE, None, body=body, **basic(user, "pw")).status
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=180)
    with contextlib.closing(connection):
        headers = {"Content-Type": "application/json", **basic(user, "pw")}
        connection.request("PUT", VALIDATE, iter([body]), headers, encode_chunked=True)
        assert status == connection.getresponse().status


def test_refused_changes_are_audited(client: Client, shared_state: Path) -> None:
    """What a viewer may not change leaves a line with its name, though the body is short."""
    audit = shared_state.parent / "state.db.audit"
    sink = {"name": "from-viewer", "uri": "pond:///x?topic=t"}

    assert 403 == client("POST", "/api/v1/sinks", sink, **basic("viewer", "pw")).status
    line = json.loads(audit.read_text().splitlines()[-1])
    assert ("viewer", "from-viewer", "unauthorized") == tuple(
        line[key] for key in ("actor", "object", "reason")
    )

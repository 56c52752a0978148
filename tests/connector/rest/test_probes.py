"""What an orchestrator asks a worker: it needs no login, and learns what is missing."""

import contextlib
import socket
from pathlib import Path

import pytest

from headrace.connector.rest.auth import Authenticator
from headrace.connector.rest.server import RestServer
from headrace.plugins.testing.doubles import context
from helpers.servers.rest_server import Client, RestWorker, serving


def reasons(client: Client) -> tuple[int, list[str]]:
    """Return the status of `/readyz`, and what it says is missing."""
    answer = client("GET", "/readyz")
    assert client("GET", "/healthz").json == answer.json
    assert all(each["message"] and each["hint"] for each in answer.json["reasons"])
    return answer.status, [each["about"] for each in answer.json["reasons"]]


def test_ready_when_there_is_something_to_do(served: RestWorker) -> None:
    """Without a source, then without a sink too, a worker says so; it lives all the time."""
    client = served.client
    assert (503, ["source"]) == reasons(client)
    config = {"connector.class": "BrookBrookSource", "keyspace": "s", "table": "t", "sink": "k"}
    assert 201 == client("POST", "/connectors", {"name": "cdc", "config": config}).status
    assert (200, []) == reasons(client)
    for path in ("/connectors/cdc", "/api/v1/sinks/k"):
        assert 204 == client("DELETE", path).status
    assert (503, ["sink", "source"]) == reasons(client)
    assert {200} == {client("GET", path).status for path in ("/livez", "/health")}


def test_a_state_that_cannot_be_read(tmp_path: Path) -> None:
    """A worker whose state is damaged lives, and is neither ready nor healthy for Connect."""
    state = tmp_path / "state.db"
    state.write_bytes(b"no database" * 1_000)
    with serving(RestServer(state, log=context().log)) as address:
        client = Client(address.port)
        answers = {path: client("GET", path) for path in ("/livez", "/health")}
        found = client("GET", "/readyz")

    assert (200, 503) == (answers["/livez"].status, answers["/health"].status)
    assert (503, ["state"]) == (found.status, [each["about"] for each in found.json["reasons"]])


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz/", "/health"])
def test_no_login_is_needed(state: Path, path: str) -> None:
    """Where everything else needs a login, probes are answered; they name nothing that exists."""
    with contextlib.ExitStack() as stack:
        server = RestServer(state, log=context().log, authenticator=Authenticator(users={}))
        client = Client(stack.enter_context(serving(server)).port)
        answer = client("GET", path)

        assert 401 == client("GET", "/connectors").status
    assert answer.status in {200, 503}
    assert b"pond" not in answer.body
    assert socket.gethostname().encode() not in answer.body

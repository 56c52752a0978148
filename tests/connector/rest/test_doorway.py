"""A user who creates a source over HTTP is warned of what is not delivered of its table."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import argon2
import pytest

from headrace.connector.commands.exec import main as exec_main
from headrace.connector.commands.shell import main as shell_main
from headrace.connector.control.access.permission import Role
from headrace.connector.control.commands import Commands
from headrace.connector.control.plugins.probe import answer_to
from headrace.connector.control.plugins.probing import Answer, unpacked
from headrace.connector.rest import doorway
from headrace.connector.rest.auth import Authenticator
from headrace.connector.rest.server import RestServer
from headrace.connector.rest.users import User
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.testing.doubles import context
from helpers.logs.unlogged import HEADER, HINT, ORDERS, WARNED, worker_file
from helpers.servers.rest_server import Client, RestWorker, answers_here, basic, serving

CONFIG = {
    "connector.class": "CassandraCdcSource", "keyspace": "shop", "table": "orders", "sink": "k",
}  # fmt: skip
LOGGED = {**CONFIG, "table": "items"}
VALIDATE = "/connector-plugins/CassandraCdcSource/config/validate"
CREATE = "CREATE DATA_SOURCE cdc ON TABLE shop.orders WITH k"


def ask_here(question: Mapping[str, object]) -> Answer:
    """Answer as the process would that is started otherwise."""
    return unpacked(answer_to(question))


@contextlib.contextmanager
def cassandra_worker(
    state: Path, authenticator: Authenticator | None = None
) -> Iterator[RestWorker]:
    """Serve over a worker's file that reads Cassandra."""
    file = worker_file(state.parent)
    server = RestServer(state, log=context().log, authenticator=authenticator, file=file)
    with contextlib.closing(open_notes(state)) as connection, serving(server) as address:
        yield RestWorker(state.parent, Client(address.port), Commands(connection))


@pytest.fixture
def client(state: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """Return a client of a worker that reads Cassandra."""
    answers_here(monkeypatch, ask_here)
    with cassandra_worker(state) as worker:
        yield worker.client


def test_connectors(client: Client) -> None:
    """POST, PUT and PATCH of a connector warn by a header; the body is what Connect answers."""
    made = client("POST", "/connectors", {"name": "o", "config": CONFIG})
    assert (201, HEADER) == (made.status, made.headers["warning"])
    assert {"name", "config", "tasks", "type"} == made.json.keys()
    assert made.headers["location"].endswith("/connectors/o")
    for method, config in (("PUT", CONFIG), ("PATCH", {"tasks.max": "2"})):
        found = client(method, "/connectors/o/config", config)
        assert (200, HEADER) == (found.status, found.headers["warning"])
        assert made.json.keys() == found.json.keys()
    put = client("PUT", "/connectors/p/config", CONFIG)
    assert (201, HEADER) == (put.status, put.headers["warning"])


def test_no_warning(client: Client) -> None:
    """A source of a table that is logged is created without the header, and so is a sink."""
    sink = {"connector.class": "BusSink", "bus.stops": "a"}
    for config in (LOGGED, sink):
        made = client("PUT", f"/connectors/{config['connector.class']}/config", config)
        assert (201, False) == (made.status, "warning" in made.headers)


def test_validate(client: Client) -> None:
    """`validate` warns, and counts no error; a config that is wrong is not asked about."""
    found = client("PUT", VALIDATE, {"name": "o", **CONFIG})
    assert (200, HEADER, 0) == (found.status, found.headers["warning"], found.json["error_count"])
    assert {"name", "error_count", "groups", "configs"} == found.json.keys()
    for config in ({"name": "o", **LOGGED}, {"name": "o", **CONFIG, "tasks.max": "none"}):
        assert "warning" not in client("PUT", VALIDATE, config).headers
    assert ["k"] == client("GET", "/connectors").json


def test_our_own_paths(client: Client) -> None:
    """POST and PATCH of a source warn likewise."""
    made = client("POST", "/api/v1/sources", {"config": {"name": "o", **CONFIG}})
    assert (201, HEADER) == (made.status, made.headers["warning"])
    found = client("PATCH", "/api/v1/sources/o", {"config": {"tasks.max": "2"}})
    assert (200, HEADER) == (found.status, found.headers["warning"])


def test_statements(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    """A statement's answer carries warnings, which exec and the shell print as they do here."""
    found = client("POST", "/api/v1/statements", {"statement": CREATE})
    warning = {"code": "table_skipped", "message": ORDERS, "hint": HINT}
    assert {"columns": [], "rows": [], "warnings": [warning], "footer": []} == found.json
    place = ["--rest", f"http://127.0.0.1:{client.port}"]
    for main in (exec_main, shell_main):
        client("DELETE", "/connectors/cdc.shop.orders")
        assert 0 == main([*place, "-e", CREATE])
        assert ("", WARNED) == capsys.readouterr()


def test_audit(client: Client, state: Path) -> None:
    """The audit says who was warned, through which door, after what was done."""
    client("POST", "/connectors", {"name": "o", "config": CONFIG})
    lines = [json.loads(line) for line in Path(f"{state}.audit").read_text().splitlines()][-2:]
    assert [("create_source", "done", ""), ("check_tables", "warned", "table_skipped")] == [
        (line["verb"], line["outcome"], line["reason"]) for line in lines
    ]
    assert 1 == len({(line["actor"], line["door"], line["object"]) for line in lines})


def test_too_many_questions(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """While too many ask plugins a source is created all the same, and its table not checked."""
    monkeypatch.setattr(doorway, "ASKING_MAX", 0)
    made = client("POST", "/connectors", {"name": "o", "config": CONFIG})
    assert 201 == made.status
    assert "[tables_unchecked] table shop.orders was not checked" in made.headers["warning"]
    assert "too many wait for an answer of a plugin" in made.headers["warning"]


def test_who_may_have_a_plugin_asked(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a viewer `validate` asks no plugin; for an operator it does."""
    answers_here(monkeypatch, ask_here)
    hasher = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    roles = {"viewer": Role.VIEWER, "operator": Role.OPERATOR}
    users = {name: User(hasher.hash("pw"), role) for name, role in roles.items()}
    with cassandra_worker(state, Authenticator(users=users)) as worker:
        warned = []
        for name in roles:
            worker.client.headers = basic(name, "pw")
            found = worker.client("PUT", VALIDATE, {"name": "o", **CONFIG})
            assert 200 == found.status
            warned.append("warning" in found.headers)
    assert [False, True] == warned

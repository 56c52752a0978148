"""Snapshots are asked for, listed and steered over HTTP."""

import pytest

from helpers.servers.rest_server import RestWorker

SOURCE = {"connector.class": "BrookBrookSource", "keyspace": "s", "table": "t", "sink": "k"}
PATH = "/api/v1/sources/o/snapshots"


def test_life_of_a_snapshot(served: RestWorker) -> None:
    """It is asked for, waits, is paused, continues and ends; lists show it, the newest first."""
    config = {"name": "o", "snapshot": "initial", **SOURCE}
    assert 201 == served.client("POST", "/api/v1/sources", {"config": config}).status
    (first,) = served.client("GET", PATH).json["snapshots"]
    made = served.client("POST", PATH, {"after": -5, "until": 1 << 62})

    assert (202, "WAITING", [[-5, 1 << 62]], None) == (
        made.status,
        *(made.json[name] for name in ("state", "tokens", "key")),
    )
    name = made.json["name"]
    steered = []
    for verb in ("pause", "resume", "stop"):
        found = served.client("POST", f"/api/v1/snapshots/{name}/{verb}")
        steered.append((found.status, found.json["wanted"], found.json["state"]))
    assert [
        (202, "PAUSED", "PAUSED"),
        (202, "RUNNING", "WAITING"),
        (202, "STOPPED", "STOPPED"),
    ] == steered
    listed = served.client("GET", "/api/v1/snapshots").json["snapshots"]
    assert {name: "STOPPED", first["name"]: "WAITING"} == {e["name"]: e["state"] for e in listed}
    assert 400 == served.client("POST", f"/api/v1/snapshots/{name}/resume").status


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("GET", "/api/v1/sources/x/snapshots", None, 404, "there is no data source x"),
        ("POST", "/api/v1/sources/x/snapshots", {}, 404, "there is no data source x"),
        ("POST", "/api/v1/snapshots/x/stop", None, 404, "there is no snapshot 'x'"),
        ("POST", PATH, {"after": "5"}, 400, "expected integer"),
        ("POST", PATH, {"after": 5, "until": 5}, 400, "no token is after 5"),
        ("POST", PATH, {"after": 5, "key": {"k": 1}}, 400, "do not go together"),
        ("POST", PATH, {"where": "k"}, 400, "Unrecognized field"),
    ],
)
def test_refused(  # noqa: PLR0913, PLR0917 (a request, and its answer)
    served: RestWorker, method: str, path: str, body: object, status: int, message: str
) -> None:
    """A request that is wrong is refused with what is wrong, and asks for nothing."""
    config = {"name": "o", **SOURCE}
    assert 201 == served.client("POST", "/api/v1/sources", {"config": config}).status

    found = served.client(method, path, body)
    assert status == found.status
    assert message in found.json["message"]
    assert [] == served.client("GET", "/api/v1/snapshots").json["snapshots"]

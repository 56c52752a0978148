"""Our own paths: one resource each for sinks, sources, positions, snapshots and plugins."""

from typing import Any

import pytest

from headrace.connector.control.status import SplitStatus
from headrace.connector.foundation.states import Observed
from helpers.servers.rest_server import Answer, RestWorker, eventually, until_read

CONFIG = {
    "name": "o",
    "connector.class": "BrookBrookSource",
    "keyspace": "s",
    "table": "t",
    "sink": "k",
}


RUNS = "/api/v1/sources/o/runs"
SNAPSHOTS = "/api/v1/sources/o/snapshots"


def make(worker: RestWorker, **more: object) -> Answer:
    """Create a source."""
    return worker.client("POST", "/api/v1/sources", {"config": CONFIG, **more})


def seen(worker: RestWorker, state: Observed) -> dict[str, Any]:
    """Wait until the source is in *state*, and return it."""
    for _ in eventually():
        found: dict[str, Any] = worker.client("GET", "/api/v1/sources/o").json
        if found["state"] == state:
            return found
    raise AssertionError(found)


def runs(worker: RestWorker, generation: int) -> None:
    """Wait until the source's only split runs *generation*."""
    for _ in eventually():
        splits = worker.client("GET", "/api/v1/sources/o").json["splits"]
        if [generation] == [split["generation"] for split in splits]:
            return
    raise AssertionError(splits)


def test_sinks(served: RestWorker) -> None:
    """A sink is made, shown, changed and forgotten; its statement makes it again."""
    made = served.client(
        "POST", "/api/v1/sinks", {"name": "b", "uri": "bus://x?line=2", "options": {"seats": "7"}}
    )
    assert (201, "CREATE DATA_SINK b WITH 'bus://x?line=2' AND seats = 7;") == (
        made.status,
        made.json["create_statement"],
    )
    changed = served.client("PATCH", "/api/v1/sinks/b", {"options": {"seats": None, "line": "3"}})
    assert ("3", 200) == (changed.json["config"]["line"], changed.status)
    assert ["b", "k"] == [s["name"] for s in served.client("GET", "/api/v1/sinks").json["sinks"]]
    assert 409 == served.client("POST", "/api/v1/sinks", {"name": "b", "uri": "bus://x"}).status
    assert 204 == served.client("DELETE", "/api/v1/sinks/b").status
    assert 404 == served.client("GET", "/api/v1/sinks/b").status


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("xyz://a", "no sink has the URI scheme"),
        ("bus://u:p@a", "the URI holds a user"),
        ("bus://a@b@c", "the URI holds a user"),
        ("bus://a\\b", "U+005C"),
        ("bus://a\tb", "U+0009"),
        ("bus://a#b", "has a fragment"),
        ("bus://%61", "percent escape"),
        ("bus://a?line=1&line=2", "gives line twice"),
        ("bus://a?Line=1", "did you mean line"),
        ("bus://a?password=canary", "is a secret"),
        ("kafka://:9092?topic=x", "is not host:port"),
        ("kafka://h:0?topic=x", "is not host:port"),
        ("kafka://h:65536?topic=x", "is not host:port"),
        ("kafka://169.254.169.254:80?topic=x", "of the link itself"),
        ("kafka://0x7f.1:9092?topic=x", "can be read in two ways"),
        ("kafka://[fe80::1]:9092?topic=x", "of the link itself"),
        ("kafka://h.:9092?topic=x", "is not a host name"),
        ("kafka://xn--e1awd7f.com?topic=x", "punycode"),
        ("kafka://h1,224.0.0.1?topic=x", "of a group"),
        ("kafka://h?topic=..", "topic"),
        ("kafka://h?topic=x&plugin.library.paths=/tmp/x.so", "is not an option"),
        ("kafka://h?topic=x&sasl.oauthbearer.token.endpoint.url=http://169.254.169.254/", "not an"),
        ("kafka://h?topic=x&ssl.engine.location=/x.so", "is not an option"),
        ("kafka://h?topic=x&sasl.kerberos.kinit.cmd=id", "is not an option"),
        ("file:", "is not a URI"),
        ("", "is not a URI"),
    ],
)
def test_bad_uris(shared: RestWorker, uri: str, message: str) -> None:
    """A URI that can be read in two ways, or reaches where it must not, makes no sink."""
    answer = shared.client("POST", "/api/v1/sinks", {"name": "b", "uri": uri})

    assert 400 == answer.status
    assert message in answer.json["message"]
    assert b"canary" not in answer.body
    assert ["k"] == [s["name"] for s in shared.client("GET", "/api/v1/sinks").json["sinks"]]


def test_life_of_a_source(worker: RestWorker) -> None:
    """A source is made, pauses, stops; its positions move; splits show what they run."""
    made = make(worker)
    assert (201, "RUNNING") == (made.status, made.json.get("desired"))
    running = seen(worker, Observed.RUNNING)
    runs(worker, running["generation"])
    until_read(worker.client, "o", 14)
    assert 202 == worker.client("POST", "/api/v1/sources/o/pause").status
    seen(worker, Observed.PAUSED)
    changed = worker.client("PATCH", "/api/v1/sources/o", {"config": {"tasks.max": "3"}})
    assert running["generation"] + 1 == changed.json["generation"]
    runs(worker, running["generation"] + 1)
    part = {"partition": {"split": "in.jsonl"}, "offset": {"offset": 0}}
    path = "/api/v1/sources/o/offsets"
    assert 409 == worker.client("PATCH", path, {"offsets": [part]}).status
    dry = worker.client("PATCH", f"{path}?dry_run=true", {"offsets": [part]}).json
    assert (False, [14], [0]) == (
        dry["applied"],
        [p["offset"]["offset"] for p in dry["before"]],
        [p["offset"]["offset"] for p in dry["after"]],
    )
    worker.client("POST", "/api/v1/sources/o/stop")
    seen(worker, Observed.STOPPED)
    assert worker.client("PATCH", path, {"offsets": [part]}).json["applied"]
    assert [part] == worker.client("GET", path).json["offsets"]
    assert [] == worker.client("DELETE", path).json["after"]
    worker.client("POST", "/api/v1/sources/o/restart?only_failed=true")
    assert 204 == worker.client("DELETE", "/api/v1/sources/o").status
    assert 404 == worker.client("GET", "/api/v1/sources/o").status


def test_sources_are_listed(served: RestWorker) -> None:
    """The list has what each has."""
    assert 201 == make(served, state="STOPPED").status
    (found,) = served.client("GET", "/api/v1/sources").json["sources"]

    assert ("o", "STOPPED", "STOPPED", CONFIG) == (
        found["name"],
        found["desired"],
        found["state"],
        found["config"],
    )
    assert 409 == make(served).status


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("POST", "sinks", [], "the body: expected object, found an array"),
        ("POST", "sinks", {"name": "b"}, "uri is required"),
        ("POST", "sinks", {"name": "b", "uri": "bus://x", "x": 1}, 'Unrecognized field "x"'),
        ("POST", "sinks", {"name": "b", "uri": 3}, "the body.uri: expected string"),
        ("POST", "sinks", {"name": "", "uri": "bus://x"}, "the body.name: is empty"),
        ("POST", "sinks", {"name": "b", "uri": "x" * 9_000}, "more than 8192 characters"),
        ("POST", "sources", {"config": {"a": 1}}, "the body.config.a: expected string"),
        ("POST", "sources", {"config": {}, "state": "GONE"}, "expected one of RUNNING"),
        ("POST", "sources", {"config": {}}, "connector.class: is required"),
        ("PATCH", "sources/o/offsets", {"offsets": []}, "expected at least one item"),
        ("PATCH", "sources/o/offsets?dry_run=maybe", {"offsets": [{"partition": {}}]}, "dry_run"),
    ],
)
def test_refused(shared: RestWorker, method: str, path: str, body: object, message: str) -> None:
    """What the description does not allow is refused with its place."""
    answer = shared.client(method, f"/api/v1/{path}", body)

    assert 400 == answer.status
    assert message in answer.json["message"]


def test_plugins(shared: RestWorker) -> None:
    """Plugins are listed, and their options have a schema."""
    found = shared.client("GET", "/api/v1/plugins").json["plugins"]
    assert ("KafkaSink", "sinks") in [(plugin["class"], plugin["group"]) for plugin in found]
    schema = shared.client("GET", "/api/v1/plugins/KafkaSink/schema").json
    assert {"bootstrap.servers", "topic"} <= set(schema["required"])
    assert schema["properties"]["sasl.password"]["writeOnly"]
    assert 404 == shared.client("GET", "/api/v1/plugins/Nope/schema").status


def test_description(shared: RestWorker) -> None:
    """The description has every path that it is shared beside, and all fields of a split."""
    described = shared.client("GET", "/openapi.json").json

    assert "/api/v1/sources/{name}/offsets" in described["paths"]
    assert described == shared.client("GET", "/api/v1/openapi.json").json
    path = described["paths"]["/api/v1/sources/{name}"]["get"]
    schema = path["responses"]["200"]["content"]["application/json"]["schema"]
    split = schema["properties"]["splits"]["items"]
    assert {*SplitStatus.__struct_fields__} == {*split["properties"]}


def test_life_of_a_snapshot(served: RestWorker) -> None:
    """It is asked for, waits, is paused, continues and ends; lists show it, the newest first."""
    config = {"snapshot": "initial", **CONFIG}
    assert 201 == served.client("POST", "/api/v1/sources", {"config": config}).status
    (first,) = served.client("GET", SNAPSHOTS).json["snapshots"]
    made = served.client("POST", SNAPSHOTS, {"after": -5, "until": 1 << 62})

    assert (202, "WAITING", [[-5, 1 << 62]], None) == (
        made.status,
        *(made.json[name] for name in ("state", "tokens", "key")),
    )
    described = served.client("GET", "/api/v1/openapi.json").json["paths"]["/api/v1/snapshots"]
    schema = described["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert set(schema["properties"]["snapshots"]["items"]["properties"]) == set(made.json)
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


def test_life_of_a_run(served: RestWorker) -> None:
    """It is asked for, shown, paused, continued, stopped and forgotten; lists have it meanwhile."""
    assert 201 == make(served).status
    asked = {"kind": "replay", "from": "2026-01-31", "to": 1_769_860_000_000}
    made = served.client("POST", RUNS, {**asked, "options": {"into_live": "true"}})

    facts = ("kind", "source", "from_us", "to_us", "options", "tokens")
    expected = ("replay", "o", 1_769_817_600_000_000, 1_769_860_000_000_000)
    assert (202, *expected, {"into_live": "true"}, []) == (
        made.status,
        *(made.json[name] for name in facts),
    )
    documented = served.client("GET", "/api/v1/openapi.json").json["paths"]["/api/v1/runs/{name}"]
    answer = documented["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert set(answer["properties"]) == set(made.json)
    path = f"/api/v1/runs/{made.json['name']}"
    assert made.json["name"] == served.client("GET", path).json["name"]
    assert 400 == served.client("DELETE", path).status
    wanted = [
        (found.status, found.json["wanted"])
        for verb in ("pause", "resume", "stop")
        for found in [served.client("PUT", f"{path}/{verb}")]
    ]
    assert [(202, "PAUSED"), (202, "RUNNING"), (202, "STOPPED")] == wanted
    for listed in ("/api/v1/runs", RUNS):
        (found,) = served.client("GET", listed).json["runs"]
        assert made.json["name"] == found["name"]
    assert 204 == served.client("DELETE", path).status
    assert [] == served.client("GET", RUNS).json["runs"]
    assert 404 == served.client("GET", path).status


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "kind is required"),
        ({"kind": "repair"}, "expected one of snapshot, replay, reconcile"),
        ({"kind": "replay", "from": "never"}, "expected a time"),
        ({"kind": "replay", "key": {"k": 1}}, "is not of a replay"),
        ({"kind": "snapshot", "to": 1}, "is not of a snapshot"),
        ({"kind": "replay"}, "has no topics"),
        ({"kind": "reconcile", "options": {"bucket": "1"}}, "did you mean buckets"),
    ],
)
def test_refused_runs(served: RestWorker, body: object, message: str) -> None:
    """A request for a run that is wrong is refused with what is wrong, and asks for nothing."""
    assert 201 == make(served).status

    found = served.client("POST", RUNS, body)
    assert (400, True) == (found.status, message in found.json["message"]), found.json
    assert [] == served.client("GET", "/api/v1/runs").json["runs"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("GET", "/api/v1/sources/x/snapshots", None, 404, "data source x does not exist"),
        ("POST", "/api/v1/sources/x/snapshots", {}, 404, "data source x does not exist"),
        ("POST", "/api/v1/snapshots/x/stop", None, 404, "run 'x' does not exist"),
        ("POST", SNAPSHOTS, {"after": "5"}, 400, "expected integer"),
        ("POST", SNAPSHOTS, {"after": 5, "until": 5}, 400, "no token is after 5"),
        ("POST", SNAPSHOTS, {"after": 5, "key": {"k": 1}}, 400, "do not go together"),
        ("POST", SNAPSHOTS, {"where": "k"}, 400, "Unrecognized field"),
    ],
)
def test_refused_snapshots(  # noqa: PLR0913, PLR0917 (a request, and its answer)
    served: RestWorker, method: str, path: str, body: object, status: int, message: str
) -> None:
    """A request that is wrong is refused with what is wrong, and asks for nothing."""
    assert 201 == make(served).status

    found = served.client(method, path, body)
    assert status == found.status
    assert message in found.json["message"]
    assert [] == served.client("GET", "/api/v1/snapshots").json["snapshots"]

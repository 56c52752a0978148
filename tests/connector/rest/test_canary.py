"""Secrets that were planted everywhere come out nowhere."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.connector.foundation.references import ROOTS_VARIABLE
from headrace.connector.rest.console.pages import TITLES
from helpers import FOLDER
from helpers.jobs import toys
from helpers.jobs.children import RUN, SECONDS_MAX, until
from helpers.servers.ports import free_port
from helpers.servers.rest_server import Answer, Client
from helpers.settings.seeds import is_soak

CANARIES = ("bad-canary-in-the-environment", "canary-in-a-file", "canary-in-a-request")
WORKER = """\
state: state.db
source: {plugin: brook, path: in.jsonl}
runtime: {tick_min_ms: 5, lease_seconds: 0.6, restart_pause_seconds: 0.1}
"""
PATHS = (
    *("/", "/connectors?expand=info&expand=status", "/connectors/a", "/connectors/sink-a/config"),
    *("/connectors/a/tasks", "/connectors/b/status", "/connector-plugins", "/admin/loggers"),
    *("/connector-plugins/PondSink/config", "/api/v1/sinks", "/api/v1/sources", "/api/v1/plugins"),
    *("/api/v1/services", "/openapi.json", "/api/v1/plugins/PondSink/schema"),
    *(f"/console/{name}{form}" for name in TITLES for form in ("", ".json")),
)

CLASSES = ("PondSink", "KafkaSink", "FilesSink", "BrookBrookSource", "CassandraCdcSource")
UNDECLARED = {  # Keys, and plugins that do not declare them: all meet all in `make soak`.
    "sasl.jaas.config": ("KafkaSink", "FilesSink"),
    "sasl.oauthbearer.client.secret": ("PondSink", "BrookBrookSource"),
    "basic.auth.user.info": ("KafkaSink", "CassandraCdcSource"),
    "x": ("PondSink", "FilesSink"),
}


def refused(client: Client, in_request: str) -> list[Answer]:
    """Send a secret wherever a request could hold one; none is taken."""
    return [
        client("POST", "/api/v1/sinks", {"name": "x", "uri": f"pond:///x?password={in_request}"}),
        client("PATCH", "/api/v1/sinks/sink-a", {"options": {"password": in_request}}),
        client("POST", "/api/v1/sinks", {"name": "x", "uri": f"kafka://u:{in_request}@h?topic=x"}),
        client("PUT", "/connector-plugins/PondSink/config/validate", {"password": in_request}),
        client("PUT", "/connectors/x/config", {"sasl.password": in_request}),
        client(
            "PUT",
            "/connectors/x/config",
            {"connector.class": "KafkaSink", "sasl.password": in_request},
        ),
        client(
            "POST",
            "/api/v1/statements",
            {"statement": f"ALTER DATA_SINK \"sink-a\" WITH password = '{in_request}'"},
        ),
        client("GET", "/connectors", None, Authorization=f"Basic {in_request}"),
    ]


def undeclared(client: Client, canary: str) -> list[Answer]:
    """Send a secret under keys that no one declared, wherever options can be given."""
    answers = []
    for key, classes in UNDECLARED.items():
        given = {key: canary}
        for name in CLASSES if is_soak() else classes:
            config = {"connector.class": name, **given}
            route = {"keyspace": "s", "table": "u", "sink": "sink-a", **config}
            answers += [
                client("PUT", f"/connector-plugins/{name}/config/validate", config),
                client("PUT", f"/connector-plugins/{name}/config/validate", route),
                client("PUT", "/connectors/x/config", config),
                client("PUT", "/connectors/x/config", route),
                client("POST", "/connectors", {"name": "x", "config": route}),
                client("POST", "/api/v1/sources", {"config": {"name": "x", **route}}),
            ]
        answers += [
            client("POST", "/connectors", {"name": "x", "config": {}, **given}),
            client("POST", "/connectors", {"name": "x", "config": given}),
            client("PATCH", "/connectors/a/config", given),
            client("PATCH", "/connectors/sink-a/config", given),
            client("PATCH", "/connectors/a/offsets", {"offsets": [], **given}),
            client("PATCH", "/api/v1/sources/a", {"config": given}),
            client("PATCH", "/api/v1/sinks/sink-a", {"options": given}),
            client("POST", "/api/v1/sinks", {"name": "x", "uri": "pond:///x", "options": given}),
            client("POST", "/api/v1/sinks", {"name": "x", "uri": f"pond:///x?{key}={canary}"}),
            client("POST", "/api/v1/sinks", {"name": "x", "uri": "pond:///x", **given}),
            client("PUT", "/admin/loggers/root", {"level": "INFO", **given}),
        ]
        answers += [
            client("POST", "/api/v1/statements", {"statement": statement})
            for statement in (
                f"CREATE DATA_SINK x WITH 'pond:///x?{key}={canary}'",
                f"CREATE DATA_SINK x WITH 'pond:///x' AND {key} = '{canary}'",
                f"CREATE DATA_SINK x WITH 'pond:///x' AND {key} = {canary}",
                f"CREATE DATA_SINK x WITH 'pond:///x' AND {key} = '{canary}' ADN",
                f"ALTER DATA_SINK \"sink-a\" WITH {key} = '{canary}'",
                f"CREATE DATA_SOURCE brook ON TABLE a.b WITH \"sink-a\" AND {key} = '{canary}'",
            )
        ]
        answers += [
            client("PUT", f"/api/v1/services/{service}/config", {"config": given})
            for service in ("cdc", "kafka", "schema_store", "none")
        ]
    assert {200, 400, 404} == {answer.status for answer in answers}
    validated = [a.json for a in answers if a.status == 200]
    assert len(validated) > 1
    assert all(form["error_count"] for form in validated)
    return answers


@pytest.mark.soak
def test_canaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer, log, audit or state has a secret, for any request, refusal and failure."""
    toys.install(tmp_path, monkeypatch)
    environment, in_file, in_request = CANARIES
    (tmp_path / "worker.yaml").write_text(WORKER)
    (tmp_path / "in.jsonl").write_text('{"n": 1}\n')
    (tmp_path / "secrets").write_text(f"password={in_file}\n")
    port = free_port()
    client = Client(port)
    with (tmp_path / "log").open("wb") as log:
        child = subprocess.Popen(  # noqa: S603 (headrace itself)
            [
                *(sys.executable, "-c", RUN, "--log-level", "debug", "worker"),
                *(str(tmp_path / "worker.yaml"), "--rest", f"127.0.0.1:{port}"),
            ],
            stdout=log,
            stderr=log,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join((str(tmp_path), FOLDER)),
                "HEADRACE_SECRET_CANARY": environment,
                ROOTS_VARIABLE: str(tmp_path),
            },
        )
    try:
        until(client.answers, "it never answered")
        for name, password in (
            ("a", f"${{file:{tmp_path}/secrets:password}}"),
            ("b", "${env:HEADRACE_SECRET_CANARY}"),
        ):
            sink = {"name": f"sink-{name}", "uri": f"pond://{tmp_path}/{name}.jsonl?topic=t"}
            made = client("POST", "/api/v1/sinks", {**sink, "options": {"password": password}})
            assert 201 == made.status, made.body
            config = {
                "connector.class": "BrookBrookSource",
                "keyspace": "s",
                "table": name,
                "sink": f"sink-{name}",
            }
            assert client("POST", "/connectors", {"name": name, "config": config}).status == 201
        answers = [*refused(client, in_request), *undeclared(client, in_request)]
        until(lambda: b"nobody may" in client("GET", "/api/v1/sources/b").body, "b never failed")
        until((tmp_path / "a.jsonl").exists, "a never wrote")
        answers += [client("GET", path) for path in PATHS]
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(SECONDS_MAX)
    shown = {f"answer {number}": answer.body for number, answer in enumerate(answers)}
    for name in ("log", "state.db", "state.db-wal", "state.db.audit"):
        if (tmp_path / name).exists():
            shown[name] = (tmp_path / name).read_bytes()

    assert {"log", "state.db", "state.db.audit"} <= set(shown)
    for canary in CANARIES:
        assert [] == [place for place, text in shown.items() if canary.encode() in text]

"""What stands before the doors: every answer is JSON, and no one may ask for too much."""

import http.client
import json
import socket
import threading

import pytest

from headrace.connector.rest import server
from headrace.connector.rest.bodies import BODY_BYTES_MAX
from headrace.plugins import serving
from helpers.servers.rest_server import RestWorker

CONFIG = {"connector.class": "BrookBrookSource", "keyspace": "s", "table": "t", "sink": "k"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/no-such-path", 404),
        ("TRACE", "/connectors", 405),
        ("DELETE", "/", 405),
        ("GET", "/connectors/../admin/loggers/%2e%2e", 404),
        ("GET", "/connectors/" + "x" * 300, 404),
        ("GET", "/connectors/%00", 404),
        ("GET", "/connectors/%ff", 404),
        ("GET", "/connectors/a%2Fb", 404),
        ("GET", "/connectors/%E2%80%AE/status", 404),
        ("PUT", "/connectors/%3Cscript%3E/pause", 404),
        ("GET", "/connectors/a/tasks/99999999999999999999/status", 404),
    ],
)
def test_errors_are_json(shared: RestWorker, method: str, path: str, status: int) -> None:
    """For each mistake in a request the answer is an error in JSON, never a page."""
    answer = shared.client(method, path)

    assert status == answer.status
    assert "application/json" == answer.headers["content-type"]
    assert status == answer.json["error_code"]
    assert answer.json["message"]
    assert "nosniff" == answer.headers["x-content-type-options"]
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:8083"}, 421),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:1"}, 200),
        ({"Host": "10.0.0.1:1"}, 200),
        ({"Host": "LOCALHOST"}, 200),
        ({"Host": "localhost.evil.example"}, 421),
        ({"Host": "10.0.0.1.evil.example"}, 421),
        ({"Host": "localhost:99999999"}, 400),
        ({"Host": "localhost:65536"}, 400),
        ({"Host": "localhost:x"}, 400),
        ({"Host": "u@localhost"}, 400),
        ({"Host": ""}, 400),
        ({"Origin": "http://localhost:99999999"}, 400),
        ({"Origin": "nonsense"}, 400),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost:1", "Origin": "http://localhost:1"}, 200),
        ({"Host": "localhost:1", "Origin": "http://localhost:2"}, 403),
        ({"Host": "localhost:1", "Origin": "https://localhost:1"}, 403),
        ({"Host": "localhost:99999999", "Origin": "http://localhost:99999999"}, 400),
        ({"Accept": "text/html"}, 406),
        ({"Accept": "text/html, */*;q=0.1"}, 200),
        ({"Origin": "http://evil.example"}, 403),
    ],
)
def test_headers(shared: RestWorker, headers: dict[str, str], status: int) -> None:
    """Names that are not ours, pages of others, and other media types are refused."""
    assert status == shared.client("GET", "/connectors", None, **headers).status


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"{}", {"Content-Encoding": "gzip"}, 415),
        (b"x" * (BODY_BYTES_MAX + 1), {}, 413),
        (b'{"name": "a", "name": "b", "config": {}}', {}, 400),
        (b'{"name": "a", "config": {"a": NaN}}', {}, 400),
        (b'{"name": 3, "config": {}}', {}, 400),
        (b'{"name": "..", "config": {"connector.class": "BrookBrookSource"}}', {}, 400),
        (b'{"name": "a\\u001bb", "config": {"connector.class": "BrookBrookSource"}}', {}, 400),
    ],
)
def test_bodies(shared: RestWorker, body: bytes, headers: dict[str, str], status: int) -> None:
    """A body that is too long, compressed, or can be read in two ways changes nothing."""
    answer = shared.client("POST", "/connectors", None, body=body, **headers)

    assert status == answer.status == answer.json["error_code"]
    assert ["k"] == shared.client("GET", "/connectors").json


@pytest.mark.parametrize("value", ["\x1b]52;c;x\x07", "a\u202eb", "a\x00b"])
def test_control_characters(shared: RestWorker, value: str) -> None:
    """What could act on a terminal never gets into the catalogue."""
    answer = shared.client("PUT", "/connectors/a/config", {**CONFIG, "job": value})

    assert 400 == answer.status
    assert ["k"] == shared.client("GET", "/connectors").json


def test_literal_secrets(shared: RestWorker) -> None:
    """A form refuses a secret that is written down, shows what to write, and repeats it not."""
    config = {"connector.class": "BusSink", "bus.stops": "a", "password": "canary-1"}
    answer = shared.client("PUT", "/connector-plugins/BusSink/config/validate", config)
    (option,) = (o for o in answer.json["configs"] if o["value"]["name"] == "password")

    assert 1 == answer.json["error_count"]
    assert "${env:HEADRACE_SECRET_PASSWORD}" in option["value"]["errors"][0]
    assert (None, "PASSWORD") == (option["value"]["value"], option["definition"]["type"])
    assert b"canary-1" not in answer.body


@pytest.mark.parametrize(
    "request_text",
    [
        "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic canary\r\nbad header\r\n\r\n",
        "no HTTP at all\r\n\r\n",
        "PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: nine\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + "x" * 9_000 + "\r\n\r\n",
    ],
    ids=["good", "missing", "host", "header", "nonsense", "length", "long"],
)
def test_answers_name_no_version(shared: RestWorker, request_text: str) -> None:
    """No answer tells which versions run here, not even the one to what is not HTTP."""
    with socket.create_connection(("127.0.0.1", shared.client.port), 10) as peer:
        peer.sendall(request_text.encode())
        response = http.client.HTTPResponse(peer)
        response.begin()
        text = f"{response.headers}{response.read().decode()}"

    assert response.status < 500
    assert "headrace" == response.headers["Server"]
    assert [] == [word for word in ("Python", "aiohttp", "canary") if word in text]


def test_slow_body(shared: RestWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that never arrives is given up."""
    monkeypatch.setattr(serving, "ARRIVAL_SECONDS_MAX", 0.2)
    with socket.create_connection(("127.0.0.1", shared.client.port), 10) as peer:
        peer.sendall(
            b"POST /connectors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
            b"Content-Type: application/json\r\n\r\n{"
        )
        response = http.client.HTTPResponse(peer)
        response.begin()
        body = json.loads(response.read())

    assert (408, 408) == (response.status, body["error_code"])


def test_too_many_at_once(shared: RestWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the bound a request is sent away at once, and may come again."""
    monkeypatch.setattr(server, "REQUESTS_MAX", 0)
    answer = shared.client("GET", "/connectors")

    assert (503, "1") == (answer.status, answer.headers["retry-after"])


def test_many_clients_create_one(served: RestWorker) -> None:
    """Of many that create the same connector at once, one does, and the others get an error."""
    found: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: found.append(
                served.client("POST", "/connectors", {"name": "a", "config": CONFIG}).status
            )
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [201, *[409] * 7] == sorted(found)

"""The embedded registry answers as another one did, where that one is right."""

import contextlib
import http.client
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.commands.cli import main
from helpers.jobs.children import SECONDS_MAX, next_line
from helpers.recordings.corpora import CORPORA
from helpers.servers.registries import ask, registry

ROW = json.dumps({"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}]})


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Return the address of an empty registry."""
    with registry(tmp_path / "registry.db") as made:
        yield made


# Where the recorded registry is not what Confluent's clients expect, and ours is: it sets no
# level by default, has other formats too, ignores prefixes and read-only subjects, and makes an
# error of its own of a body without schema. The rest follows: a version more, and other ids.
DIFFERENCES = {
    "GET /schemas/types",
    "GET /config",
    "GET /contexts",
    "GET /subjects?subjectPrefix=t",
    "GET /subjects/t-value/versions/x",
    "POST /subjects/bad/versions",
    "POST /subjects/p-value/versions",
    "GET /config/t-value",
    "GET /config/t-value?defaultToGlobal=true",
    "POST /subjects/t-value/versions",
    "GET /subjects/inner/versions/1/referencedby",
    "GET /subjects/t-value/versions",
    "GET /subjects/t-value/versions?deleted=true",
    "DELETE /subjects/t-value/versions/2?permanent=true",
    "DELETE /subjects/t-value",
    "GET /subjects",
    "GET /subjects?deleted=true",
    "DELETE /subjects/t-value?permanent=true",
}
SAME_MIN = 60


def difference(recorded: dict[str, Any], status: int, answer: Any) -> str:  # noqa: ANN401 (JSON)
    """Return how an answer differs in what clients look at, or nothing."""
    if recorded["status"] != status:
        return f"status {status}"
    expected = recorded.get("answer")
    if isinstance(expected, dict) and "error_code" in expected:
        code = answer["error_code"]
        return "" if code == expected["error_code"] else f"code {code}"
    if isinstance(expected, dict) and "schema" in expected:
        expected, answer = ({**x, "schema": json.loads(x["schema"])} for x in (expected, answer))
    if isinstance(expected, dict):
        expected = {k: v for k, v in expected.items() if k not in ("id", "normalize")}
        return "" if expected.items() <= answer.items() else json.dumps(answer)
    return "" if expected in (None, answer) else json.dumps(answer)


def test_recorded_requests_have_the_recorded_answers(address: str) -> None:
    """What differs is what the recorded registry, not Confluent's own, has of its own."""
    recorded = json.loads((CORPORA / "registry-apicurio-3.3.3.json").read_text())
    differences = []
    for each in recorded:
        status, answer = ask(address, each["method"], each["path"], each.get("body"))
        if difference(each, status, answer):
            differences.append(f"{each['method']} {each['path']}")

    assert DIFFERENCES == set(differences)
    assert len(recorded) - len(differences) > SAME_MIN


def test_the_command_serves_until_it_is_stopped(tmp_path: Path) -> None:
    """It prints its address, keeps what it was given, and ends with SIGTERM."""
    command = [
        *(sys.executable, "-c", "import sys; from headrace.connector.commands.cli import main"),
    ]
    command[2] += "; sys.exit(main(sys.argv[1:]))"
    command += ["registry", "--port", "0", "--state", str(tmp_path / "registry.db")]
    for _ in range(2):
        with subprocess.Popen(  # noqa: S603 (our own interpreter)
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as child:
            assert child.stdout
            address = next_line(child).strip()
            status, made = ask(address, "POST", "/subjects/a/versions", {"schema": ROW})
            child.send_signal(signal.SIGTERM)
            assert (200, 1, 1) == (status, made["id"], made["version"])
            assert 0 == child.wait(SECONDS_MAX)


def test_a_number_that_is_too_long_is_no_id(address: str) -> None:
    """It is answered as any id that does not exist."""
    for digits in ("9" * 18, "9" * 19, "9" * 23, "9" * 5_000):
        for rest in ("", "/schema", "/subjects", "/versions"):
            status, answer = ask(address, "GET", f"/schemas/ids/{digits}{rest}")
            assert (404, 40403) == (status, answer["error_code"])


def fields(*names: str) -> str:
    """Return the schema of a record with fields of these names."""
    made = [{"name": name, "type": "int"} for name in names]
    return json.dumps({"type": "record", "name": "R", "fields": made})


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(ROW.replace("Row", "\ud800"), id="half a surrogate pair"),
        pytest.param(fields("a", "a"), id="duplicate field"),
        pytest.param(fields("a-b"), id="illegal name"),
        pytest.param('{"type":"fixed","name":"F","size":-1}', id="negative size"),
    ],
)
def test_what_is_no_schema_is_refused(address: str, schema: str) -> None:
    """With the code of an invalid schema, and nothing is registered."""
    for path in ("/subjects/a/versions", "/compatibility/subjects/a/versions"):
        status, answer = ask(address, "POST", path, {"schema": schema})
        assert (422, 42201) == (status, answer["error_code"])
    assert (200, []) == ask(address, "GET", "/subjects")


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ({"name": None}, 42201),
        ({"name": ""}, 42201),
        ({"subject": 5}, 42201),
        ({"subject": "\ud800"}, 42201),
        ({"version": True}, 42202),
        ({"version": -1}, 42202),
        ({"version": 0}, 42202),
        ({"version": "1"}, 42202),
        ({"version": 10**30}, 42202),
        ({"version": None}, 42202),
    ],
    ids=str,
)
def test_a_reference_has_texts_and_a_version(
    address: str, part: dict[str, object], code: int
) -> None:
    """One that has anything else is refused, as no one could look it up."""
    ask(address, "POST", "/subjects/other/versions", {"schema": ROW})
    reference = {"name": "Row", "subject": "other", "version": 1}

    body = {"schema": fields("a"), "references": [reference | part]}
    status, answer = ask(address, "POST", "/subjects/a/versions", body)

    assert (422, code) == (status, answer["error_code"])
    body["references"] = [reference]
    assert 200 == ask(address, "POST", "/subjects/a/versions", body)[0]


def registered(
    address: str, subject: str, *names: str, **more: object
) -> tuple[int, object, object]:
    """Return the status of registering a record of such fields, and its id and version, or code."""
    body = {"schema": fields(*names), **more}
    status, answer = ask(address, "POST", f"/subjects/{subject}/versions", body)
    return status, answer.get("id", answer.get("error_code")), answer.get("version")


def test_imported_schemas_keep_their_ids_and_versions(address: str) -> None:
    """In the mode IMPORT, at each level; what follows in the other mode has the next ones."""
    assert (422, 42205, None) == registered(address, "a", "x", id=100)
    assert 200 == ask(address, "PUT", "/mode/a", {"mode": "IMPORT"})[0]

    assert (422, 42205, None) == registered(address, "a", "x")
    for _ in range(2):
        assert (200, 100, 3) == registered(address, "a", "x", id=100, version=3)
    assert (200, 90, 4) == registered(address, "a", "y", id=90)
    assert (200, 0, 1) == registered(address, "a", "z", id=0, version=1)
    assert (422, 42205, None) == registered(address, "a", "other", id=100)
    assert (422, 42205, None) == registered(address, "a", "y", id=101)
    assert (200, 103, 4) == registered(address, "a", "w", id=103, version=4)
    assert (200, [1, 3, 4]) == ask(address, "GET", "/subjects/a/versions")
    assert json.loads(fields("y")) == ask(address, "GET", "/schemas/ids/90/schema")[1]
    ask(address, "PUT", "/mode/a", {"mode": "READWRITE"})
    assert (200, 104, 1) == registered(address, "b", "n", id=-1, version=0)
    assert (422, 42201, None) == registered(address, "b", version=3)
    assert (200, 105, 2) == registered(address, "b", version=2)


@pytest.mark.parametrize("number", [1 << 31, "7", True, 1.5], ids=repr)
def test_what_is_no_number_is_no_id(address: str, number: object) -> None:
    """Messages have four bytes for one."""
    for name in ("id", "version"):
        assert (400, 400, None) == registered(address, "a", "x", **{name: number})


def test_schemas_are_imported_where_none_are(address: str) -> None:
    """Unless it is forced: their ids may be those of others."""
    registered(address, "a", "x")
    for where in ("/mode", "/mode/a"):
        status, answer = ask(address, "PUT", where, {"mode": "IMPORT"})
        assert (422, 42205) == (status, answer["error_code"])
    assert 200 == ask(address, "PUT", "/mode/b", {"mode": "IMPORT"})[0]
    for where in ("/mode?force=true", "/mode", "/mode/a"):  # It is that already.
        assert 200 == ask(address, "PUT", where, {"mode": "IMPORT"})[0]
    assert (422, 42205, None) == registered(address, "a", "y", id=1)


def test_the_number_of_a_deleted_version_is_not_given_again(address: str) -> None:
    """The next version is behind it."""
    registered(address, "a", "x")
    registered(address, "a")
    assert (200, 2) == ask(address, "DELETE", "/subjects/a/versions/2")

    assert (200, 2, 3) == registered(address, "a")


def test_a_subject_is_gone_after_it_was_deleted_twice(address: str) -> None:
    """Deleted once, its versions can still be listed; the second time, permanently, they go."""
    registered(address, "a", "x")
    listed, both = "/subjects/a/versions?deleted=true", "/subjects/a?permanent=true"

    assert 404 == ask(address, "DELETE", both)[0]
    assert (200, [1]) == ask(address, "DELETE", "/subjects/a")
    assert (200, [1]) == ask(address, "GET", listed)
    assert (200, [1]) == ask(address, "DELETE", both)
    assert 404 == ask(address, "GET", listed)[0]


def test_a_body_that_is_not_compressed_as_it_says_is_refused(address: str) -> None:
    """With JSON, as all errors are."""
    request = urllib.request.Request(f"{address}/subjects/a/versions", b"\x1f\x8b123")  # noqa: S310 (ours)
    request.add_header("Content-Encoding", "gzip")

    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=SECONDS_MAX)  # noqa: S310 (ours)

    with caught.value as answer:
        assert (400, 400) == (answer.code, json.load(answer)["error_code"])


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], port: int
) -> None:
    """As a mistake of who asked for it; nothing is made."""
    state = tmp_path / "registry.db"

    assert 2 == main(["registry", "--state", str(state), f"--port={port}"])
    assert f"--port: expected 0 to 65535, found {port}" in capsys.readouterr().err
    assert not state.exists()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "10.0.0.1"}, 200),
        ({"Host": "registry.example:8081"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost:99999999"}, 400),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:99999999"}, 400),
    ],
)
def test_only_its_own_names_are_answered(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    """A page that lets its name point to the registry gets nothing, and versions are hidden."""
    with registry(tmp_path / "registry.db", hosts=["registry.example"]) as address:
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=180)
        with contextlib.closing(connection):
            connection.request("GET", "/subjects", headers=headers)
            answer = connection.getresponse()

            assert status == answer.status
            assert "headrace" == answer.headers["Server"]


def test_a_body_that_does_not_arrive_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client has a bounded time for its body."""
    monkeypatch.setattr("headrace.plugins.serving.ARRIVAL_SECONDS_MAX", 0.2)
    with registry(tmp_path / "registry.db") as address:
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=180)
        with contextlib.closing(connection):
            connection.putrequest("POST", "/subjects/a/versions")
            connection.putheader("Content-Length", "9")
            connection.endheaders(b"{")

            assert 408 == connection.getresponse().status

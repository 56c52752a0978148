"""Statements over HTTP: the shell and `exec` do the same at a server as beside its file."""

from pathlib import Path

import pytest

from headrace.connector.commands.exec import main as exec_main
from headrace.connector.commands.shell import main as shell_main
from headrace.connector.control.plugins.probe import answer_to
from headrace.connector.control.plugins.probing import unpacked
from headrace.connector.language.errors import ShellError
from headrace.connector.language.statements import DescribeSinks
from headrace.connector.rest import doorway
from headrace.connector.shell.remote import RemoteError, remote
from helpers.jobs.children import until
from helpers.servers.ports import free_port
from helpers.servers.rest_server import Client, RestWorker, answers_here, until_read

SCRIPT = """
CREATE DATA_SINK b WITH 'bus://x' AND seats = 7;
CREATE DATA_SOURCE brook ON TABLE s.t WITH k;
CREATE DATA_SINK b WITH 'bus://x';
ALTER DATA_SINK b WITH seats = 0 AND lnie = '1' AND password = 'canary';
DROP DATA_SINK nobody;
DESC DATA_SINKS;
SHOW STATUS;
"""
PATH = "/api/v1/statements"


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADRACE_STATE", "HEADRACE_REST", "HEADRACE_REST_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def url_of(worker: RestWorker) -> str:
    """Return the worker's address."""
    return f"http://127.0.0.1:{worker.client.port}"


def test_the_same_everywhere(
    served: RestWorker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Answers and errors, with their carets and hints, are those of a state file."""
    written = []
    there, here = served.folder / "state.db", tmp_path / "here.db"
    made = f"CREATE DATA_SINK k WITH 'pond://{tmp_path}/out.jsonl?topic=lines'"
    assert 0 == exec_main(["--state", str(here), "-e", made])
    for place in (("--state", str(here)), ("--rest", url_of(served))):
        assert 2 == shell_main([*place, "--format", "csv", "-e", SCRIPT])
        out, err = capsys.readouterr()
        written.append((out, err))

    assert there.exists()
    assert written[0] == written[1]
    assert "AlreadyExists: line 1:17" in err
    assert "did you mean line?" in err
    assert "canary" not in err.replace(SCRIPT.splitlines()[4], "")


def test_exec(served: RestWorker, capsys: pytest.CaptureFixture[str]) -> None:
    """`headrace exec` does the same; a server that does not exist is status 1."""
    place = ("--rest", url_of(served))
    assert 0 == exec_main([*place, "-e", "CREATE DATA_SINK b WITH 'bus://x'; DESC DATA_SINK b"])
    assert "CREATE DATA_SINK b WITH 'bus://x';" in capsys.readouterr().out
    assert 2 == exec_main([*place, "-e", "DROP DATA_SINK none"])
    assert "InvalidRequest: line 1:15 data sink none does not exist" in capsys.readouterr().err
    nobody = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(RemoteError, match="no answer"):
        exec_main(["--rest", nobody, "-e", "DESC DATA_SINKS"])
    assert 1 == RemoteError.exit_status


def test_positions_by_place(
    worker: RestWorker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin of a job that runs there finds places, for statements and for offsets."""
    answers_here(monkeypatch, lambda question: unpacked(answer_to(question)))
    client, place = worker.client, ("--rest", url_of(worker), "--format", "csv", "-e")
    source = "DATA_SOURCE brook ON TABLE s.t"
    assert 0 == exec_main([*place, f"CREATE {source} WITH k"])
    name = "brook.s.t"
    path = f"/api/v1/sources/{name}"
    until(lambda: "RUNNING" == client("GET", path).json["state"], "it never ran")
    until_read(client, name, 14)
    assert 0 == exec_main([*place, f"SHOW LAG FOR {source}; STOP {source}"])
    assert "behind_bytes" in capsys.readouterr().out
    until(lambda: "STOPPED" == client("GET", path).json["state"], "it never stopped")
    earliest = {"offsets": [{"partition": {}, "offset": {"at": "earliest"}}]}
    dry = client("PATCH", f"{path}/offsets?dry_run=true", earliest).json
    assert (False, [14]) == (dry["applied"], [p["offset"]["offset"] for p in dry["before"]])
    assert 0 == exec_main([*place, f"ALTER {source} SET POSITION = 'earliest'"])
    assert "reads again 14 bytes" in capsys.readouterr().out
    end = {"offsets": [{"partition": {"split": "in.jsonl"}, "offset": {"at": "latest"}}]}
    assert 200 == client("PATCH", f"/connectors/{name}/offsets", end).status
    (part,) = client("GET", f"/connectors/{name}/offsets").json["offsets"]
    assert 14 == part["offset"]["offset"]
    for wrong, message in (
        (
            {"partition": {"split": "none"}, "offset": {"at": "latest"}},
            "split 'none' does not exist",
        ),
        ({"partition": {"split": "in.jsonl", "x": "y"}, "offset": {"at": "latest"}}, "a place is"),
        ({"partition": {}, "offset": {"at": "nonsense"}}, "nonsense"),
    ):
        answer = client("PATCH", f"{path}/offsets", {"offsets": [wrong]})
        assert 400 <= answer.status < 500
        assert message in answer.json["message"]
    mixed = {"offsets": [*end["offsets"], {"partition": {"split": "in.jsonl"}, "offset": None}]}
    assert 400 == client("PATCH", f"{path}/offsets", mixed).status


def test_what_is_no_statement(served: RestWorker) -> None:
    """One statement of ours at a time, and nothing of the shell's or of Cassandra's."""
    for text in ("", "DESC DATA_SINKS; DESC DATA_SINKS", "SOURCE '/etc/passwd'", "SELECT 1", "x"):
        answer = served.client("POST", PATH, {"statement": text})
        assert 400 == answer.status
        assert "line 1:" in answer.json["message"]


def test_questions_are_bounded(served: RestWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who would wait for a plugin behind too many others is sent away; others are not."""
    monkeypatch.setattr(doorway, "ASKING_MAX", 0)
    answer = served.client("POST", PATH, {"statement": "SHOW LAG"})

    assert (503, "5") == (answer.status, answer.headers["retry-after"])
    assert 200 == served.client("POST", PATH, {"statement": "SHOW STATUS"}).status


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://x", "takes a URL"),
        ("localhost:8083", "takes a URL"),
        ("https://", "takes a URL"),
        ("https://h?x=1", "takes a URL"),
        ("https://ann:secret@h", "takes no password"),
        ("http://10.0.0.1:8083", "over https alone"),
    ],
)
def test_bad_addresses(url: str, message: str) -> None:
    """An address that cannot be, or that would show a password to others, is refused."""
    with pytest.raises(ShellError, match=message):
        remote(url, username="ann", password="x")  # noqa: S106 (a test's)


def test_no_server_of_ours(served: RestWorker) -> None:
    """Any other program that answers there is named."""
    service = remote(f"{url_of(served)}/nowhere")
    with pytest.raises(RemoteError, match="HTTP 404"):
        service.execute(DescribeSinks())
    assert Client(served.client.port).answers()

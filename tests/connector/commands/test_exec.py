"""`headrace exec` executes statements one by one, prints answers, and reports where it stopped."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.connector.commands.exec import main
from headrace.connector.language.cursor import TEXT_BYTES_MAX
from headrace.connector.language.errors import ShellError
from headrace.connector.stores import StateFileError
from headrace.plugins import ConfigError
from helpers.logs.unlogged import WARNED, worker_file

CREATE = "CREATE DATA_SINK k WITH bus://a?line=2; CREATE DATA_SOURCE flow ON TABLE a.b WITH k;"


@pytest.fixture
def state(tmp_path: Path) -> str:
    """Return the path of the state file."""
    return str(tmp_path / "state.db")


def test_silent(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    """CREATE and DROP print nothing."""
    assert 0 == main(["--state", state, "-e", CREATE])
    assert 0 == main(["--state", state, "-e", "DROP DATA_SOURCE flow ON TABLE a.b"])
    assert ("", "") == capsys.readouterr()


def test_formats(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Answers are JSON lines without a terminal, and a table or a JSON array on request."""
    text = f"{CREATE} DESC DATA_SOURCE flow ON TABLE a.b AS CONFIG"
    config = {
        "name": "flow.a.b",
        "connector.class": "RiverFlowSource",
        "keyspace": "a",
        "table": "b",
        "sink": "k",
    }

    assert 0 == main(["--state", state, "-e", text])
    assert f"{json.dumps(config)}\n" == capsys.readouterr().out
    assert 0 == main(["--state", state, "--format", "json", "-e", text.rsplit(";", maxsplit=1)[-1]])
    assert [config] == json.loads(capsys.readouterr().out)
    assert 0 == main(["--state", state, "--format", "table", "-e", "DESC DATA_SINK k"])
    assert "\nCREATE DATA_SINK k WITH 'bus://a?line=2';\n\n" == capsys.readouterr().out


def test_several_answers(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The answers come in the order of the statements."""
    assert 0 == main(["--state", state, "-e", f"{CREATE} DESC DATA_SINKS; DESC DATA_SOURCES"])
    assert ["k", "flow.a.b"] == [
        json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()
    ]


def test_file_and_standard_input(
    state: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file, with or without a byte order mark, and a pipe give the same result."""
    file = tmp_path / "some.cql"
    file.write_text(f"{CREATE}\nDESC DATA_SINKS;\n-- é\n", encoding="utf-8-sig")

    assert 0 == main(["--state", state, "-f", str(file)])
    first = capsys.readouterr().out
    for arguments in ([], ["-f", "-"]):
        piped = io.TextIOWrapper(io.BytesIO(b"DESC DATA_SINKS"))
        monkeypatch.setattr("sys.stdin", piped)
        assert 0 == main(["--state", state, *arguments])
        assert first == capsys.readouterr().out


def test_stops_at_an_error(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Statements before the one in error stay executed; those after it are not executed."""
    text = "CREATE DATA_SINK k WITH bus://a;\nDROP DATA_SINK x;\nCREATE DATA_SINK y WITH bus://a"

    assert 2 == main(["--state", state, "-e", text])
    assert capsys.readouterr().err == (
        "<stdin>:2:InvalidRequest: line 2:15 data sink x does not exist\n"
        "  DROP DATA_SINK x;\n"
        "                 ^\n"
        "hint: there are: k\n"
    )
    assert 0 == main(["--state", state, "-e", "DESC DATA_SINKS"])
    assert 1 == len(capsys.readouterr().out.splitlines())


def test_syntax_error(state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A syntax error names the file, the line and the column."""
    file = tmp_path / "some.cql"
    file.write_text(f"{CREATE}\nDESC DATA_SNKS;")

    assert 2 == main(["--state", state, "-f", str(file)])
    assert capsys.readouterr().err == (
        f"{file}:2:SyntaxException: line 2:5 found 'DATA_SNKS', "
        "expected DATA_SINKS, DATA_SOURCES, CDC, DATA_SINK or DATA_SOURCE\n"
        "  DESC DATA_SNKS;\n"
        "       ^^^^^^^^^\n"
        "hint: did you mean DATA_SINKS?\n"
    )


def test_options_in_error(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every option in error is shown at its place, an option of the URI at the URI."""
    text = "CREATE DATA_SINK k WITH bus://a?lnie=1 AND seats = 'many'\n  AND password = 'canary'"

    assert 2 == main(["--state", state, "-e", text])
    assert capsys.readouterr().err == (
        "<stdin>:1:ConfigurationException: line 2:6 password: "
        "is a secret and cannot be written down here\n"
        "    AND password = '******'\n"
        "        ^^^^^^^^\n"
        "hint: refer to it: '${env:HEADRACE_SECRET_PASSWORD}' or '${file:/path:password}'\n"
        "ConfigurationException: line 1:43 seats: expected a whole number, found 'many'\n"
        "  CREATE DATA_SINK k WITH bus://a?lnie=* AND seats = '****'\n"
        "                                             ^^^^^\n"
        "ConfigurationException: line 1:24 lnie: is not an option\n"
        "  CREATE DATA_SINK k WITH bus://a?lnie=* AND seats = '****'\n"
        "                          ^^^^^^^^^^^^^^\n"
        "hint: did you mean line? `headrace options bus` lists all 5 options\n"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"DESC \xff", "is not UTF-8 at byte 5"),
        (b" " * (TEXT_BYTES_MAX + 1), "has more than 1048576 bytes"),
        (None, "Could not open .*: No such file or directory"),
    ],
    ids=["not UTF-8", "too long", "missing"],
)
def test_unreadable_file(state: str, tmp_path: Path, content: bytes | None, message: str) -> None:
    """A file that is not text, is too long or does not exist is a named error."""
    file = tmp_path / "some.cql"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ShellError, match=message) as caught:
        main(["--state", state, "-f", str(file)])
    assert str(file) in caught.value.message


@pytest.mark.parametrize("text", ["DESC DATA_SINKS", "SHOW STATUS", "DROP DATA_SINK k", ""])
def test_only_create_makes_a_state_file(state: str, text: str) -> None:
    """A state file that does not exist is an error, and only CREATE makes it."""
    with pytest.raises(ConfigError, match="--state: the state file does not exist") as caught:
        main(["--state", state, "-e", text])

    assert (2, state) == (caught.value.exit_status, caught.value.place)
    assert not Path(state).exists()


def test_state_unusable(tmp_path: Path) -> None:
    """A state file that cannot be created is an error of the environment."""
    with pytest.raises(StateFileError) as caught:
        main(["--state", str(tmp_path / "no" / "state.db"), "-e", CREATE])

    assert 3 == caught.value.exit_status


@pytest.mark.parametrize(
    "arguments", [["--state", "s", "--rest", "http://h"], ["--state", "s", "-e", "x", "-f", "y"]]
)
def test_usage(arguments: list[str]) -> None:
    """A wrong command line ends with status 2."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert 2 == caught.value.code


def test_at_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without -e or -f it does not wait for what a person may type; with `-f -` it does."""
    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO()))
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "headrace exec: no statements: -e or -f has them" in capsys.readouterr().err

    with pytest.raises(ConfigError, match="the state file does not exist"):
        main(["-f", "-", "--state", "no.db"])


class Terminal(io.TextIOWrapper):
    """Standard input of a person."""

    def isatty(self) -> bool:
        """Return True, as a terminal does."""
        return True


def test_processes(state: str) -> None:
    """When two processes create the same sink, one gets the error that it exists."""
    code = (
        "import sys; from headrace.connector.commands.exec import main;"
        " sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "--state", state]
    create = [*command, "-e", "CREATE DATA_SINK k WITH null://"]
    running = [
        subprocess.Popen(create, stderr=subprocess.PIPE, text=True, env=dict(os.environ))  # noqa: S603 (our own command)
        for _ in range(2)
    ]
    errors = [process.communicate(timeout=180)[1] for process in running]

    assert [0, 2] == sorted(process.returncode for process in running)
    assert 1 == sum("AlreadyExists: line 1:17 data sink k" in error for error in errors)


UNDECLARED = ("sasl.jaas.config", "sasl.oauthbearer.client.secret", "basic.auth.user.info", "tokn")


@pytest.mark.parametrize("key", [*UNDECLARED, "password"])
@pytest.mark.parametrize(
    "text",
    [
        "CREATE DATA_SINK x WITH bus://a AND {} = 'u:canary'",
        "CREATE DATA_SINK x WITH bus://a AND seats = 'many' AND {} = 'u:canary'",
        "CREATE DATA_SINK x WITH 'bus://a?{}=u:canary'",
        "CREATE DATA_SINK x WITH bus://a?{}=canary;",
        "CREATE DATA_SINK x WITH bus://a AND {} = 'u:canary' ADN seats = 1",
        "CREATE DATA_SINK x WITH bus://a AND {} = u:canary",
        "CREATE DATA_SINK x WITH bus://a AND {} = canary",
        "CREATE DATA_SINK x WITH bus://a AND {} = 'it''s a canary",
        "CREATE DATA_SINK x WITH bus://a AND {0} = 'canary' AND {0} = 'canary'",
        "ALTER DATA_SINK k WITH {} = 'u:canary'",
        "CREATE DATA_SOURCE flow ON TABLE a.c WITH k AND {} = 'u:canary'",
        "ALTER DATA_SOURCE flow ON TABLE a.b WITH {} = 'u:canary'",
    ],
)
def test_no_undeclared_value_is_repeated(
    state: str, text: str, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The value of a secret or of an undeclared key is in no error and not in the audit log."""
    assert 0 == main(["--state", state, "-e", CREATE])
    assert 2 == main(["--state", state, "-e", text.format(key)])
    out, err = capsys.readouterr()

    assert "Exception: line 1:" in err
    assert "canary" not in out + err + Path(f"{state}.audit").read_text()


def test_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A warning is written to standard error, between the answers, and the status stays 0."""
    text = (
        "CREATE DATA_SINK k WITH bus://a; CREATE DATA_SOURCE cdc ON TABLE shop.orders WITH k;"
        "CREATE DATA_SOURCE cdc ON TABLE shop.items WITH k; DESC DATA_SOURCES"
    )
    assert 0 == main(["--state", str(worker_file(tmp_path)), "-e", text])
    out, err = capsys.readouterr()
    assert WARNED == err
    names = [json.loads(line)["name"] for line in out.splitlines()]
    assert ["cdc.shop.items", "cdc.shop.orders"] == names

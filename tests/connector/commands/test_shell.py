"""`headrace shell` without a terminal: a file, a pipe and the command line give the same result."""

import io
import re
from pathlib import Path

import pytest

from headrace.connector.commands.shell import main
from headrace.connector.language.errors import ShellError
from helpers.logs.unlogged import WARNED, worker_file

SCRIPT = """
CREATE DATA_SINK k WITH bus://a;
-- a comment
CREATE DATA_SOURCE flow ON TABLE shop.orders WITH k;
DROP DATA_SNK k;
EXPAND ON
DESC DATA_SINKS
SHOW VERSION;
"""
OUT = """EXPAND set to ON

@ Row 1
------------------+------------------------------------
 name             | k
 plugin           | bus
 create_statement | CREATE DATA_SINK k WITH 'bus://a';

(1 rows)
[headrace 0.1.0]
"""
ERR = """SyntaxException: line 1:5 found 'DATA_SNK', expected DATA_SINK, DATA_SOURCE, RUN or CDC
  DROP DATA_SNK k
       ^^^^^^^^
hint: did you mean DATA_SINK?
"""


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, installed: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 (for its effect)
    """Run as a user without configuration files."""
    for name in ("CQLSH_HOST", "CQLSH_PORT", "HEADRACE_STATE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def start(tmp_path: Path, *arguments: str) -> int:
    """Run the shell on a new state file."""
    state = tmp_path / f"state{len(list(tmp_path.iterdir()))}.db"
    return main(["--state", str(state), *arguments])


def pipe(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make *text* the standard input."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_the_same_from_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file, a pipe, `-e` and SOURCE execute the same; errors end with status 2."""
    file = tmp_path / "a.cql"
    file.write_text(SCRIPT)
    ways = {
        str(file): ("-f", str(file)),
        "<stdin>": ("-e", SCRIPT),
        "<pipe>": (),
        "<-f ->": ("-f", "-"),
    }
    for origin, arguments in ways.items():
        pipe(SCRIPT, monkeypatch)
        assert 2 == start(tmp_path, "--format", "table", *arguments)
        written = capsys.readouterr()
        assert OUT == written.out
        assert f"{origin if '<' not in origin else '<stdin>'}:5:{ERR}" == written.err

    assert 2 == start(tmp_path, "--format", "table", "-e", f"SOURCE '{file}'")
    written = capsys.readouterr()
    assert (OUT, f"{file}:5:{ERR}") == written


def test_status(tmp_path: Path) -> None:
    """Without errors the status is 0, and EXIT ends at once."""
    assert 0 == start(tmp_path, "-e", "DESC DATA_SINKS; EXIT; DROP nothing")


def test_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, answers are JSON lines; each form can be requested."""
    text = "CREATE DATA_SINK k WITH bus://a; DESC DATA_SINKS"
    beginnings = {
        None: '{"name": "k"',
        "json": "[\n",
        "csv": "name,plugin,",
        "table": "\n name",
        "expanded": "\n@ Row 1",
    }
    for form, beginning in beginnings.items():
        chosen = ("--format", form) if form else ()
        assert 0 == start(tmp_path, *chosen, "-e", text)
        assert capsys.readouterr().out.startswith(beginning)


def test_plain_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--tty` there is a prompt, though there is no terminal."""
    pipe("CREATE DATA_SINK k\n\n\n\nWITH bus://a;\nUSE shop;\nDROP DATA_SINK k;\ny\n", monkeypatch)

    assert 0 == start(tmp_path, "--tty")
    written = capsys.readouterr().out
    assert "Use HELP for help.\nheadrace>       ... " in written
    assert "Statements are terminated with a ';'." in written
    assert "headrace:shop> DROP DATA_SINK k\nReally? [y/N] headrace:shop> \n" in written


def test_yes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--yes` nothing is confirmed."""
    pipe("DROP DATA_SINK IF EXISTS k;\n", monkeypatch)

    assert 0 == start(tmp_path, "--tty", "--yes")
    assert "Really" not in capsys.readouterr().out


def test_refused(tmp_path: Path) -> None:
    """An argument that cannot be used is named."""
    with pytest.raises(ShellError, match="Could not open"):
        start(tmp_path, "-f", str(tmp_path / "none"))
    with pytest.raises(ShellError, match=r"encoding .* is unknown"):
        start(tmp_path, "--encoding", "x-none", "-e", "HELP")
    with pytest.raises(ShellError, match="no password"):
        start(tmp_path, "-u", "me", "localhost", "-e", "HELP")


def test_unreachable(tmp_path: Path) -> None:
    """A node that does not answer is status 1."""
    from headrace.connector.shell.cql import CqlUnreachableError  # noqa: PLC0415 (slow)

    with pytest.raises(CqlUnreachableError, match=r"could not connect to 127\.0\.0\.1:1") as caught:
        start(tmp_path, "127.0.0.1", "1", "-e", "HELP")
    assert 1 == caught.value.exit_status


def test_no_undeclared_value_is_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell prints no value of a key that is not declared."""
    pipe(
        """
        CREATE DATA_SINK k WITH bus://a AND sasl.jaas.config = 'canary';
        CREATE DATA_SINK k WITH bus://a AND basic.auth.user.info = 'u:canary' AD x = 1;
        CREATE DATA_SINK k WITH 'bus://a?client.secret=canary&tokn=canary';
        """,
        monkeypatch,
    )

    assert 2 == start(tmp_path)
    out, err = capsys.readouterr()
    assert {"<stdin>:2", "<stdin>:3", "<stdin>:4"} == set(
        re.findall(r"^<stdin>:\d", err, re.MULTILINE)
    )
    assert "canary" not in out + err


def test_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A warning is printed to standard error; the statement succeeded."""
    text = (
        "CREATE DATA_SINK k WITH 'file://out.jsonl'; USE shop;"
        "CREATE DATA_SOURCE cdc ON TABLE orders WITH k"
    )
    assert 0 == main(["--state", str(worker_file(tmp_path)), "-e", text])
    assert ("", WARNED) == capsys.readouterr()

"""The prompt in-process: keys go in by a pipe, and a session executes what they make."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from headrace.connector.shell.prompt import Prompt, ShellHistory, is_secret
from headrace.connector.shell.scanning import highlighted
from helpers.jobs.shells import Seen, lookout_on


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    """Return a keyboard whose terminal shows nothing."""
    with create_pipe_input() as made, create_app_session(input=made, output=DummyOutput()):
        yield made


def converse(seen: Seen, tmp_path: Path, path: Path | None = None) -> str:
    """Run a prompt until it ends; return what was written."""
    lookout = lookout_on(tmp_path / "state.db")
    Prompt(seen.session, ShellHistory(path), lookout).run()
    return seen.out.getvalue() + seen.err.getvalue()


def test_lines(seen: Seen, tmp_path: Path, keys: PipeInput) -> None:
    """Enter continues until the statement is whole, then it is executed."""
    keys.send_text("CREATE DATA_SINK k\rWITH bus://a;\rDESC DATA_SINK k\r\rEXIT\r")

    assert "CREATE DATA_SINK k WITH 'bus://a';" in converse(seen, tmp_path)


def test_enter_in_the_middle(seen: Seen, tmp_path: Path, keys: PipeInput) -> None:
    """A whole line is executed wherever the cursor is in it."""
    keys.send_text("EXPAND ON\x1b[D\x1b[D\r\x04")

    assert "EXPAND set to ON\n" == converse(seen, tmp_path)


def test_unwritable_history(seen: Seen, tmp_path: Path, keys: PipeInput) -> None:
    """A history that cannot be kept is not a history, and no error."""
    (tmp_path / "file").touch()
    keys.send_text("EXPAND\r\x04")

    assert "EXPAND is OFF\n" == converse(seen, tmp_path, tmp_path / "file" / "history")


def test_ctrl_c_and_ctrl_d(seen: Seen, tmp_path: Path, keys: PipeInput) -> None:
    """Ctrl-C gives up what is typed; Ctrl-D on an empty line leaves."""
    keys.send_text("DROP DATA_SINK\x03EXPAND\r\x04")

    assert "EXPAND is OFF\n" == converse(seen, tmp_path)


def test_history(seen: Seen, tmp_path: Path, keys: PipeInput) -> None:
    """Line ends stay in the history, which only its owner can read; secrets never go in."""
    path = tmp_path / "deep" / "history"
    keys.send_text("SHOW\rSTATUS;\rDROP DATA_SINK k WITH password='canary';\r\x04")
    converse(seen, tmp_path, path)

    assert ["SHOW\nSTATUS;"] == list(ShellHistory(path).load_history_strings())
    assert 0o600 == path.stat().st_mode & 0o777
    with path.open("a") as file:
        file.write('torn\n["x"]\n"y"\n')
    assert ["y", "SHOW\nSTATUS;"] == list(ShellHistory(path).load_history_strings())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE DATA_SINK k WITH 'a://b' AND sasl.password = 'canary'", True),
        ("CREATE DATA_SINK k WITH 'a://b?sasl.password=canary'", True),
        ("CREATE DATA_SINK k WITH 'a://me:canary@h'", True),
        ("CREATE DATA_SINK k WITH 'a://b' AND sasl.password = '${env:canary}' AND t = 1", False),
        ("CREATE ROLE me WITH PASSWORD = 'canary'", True),
        ("ALTER USER me IDENTIFIED BY 'canary'", True),
        ("LOGIN me canary", True),
        ("SELECT token(a) FROM t", False),
        ("DESC DATA_SINKS", False),
    ],
)
def test_is_secret(text: str, *, expected: bool) -> None:
    """What gives a secret anything but a reference is a secret."""
    assert expected is is_secret(text)


def test_highlighted() -> None:
    """All of a text is given back, piece by piece, with names of colours."""
    text = "CREATE DATA_SINK k WITH 'a' -- b\n AND n = 7 \"c"
    found = list(highlighted(text))

    assert text == "".join(piece for _, piece in found)
    assert ("keyword", "DATA_SINK") in found
    assert ("string", "'a'") in found
    assert ("comment", "-- b") in found
    assert ("open", '"c') in found


def test_lookout(seen: Seen, tmp_path: Path) -> None:
    """The toolbar says what is missing, then how sources fare, and what is wrong with a file."""
    lookout = lookout_on(tmp_path / "state.db")
    assert "no data source yet" in lookout.health()

    seen.run("CREATE DATA_SINK k WITH bus://a; CREATE DATA_SOURCE flow ON TABLE s.t WITH k;")
    reason = "not_started: no worker runs job k; start it: headrace worker WORKER.yaml"
    assert f"1 UNASSIGNED · flow.s.t: {reason}" == lookout.health()
    assert "" == lookout.lag()  # Its job has never run.
    assert {"k": "bus://a"} == lookout.known().sinks
    assert "state_file: " in lookout_on(tmp_path / "none.db").health()
    assert {} == lookout_on(tmp_path / "none.db").known().sinks

"""The shell's own commands answer as cqlsh's users know them."""

import stat
from pathlib import Path

import pytest

from headrace.connector.language.errors import StatementSyntaxError
from headrace.connector.language.help import COMMAND_TOPICS, STATEMENT_TOPICS
from headrace.connector.language.parser import outlook, parse_script
from headrace.connector.shell.scanning import COMMANDS, is_whole
from helpers.jobs.shells import Seen


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("EXPAND", "EXPAND is OFF\n"),
        ("EXPAND ON", "EXPAND set to ON\n"),
        ("EXPAND OFF", "EXPAND is already OFF\n"),
        ("EXPAND x", "Improper EXPAND command.\n"),
        ("TRACING", "TRACING is OFF\n"),
        ("TIMING ON", "TIMING set to ON\n"),
        ("PAGING", "Page size: 100\n"),
        ("PAGING 50", "Page size: 50\n"),
        ("PAGING OFF", "PAGING set to OFF.\n"),
        ("PAGING 0", "Improper PAGING command: expected a number from 1 to 10000.\n"),
        ("CAPTURE", "Currently not capturing query output.\n"),
        ("CAPTURE OFF", "Not currently capturing output.\n"),
        ("SOURCE", "Improper SOURCE command.\n"),
        ("CONSISTENCY", "not connected: start headrace shell with a host\n"),
        ("LOGIN someone", "not connected: start headrace shell with a host\n"),
        ("SHOW HOST", "not connected: start headrace shell with a host\n"),
        ("SHOW VERSION", "[headrace 0.1.0]\n"),
        ("FORMAT csv", "FORMAT is csv.\n"),
        ("FORMAT xml", "Improper FORMAT command: there are table, json, jsonl, csv, expanded.\n"),
        ("SET on_error STOP", "on_error is STOP.\n"),
        ("SET x", "Improper SET command: SET on_error STOP | CONTINUE.\n"),
        ("WATCH x DESC DATA_SINKS", "Improper WATCH command: expected a number from 1 to 86400.\n"),
        ("WATCH 1", "Improper WATCH command: WATCH seconds statement.\n"),
        ("WATCH 1 DROP DATA_SINK k", "WATCH repeats statements that change nothing.\n"),
        ("WATCH 1 TRUNCATE t", "WATCH repeats statements that change nothing.\n"),
        ("HELP zz", "No topic of help is called zz. HELP lists the topics.\n"),
        ("EXIT now", "Improper EXIT command.\n"),
        ("\\q now", "Improper EXIT command.\n"),
        ("\\timing on", "TIMING set to ON\n"),
        ("\\x on;", "EXPAND set to ON\n"),
        ("\\nope", "\\nope is not a command. HELP lists the commands.\n"),
    ],
)
def test_answers(seen: Seen, text: str, expected: str) -> None:
    """Each command says what it did, or that it could not."""
    assert expected == seen.run(text)


def test_backslash_d(seen: Seen) -> None:
    """As in psql, backslash d ends with its line: it lists all, or describes one sink."""
    seen.run("CREATE DATA_SINK k WITH bus://a; CREATE DATA_SINK l WITH bus://b")
    assert is_whole("\\d")

    both, one = seen.run("\\d"), seen.run("\\d l")
    assert seen.run("DESC DATA_SOURCES; DESC DATA_SINKS") == both
    assert seen.run("DESC DATA_SINK l") == one
    assert ("bus://a" in both, "bus://a" in one) == (True, False)


def test_expand(seen: Seen) -> None:
    """EXPAND ON shows rows one below the other."""
    seen.run("CREATE DATA_SINK k WITH bus://a; EXPAND ON")

    assert "@ Row 1" in seen.run("DESC DATA_SINKS")


def test_format(seen: Seen) -> None:
    """FORMAT changes how answers are written."""
    seen.run("CREATE DATA_SINK k WITH bus://a; FORMAT csv")

    assert seen.run("DESC DATA_SINKS").startswith("name,plugin,create_statement\r\nk,bus,")


def test_timing(seen: Seen) -> None:
    """TIMING ON tells how long a statement took."""
    seen.run("TIMING ON")

    assert seen.run("DESC DATA_SINKS").endswith(" s)\n")


def test_capture(seen: Seen, tmp_path: Path) -> None:
    """CAPTURE appends answers, not errors, to a file of one's own, and shows the errors."""
    file = tmp_path / "it's.txt"
    file.write_text("before\n")
    quoted = str(file).replace("'", "''")

    assert f"Now capturing query output to {str(file)!r}.\n" == seen.run(f"CAPTURE '{quoted}'")
    assert "Currently capturing" in seen.run("CAPTURE")
    assert "Already capturing" in seen.run("CAPTURE 'other'")
    assert "data sink x does not exist" in seen.run("DESC DATA_SINKS; DESC DATA_SINK x")
    assert "" == seen.run("CAPTURE OFF")
    assert "(0 rows)" in seen.run("DESC DATA_SINKS")
    assert file.read_text().startswith("before\n\n name |")
    assert 1 == file.read_text().count("(0 rows)")
    assert "Could not open" in seen.run(f"CAPTURE '{tmp_path}'")


def test_captured_file_is_private(seen: Seen, tmp_path: Path) -> None:
    """Only its owner can read a file that CAPTURE makes."""
    seen.run(f"CAPTURE '{tmp_path}/x'; CAPTURE OFF")

    assert 0o600 == stat.S_IMODE((tmp_path / "x").stat().st_mode)


def test_watch(seen: Seen) -> None:
    """WATCH repeats until it is interrupted."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    seen.session.screen.pause = pause

    assert 3 == seen.run("WATCH 7 DESC DATA_SINKS").count("(0 rows)")
    assert [7, 7, 7] == pauses


def test_history(seen: Seen) -> None:
    """HISTORY shows the newest entries, the last at the bottom."""
    seen.session.history = lambda: ["a", "b", "c"]

    assert "b\nc\n" == seen.run("HISTORY 2")


def test_help(seen: Seen) -> None:
    """HELP lists everything there is, and has something to say on each."""
    listed = seen.run("HELP")

    assert "Documented shell commands:" in listed
    assert "CQL help topics:" in listed
    for topic in (*COMMAND_TOPICS, *STATEMENT_TOPICS):
        assert topic in listed
        assert 2 < len(seen.run(f"? {topic.lower().replace('_', ' ', 1)}").splitlines())
    assert {*COMMANDS} == {*COMMAND_TOPICS, "?", "CLS", "QUIT"}


def test_help_on_a_thing(seen: Seen) -> None:
    """HELP on a part of a topic shows all that have it."""
    written = seen.run("HELP DATA_SINK")

    assert "CREATE DATA_SINK" in written
    assert "VALIDATE DATA_SINK" in written


def test_help_is_true() -> None:
    """Every statement has a topic, and every example in them parses."""
    starts = {*outlook("").expected} - {"DESC", "BACKFILL"}  # Other words for statements.
    examples = [
        part
        for text in STATEMENT_TOPICS.values()
        for part in text.split("\n\n")
        if part.startswith("          ")
    ]

    assert starts == {name.partition("_")[0] for name in STATEMENT_TOPICS}
    assert 4 <= len(examples)
    for example in examples:
        try:
            list(parse_script(example))
        except StatementSyntaxError as error:
            pytest.fail(str(error))


def test_every_command_is_known(seen: Seen) -> None:
    """What is cut as a command is executed as one."""
    for command in COMMANDS:
        if command not in ("EXIT", "QUIT", "SOURCE", "LOGIN", "CONSISTENCY", "SET", "WATCH"):
            seen.session.run_command(command)

    assert "" == seen.err.getvalue()
    assert "DESCRIBE" in seen.out.getvalue()

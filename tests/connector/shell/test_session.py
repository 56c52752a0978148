"""A session executes unit by unit, shows answers and errors, and asks before it destroys."""

from pathlib import Path

import pytest

from headrace.connector.language.cursor import TEXT_BYTES_MAX
from headrace.connector.language.errors import ShellError
from headrace.connector.language.rendering import COLOURS, ResultTable
from headrace.connector.shell.session import SOURCE_DEPTH_MAX, LeaveShell, joined
from helpers.jobs.shells import Seen

MADE = "CREATE DATA_SINK k WITH bus://a; CREATE DATA_SOURCE flow ON TABLE shop.orders WITH k;"


def test_statements(seen: Seen) -> None:
    """Statements answer as their tables, and silent ones say nothing."""
    assert "" == seen.run(MADE)
    assert "CREATE DATA_SINK k WITH 'bus://a';" in seen.run("DESC DATA_SINK k")


def test_errors(seen: Seen) -> None:
    """An error shows where it is, and ends nothing."""
    written = seen.run("DROP DATA_SNK k; DESC DATA_SINK none; DESC DATA_SINKS")

    assert "SyntaxException: line 1:5 found 'DATA_SNK'" in written
    assert "hint: did you mean DATA_SINK?" in written
    assert "InvalidRequest: line 1:15 data sink none does not exist" in written
    assert "(0 rows)" in written


def test_stop_on_error(seen: Seen) -> None:
    """After SET on_error STOP an error is the last thing that is done."""
    seen.run("SET on_error STOP")

    assert "(0 rows)" not in seen.run("DROP DATA_SNK k; DESC DATA_SINKS")


def test_places_in_a_file(seen: Seen, tmp_path: Path) -> None:
    """An error of a file begins with the file and the line of the file."""
    file = tmp_path / "a.cql"
    file.write_text("-- first\nDESC DATA_SINKS;\n\nDROP\n DATA_SNK k;\nEXPAND on\nSELECT 1")
    written = seen.run(f"SOURCE '{file}'")

    assert f"{file}:5:SyntaxException: line 2:1 found 'DATA_SNK'" in written
    assert "EXPAND set to ON" in written
    assert f"{file}:7:Incomplete statement at end of file" in written


def test_files_in_files(seen: Seen, tmp_path: Path) -> None:
    """A file that executes itself ends in an error."""
    file = tmp_path / "a.cql"
    file.write_text(f"SOURCE '{file}';")

    assert f"more than {SOURCE_DEPTH_MAX} files execute one another" in seen.run(f"SOURCE '{file}'")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Could not open"),
        (b"\xff", "is not UTF-8"),
        (b" " * (TEXT_BYTES_MAX + 1), "more than"),
    ],
)
def test_unreadable_file(seen: Seen, tmp_path: Path, content: bytes | None, message: str) -> None:
    """A file that cannot be executed is a named error."""
    file = tmp_path / "a.cql"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ShellError, match=message):
        seen.session.run_file(str(file))


def test_confirmation(seen: Seen) -> None:
    """What destroys is asked for first; a dry run, and what only stops, is not."""
    seen.run(MADE)
    seen.answer = False
    for text in (
        "DROP DATA_SOURCE flow ON TABLE shop.orders",
        "DROP DATA_SINK k",
        "ALTER DATA_SOURCE flow ON TABLE shop.orders SET POSITION = 'earliest'",
    ):
        assert "" == seen.run(f"{text};")
        assert f"{text}\nReally? [y/N] " == seen.asked.pop()
    assert "(1 rows)" in seen.run("DESC DATA_SOURCES; PAUSE DATA_SOURCE flow ON TABLE shop.orders;")
    seen.run("ALTER DATA_SOURCE flow ON TABLE shop.orders SET POSITION = 'earliest' DRY RUN;")
    assert [] == seen.asked

    seen.session.screen.interactive = False
    seen.run("DROP DATA_SOURCE flow ON TABLE shop.orders; DROP DATA_SINK k;")
    assert [] == seen.asked
    assert "(0 rows)" in seen.run("DESC DATA_SINKS")


def test_keyspace(seen: Seen) -> None:
    """A table without a keyspace is one of the current keyspace."""
    seen.run(f"{MADE} USE shop;")

    assert "flow.shop.orders" in seen.run("SHOW STATUS FOR DATA_SOURCE flow ON TABLE orders")
    assert "flow.shop.orders" in seen.run("DESC DATA_SOURCE flow ON TABLE orders AS CONFIG")
    assert "" == seen.run("DROP DATA_SOURCE flow ON TABLE orders;")


def test_not_connected(seen: Seen) -> None:
    """CQL without a connection says what it needs."""
    assert "hint: UPDATE is CQL" in seen.run("UPDATE t SET a = 1;")
    assert "of a CDC needs WHERE CDC_TIME() >=" in seen.run("SELECT * FROM t;")
    assert "hint: TABLE is CQL's" in seen.run("CREATE TABLE t (a int PRIMARY KEY);")


def test_pages(seen: Seen) -> None:
    """Long answers come page by page, until one is enough."""
    seen.run("".join(f"CREATE DATA_SINK k{number} WITH bus://a;" for number in range(5)))
    seen.run("PAGING 2")

    assert 3 == seen.run("DESC DATA_SINKS").count("rows)")
    assert ["---MORE---", "---MORE---"] == seen.asked
    seen.answer = False
    assert 1 == seen.run("DESC DATA_SINKS").count("rows)")


def test_joined() -> None:
    """Pages of one answer become one; another answer stays another."""
    first, second = ResultTable(("a",), (("1",),)), ResultTable(("a",), (("2",), ("3",)))
    trace = ResultTable(("activity",), (("x",),))

    whole = ResultTable(("a",), (("1",), ("2",), ("3",)))
    assert [whole, trace] == list(joined([first, second, trace]))
    assert [] == list(joined([]))


def test_nothing_acts_on_the_terminal(seen: Seen) -> None:
    """Control characters in an error are shown, not obeyed."""
    assert "\x1b" not in seen.run("DROP DATA_SINK \x1b[2J;")
    assert "\x1b" not in seen.run("SOURCE '/no/\x1b[2J'")
    assert "\x1b" not in seen.run("EXPAND \x1b[2J")


def test_colours(seen: Seen) -> None:
    """Errors are red where there are colours."""
    seen.session.screen.palette = COLOURS

    assert seen.run("DROP x").startswith(COLOURS.error)


def test_leave(seen: Seen) -> None:
    """EXIT ends the session at once."""
    with pytest.raises(LeaveShell):
        seen.session.run("EXIT; DESC DATA_SINKS")
    assert "" == seen.out.getvalue()


@pytest.mark.parametrize(
    "part", ["x" * 1_000_000, "(" * 100_000, "'" * 99_999, "AND x = 1 " * 90_000]
)
def test_large_input(seen: Seen, part: str) -> None:
    """A large statement is a named error soon."""
    assert "\n" in seen.run(f"CREATE DATA_SINK k WITH bus://a {part}")

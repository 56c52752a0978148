"""Input is cut into units for us, for the shell and for Cassandra, where their users expect it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.language.formatting import format_statement
from headrace.connector.language.statements import SelectCdc, Statement
from headrace.connector.shell.scanning import COMMANDS, Kind, is_whole, units
from helpers.cost import is_linear
from helpers.jobs.statements import statements

OURS, COMMAND, CQL = Kind.OURS, Kind.COMMAND, Kind.CQL


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" ; -- only this\n ;; ", []),
        ("DESC DATA_SINKS", [(OURS, "DESC DATA_SINKS")]),
        ("show lag\nselect 1;", [(OURS, "show lag"), (CQL, "select 1")]),
        (
            "SHOW LAG\n FOR DATA_SOURCE cdc ON TABLE a.b\nHELP",
            [(OURS, "SHOW LAG\n FOR DATA_SOURCE cdc ON TABLE a.b"), (COMMAND, "HELP")],
        ),
        ("DESC DATA_SNKS\nHELP", [(OURS, "DESC DATA_SNKS"), (COMMAND, "HELP")]),
        ("DESCRIBE TABLES\nEXIT", [(CQL, "DESCRIBE TABLES"), (COMMAND, "EXIT")]),
        (
            "CREATE DATA_SINK k WITH kafka://h:1?x=1; ?\n",
            [(OURS, "CREATE DATA_SINK k WITH kafka://h:1?x=1"), (COMMAND, "?")],
        ),
        (
            "SELECT 'a;b', \"c;d\", $$e;f$$ /* ; */ FROM t -- ;\n; x;",
            [(CQL, "SELECT 'a;b', \"c;d\", $$e;f$$ /* ; */ FROM t -- ;"), (CQL, "x")],
        ),
        (
            "BEGIN BATCH INSERT 1; DELETE 2; APPLY BATCH; PAUSE x",
            [(CQL, "BEGIN BATCH INSERT 1; DELETE 2; APPLY BATCH"), (OURS, "PAUSE x")],
        ),
        ("SOURCE 'a;b' ; EXIT", [(COMMAND, "SOURCE 'a;b'"), (COMMAND, "EXIT")]),
        ("SHOW VERSION; SHOW ERRORS", [(COMMAND, "SHOW VERSION"), (OURS, "SHOW ERRORS")]),
        ("WATCH 2 SHOW LAG;", [(COMMAND, "WATCH 2 SHOW LAG")]),
        ("ALTER TABLE t WITH cdc = true;", [(CQL, "ALTER TABLE t WITH cdc = true")]),
    ],
)
def test_units(text: str, expected: list[tuple[Kind, str]]) -> None:
    """Each unit goes to whom its first words mean, as it was written."""
    assert expected == [(unit.kind, unit.text) for unit in units(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("DROP DATA_SINK k", False),
        ("DROP DATA_SINK k;", True),
        ("DROP DATA_SINK k; DROP", False),
        ("DROP DATA_SINK k; -- so\n", True),
        ("DESC DATA_SINK", False),
        ("DESC DATA_SINK k", True),
        ("DESC TABLES", True),
        ("CREATE DATA_SINK k WITH 'a;", False),
        ("SELECT /* ;", False),
        ("HELP", True),
        ("BEGIN BATCH DELETE 1;", False),
    ],
)
def test_is_whole(text: str, *, expected: bool) -> None:
    """The shell waits for more until a semicolon, or the line's end where that is enough."""
    assert expected == is_whole(text)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_end_with_their_line(command: str) -> None:
    """Every command may end at the end of its line."""
    first, second = units(f"{command.lower()}\nDROP DATA_SINK k;")

    assert (COMMAND, OURS) == (first.kind, second.kind)


def is_ours(statement: Statement) -> bool:
    """Say whether a statement is not CQL: a SELECT of a history has a time."""
    if not isinstance(statement, SelectCdc):
        return True
    return any(condition.column == "cdc_time()" for condition in statement.where)


@given(st.lists(statements.filter(is_ours)))
def test_our_statements(made: list[Statement]) -> None:
    """Statements that we write come out one by one."""
    texts = [format_statement(statement) for statement in made]
    found = list(units("\n".join(texts)))

    assert [text.removesuffix(";") for text in texts] == [unit.text for unit in found]
    assert all(unit.kind is OURS and unit.whole for unit in found)


@given(st.text() | st.text("a;'\"$/*- \nDESC_K"))
def test_any_text(text: str) -> None:
    """Units come in order, do not overlap, and hold everything but blanks and comments."""
    end = 0
    for unit in units(text):
        assert end <= unit.start
        assert text.startswith(unit.text, unit.start)
        end = unit.start + len(unit.text)


@pytest.mark.parametrize("piece", ["x\n", "-- c\n", "'", "/*", "$$", ";", "BEGIN;", '"\n', "a://"])
@pytest.mark.parametrize("head", ["", "DESC ", "SHOW LAG ", "BEGIN "])
def test_units_are_cut_in_linear_time(head: str, piece: str) -> None:
    """A text is cut in a time that grows as its length does, for any text."""

    def cut(size: int) -> None:
        for _unit in units(head + piece * (size // len(piece))):
            pass

    assert is_linear(cut, 1024, times=8)

"""Answers are shown as cqlsh shows them, or as JSON that programs read."""

import json
import re

import pytest

from headrace.connector.language.rendering import (
    COLOURS,
    FORMATS,
    STATEMENT_COLUMN,
    Rendering,
    ResultTable,
    StatementWarning,
    render_csv,
    render_expanded,
    render_json,
    render_jsonl,
    render_table,
)

TWO_ROWS = ResultTable(("name", "sink"), (("cdc.shop.orders", "k"), ("cdc.a.b", "日本")))


def test_table() -> None:
    """Columns are right-aligned below their names, and the rows counted."""
    expected = """
 name            | sink
-----------------+------
 cdc.shop.orders |    k
         cdc.a.b | 日本

(2 rows)
"""
    assert expected == render_table(TWO_ROWS, Rendering(24))


def test_too_wide() -> None:
    """A table one column too wide is shown row by row."""
    expected = """
@ Row 1
------+-----------------
 name | cdc.shop.orders
 sink | k

@ Row 2
------+---------
 name | cdc.a.b
 sink | 日本

(2 rows)
"""
    assert expected == render_table(TWO_ROWS, Rendering(23))


def test_no_rows() -> None:
    """An empty answer still shows its columns."""
    expected = "\n a | b\n---+---\n\n(0 rows)\n"

    assert expected == render_table(ResultTable(("a", "b")), Rendering(1))


def test_statement() -> None:
    """A statement is shown as it would be typed, with its line ends and no other controls."""
    result = ResultTable((STATEMENT_COLUMN,), (("DROP\n DATA_SINK k\x1b;",),))

    assert "\nDROP\n DATA_SINK k\\x1b;\n\n" == render_table(result, Rendering(1))


def test_silent() -> None:
    """A statement without an answer prints nothing in any form."""
    silent = ResultTable()

    assert {""} == {render(silent, Rendering()) for render in FORMATS.values()}


@pytest.mark.parametrize("unsafe", ["\x1b[2J", "\n", "\x9b", "\u202e", "\x00"])
def test_terminal_escapes(unsafe: str) -> None:
    """Nothing that a terminal would obey is written to it."""
    result = ResultTable(("a",), ((f"x{unsafe}y",),))

    assert unsafe not in render_table(result, Rendering()).splitlines()[3]
    assert f"x{unsafe}y" == json.loads(render_jsonl(result))["a"]
    assert render_jsonl(result).strip().isprintable()
    assert unsafe not in render_expanded(result, Rendering()).split("|")[1].splitlines()[0]
    assert (unsafe == "\n") == (unsafe in render_csv(result).replace("\r\n", ""))


def test_json() -> None:
    """JSON is one array of objects."""
    expected = [{"name": "cdc.shop.orders", "sink": "k"}, {"name": "cdc.a.b", "sink": "日本"}]

    assert expected == json.loads(render_json(TWO_ROWS))
    assert expected == [json.loads(line) for line in render_jsonl(TWO_ROWS).splitlines()]
    assert [] == json.loads(render_json(ResultTable(("a",))))


def test_csv() -> None:
    """CSV has a line of names, and quotes what needs them."""
    result = ResultTable(("name", "b"), (("x,y", 'say "z"'), ("two\nlines", "")))

    assert 'name,b\r\n"x,y","say ""z"""\r\n"two\nlines",\r\n' == render_csv(result)


def test_colours() -> None:
    """Colours stand around what is written and move nothing."""
    styled = ResultTable(TWO_ROWS.columns, TWO_ROWS.rows, (("partition_key", "number"),) * 2)
    for render in (render_table, render_expanded):
        coloured = render(styled, Rendering(80, COLOURS))
        assert COLOURS.partition_key in coloured
        assert COLOURS.number in coloured
        assert render(TWO_ROWS, Rendering(80)) == re.sub(r"\x1b\[[\d;]*m", "", coloured)


def test_warning_is_harmless_to_a_terminal() -> None:
    """A warning is its code, message and hint in lines, and nothing that a terminal acts on."""
    assert "warning [c]: m" == str(StatementWarning("c", "m"))
    assert "warning [c]: \\x1b[2J\\n\nhint: h" == str(StatementWarning("c", "\x1b[2J\n", "h"))

"""The result of a statement, and its formats. Prints nothing itself.

The table looks as in cqlsh. A table too wide for the terminal is shown row by row, and statements
are shown as statements, so that they can be copied. Values cannot control the terminal.
"""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from headrace.connector.language.places import display_width

STATEMENT_COLUMN: Final = "create_statement"


class StatementWarning(msgspec.Struct, frozen=True):
    """A warning to the user of a statement that was executed."""

    code: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        """Return lines for a terminal."""
        hint = f"\nhint: {printable(self.hint)}" if self.hint else ""
        return f"warning [{printable(self.code)}]: {printable(self.message)}{hint}"


class ResultTable(msgspec.Struct, frozen=True):
    """Named columns and rows of strings; without columns it is the result of a silent statement.

    `styles` names, for each column, the colours of its head and of its cells (`Palette`'s fields);
    if it is empty they are those of a plain column. `warnings` are shown separately. `footer` has
    names and values about the whole result, such as how to continue.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    styles: tuple[tuple[str, str], ...] = ()
    warnings: tuple[StatementWarning, ...] = ()
    footer: tuple[tuple[str, str], ...] = ()


class Palette(msgspec.Struct, frozen=True, kw_only=True):
    """The escape sequences that start a colour; all are empty if nothing is coloured."""

    column: str = ""
    partition_key: str = ""
    clustering: str = ""
    static: str = ""
    text: str = ""
    number: str = ""
    collection: str = ""
    error: str = ""

    def paint(self, style: str, text: str) -> str:
        """Return *text* in the colour of *style*."""
        colour = getattr(self, style)
        return f"{colour}{text}{_PLAIN}" if colour else text


_PLAIN: Final = "\x1b[0m"
MONOCHROME: Final = Palette()
COLOURS: Final = Palette(
    column="\x1b[0;1;35m",
    partition_key="\x1b[0;1;31m",
    clustering="\x1b[0;1;36m",
    static="\x1b[0;1;37m",
    text="\x1b[0;1;33m",
    number="\x1b[0;1;32m",
    collection="\x1b[0;1;34m",
    error="\x1b[0;1;31m",
)


class Rendering(msgspec.Struct, frozen=True):
    """The settings of an output: the terminal's width in columns, and colours."""

    width: int = 80
    palette: Palette = MONOCHROME


def render_table(result: ResultTable, how: Rendering) -> str:
    """Return *result* as a table, or row by row if it is wider than the terminal."""
    if not result.columns:
        return ""
    if result.columns == (STATEMENT_COLUMN,):
        shown = (printable(statement, kept="\n\t") for (statement,) in result.rows)
        return "".join(f"\n{statement}\n" for statement in shown) + "\n"
    columns, rows = _printable(result)
    widths = [max(map(text_width, cells)) for cells in zip(columns, *rows, strict=True)]
    rule = "-" + "-+-".join("-" * width for width in widths) + "-"
    if rows and len(rule) > how.width:
        return render_expanded(result, how)
    styles, paint = _styles(result), how.palette.paint
    heads = [
        paint(head, column) + " " * (width - text_width(column))
        for column, width, (head, _) in zip(columns, widths, styles, strict=True)
    ]
    lines = [f" {' | '.join(heads)}", rule]
    for row in rows:
        cells = (
            " " * (width - text_width(cell)) + paint(style, cell)
            for cell, width, (_, style) in zip(row, widths, styles, strict=True)
        )
        lines.append(f" {' | '.join(cells)}")
    return "\n" + "\n".join(lines) + f"\n\n({len(rows)} rows)\n{_footer(result)}"


def render_expanded(result: ResultTable, how: Rendering) -> str:
    """Return *result* row by row, a line for each column."""
    if not result.columns:
        return ""
    columns, rows = _printable(result)
    styles, paint = _styles(result), how.palette.paint
    name_width = max(map(text_width, columns))
    text = ""
    for number, row in enumerate(rows, 1):
        value_width = max(map(text_width, row))
        text += f"\n@ Row {number}\n-{'-' * name_width}-+-{'-' * value_width}-\n"
        for column, cell, (head, style) in zip(columns, row, styles, strict=True):
            padding = " " * (name_width - text_width(column))
            text += f" {paint(head, column)}{padding} | {paint(style, cell)}\n"
    return f"{text}\n({len(rows)} rows)\n{_footer(result)}"


def render_json(result: ResultTable) -> str:
    """Return the rows as one JSON array of objects."""
    return json.dumps(_objects(result), indent=2) + "\n" if result.columns else ""


def render_jsonl(result: ResultTable) -> str:
    """Return the rows as JSON objects, one a line."""
    return "".join(json.dumps(row) + "\n" for row in _objects(result))


def render_csv(result: ResultTable) -> str:
    """Return columns and rows as CSV (RFC 4180); line ends in cells stay, other controls do not."""
    if not result.columns:
        return ""
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(result.columns)
    writer.writerows([printable(cell, kept="\r\n\t") for cell in row] for row in result.rows)
    return written.getvalue()


FORMATS: Final[Mapping[str, Callable[[ResultTable, Rendering], str]]] = {
    "table": render_table,
    "json": lambda result, _: render_json(result),
    "jsonl": lambda result, _: render_jsonl(result),
    "csv": lambda result, _: render_csv(result),
    "expanded": render_expanded,
}


def printable(text: str, *, kept: str = "") -> str:
    """Return *text* with each character that could control a terminal, but *kept*, as an escape."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text
    )


def _printable(result: ResultTable) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    columns = [printable(column) for column in result.columns]
    return columns, [[printable(cell) for cell in row] for row in result.rows]


def _footer(result: ResultTable) -> str:
    return "".join(f"{name}: {printable(value)}\n" for name, value in result.footer)


def _styles(result: ResultTable) -> Sequence[tuple[str, str]]:
    return result.styles or [("column", "text")] * len(result.columns)


def _objects(result: ResultTable) -> list[dict[str, str]]:
    return [dict(zip(result.columns, row, strict=True)) for row in result.rows]


def text_width(text: str) -> int:
    """Return the width of a printable text in terminal columns."""
    return len(text) if text.isascii() else sum(map(display_width, text))

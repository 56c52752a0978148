"""What a statement answers, and the forms it is shown in. Prints nothing itself.

The table looks as in cqlsh. A table too wide for the terminal is shown row by row, and statements
are shown as statements, so that they can be copied.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.connector.shell.places import display_width

STATEMENT_COLUMN: Final = "create_statement"


@dataclass(frozen=True, slots=True)
class ResultTable:
    """Named columns and rows of texts; without columns it is the answer of a silent statement."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def render_table(result: ResultTable, *, width: int) -> str:
    """Return *result* as a table of at most *width* columns, or row by row if it is wider."""
    if not result.columns:
        return ""
    if result.columns == (STATEMENT_COLUMN,):
        shown = (_shown(statement, kept="\n\t") for (statement,) in result.rows)
        return "".join(f"\n{statement}\n" for statement in shown) + "\n"
    columns = tuple(_shown(column) for column in result.columns)
    rows = [tuple(_shown(cell) for cell in row) for row in result.rows]
    widths = [max(map(_width, cells)) for cells in zip(columns, *rows, strict=True)]
    count = f"\n({len(rows)} rows)\n"
    rule = "-" + "-+-".join("-" * w for w in widths) + "-"
    if rows and len(rule) > width:
        return _expanded(columns, rows) + count
    lines = [
        " " + " | ".join(_padded(c, w) for c, w in zip(columns, widths, strict=True)),
        rule,
    ]
    for row in rows:
        cells = (" " * (w - _width(c)) + c for c, w in zip(row, widths, strict=True))
        lines.append(" " + " | ".join(cells))
    return "\n" + "\n".join(lines) + "\n" + count


def render_json(result: ResultTable) -> str:
    """Return the rows as one JSON array of objects."""
    return json.dumps(_objects(result), indent=2) + "\n" if result.columns else ""


def render_jsonl(result: ResultTable) -> str:
    """Return the rows as JSON objects, one a line."""
    return "".join(json.dumps(row) + "\n" for row in _objects(result))


FORMATS: Final[Mapping[str, Callable[[ResultTable, int], str]]] = {
    "table": lambda result, width: render_table(result, width=width),
    "json": lambda result, _: render_json(result),
    "jsonl": lambda result, _: render_jsonl(result),
}


def _objects(result: ResultTable) -> list[dict[str, str]]:
    return [dict(zip(result.columns, row, strict=True)) for row in result.rows]


def _expanded(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    name_width = max(map(_width, columns))
    text = ""
    for number, row in enumerate(rows, 1):
        value_width = max(map(_width, row))
        text += f"\n@ Row {number}\n-{'-' * name_width}-+-{'-' * value_width}-\n"
        for column, cell in zip(columns, row, strict=True):
            text += f" {_padded(column, name_width)} | {cell}\n"
    return text


def _shown(cell: str, *, kept: str = "") -> str:
    """Return *cell* with everything a terminal could act on, but *kept*, written as an escape."""
    if cell.isprintable():
        return cell
    return "".join(
        c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in cell
    )


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(display_width, text))


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))

"""Formats rows in columns."""

from collections.abc import Sequence

from headrace.connector.language.rendering import printable, text_width


def columns_text(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return *rows* in columns below *heads*; an empty string if there are no rows."""
    if not rows:
        return ""
    table = [heads, *([printable(cell) or "-" for cell in row] for row in rows)]
    widths = [max(map(text_width, cells)) for cells in zip(*table, strict=True)]
    lines = (
        "  ".join(
            cell + " " * (width - text_width(cell)) for cell, width in zip(row, widths, strict=True)
        )
        for row in table
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)

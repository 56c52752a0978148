"""Pages of long tables: a page has a limited number of rows, and says how many there are."""

from collections.abc import Sequence
from typing import Any, Final

ROWS_MAX: Final = 50

Document = dict[str, Any]  # Any: JSON.


def part_of(rows: Sequence[object], number: int, rows_max: int = ROWS_MAX) -> Document:
    """Return page *number*, from 1, of *rows*, or the nearest existing page."""
    pages = max(1, -(-len(rows) // rows_max))
    number = min(max(1, number), pages)
    first = (number - 1) * rows_max
    shown = list(rows[first : first + rows_max])
    return {"rows": shown, "count": len(rows), "page": number, "pages": pages}

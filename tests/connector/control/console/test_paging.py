"""Pages of tables."""

import pytest

from headrace.connector.control.console.paging import part_of


@pytest.mark.parametrize(
    ("count", "number", "rows", "page", "pages"),
    [(0, 1, 0, 1, 1), (50, 2, 50, 1, 1), (51, 2, 1, 2, 2), (120, 2, 50, 2, 3), (120, 0, 50, 1, 3)],
)
def test_parts(count: int, number: int, rows: int, page: int, pages: int) -> None:
    """A page that does not exist is the nearest one."""
    found = part_of(range(count), number)

    assert (rows, page, pages, count) == (
        len(found["rows"]),
        *(found[k] for k in ("page", "pages", "count")),
    )

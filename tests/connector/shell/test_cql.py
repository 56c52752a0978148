"""What the shell finds out about CQL before Cassandra answers."""

import pytest

from headrace.connector.shell.cql import table_read


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM Orders", ("", "orders")),
        ('select a from Shop . "Orders" where k = 1', ("shop", "Orders")),
        ("SELECT 'x from y' -- from z\n FROM t", ("", "t")),
        ("USE shop", ("", "")),
        ("SELECT 1 FROM", ("", "")),
    ],
)
def test_table_read(text: str, expected: tuple[str, str]) -> None:
    """The table is the one behind FROM, not in a string or a comment."""
    assert expected == table_read(text)

"""What the formatter writes is what the parser reads."""

import pytest
from hypothesis import given

from headrace.connector.language.formatting import format_statement
from headrace.connector.language.parser import parse_statement
from headrace.connector.language.statements import (
    CreateSink,
    CreateSource,
    DescribeSource,
    DropSink,
    Statement,
    TableName,
)
from helpers.jobs.statements import statements


@given(statements)
def test_round_trip(statement: Statement) -> None:
    """A statement survives being written and read."""
    assert statement == parse_statement(format_statement(statement))


@pytest.mark.parametrize(
    ("expected", "statement"),
    [
        (
            "CREATE DATA_SINK k WITH 'kafka://h?a=b' AND x.y = 'PLAIN' AND n = 3 AND b = true;",
            CreateSink(
                name="k",
                uri="kafka://h?a=b",
                options=(("x.y", "PLAIN"), ("n", "3"), ("b", "true")),
            ),
        ),
        (
            """CREATE DATA_SOURCE IF NOT EXISTS cdc ON TABLE "Shop"."table" WITH "my-sink";""",
            CreateSource(
                word="cdc", table=TableName("Shop", "table"), sink="my-sink", if_not_exists=True
            ),
        ),
        ("DROP DATA_SINK IF EXISTS k;", DropSink(name="k", if_exists=True)),
        (
            "DESCRIBE DATA_SOURCE cdc ON TABLE orders AS CONFIG;",
            DescribeSource(word="cdc", table=TableName(None, "orders"), as_config=True),
        ),
        (
            """CREATE DATA_SINK "a""b" WITH 'it''s' AND "Key" = '1.2.3';""",
            CreateSink(name='a"b', uri="it's", options=(("Key", "1.2.3"),)),
        ),
    ],
    ids=["options", "names", "if exists", "as config", "quotes"],
)
def test_form(expected: str, statement: Statement) -> None:
    """Quotes stand only where they are needed; numbers and truth values stand bare."""
    assert expected == format_statement(statement)

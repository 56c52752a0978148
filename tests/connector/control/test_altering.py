"""ALTER changes the options that it names and no others; the new statement can be executed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.control.altering import altered_sink
from headrace.connector.control.plugins.sink_uri import parse_sink_uri
from headrace.connector.language.parser import parse_statement
from headrace.connector.language.statements import AlterSink, CreateSink


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ("'a://h?x=1' AND y = 2", "y = 3", "'a://h?x=1' AND y = 3"),
        ("'a://h?x=1&z=4' AND y = 2", "x = 3", "'a://h?z=4' AND y = 2 AND x = 3"),
        ("'a://h?x=1' AND y = 2", "x = 3", "'a://h' AND y = 2 AND x = 3"),
        ("'a://h?x=1' AND y = 2", "x = null AND y = null", "'a://h'"),
        ("'a://h?x.%79=1'", "x.y = 2", "'a://h' AND x.y = 2"),
        ("'a://h?x=1' AND y = 2", "'a://g'", "'a://g' AND y = 2"),
        ("'a://h?x=1' AND y = 2", "'a://g?y=5'", "'a://g?y=5'"),
        ("'a://h?x=1' AND y = 2", "'a://g?z=5' AND y = 3", "'a://g?z=5' AND y = 3"),
        ("'a://h?x=1'", "y = null", "'a://h?x=1'"),
    ],
)
def test_sink(before: str, change: str, after: str) -> None:
    """Options are replaced wherever they were given; null removes one."""
    made = parse_statement(f"CREATE DATA_SINK k WITH {before}")
    altering = parse_statement(f"ALTER DATA_SINK k WITH {change}")
    assert isinstance(made, CreateSink)
    assert isinstance(altering, AlterSink)

    assert parse_statement(f"CREATE DATA_SINK k WITH {after}") == altered_sink(made, altering)


options = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"))


@given(in_uri=options, by_and=options, new=st.none() | options, changes=options)
def test_nothing_is_given_twice(
    in_uri: dict[str, str],
    by_and: dict[str, str],
    new: dict[str, str] | None,
    changes: dict[str, str],
) -> None:
    """A sink that had each option once has each once after ALTER, as ALTER gave it."""
    before = CreateSink(
        name="k",
        uri=_uri("h", in_uri),
        options=tuple((key, value) for key, value in by_and.items() if key not in in_uri),
    )
    clear = {key: value for key, value in changes.items() if key not in (new or {})}
    change = AlterSink(
        name="k", uri=None if new is None else _uri("g", new), options=tuple(clear.items())
    )

    after = altered_sink(before, change)

    given_now = [*parse_sink_uri(after.uri).query, *after.options]
    stays = dict(before.options) | (in_uri if new is None else {})
    assert sorted((stays | (new or {}) | clear).items()) == sorted(given_now)


def _uri(host: str, query: dict[str, str]) -> str:
    return f"a://{host}?{'&'.join(f'{key}={value}' for key, value in query.items())}".rstrip("?")

"""What `inspect` shows is chosen as Cassandra means tokens and positions."""

import pytest
from msgspec.structs import replace

from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.inspect.selection import (
    TOKEN_MAX,
    TOKEN_MIN,
    Place,
    Selection,
    SelectionError,
    TokenRange,
    place,
    table_names,
    token_range,
)
from headrace.sources.cassandra.log import Span
from helpers.logs.sample_log import SEGMENT_ID, sample_mutation, sample_schema

TOKEN = 1634052884888577606  # Of the key 7.

RANGES = {
    "start is not in it": ((10, 20), 10, False),
    "after the start": ((10, 20), 11, True),
    "end is in it": ((10, 20), 20, True),
    "after the end": ((10, 20), 21, False),
    "wrapped, above": ((20, 10), 21, True),
    "wrapped, below": ((20, 10), 10, True),
    "wrapped, start": ((20, 10), 20, False),
    "wrapped, between": ((20, 10), 15, False),
    "to itself, itself": ((5, 5), 5, True),
    "to itself, another": ((5, 5), -6, True),
    "up to the ring's end": ((0, TOKEN_MIN), TOKEN_MAX, True),
    "up to the ring's end, below": ((0, TOKEN_MIN), 0, False),
}


@pytest.mark.parametrize("name", RANGES)
def test_ranges_are_open_at_the_start_and_closed_at_the_end(name: str) -> None:
    """A range is what Cassandra calls one: (start, end], over the ring's end when it must."""
    (start, end), token, expected = RANGES[name]
    assert expected == TokenRange(start, end).has(token)


TEXTS = {
    "-5:7": TokenRange(-5, 7),
    "5:": TokenRange(5, TOKEN_MIN),
    ":-5": TokenRange(TOKEN_MIN, -5),
    ":": TokenRange(TOKEN_MIN, TOKEN_MIN),
    f"{TOKEN_MIN}:{TOKEN_MAX}": TokenRange(TOKEN_MIN, TOKEN_MAX),
}


@pytest.mark.parametrize("text", TEXTS)
def test_ranges_are_read(text: str) -> None:
    """A side that is left out is the end of the ring."""
    assert TEXTS[text] == token_range(text)


@pytest.mark.parametrize("text", ["", "5", "a:b", "1:2:3", f"0:{TOKEN_MAX + 1}", "1.5:2"])
def test_no_ranges_are_refused(text: str) -> None:
    """What is not a range is a named error of the option."""
    with pytest.raises(SelectionError) as caught:
        token_range(text)
    assert ("--token-range", 2) == (caught.value.place, caught.value.exit_status)


def test_places_are_read() -> None:
    """A place is a segment and a position; without a position, the default."""
    assert Place(17, 5) == place("--from", "17:5", 0)
    assert Place(17, 9) == place("--to", "17", 9)
    for text in ("", "x", "1:", "-1:5", "1:2:3"):
        with pytest.raises(SelectionError, match="expected SEGMENT"):
            place("--to", text, 0)


SPANS = {
    "before": (5, None),
    "the first": (10, Span(100, END_OFFSET)),
    "between": (11, Span(0, END_OFFSET)),
    "the last": (12, Span(0, 50)),
    "after": (13, None),
}


@pytest.mark.parametrize("name", SPANS)
def test_segments_are_read_in_part(name: str) -> None:
    """Of a segment what lies between the two places is read, and nothing of the others."""
    segment_id, expected = SPANS[name]
    assert expected == Selection(first=Place(10, 100), last=Place(12, 50)).span(segment_id)


CHOICES = {
    "all": (Selection(), True),
    "its table": (Selection(tables={"shop.users"}), True),
    "its keyspace": (Selection(tables={"shop"}), True),
    "another table": (Selection(tables={"shop.orders"}), False),
    "its token": (Selection(ranges=[TokenRange(TOKEN - 1, TOKEN)]), True),
    "tokens after it": (Selection(ranges=[TokenRange(TOKEN, TOKEN_MAX)]), False),
    "one of two ranges": (
        Selection(ranges=[TokenRange(TOKEN, TOKEN_MAX), TokenRange(0, TOKEN)]),
        True,
    ),
    "from where it ends": (Selection(first=Place(SEGMENT_ID, 101)), False),
    "from before its end": (Selection(first=Place(SEGMENT_ID, 100)), True),
    "to where it ends": (Selection(last=Place(SEGMENT_ID, 101)), True),
    "to before its end": (Selection(last=Place(SEGMENT_ID, 100)), False),
    "later segments": (Selection(first=Place(SEGMENT_ID + 1, 0)), False),
    "its token, another table": (
        Selection(tables={"a.b"}, ranges=[TokenRange(TOKEN - 1, TOKEN)]),
        False,
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_mutations_are_chosen(name: str) -> None:
    """A mutation is shown when its tables, token and place are all selected."""
    selection, expected = CHOICES[name]
    assert expected == selection.has(sample_mutation("insert"))


def test_one_selected_table_of_two_is_enough() -> None:
    """A mutation that also writes another table is shown for the sake of the selected one."""
    mutation = sample_mutation("insert")
    (update,) = mutation.updates
    other = replace(update, table=replace(update.table, name="other"))
    both = replace(mutation, updates=(other, update))
    assert Selection(tables={"shop.users"}).has(both)


def test_table_names_are_checked() -> None:
    """Names may be listed, repeated, and stand for keyspaces; unknown ones are refused."""
    schema = sample_schema()
    assert table_names([], schema) is None
    assert frozenset({"shop.users", "shop"}) == table_names(["shop.users, shop.*", "shop"], schema)
    with pytest.raises(SelectionError, match=r"did you mean shop\.users"):
        table_names(["shop.user"], schema)
    with pytest.raises(SelectionError, match="give keyspace"):
        table_names(["shop.users,"], schema)

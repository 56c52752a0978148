"""What was written compared with what was received."""

import json
from collections import Counter

from headrace.connector.demo.consumer import Received
from headrace.connector.demo.quickstart.check import check, received_of, written_of
from headrace.connector.demo.quickstart.screen import one_line
from headrace.connector.runtime.books.figures import Figures

WRITES = [b"a", b"b", b"c"]
FIGURES = Figures(published=3)
WRITE = {
    "table": "shop.orders",
    "operation": "INSERT",
    "timestampMicros": 1_700_000_000_123_456,
    "key": {"order_id": 7},
    "values": {"order_id": 7, "item": "lamp"},
}
RECORD = Received(
    0,
    0,
    1.0,
    "shop.orders",
    {"order_id": 7},
    {
        "sourceKeyspace": "shop",
        "sourceTable": "orders",
        "operationType": "INSERT",
        "timestampMicros": 1_700_000_000_123_456,
        "payload": {"order_id": 7, "item": "lamp", "state": None},
        "copies": 2,
    },
)


def test_each_once_passes() -> None:
    """Nothing is wrong, and the line says so."""
    checked = check(WRITES, Counter(WRITES), FIGURES)

    assert [] == checked.problems
    assert "check: 3 writes, 3 received; each once: passed" == checked.text(FIGURES)


def test_a_lost_write_fails() -> None:
    """Though others came twice, so that the numbers are equal."""
    named = Figures(published=3, repeats={"window": 1})
    checked = check(WRITES, Counter([b"a", b"a", b"b"]), named)

    assert ["1 writes were not received", "lost: c"] == checked.problems
    assert checked.text(named).endswith(": FAILED")


def test_what_was_not_written_fails() -> None:
    """A changed value is a change that was not written, and a write that is lost."""
    assert ["1 changes were received that were not written", "not written: d"] == (
        check(WRITES, Counter([*WRITES, b"d"]), FIGURES).problems
    )


def test_repeats_pass_as_far_as_they_are_named() -> None:
    """One more than the books name is a problem."""
    received = Counter([*WRITES, b"a", b"b"])
    named, few = (Figures(published=3, repeats={"window": most}) for most in (2, 1))

    assert [] == check(WRITES, received, named).problems
    assert "2 came again, of at most 2 that are named" in check(WRITES, received, named).text(named)
    assert ["2 changes came again, where at most 1 are named as possibly repeated"] == (
        check(WRITES, received, few).problems
    )


def test_books_that_differ_fail() -> None:
    """So does what ended a split."""
    wrong = Figures(published=3, differences=2)

    assert ["gone", "2 equations of the books do not hold"] == (
        check(WRITES, Counter(WRITES), wrong, ["gone"]).problems
    )


def test_a_write_and_its_change_have_one_form() -> None:
    """Columns that were not written are not compared; another value is another form."""
    other = {**WRITE, "values": {"order_id": 7, "item": "lamb"}}

    assert written_of(json.dumps(WRITE).encode()) == received_of(RECORD)
    assert written_of(json.dumps(other).encode()) != received_of(RECORD)


def test_a_change_is_one_line() -> None:
    """With its time, what was done, key, columns and copies."""
    line = one_line(RECORD)

    assert line.startswith("22:13:20.123  INSERT  shop.orders  order_id=7      item=lamp  ")
    assert "2 copies, " in line

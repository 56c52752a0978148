"""What a recording justifies, and how the demo judges what came."""

import json
from collections import Counter
from functools import cache
from uuid import UUID

import pytest

from headrace.connector.demo.consumer import Received
from headrace.connector.demo.expected import agreed_mutations, expected_changes, value_of
from headrace.connector.demo.play import Outcome
from headrace.connector.demo.recording import Recording, RecordingError
from headrace.connector.demo.summary import check_outcome, figures_in, plain, summary_lines
from helpers.recordings.corpora import recording

SUMMARY = {
    "differences": [],
    "failures": [],
    "total": {
        "books": {
            "entries.node1.read": 20,
            "entries.node1.surplus": 3,
            "entries.node1.repeat": 2,
            "mutations.agreed": 6451,
            "mutations.pending": 1,
        },
        "tables": {"ks.t": {"cut": 6451, "delivered": 6451, "quarantined": 0}},
    },
    "figures": {"published": 6451, "dropped": 5, "waiting": 1, "waits": "mutation waits"},
    "run": {"changes": 6451, "changes_per_second": 1000.0, "cpu_seconds": 0.6451},
}


@cache
def expected() -> "Counter[bytes]":
    """Return what the bundled ring justifies."""
    return expected_changes(Recording(recording("5.0-ring")))


def received() -> list[Received]:
    """Return what a consumer has that got exactly that."""
    found = []
    for offset, change in enumerate(expected()):
        table, key, value = json.loads(change)
        value |= {"copies": 2, "node": "node1", "segment": 1, "position": offset, "mutation": "x"}
        value["payload"] |= {"a_column_that_is_null": None}
        found.append(Received(0, offset, 10.5, table, key, value))
    return found


def outcome(records: list[Received], **changed: object) -> Outcome:
    """Return the outcome of a run whose consumer has *records*."""
    return Outcome(records, SUMMARY | changed, 10.0)


def test_the_ring_justifies_what_two_nodes_have() -> None:
    """Of 6,451 contents on two nodes or more, each is one change; the tables are the two of CDC."""
    changes = [json.loads(change) for change in expected()]

    assert [1] == sorted(set(expected().values()))
    assert {"ring_cobalt_ticket.a_frost_stock": 3388, "ring_cobalt_ticket.b_gale_umbra": 3063} == (
        Counter(table for table, _, _ in changes)
    )
    assert {"INSERT": 4395, "UPDATE": 1469, "DELETE_RANGE": 275, "DELETE_PARTITION": 312} == (
        Counter(change["operationType"] for _, _, change in changes)
    )


def test_a_mutation_is_justified_once() -> None:
    """Copies beyond the second change nothing."""
    contents = [
        json.dumps(m["updates"]) for m in agreed_mutations(Recording(recording("5.0-ring")))
    ]

    assert 0 < len(set(contents)) == len(contents)


def test_exactly_the_right_changes_pass() -> None:
    """Order and provenance do not matter."""
    checked = check_outcome(outcome(list(reversed(received()))), expected())

    assert checked.problems == ()


@pytest.mark.parametrize("index", [0, 3000, -1])
def test_a_missing_record_fails(index: int) -> None:
    """One record less is one problem, and is shown."""
    records = received()
    del records[index]

    checked = check_outcome(outcome(records), expected())

    assert ("1 justified changes were not received",) == checked.problems
    assert len(checked.examples) == 1


def test_a_record_twice_fails() -> None:
    """One record more is one problem."""
    records = received()

    checked = check_outcome(outcome([*records, records[7]]), expected())

    assert ("1 received changes are not justified, or came again",) == checked.problems


def test_a_changed_value_fails() -> None:
    """A record with another value is missing, and another one is not justified."""
    records = received()
    records[5].value["timestampMicros"] += 1

    assert len(check_outcome(outcome(records), expected()).problems) == 2


def test_a_hasty_change_fails() -> None:
    """A change published with one copy is a problem even if it was justified in the end."""
    records = received()
    records[5].value["copies"] = 1

    checked = check_outcome(outcome(records), expected())

    assert ("1 changes were published with fewer than 2 copies",) == checked.problems


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"differences": ["entries of node1: read 2 is not first 1"]}, "entries of node1"),
        ({"failures": [{"code": "x", "message": "segment 7 is damaged"}]}, "segment 7 is damaged"),
        (
            {"total": {"books": {"entries.node1.damaged": 1}, "tables": {}}},
            "entries.node1.damaged: 1",
        ),
        ({"total": {"books": {}, "tables": {"t": {"quarantined": 2}}}}, "quarantined: 2"),
    ],
)
def test_books_that_tell_of_trouble_fail(changed: dict[str, object], problem: str) -> None:
    """A difference, a failure, a damaged entry or a quarantined change is a problem."""
    (found,) = check_outcome(outcome(received(), **changed), expected()).problems

    assert problem in found


def test_the_summary_is_one_line_for_each_number() -> None:
    """The plain form has a label and a text on each line."""
    run = outcome(received())

    text = plain(summary_lines(run, check_outcome(run, expected()), expected().total()))

    for line in (
        "  node1               20 entries read\n",
        "  first change after  500 ms from the start of the worker\n",
        "  CPU                 100 µs per change\n",
        "  books               balance\n",
        "  consumer            6,451 received, 6,451 justified\n",
        "  check               passed\n",
    ):
        assert line in text
    assert (6451, 5, 1) == (
        (figures := figures_in(run)).published,
        figures.dropped,
        figures.waiting,
    )


@pytest.mark.parametrize(
    ("cql_type", "text", "value"),
    [
        ("bigint", "ffffffffffffffff", -1),
        ("int", "0000002f", 47),
        ("text", "6e616d652037", "name 7"),
        ("decimal", "0000000208f9a3", {"scale": 2, "unscaled": b"\x08\xf9\xa3"}),
        ("timestamp", "0000018bcfe56807", 1_700_000_000_007),
        (
            "uuid",
            "a602c26187b74d2ebb8b50b7eaf13a3a",
            UUID("a602c261-87b7-4d2e-bb8b-50b7eaf13a3a"),
        ),
        ("int", None, None),
    ],
)
def test_values_are_read_without_the_decoder(
    cql_type: str, text: str | None, value: object
) -> None:
    """Hexadecimal becomes what an Avro reader gives."""
    assert value == value_of(cql_type, text)


def test_a_type_that_the_rings_do_not_have_is_named() -> None:
    """A recording of another kind fails with a hint."""
    with pytest.raises(RecordingError, match="inet"):
        value_of("inet", "7f000001")

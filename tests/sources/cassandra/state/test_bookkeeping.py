"""The counters of the Cassandra source, as the framework's books have them."""

from headrace.connector.runtime.books.equations import SplitBooks, differences
from headrace.connector.runtime.books.summary import books_text
from headrace.sources.cassandra.state.bookkeeping import BOOKKEEPING

BOOKS = {
    "entries.node.1.read": 10,
    "entries.node.1.first": 4,
    "entries.node.1.counted": 3,
    "entries.node.1.surplus": 2,
    "entries.node.1.repeat": 1,
    "skipped.node.1.no_cdc": 5,
    "gaps.node.1": 1,
    "mutations.first": 4,
    "mutations.agreed": 3,
    "mutations.pending": 1,
    "memory_shortened": 2,
}


def test_books_that_balance() -> None:
    """Nothing is said of books whose equations hold."""
    assert [] == differences(SplitBooks("a", BOOKS, {}, BOOKKEEPING))


def test_each_equation_is_checked() -> None:
    """Entries are reported by node, mutations by what became of them."""
    books = BOOKS | {"entries.node.1.surplus": 3, "mutations.first": 3}
    entries, mutations = differences(SplitBooks("a", books, {}, BOOKKEEPING))

    assert entries.endswith("read 10 is not first 4 + counted 3 + surplus 3 + repeat 1 = 11")
    assert "split a: mutations: first 3 is not agreed 3 + pending 1 = 4" == mutations


def test_the_books_as_text() -> None:
    """A node's entries and what was passed over there; gaps; mutations; repeats."""
    assert books_text([SplitBooks("a", BOOKS, {}, BOOKKEEPING)]) == (
        "entries of node.1: counted 3, first 4, read 10, repeat 1, surplus 2\n"
        "passed over in node.1: no_cdc 5\n"
        "gaps: node.1 1\n"
        "mutations: agreed 3, first 4, pending 1\n"
        "at most 2 mutations may be in the sink twice (shortened): "
        "records of agreement were forgotten because there was no room\n"
    )

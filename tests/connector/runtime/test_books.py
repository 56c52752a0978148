"""The equations of the books."""

from headrace.connector.runtime.books import SplitBooks, differences, nodes, total
from headrace.connector.stores import TableCounts

BOOKS = {
    "entries.node.1.read": 10,
    "entries.node.1.first": 4,
    "entries.node.1.counted": 3,
    "entries.node.1.surplus": 2,
    "entries.node.1.repeat": 1,
    "mutations.first": 4,
    "mutations.agreed": 3,
    "mutations.pending": 1,
}
TABLES = {"ks.t": TableCounts(cut=9, delivered=6, filtered=1, dead_lettered=1, quarantined=1)}


def test_books_that_balance() -> None:
    """Nothing is said of books whose equations hold; a node's name may have dots."""
    assert [] == list(differences(SplitBooks("a", BOOKS, TABLES)))
    assert ["node.1"] == list(nodes(BOOKS))


def test_each_equation_is_checked() -> None:
    """One too many or too few anywhere is said in numbers."""
    books = BOOKS | {"entries.node.1.surplus": 3, "mutations.first": 3}
    wrong = SplitBooks("a", books, {"ks.t": TableCounts(cut=9, delivered=10)})
    entries, mutations, changes = differences(wrong)

    assert entries.endswith("read 10 is not first 4 + counted 3 + surplus 3 + repeat 1 = 11")
    assert "split a: mutations: first 3 is not agreed 3 + pending 1 = 4" == mutations
    assert "split a: changes of ks.t: cut 9 is not delivered 10 = 10" == changes


def test_total_adds_up() -> None:
    """The sum of all splits has the sums of their counters."""
    split = SplitBooks("a", {"entries.n.read": 1}, {"t": TableCounts(cut=1)})

    assert SplitBooks("", {"entries.n.read": 2}, {"t": TableCounts(cut=2)}) == total([split] * 2)

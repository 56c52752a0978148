"""The equations of the books."""

import pytest

from headrace.connector.runtime.books.equations import (
    SplitBooks,
    by_part,
    closed,
    differences,
    repeats,
    total,
)
from headrace.connector.runtime.books.summary import books_text
from headrace.connector.runtime.metrics import book_measures
from headrace.connector.stores import TableCounts
from headrace.plugins import NO_COUNTERS, Bookkeeping, CounterGroup, RepeatCause, WaitingCounter
from headrace.plugins.metrics import exposition
from helpers.cost import is_linear

CRATES = CounterGroup(
    name="crates",
    part="dock",
    title="crates at {part}",
    metric="toy_crates_total",
    doc="Crates.",
    left=("landed",),
    right=("opened", "spoilt"),
)
ORDERS = CounterGroup(
    name="orders",
    title="orders",
    metric="toy_orders_total",
    doc="Orders.",
    left=("brought", "placed"),
    right=("served", "ordered_again", "waits"),
)
RATS = CounterGroup(
    name="rats", part="dock", label="", title="rats", metric="toy_rats_total", doc="Rats."
)
KEEPING = Bookkeeping(
    groups=(CRATES, ORDERS, RATS),
    waiting=WaitingCounter(
        counter="orders.waits",
        passed_on="orders.ordered_again",
        one="order waits for its crate",
        many="orders wait for their crates",
        metric="toy_orders_waiting",
        doc="Orders that wait.",
    ),
    repeats={"stutter": RepeatCause(unit="orders", why="the guest stutters", counter="stutters")},
)

BOOKS = {
    "crates.dock.1.landed": 10,
    "crates.dock.1.opened": 7,
    "crates.dock.1.spoilt": 3,
    "orders.placed": 4,
    "orders.served": 2,
    "orders.waits": 2,
    "rats.dock.1": 1,
    "stutters": 2,
}
TABLES = {"ks.t": TableCounts(cut=9, delivered=6, filtered=1, dead_lettered=1, quarantined=1)}


def test_books_that_balance() -> None:
    """Nothing is said of books whose equations hold; a part's name may have dots."""
    assert [] == list(differences(SplitBooks("a", BOOKS, TABLES, KEEPING)))
    assert ["dock.1"] == list(by_part(BOOKS, CRATES))


def test_parts_cost_what_they_are_many() -> None:
    """Books of many parts are compared, printed and measured in linear time."""

    def look(count: int) -> None:
        books = {f"crates.{n}.{word}": 2 for n in range(count) for word in ("landed", "opened")}
        split = SplitBooks("a", books, {}, KEEPING)
        assert [] == list(differences(split))
        assert count == len(books_text([split]).splitlines())
        measures = {each.name: each for each in book_measures([split], KEEPING)}
        assert 2 * count == len(list(measures[CRATES.metric].samples))

    assert is_linear(look, 500, times=8)


def test_each_equation_is_checked() -> None:
    """One too many or too few anywhere is said in numbers."""
    books = BOOKS | {"crates.dock.1.spoilt": 5, "orders.brought": 1, "orders.placed": 5}
    wrong = SplitBooks("a", books, {"ks.t": TableCounts(cut=9, delivered=10)}, KEEPING)
    crates, orders, changes = differences(wrong)

    assert "split a: crates at dock.1: landed 10 is not opened 7 + spoilt 5 = 12" == crates
    assert "split a: orders: brought 1 + placed 5 is not served 2 + waits 2 = 4" == orders
    assert "split a: changes of ks.t: cut 9 is not delivered 10 = 10" == changes


@pytest.mark.parametrize("name", sorted(BOOKS.keys() - {"rats.dock.1", "stutters"}))
def test_a_counter_of_an_equation_that_is_absent_counts_as_0(name: str) -> None:
    """An equation is checked also when one of its counters is missing."""
    books = {each: count for each, count in BOOKS.items() if each != name}

    assert (1 if name != "orders.placed" else 0) == len(
        differences(SplitBooks("a", books, {}, KEEPING))
    )


def test_a_source_that_declares_nothing_has_the_equations_of_changes() -> None:
    """Undeclared counters are not guessed; the equations of changes are the framework's."""
    wrong = SplitBooks("", BOOKS, {"t": TableCounts(cut=1)}, NO_COUNTERS)

    assert ["changes of t: cut 1 is not nothing = 0"] == differences(wrong)


def test_total_adds_up() -> None:
    """The sum of all splits has the sums of their counters."""
    split = SplitBooks("a", {"crates.n.landed": 1}, {"t": TableCounts(cut=1)}, KEEPING)
    both = SplitBooks("", {"crates.n.landed": 2}, {"t": TableCounts(cut=2)}, KEEPING)

    assert both == total([split] * 2)


def test_what_waits_is_passed_on_when_books_end() -> None:
    """Under the name that the source gives it, and the equation still holds."""
    ended = closed(SplitBooks("a", BOOKS, {}, KEEPING))

    assert {"orders.ordered_again": 2} == dict(ended.books.items() - BOOKS.items())
    assert "orders.waits" not in ended.books
    assert [] == differences(ended)


def test_a_source_names_what_came_twice() -> None:
    """A cause of the source's own counts what its counter counts."""
    assert 2 == repeats(SplitBooks("a", BOOKS, {}, KEEPING))["stutter"]


def test_the_text_has_the_words_of_the_source() -> None:
    """Part by part, then what is of no part, then why something may be there twice."""
    books = [SplitBooks("a", BOOKS, {}, KEEPING)]

    assert books_text(books) == (
        "crates at dock.1: landed 10, opened 7, spoilt 3\n"
        "rats: dock.1 1\n"
        "orders: placed 4, served 2, waits 2\n"
        "at most 2 orders may be in the sink twice (stutter): the guest stutters\n"
    )


def test_the_measures_have_the_names_of_the_source() -> None:
    """Each group is a metric with the labels declared; what waits is a gauge; the rest is kept."""
    reported = exposition(book_measures([SplitBooks("a", BOOKS, {}, KEEPING)], KEEPING)).decode()
    counted = [line for line in reported.splitlines() if not line.startswith("#")]
    others = ("window", "zombie", "resend")  # The framework's own causes.

    assert [
        'headrace_book_total{book="stutters",split="a"} 2.0',
        'headrace_books_differ{split="a"} 0.0',
        'headrace_repeats_total{cause="stutter",split="a"} 2.0',
        'toy_crates_total{dock="dock.1",fate="landed",split="a"} 10.0',
        'toy_crates_total{dock="dock.1",fate="opened",split="a"} 7.0',
        'toy_crates_total{dock="dock.1",fate="spoilt",split="a"} 3.0',
        'toy_orders_total{fate="placed",split="a"} 4.0',
        'toy_orders_total{fate="served",split="a"} 2.0',
        'toy_orders_waiting{split="a"} 2.0',
        'toy_rats_total{dock="dock.1",split="a"} 1.0',
    ] == sorted(line for line in counted if not any(f'"{cause}"' in line for cause in others))

"""The figures of a job, as people read them."""

import re
from dataclasses import replace

import msgspec

from headrace.connector.runtime.books.equations import SplitBooks
from headrace.connector.runtime.books.figures import (
    Figures,
    figures_of,
    figures_text,
    headline,
    open_gaps,
)
from headrace.connector.stores import TableCounts
from headrace.plugins import Bookkeeping, CounterGroup, Gap, RepeatCause, WaitingCounter

KEEPING = Bookkeeping(
    groups=(
        CounterGroup(
            name="crates",
            part="dock",
            title="crates at {part}",
            metric="crates_total",
            doc="Crates.",
            left=("landed",),
            right=("opened", "twin", "spoilt"),
            copies=("twin",),
        ),
    ),
    waiting=WaitingCounter(
        counter="orders.waits",
        passed_on="orders.again",
        one="order waits for its crate",
        many="orders wait for their crates",
        metric="orders_waiting",
        doc="Orders.",
    ),
    held_back=("orders.waits", "orders.given_up"),
    repeats={"stutter": RepeatCause(unit="orders", why="the guest stutters", counter="stutters")},
)
BOOKS = {
    "crates.a.landed": 5000,
    "crates.a.opened": 3000,
    "crates.a.twin": 2000,
    "crates.b.landed": 3,
    "crates.b.twin": 3,
    "orders.waits": 2,
    "orders.given_up": 4,
    "stutters": 6,
}
COUNTS = {
    "ks.t": TableCounts(
        cut=3000, delivered=2990, filtered=1, dead_lettered=2, quarantined=7, window=1
    )
}
GAP = Gap(
    name="a:1",
    partition={"dock": "a"},
    begin={"at": 1},
    end={"at": 2},
    kind="damaged",
    state="open",
    policy="",
    noticed_ms=0,
    size_bytes=1234,
)
SPLIT = SplitBooks("s", BOOKS, COUNTS, KEEPING)


def test_the_figures_are_sums_of_the_books() -> None:
    """Of all splits; copies and what waits are as the source declares them."""
    one = figures_of([SPLIT])

    assert one == Figures(
        published=2990,
        dropped=2003,
        waiting=2,
        waits="orders wait for their crates",
        repeats={"window": 1, "stutter": 6},
        dead_lettered=9,
        filtered=1,
        unpublished={"orders.given_up": 4},
    )
    both = figures_of([SPLIT, replace(SPLIT, split="t")])
    assert (5980, 4006, 4, 14) == (both.published, both.dropped, both.waiting, both.repeated)


def test_the_text_has_a_headline_a_line_for_each_figure_and_commands() -> None:
    """Commands are there where something is to be looked at."""
    assert figures_text(figures_of([SPLIT]), "j.yaml --job x") == (
        "2,990 changes, of which at most 7 came twice; 0 lost; "
        "2 orders wait for their crates; 9 dead-lettered\n"
        "  changes published   2,990\n"
        "  copies dropped      2,003\n"
        "  waiting for a copy      2  headrace waiting j.yaml --job x\n"
        "  possibly repeated       7  at most; why: headrace verify j.yaml --job x --books\n"
        "  dead-lettered           9  headrace dlq list j.yaml --job x\n"
        "  filtered                1\n"
        "  not published           4  orders.given_up\n"
        "  lost                    0\n"
    )


def test_when_all_is_well_there_are_no_commands() -> None:
    """Each change once, nothing lost."""
    well = Figures(published=6451, dropped=12905, waits="orders wait")

    assert "6,451 changes, each once; 0 lost" == headline(well)
    assert "headrace" not in figures_text(well, "job.yaml")


def test_gaps_are_what_is_lost() -> None:
    """Open and passed ones count, each once; those that others cover do not."""
    passed, covered = (
        msgspec.structs.replace(GAP, name=state, state=state, size_bytes=1)
        for state in ("passed", "covered")
    )
    books = [replace(SPLIT, gaps=[GAP, passed, covered]), replace(SPLIT, split="t", gaps=[GAP])]
    figures = figures_of(books)

    assert (1, 1, 2, 1234, 1) == (
        figures.gaps_open,
        figures.gaps_lost,
        figures.lost,
        figures.open_bytes,
        figures.lost_bytes,
    )
    assert "; 2 parts lost; " in headline(figures)
    assert re.search(
        r"^  lost  +2  1 gap is open \(1,234 damaged bytes\); "
        r"1 part of a log is lost \(1 damaged bytes\): headrace gaps job\.yaml$",
        figures_text(figures, "job.yaml"),
        re.MULTILINE,
    )
    assert [GAP] == open_gaps(books)


def test_books_that_differ_do_not_say_that_nothing_is_lost() -> None:
    """The headline says so, and the last line which command shows more."""
    wrong = figures_of([replace(SPLIT, counters={"ks.t": TableCounts(cut=2, delivered=1)})])

    assert 2 == wrong.differences  # Of the split, and of the sum.
    assert headline(wrong).startswith("1 change, of which at most 6 came twice; the books differ; ")
    assert "headrace verify --books job.yaml" in figures_text(wrong, "job.yaml")

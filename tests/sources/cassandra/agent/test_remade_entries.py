"""Missing mutations are asked for by their places, and no other is taken for one of them."""

from array import array
from collections.abc import Sequence

import pytest

from headrace.sources.cassandra.agent.digest_exchange import Exchange
from headrace.sources.cassandra.agent.entry_columns import EntryColumns, ReceivedEntries
from headrace.sources.cassandra.agent.remade_entries import RemadeEntries
from headrace.sources.cassandra.commitlog.framer import digest
from headrace.sources.cassandra.native import constants

pytestmark = pytest.mark.hot

BEGIN = 100
RAWS = [b"mutation %03d" % n * (n % 5 + 1) for n in range(150)]


def started(exchange: Exchange, raws: Sequence[bytes]) -> RemadeEntries:
    """Return a stretch of entries of which only digests came."""
    columns = EntryColumns()
    for raw in raws:
        columns.part(constants.PART_DIGEST, len(raw))
        name = memoryview(array("Q", digest(raw, exchange.key)))
        columns.put_digests(name, 1)
    remade = RemadeEntries(exchange)
    remade.start(ReceivedEntries(columns.taken(), BEGIN, 1 << 30), 12)
    return remade


def take(remade: RemadeEntries, content: bytes) -> None:
    """Let *content* come for the places that were asked for, as an answer does."""
    remade.coming_in(len(content))[:] = content
    remade.take()


def places_in(places: bytes) -> list[tuple[int, int]]:
    """Return places as ends and lengths."""
    numbers = list(memoryview(places).cast("I"))
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def test_only_what_is_missing_is_asked_for() -> None:
    """At the ends of its entries; the reader has the others from another log."""
    exchange = Exchange()
    other = started(exchange, RAWS[::2])
    assert len(RAWS) // 2 == len(places_in(other.places()))
    take(other, b"".join(RAWS[::2]))
    assert b"" == other.places()

    remade = started(exchange, RAWS)

    ends, at = {}, BEGIN
    for raw in RAWS:
        at += len(raw) + constants.ENTRY_OVERHEAD
        ends[raw] = at
    assert [(ends[raw], len(raw)) for raw in RAWS[1::2]] == places_in(remade.places())
    take(remade, b"".join(RAWS[1::2]))
    assert b"" == remade.places()
    assert ends[RAWS[-1]] == remade.fill(BEGIN, ends[RAWS[-1]])
    content = bytes(remade.content())
    assert all(
        raw == content[ends[raw] - BEGIN - 4 - len(raw) : ends[raw] - BEGIN - 4] for raw in RAWS
    )
    placed_ends, numbers = remade.placed()
    assert list(ends.values()) == list(placed_ends)
    assert all(exchange.has(number) for number in numbers)


@pytest.mark.parametrize("at", [0, 63, 64, 149])
def test_another_mutation_is_refused(at: int) -> None:
    """Of the same length, at any place of the answer: its digest is another one."""
    exchange = Exchange()
    remade = started(exchange, RAWS)
    end = places_in(remade.places())[at][0]
    wrong = [*RAWS[:at], bytes(len(RAWS[at])), *RAWS[at + 1 :]]

    with pytest.raises(ValueError, match=f"another mutation came for the place {end}"):
        take(remade, b"".join(wrong))
    first = int.from_bytes(digest(wrong[at], exchange.key)[:8], "little")
    second = int.from_bytes(digest(wrong[at], exchange.key)[8:], "little")
    assert 0 == exchange.find(first, second, len(wrong[at]))


@pytest.mark.parametrize("content", [b"", b"".join(RAWS)[:-1], b"".join(RAWS) + b"x"])
def test_too_few_or_too_many_bytes_are_refused(content: bytes) -> None:
    """An answer has the mutations that were asked for, and nothing else."""
    remade = started(Exchange(), RAWS)
    remade.places()

    with pytest.raises(ValueError, match=f"{len(content)} bytes of mutations came, expected"):
        take(remade, content)


@pytest.mark.long
def test_not_too_much_is_asked_for_at_once() -> None:
    """A long mutation comes alone, and so do the others of four mebibytes."""
    raws = [bytes([n]) * (1 << 20) for n in range(9)]
    raws[6] = b"l" * (5 << 20)
    remade = started(Exchange(), raws)
    counts = []
    while places := remade.places():
        counts.append(len(places_in(places)))
        done = sum(counts)
        take(remade, b"".join(raws[done - counts[-1] : done]))

    assert [4, 2, 1, 2] == counts
    many = [n.to_bytes(10, "big") for n in range(70_000)]
    assert 65_536 == len(places_in(started(Exchange(), many).places()))


def test_what_is_asked_for_fits_into_the_room() -> None:
    """It lies there as it came, and starts at the beginning when the end is too near."""
    exchange = Exchange(1 << 10, 1 << 6)
    raws = [bytes([n]) * 300 for n in range(7)]
    remade, counts = started(exchange, raws), []
    while places := remade.places():
        counts.append(len(places_in(places)))
        done = sum(counts)
        take(remade, b"".join(raws[done - counts[-1] : done]))

    assert [3, 3, 1] == counts
    assert b"".join(raws[3:6]) != bytes(exchange.room[:900])  # The last one is over the first.
    assert raws[6] + raws[4] + raws[5] == bytes(exchange.room[:900])
    assert [number > 4 for number in remade.placed()[1]] == [exchange.has(n) for n in range(1, 8)]


def test_a_mutation_that_is_too_long_for_the_room_is_read_as_bytes() -> None:
    """It comes alone, and nothing of the room is forgotten for it."""
    exchange = Exchange(1 << 10, 1 << 6)
    take_all(started(exchange, [b"a" * 600]), [b"a" * 600])
    raws = [b"l" * 1100, b"b" * 300]
    remade = started(exchange, raws)
    take_all(remade, raws)
    end = remade.begin + remade.size

    assert [False, True] == [number > 0 for number in remade.placed()[1]]
    assert exchange.has(1)
    assert end == remade.fill(BEGIN, end)
    assert raws[0] == bytes(remade.content())[8:1108]


def take_all(remade: RemadeEntries, raws: Sequence[bytes]) -> None:
    """Let all of *raws* come, as often as is asked."""
    done = 0
    while count := len(places_in(remade.places())):
        take(remade, b"".join(raws[done : done + count]))
        done += count


def test_what_is_forgotten_meanwhile_is_reported() -> None:
    """The room is for others then: bytes are made up to there, and again once it is known."""
    exchange = Exchange(1 << 10, 1 << 6)
    first = started(exchange, [b"a" * 600])
    first.places()
    take(first, b"a" * 600)
    remade = started(exchange, [b"a" * 600, b"b" * 600])
    assert [(BEGIN + 2 * 612, 600)] == places_in(remade.places())
    assert remade.has(BEGIN)
    take(remade, b"b" * 600)

    assert not remade.has(BEGIN)
    assert BEGIN == remade.fill(BEGIN, BEGIN + 1224)
    assert remade.has(BEGIN + 612)
    assert BEGIN + 1224 == remade.fill(BEGIN + 612, BEGIN + 1224)
    assert b"b" * 600 == bytes(remade.content())[620:1220]
    assert not any(remade.has(at) for at in (BEGIN - 1, BEGIN + 1224))

"""What one log sent is known when another log has it, as long as there is room."""

from array import array
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.cassandra.agent.digest_exchange import PLACES_MAX, Exchange

pytestmark = pytest.mark.hot

BYTES_MAX, KNOWN_MAX, LENGTH_MAX = 1024, 16, 300


def words(*numbers: int, code: str = "Q") -> memoryview:
    """Return a column."""
    return memoryview(array(code, numbers))


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, LENGTH_MAX)), min_size=1, max_size=120)
)
def test_the_newest_are_known(added: list[tuple[int, int]]) -> None:
    """Of any lengths: of each digest the newest, if it is among the last of both bounds."""
    exchange = Exchange(BYTES_MAX, KNOWN_MAX)
    kept: OrderedDict[int, tuple[int, int, bytes]] = OrderedDict()
    numbers: dict[int, bytes] = {}
    for i, (digest, length) in enumerate(added):
        raw = bytes([i & 0xFF]) * length
        number = exchange.add(raw, 0, length, digest, 7)
        assert i + 1 == number
        kept[digest] = number, length, raw
        kept.move_to_end(digest)
        numbers[number] = raw

        size = 0
        for each in range(number, 0, -1):
            size += len(numbers[each])
            if number - each >= KNOWN_MAX or size > BYTES_MAX:
                assert not exchange.has(each)
            elif size <= BYTES_MAX - LENGTH_MAX:  # Less than that is left at the end of the room.
                assert exchange.has(each)
            if exchange.has(each):
                exchange.keep("n1", 1, 12, words(5, code="q"), words(each))
                found = exchange.at("n1", 1, 5)
                assert found is not None
                assert numbers[each] == found.raw
    for digest, (number, length, _) in kept.items():
        expected = number if exchange.has(number) else 0
        assert expected == exchange.find(digest, 7, length)
        assert 0 == exchange.find(digest, 8, length)
        assert 0 == exchange.find(digest, 7, length + 1)


def test_what_is_too_long_is_not_kept() -> None:
    """It would take the place of all others."""
    exchange = Exchange(BYTES_MAX, KNOWN_MAX)
    assert 1 == exchange.add(b"a", 0, 1, 1, 1)

    assert 0 == exchange.add(bytes(BYTES_MAX + 1), 0, BYTES_MAX + 1, 2, 2)
    assert 1 == exchange.find(1, 1, 1)
    assert 0 == exchange.find(2, 2, BYTES_MAX + 1)


def test_each_process_has_a_key_of_its_own() -> None:
    """So that no client of the database can choose digests."""
    keys = {Exchange().key for _ in range(9)}

    assert 9 == len(keys)
    assert {16} == {len(key) for key in keys}


def test_a_mutation_is_found_at_its_place() -> None:
    """Of its log and its segment; at no other position, and not when it is gone."""
    exchange = Exchange(BYTES_MAX, KNOWN_MAX)
    numbers = [exchange.add(b"abc", n, n + 1, n, 0) for n in range(3)]
    exchange.keep("n1", 4, 12, words(10, 20, 30, code="q"), words(numbers[0], 0, numbers[2]))
    exchange.keep("n2", 4, 14, words(20, code="q"), words(numbers[1]))

    places = [("n1", 4, 10), ("n1", 4, 30), ("n2", 4, 20)]
    assert [(b"a", 12), (b"c", 12), (b"b", 14)] == [exchange.at(*place) for place in places]
    for place in [("n1", 4, 20), ("n1", 4, 31), ("n1", 5, 10), ("n3", 4, 10)]:
        assert exchange.at(*place) is None
    exchange.add(bytes(BYTES_MAX), 0, BYTES_MAX, 9, 9)
    assert exchange.at("n1", 4, 10) is None


def test_places_are_bounded() -> None:
    """The oldest stretches go; the newest stays however many places it has."""
    exchange = Exchange(BYTES_MAX, KNOWN_MAX)
    number = exchange.add(b"a", 0, 1, 1, 1)
    half = memoryview(array("q", range(PLACES_MAX // 2 + 1)))
    numbers = memoryview(array("Q", [number]) * len(half))
    exchange.keep("n1", 1, 12, half, numbers)
    assert exchange.at("n1", 1, 7) is not None
    exchange.keep("n1", 2, 12, half, numbers)

    assert exchange.at("n1", 1, 7) is None
    assert exchange.at("n1", 2, 7) is not None

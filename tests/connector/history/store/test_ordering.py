"""Numbers and names are in the order that Python has for them."""

import random

import pytest

from headrace.connector.history.store.ordering import ascending, by_hash

pytestmark = pytest.mark.hot
COUNTS = [0, 1, 2, 3, 200, 1_000]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("bits", [0, 7, 8, 32, 63])
def test_numbers_ascend(count: int, bits: int) -> None:
    """Those of few and of many bytes, with repeats."""
    of = random.Random(count + bits)  # noqa: S311 (repeatable)
    numbers = [of.getrandbits(bits) for _ in range(count)]
    numbers += numbers[: count // 3]
    assert sorted(numbers) == ascending(numbers)


@pytest.mark.parametrize("count", COUNTS)
def test_names_are_by_the_hash_of_their_key(count: int) -> None:
    """Names of one key stay in their order, also under hashes of all bits."""
    of = random.Random(count)  # noqa: S311 (repeatable)
    keys = {b"key %d" % number: of.choice((0, of.getrandbits(32))) for number in range(30)}
    names = [(of.choice([*keys]), b"%d" % number) for number in range(count)]
    rows = {row: of.choice((0, 1, 0xFFFF_FFFF, of.getrandbits(32))) for _, row in names}
    found = by_hash(names, (keys | rows).__getitem__)
    expected = sorted(names, key=lambda each: keys[each[0]])
    hashes = [keys[key] << 31 | rows[row] >> 1 for key, row in expected]
    assert [*zip(expected, hashes, strict=True)] == [*found.items()]

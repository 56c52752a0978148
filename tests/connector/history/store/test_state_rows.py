"""New states become the rows of a table, many with one statement."""

import random

import pytest

from headrace.connector.history.store.state_rows import new_rows

pytestmark = pytest.mark.hot
MANY = 4


@pytest.mark.parametrize("count", [0, 1, MANY - 1, MANY, MANY + 1, 3 * MANY, 50])
def test_each_new_state_is_one_row(count: int) -> None:
    """In the order of the hashes: neither those that are known, nor names without a new state."""
    of = random.Random(count)  # noqa: S311 (repeatable)
    names = [(of.randbytes(of.randrange(1, 300)), b"%d" % number) for number in range(count)]
    hashes = {name: of.getrandbits(63) for name in names}
    states = {name: of.randbytes(of.randrange(400)) for name in names if of.randrange(4)}
    known = {name: 1 for name in names if not of.randrange(4)}
    expiries = {name: of.getrandbits(40) for name in names if of.randrange(2)}
    expected = [
        (hashes[name], len(name[0]), len(name[1]), b"".join((*name, states[name])))
        for name in names
        if name in states and name not in known
    ]
    ends = [expiries.get(n, 0) for n in names if n in states and n not in known]
    groups, left, has_partition = new_rows(hashes, known, states, expiries, MANY)
    assert [(*row, at_s) for row, at_s in zip(expected, ends, strict=True)] == [
        tuple(values[at : at + 5]) for values in (*groups, *left) for at in range(0, len(values), 5)
    ]
    assert {5 * MANY} >= {len(values) for values in groups}
    assert {5} >= {len(values) for values in left}
    assert len(left) < MANY
    assert not has_partition


@pytest.mark.parametrize("known", [{}, {(b"k", b""): 7}])
def test_a_new_state_of_a_partition_is_noticed(known: dict[tuple[bytes, bytes], int]) -> None:
    """From then on, commits look for the states of partitions; for one that is known they do."""
    hashes = {(b"k", b"r"): 1, (b"k", b""): 2}
    *_, has_partition = new_rows(hashes, known, dict.fromkeys(hashes, b"s"), {}, MANY)
    assert has_partition == (not known)

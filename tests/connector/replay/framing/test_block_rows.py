"""Blocks as Arrow rows."""

import random

import pytest

from headrace.connector.replay.framing.block_rows import BLOCK_NAMES, Row, batches_of, rows_of

MIB = 1024 * 1024


@pytest.mark.parametrize("seed", range(3))
def test_rows_come_back(seed: int) -> None:
    """Blocks of any size and what splits are to do come back in their order."""
    chance = random.Random(seed)  # noqa: S311 (test data)
    rows: list[Row] = []
    for number in range(300):
        content = chance.randbytes(chance.choice((0, 1, 100, 40_000)))
        rows.append(
            (number, content, None) if chance.random() < seed / 3 else (number, None, content)
        )
    batches = list(batches_of(rows))

    found = [(n, p, None if p is not None else bytes(block)) for n, p, block in rows_of(batches)]
    assert rows == found
    assert {BLOCK_NAMES} == {tuple(batch.schema.names) for batch in batches}


def test_batches_are_bounded() -> None:
    """A batch has about a MiB: a block more than fits at most."""
    rows: list[Row] = [(1, None, bytes(300_000)) for _ in range(20)]
    sizes = [batch.nbytes for batch in batches_of(iter(rows))]

    assert len(sizes) > 4
    assert max(sizes) < MIB + 300_100

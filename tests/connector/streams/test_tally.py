"""Things are counted once each, also if sent again, and wherever counting was cut off."""

import random
from collections.abc import Sequence

from headrace.connector.streams.tally import Counted, Group, Place, Tally

Sent = tuple[Group, bytes, Place, int]


class Cut(Exception):  # noqa: N818 (no error of the product)
    """The process ends here."""


class Fragile(dict[bytes, bytes]):
    """A mapping whose process ends before one of the writes; the count is shared."""

    def __init__(self, left: list[int]) -> None:
        """End when nothing is *left*."""
        super().__init__()
        self._left = left

    def __setitem__(self, key: bytes, value: bytes) -> None:
        """Write, or end."""
        if not self._left[0]:
            self._left[0] = -1
            raise Cut
        self._left[0] -= 1
        super().__setitem__(key, value)


def messages() -> Sequence[Sent]:
    """Return the messages of a partition: things of three groups, each third of them twice."""
    things = [*range(24), *range(0, 24, 3)]
    random.Random(7).shuffle(things)  # noqa: S311 (a test)
    return [
        (("g", thing % 3), b"%d" % thing, Place("t", 0, offset), thing + 1)
        for offset, thing in enumerate(things)
    ]


EXPECTED = {
    ("g", 0): Counted(8, sum(range(1, 25, 3)), 8),
    ("g", 1): Counted(8, sum(range(2, 25, 3))),
    ("g", 2): Counted(8, sum(range(3, 25, 3))),
}


def test_each_thing_counts_once() -> None:
    """`take` returns whether it did; a second message is a repeat, in each partition and topic."""
    tally = Tally({}, {})
    counted = [tally.take(*sent) for sent in messages()]

    assert 24 == sum(counted)
    assert EXPECTED == tally.groups()
    assert not tally.take(("g", 0), b"0", Place("t", 1, 0), 1)
    assert not tally.take(("g", 0), b"0", Place("u", 0, 0), 1)
    assert EXPECTED["g", 0]._replace(repeated=10) == tally.groups()["g", 0]


def test_a_cut_at_any_write_changes_nothing() -> None:
    """A message that is taken again, after an end before any of the writes, counts once."""
    cuts = 0
    for writes in range(2 * len(messages()) + 1):
        left = [writes]
        names, sums = Fragile(left), Fragile(left)
        tally = Tally(names, sums)
        for number, sent in enumerate(messages()):
            try:
                tally.take(*sent)
            except Cut:
                cuts += 1
                tally = Tally(names, sums)  # Another process, a few messages back.
                for again in messages()[max(0, number - 5) : number + 1]:
                    tally.take(*again)
        assert EXPECTED == tally.groups()
    assert cuts > len(messages())


def test_one_mapping_may_be_behind_the_other() -> None:
    """They can be kept apart: what either has not yet is made good when messages come again."""
    names: dict[bytes, bytes] = {}
    sums: dict[bytes, bytes] = {}
    tally = Tally(names, sums)
    kept: list[tuple[dict[bytes, bytes], dict[bytes, bytes]]] = [({}, {})]
    for sent in messages():
        tally.take(*sent)
        kept.append((dict(names), dict(sums)))

    for first, (older_names, _) in enumerate(kept):
        for second, (_, older_sums) in enumerate(kept):
            again = Tally(dict(older_names), dict(older_sums))
            for sent in messages()[min(first, second) :]:
                again.take(*sent)
            assert EXPECTED == again.groups()


def test_sums_do_not_overflow() -> None:
    """The sum of hashes stays below 64 bits."""
    most = Counted(1, (1 << 64) - 1, 2)

    assert Counted(2, (1 << 64) - 2, 4) == most.plus(most)

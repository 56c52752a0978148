"""Checksums of changes are kept as two columns of 64 bits."""

from array import array

from headrace.plugins import MODULUS, Checksums

NUMBERS = [0, 1, (1 << 64) - 1, 1 << 64, MODULUS - 1, 0x0123_4567_89AB_CDEF_FEDC_BA98_7654_3210]


def test_numbers_come_back() -> None:
    """What was put in comes out, in order, for all signs of the halves."""
    made = Checksums.of(NUMBERS)
    low, high = (array("Q", [n % (1 << 64) for n in half]) for half in (made.low, made.high))
    unsigned = Checksums(memoryview(low), memoryview(high))

    assert NUMBERS == list(made) == list(unsigned)
    assert len(NUMBERS) == len(made)


def test_some_are_chosen() -> None:
    """Those of chosen records come in the order of the choice."""
    assert [NUMBERS[4], NUMBERS[1]] == list(Checksums.of(NUMBERS).chosen([4, 1]))

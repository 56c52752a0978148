"""Memory for tables that grow."""

import pytest

from headrace.sources.cassandra.native.growable import Block


@pytest.mark.parametrize("code", ["B", "i", "q", "Q"])
def test_what_was_written_stays_and_what_comes_is_zero(code: str) -> None:
    """A block keeps its items when it grows, also where huge pages begin; new ones are zero."""
    block = Block(code, 1000)
    count = 1000
    view = block.view()
    assert [0] * 1000 == view.tolist()
    while view.nbytes < 8 << 20:
        view[count - 1] = 7
        view.release()
        block.grow(2 * count)
        view = block.view()
        assert 2 * count == len(view)
        assert 7 == view[count - 1]
        assert not any(view[count:].tobytes())
        count *= 2


def test_a_view_outlives_its_block() -> None:
    """The memory of a view is not given back while the view is there."""
    view = Block("q", 10).view()
    view[9] = -1
    assert -1 == view[9]


def test_a_block_with_a_view_does_not_grow() -> None:
    """Memory is not moved while a view may write to it."""
    block = Block("q", 10)
    view = block.view()
    with pytest.raises(BufferError):
        block.grow(20)
    assert 10 == len(view)

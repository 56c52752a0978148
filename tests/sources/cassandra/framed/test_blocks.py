"""A file of blocks: found in any order, and refused when one is missing."""

from array import array
from pathlib import Path

import pytest

from headrace.sources.cassandra.errors import StateError
from headrace.sources.cassandra.framed.blocks import BlockFile, End, Head, block_of

FINISHED = 3


def block(begin: int, number: int, *, is_last: bool = False, segment_id: int = 7) -> bytes:
    """Return a block with one entry; the section ends 100 behind its begin."""
    end = End(FINISHED, begin + 100, at_until=False) if is_last else None
    head = Head("n1", segment_id, begin, begin + 100, number, "segment", 12, 40, 1, end)
    ends, sizes = array("q", [begin + 10 * number]), array("i", [3])
    return block_of(
        head, memoryview(ends).cast("B"), memoryview(sizes).cast("B"), memoryview(b"abc")
    )


WHOLE = (block(0, 0), block(0, 1, is_last=True), block(100, 0, is_last=True))


def opened(tmp_path: Path, *blocks: bytes) -> BlockFile:
    """Return a file of these blocks."""
    path = tmp_path / "blocks"
    path.write_bytes(b"".join(blocks))
    return BlockFile(path)


def test_blocks_come_in_order(tmp_path: Path) -> None:
    """Whatever their order in the file, they are in that of the segment, with their columns."""
    file = opened(tmp_path, *reversed(WHOLE))
    blocks = file.of("n1")[7]

    assert [(0, 0), (0, 1), (100, 0)] == [(each.head.begin, each.head.number) for each in blocks]
    assert [([10], [3], b"abc")] == [
        (ends.tolist(), sizes.tolist(), bytes(content))
        for ends, sizes, content in [file.columns(blocks[1])]
    ]
    assert {} == file.of("n2")
    file.close()


@pytest.mark.parametrize("missing", range(2))
def test_a_missing_block(tmp_path: Path, missing: int) -> None:
    """The file is refused: entries would be lost."""
    left = [each for number, each in enumerate(WHOLE) if number != missing]

    with pytest.raises(StateError, match=r"expected block|has no end"):
        opened(tmp_path, *left)


def test_a_block_twice(tmp_path: Path) -> None:
    """It is refused, too."""
    with pytest.raises(StateError, match="expected block 1 of the section at 0 of segment"):
        opened(tmp_path, WHOLE[0], *WHOLE)


@pytest.mark.parametrize("size", [4, 20, -1])
def test_a_file_that_is_cut(tmp_path: Path, size: int) -> None:
    """What is cut, or not of blocks, is refused."""
    with pytest.raises(StateError):
        opened(tmp_path, b"".join(WHOLE)[:size])
    with pytest.raises(StateError):
        opened(tmp_path, b"\5\0\0\0\0\0\0\0hello")


def test_an_unfit_segment_has_no_blocks(tmp_path: Path) -> None:
    """A segment that was damaged in one part is read by the splits; others are not."""
    unfit = block_of(Head("n1", 7, 100, 200, 0, is_unfit=True))
    file = opened(tmp_path, *WHOLE[:2], unfit, block(0, 0, is_last=True, segment_id=8))

    assert [8] == list(file.of("n1"))
    file.close()

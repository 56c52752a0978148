"""A file of blocks: found in any order, and refused when one is missing."""

from array import array
from pathlib import Path

import msgspec
import pytest

from headrace.sources.cassandra.commitlog.framer import digest
from headrace.sources.cassandra.errors import CorruptSegmentError, StateError
from headrace.sources.cassandra.framed.blocks import BlockFile, End, Fetch, Head, block_of
from headrace.sources.cassandra.logs.rescued_copies import Rescued
from headrace.sources.cassandra.native import constants

FINISHED = 3
RAW, KEY = b"a mutation", bytes(range(16))


def block(begin: int, number: int, *, is_last: bool = False, segment_id: int = 7) -> bytes:
    """Return a block with one entry; the section ends 100 behind its begin."""
    end = End(FINISHED, begin + 100, at_until=False) if is_last else None
    head = Head("n1", segment_id, begin, begin + 100, number, "segment", 12, 40, 1, end)
    ends, sizes = array("q", [begin + 10 * number]), array("i", [3])
    return block_of(
        head,
        memoryview(ends).cast("B"),
        memoryview(sizes).cast("B"),
        memoryview(bytes([constants.SENT_BYTES])),
        memoryview(b"abc"),
    )


def nothing(node: str, segment_id: int, position: int, length: int) -> Rescued | None:
    """Find no mutation."""
    assert (node, segment_id, length) == ("n2", 9, len(RAW))
    assert 40 == position
    return None


def shared(kind: int, node: str, segment_id: int) -> bytes:
    """Return a block with one mutation that several logs have."""
    has_bytes = kind == constants.SENT_BOTH
    head = Head(node, segment_id, 0, 100, 0, "log", 12, 40, 1, End(FINISHED, 100, at_until=False))
    head = msgspec.structs.replace(head, digests=1, both=int(has_bytes), key=KEY)
    return block_of(
        head,
        memoryview(array("q", [40])).cast("B"),
        memoryview(digest(RAW, KEY)),
        memoryview(array("i", [len(RAW)])).cast("B"),
        memoryview(bytes([kind])),
        memoryview(RAW if has_bytes else b""),
    )


WHOLE = (block(0, 0), block(0, 1, is_last=True), block(100, 0, is_last=True))


def opened(tmp_path: Path, *blocks: bytes) -> BlockFile:
    """Return a file of these blocks."""
    path = tmp_path / "blocks"
    path.write_bytes(b"".join(blocks))
    return BlockFile(path)


def test_blocks_come_in_order(tmp_path: Path) -> None:
    """For any order in the file, they are in that of the segment, with their columns."""
    file = opened(tmp_path, *reversed(WHOLE))
    blocks = file.of("n1")[7]

    assert [(0, 0), (0, 1), (100, 0)] == [(each.head.begin, each.head.number) for each in blocks]
    assert [([10], [3], b"abc")] == [
        (ends.tolist(), sizes.tolist(), bytes(content))
        for ends, sizes, content in [file.columns(blocks[1], nothing)]
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


def raw_of(file: BlockFile, fetch: Fetch) -> bytes:
    """Return the mutation of the log that sent a digest."""
    ends, sizes, content = file.columns(file.of("n2")[9][0], fetch)
    assert ([40], [len(RAW)]) == (ends.tolist(), sizes.tolist())
    return bytes(content)


def test_bytes_of_another_log(tmp_path: Path) -> None:
    """Where a log sent a digest there are the bytes of the one that sent them, before or after."""
    blocks = (shared(constants.SENT_DIGEST, "n2", 9), shared(constants.SENT_BOTH, "n1", 8))
    for order in (blocks, blocks[::-1]):
        file = opened(tmp_path, *order)
        assert RAW == raw_of(file, nothing)
        file.close()


def test_bytes_that_no_log_sent(tmp_path: Path) -> None:
    """They are read at the place of the digest; other bytes, none, and damage are refused."""
    file = opened(tmp_path, shared(constants.SENT_DIGEST, "n2", 9))

    def damaged(*_: object) -> Rescued | None:
        raise CorruptSegmentError("torn", place="log", hint="", begin=0, end=1)

    assert RAW == raw_of(file, lambda *_: Rescued(RAW, 12))
    for fetch in (nothing, damaged, lambda *_: Rescued(RAW[::-1], 12)):
        with pytest.raises(StateError, match="log of n2: before byte 40: a mutation"):
            raw_of(file, fetch)
    file.close()

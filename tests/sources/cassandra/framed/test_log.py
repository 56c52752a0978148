"""A log whose entries were framed before."""

from pathlib import Path

import pytest

from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.errors import StateError
from headrace.sources.cassandra.framed.blocks import BlockFile, End, Head, block_of
from headrace.sources.cassandra.framed.log import FramedSegment
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.logs.reread import Copies

FINISHED = 3


def test_blocks_that_begin_too_late(tmp_path: Path) -> None:
    """A reader does not pass over what lies between its position and the blocks."""
    end = End(FINISHED, 300, at_until=False)
    path = tmp_path / "blocks"
    path.write_bytes(block_of(Head("n1", 7, 100, 300, 0, "segment", 12, 40, 0, end)))
    file = BlockFile(path)
    copies = Copies({}, bytes(16), Keys(KeyOptions()))
    framer, segment = Framer(), FramedSegment(file, file.of("n1")[7], copies)

    segment.begin(framer, 100)
    segment.begin(framer, 200)
    with pytest.raises(StateError, match="framed from byte 100 on, and are wanted from 99"):
        segment.begin(framer, 99)
    file.close()

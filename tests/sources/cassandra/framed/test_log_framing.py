"""What is framed of a log; test_framed_shards compares it with what is read of the log itself."""

from pathlib import Path

from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.framed.log_framing import LogFramer, LogPart
from headrace.sources.cassandra.framed.sharing import no_shares
from headrace.sources.cassandra.framed.sorting import EntrySorter
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.logs.directory import LogDirectory
from headrace.sources.cassandra.state.cdc_state import Marker
from helpers.logs.forged import insert


def test_a_segment_that_vanishes_has_no_blocks(tmp_path: Path) -> None:
    """It is left to the readers of the splits, and the others are framed."""
    for number in (0, 1):
        made = segment([[insert(b"k")]], segment_id=SEGMENT_ID + number)
        write_segment(tmp_path, made.content, segment_id=SEGMENT_ID + number)
    log = LogDirectory(tmp_path)
    listed = log.segments()
    (gone, left) = (each.name for each in listed)
    log.segments = lambda: listed  # type: ignore[method-assign]  # As it was listed before.
    (tmp_path / gone).unlink()
    framer = LogFramer(EntrySorter(1, [0]), Keys(KeyOptions()), {})
    part = LogPart("n1", Marker(0, 0), Marker(SEGMENT_ID + 1, END_OFFSET), ["n1"], bytes(16))

    (block,) = [block for _, block in framer.frame(log, part, 0, no_shares())]
    assert left.encode() in block

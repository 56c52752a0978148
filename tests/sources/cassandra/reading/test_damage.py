"""What damage of a log means to a split: by the level and by time (I10)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from headrace.plugins import Batch, Notice, Reader
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.state.cdc_state import CdcState
from headrace.sources.cassandra.state.gaps import LogGapError
from helpers.logs.forged import insert
from helpers.logs.node_logs import batches, forged_nodes, open_all, source
from helpers.logs.wrapped_log import KEY, entry, packed_log

NODES = ("n1", "n2", "n3")
W_S = 600
STEP_MS = 5_000


class Job:
    """A job of one split at QUORUM, driven by hand; its state is that of the last batch."""

    def __init__(self, folder: Path, **options: object) -> None:
        """Begin with an empty segment of each log."""
        self._folder = folder
        self._options = forged_nodes(folder, dict.fromkeys(NODES, ())) | {
            "splits": 1,
            "expiry_seconds": W_S,
            "dedup_window_seconds": W_S,
            **options,
        }
        self.clock = DrivenClock()
        self.state: CdcState | None = None
        self.published: list[str] = []
        self.notices: list[Notice] = []
        self._made = source(self._options, self.clock)
        self._readers: Mapping[str, Reader] = {}
        self.start()

    def start(self, **options: object) -> None:
        """Start again from the state."""
        self._options |= options
        self._made.close()
        self._made = source(self._options, self.clock)
        self._readers = open_all(self._made, {"1-of-1": self.state} if self.state else None)

    def log(self, number: int, key: bytes, *nodes: str, damaged: str = "") -> None:
        """Write a segment with one row to the logs of *nodes*, and damage that of one."""
        made = segment([[insert(key, b"v")]], segment_id=SEGMENT_ID + number).content
        for node in nodes:
            spoilt = bytearray(made)
            spoilt[made.index(key)] ^= node == damaged
            write_segment(self._folder / node, bytes(spoilt), segment_id=SEGMENT_ID + number)

    def read(self) -> None:
        """Read what there is."""
        for batch in batches(self._readers.values()):
            self._take(batch)

    def _take(self, batch: Batch) -> None:
        assert isinstance(batch.end, CdcState)
        self.state = CdcState.decode(batch.end.encode())
        self.published += [r.document()["key"]["k"] for r in batch.records()]
        self.notices += batch.notices()

    def wait(self, seconds: int) -> None:
        """Let time pass, in which all logs are read to their ends."""
        for _ in range(seconds * 1_000 // STEP_MS):
            self.clock.advance(STEP_MS)
            self.read()

    def gaps(self) -> Sequence[tuple[str, str]]:
        """Return the nodes of the gaps in the state, and how these are."""
        assert self.state is not None
        return [(gap.node, gap.state) for gap in self.state.met_gaps]


@pytest.mark.parametrize(("later_s", "state"), [(W_S // 2, "open"), (W_S + 60, "covered")])
def test_damage_counts_together_for_as_long_as_copies_come(
    tmp_path: Path, later_s: int, state: str
) -> None:
    """Two nodes can have lost a mutation together within `expiry_seconds`, and not later."""
    job = Job(tmp_path)
    job.log(1, b"k1", *NODES, damaged="n1")
    job.read()
    assert [("n1", "covered")] == job.gaps()
    job.wait(later_s)
    job.log(2, b"k2", *NODES, damaged="n2")
    job.clock.advance(STEP_MS)

    if state == "open":
        with pytest.raises(LogGapError, match="what it held may be in no log") as met:
            job.read()
        assert 4 == met.value.exit_status
        assert [("n1", "passed"), ("n2", "open")] == job.gaps()
    else:
        job.read()
        assert [("n1", "covered"), ("n2", "covered")] == job.gaps()


@pytest.mark.parametrize(("gaps", "published"), [("fail", 0), ("expire", 0), ("assume", 1)])
def test_a_copy_that_covered_damage_may_have_held_counts_if_it_is_assumed(
    tmp_path: Path, gaps: str, published: int
) -> None:
    """Of a mutation with one copy elsewhere; else it expires, which the books say."""
    job = Job(tmp_path, gaps=gaps)
    job.log(1, b"k1", "n1", "n2", damaged="n1")
    job.read()
    job.start()
    job.wait(2 * W_S)

    assert job.state is not None
    assert [("n1", "covered")] == job.gaps()
    assert published == len(job.published)
    assert 1 - published == job.state.counters["mutations.expired"]
    assert 1 == job.state.counters["entries.n1.damaged"]
    assert [] == job.notices


@pytest.mark.parametrize("packer", ["LZ4Compressor", "AES"])
def test_sections_that_cannot_be_unpacked_are_damage(tmp_path: Path, packer: str) -> None:
    """Of a compressed or encrypted segment a section; of two logs it is a loss."""
    contents = [entry(insert(b"k%d" % n, b"v")) for n in range(4)]
    whole = packed_log(packer, contents)
    spoilt = bytearray(whole)
    spoilt[-9] ^= 0xFF
    job = Job(tmp_path, raw_key=KEY.hex())
    for node in NODES:
        content = whole if node == "n3" else bytes(spoilt)
        write_segment(tmp_path / node, content)
    job.start()

    with pytest.raises(LogGapError) as met:
        job.read()

    assert met.value.gap.size_bytes >= len(contents[-1])
    assert [("n1", "passed"), ("n2", "open")] == job.gaps()


def test_damage_of_a_segment_that_was_accepted_stops_nothing_again(tmp_path: Path) -> None:
    """What is met behind it is reported, each place once, and booked with its bytes."""
    job = Job(tmp_path, consistency="ONE")
    rows = [insert(b"k%d" % n, b"v") for n in range(9)]
    made = segment([rows[:3], rows[3:6], rows[6:]])
    spoilt = bytearray(made.content)
    for key in (b"k1", b"k4", b"k7"):
        spoilt[made.content.index(key)] ^= 1
    write_segment(tmp_path / "n1", bytes(spoilt))
    with pytest.raises(LogGapError):
        job.read()
    assert job.state is not None
    (gap,) = job.state.gaps()

    job.state = job.state.without_gaps([gap.name], "expire")
    job.start()
    job.read()

    assert 3 == job.state.counters["entries.n1.damaged"]
    assert 6 == len(job.published)
    assert {("n1", "passed")} == set(job.gaps())
    assert 3 * len(rows[0]) <= sum(gap.size_bytes for gap in job.state.met_gaps)
    reported = [(n.document["name"], n.document["state"]) for n in job.notices]
    assert len(reported) == len(set(reported))

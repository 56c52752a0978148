"""A ring, its replication and its level change, while a job runs and while it does not."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from forged import insert
from headrace.plugins import ConfigError, Position
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.errors import TopologyError
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.schema import KeyspaceSchema
from headrace.sources.cassandra.state import CdcState
from node_logs import batches, forged_nodes, open_all, source

ROWS = [insert(b"key %d" % i, b"value") for i in range(20)]
NODES = ("n1", "n2", "n3", "n4")
HINTS_S = 600


class Job:
    """A job of one split over four nodes, whose ring is in a file."""

    def __init__(self, folder: Path, **logs: list[bytes]) -> None:
        """Forge the logs; the first three nodes are the ring."""
        self.folder = folder
        self.options = forged_nodes(folder, {n: logs.get(n, []) for n in NODES}) | {
            "splits": 1,
            "topology": str(folder / "ring.yaml"),
            "max_hint_window_seconds": HINTS_S,
        }
        self.books: Counter[str] = Counter()
        self.at: dict[str, Position] = {}
        self.clock = DrivenClock()
        self.segment_id = SEGMENT_ID
        self.ring("n1", "n2", "n3")
        self.open()

    def ring(self, *nodes: str) -> None:
        """Write the file of the ring."""
        named = {node: {"tokens": [100 * i]} for i, node in enumerate(nodes)}
        (self.folder / "ring.yaml").write_bytes(msgspec.yaml.encode(named))

    def open(self, **options: object) -> None:
        """Start, or start again from what is committed."""
        self.options |= options
        self.source = source(self.options, self.clock)
        self.readers = open_all(self.source, self.at)

    def add(self, raws: list[bytes], *nodes: str) -> None:
        """Let these nodes log mutations in a further segment; the others have an empty one."""
        self.segment_id += 1
        for node in NODES:
            content = segment([raws if node in nodes else []], segment_id=self.segment_id).content
            write_segment(self.folder / node, content, segment_id=self.segment_id)

    def read(self, seconds: int = 10) -> int:
        """Read for a while; return how many records come."""
        found = 0
        for _ in range(0, seconds + 1, 5):
            for batch in batches(self.readers.values()):
                found += sum(1 for _ in batch.records())
                assert isinstance(batch.end, CdcState)
                (split,) = self.readers
                self.at[split] = CdcState.decode(batch.end.encode())
                self.books = Counter(batch.end.books())
            self.clock.advance(5_000)
        return found


def test_a_node_takes_the_place_of_another(tmp_path: Path) -> None:
    """TP02: what the old ring agreed on and what the new one does is published, nothing twice."""
    job = Job(tmp_path, n1=ROWS[:5], n2=ROWS[:5])
    assert 5 == job.read()
    job.add(ROWS[5:10], "n1", "n2")
    job.add(ROWS[10:15], "n3", "n4")
    job.ring("n2", "n3", "n4")

    assert 10 == job.read()

    job.add(ROWS[15:], "n1", "n2")
    assert 5 == job.read()  # Logged under the old ring, for all we know.
    assert 20 == job.books["mutations.agreed"]


def test_a_node_comes_into_the_ring(tmp_path: Path) -> None:
    """TP01: before, while and after it joins each mutation comes once, by whoever held it then."""
    job = Job(tmp_path, n1=ROWS[:5], n2=ROWS[:5], n3=ROWS[:5])
    assert 5 == job.read()
    job.add(ROWS[5:10], "n1", "n3")
    job.add(ROWS[5:10], "n4")  # It joins: what it logs meanwhile counts for nothing.
    assert 5 == job.read()

    job.ring("n1", "n2", "n3", "n4")
    job.add(ROWS[10:], "n1", "n2", "n3", "n4")

    assert 10 == job.read()
    assert 20 == job.books["mutations.agreed"]
    assert 0 == job.books["mutations.pending"]


def test_a_ring_is_retired_after_the_hint_window(tmp_path: Path) -> None:
    """From then on, copies of nodes that left count no more, also after a restart."""
    job = Job(tmp_path)
    job.read()
    job.ring("n2", "n3", "n4")
    job.read()
    job.read(HINTS_S // 2)
    job.open()
    job.read(HINTS_S)

    job.add(ROWS[:3], "n1", "n2")
    assert 0 == job.read()
    assert 3 == job.books["mutations.pending"]
    job.add(ROWS[:3], "n3")
    assert 3 == job.read()


def test_a_node_that_left_may_be_left_out_when_its_ring_is_retired(tmp_path: Path) -> None:
    """TP02: before that its log is asked for; afterwards what it logged means nothing any more."""
    job = Job(tmp_path)
    job.read()
    job.ring("n2", "n3", "n4")
    job.add(ROWS[:1], "n1", "n2")
    assert 1 == job.read()
    nodes = dict(job.options["nodes"]) if isinstance(job.options["nodes"], dict) else {}
    fewer = {node: path for node, path in nodes.items() if node != "n1"}
    with pytest.raises(ConfigError, match="lacks n1, whose copies still count"):
        job.open(nodes=fewer)

    job.open(nodes=nodes)
    job.read(HINTS_S + 60)
    job.open(nodes=fewer)
    job.add(ROWS[1:3], "n2", "n3")
    assert 2 == job.read()


def test_a_lower_level_publishes_what_waits(tmp_path: Path) -> None:
    """Started at ONE, a job that waited at ALL has what it needs (line 18)."""
    job = Job(tmp_path, n1=ROWS[:4])
    job.open(consistency="ALL")
    assert 0 == job.read()

    job.open(consistency="ONE")
    assert 4 == job.read()


def test_replication_that_a_log_tells_is_followed(tmp_path: Path) -> None:
    """After ALTER KEYSPACE one copy is enough; what waits is judged again."""
    job = Job(tmp_path, n1=ROWS[:4], n2=ROWS[:4], n3=ROWS[:4])
    job.open(consistency="ALL")
    assert 4 == job.read()
    job.add(ROWS[4:6], "n1", "n2")
    assert 0 == job.read()
    replication = {"class": "SimpleStrategy", "replication_factor": "2"}
    parts = job.source._parts  # noqa: SLF001 (as a log's change of the schema does)
    parts.deliveries.follow({"forged": KeyspaceSchema("forged", replication)})

    # Two of the three are replicas of each token; both of them logged some.
    published = job.read()
    assert 0 < published + job.books["mutations.pending"] == 2


def test_a_ring_that_cannot_satisfy_the_level_stops_the_job(tmp_path: Path) -> None:
    """It says which copies are missing; a file that is no ring changes nothing."""
    job = Job(tmp_path)
    job.open(consistency="ALL")
    job.read()
    (tmp_path / "ring.yaml").write_text("[")
    assert 0 == job.read()
    job.ring("n1", "n2", "elsewhere")

    with pytest.raises(TopologyError, match="level ALL needs 3 of 3 copies, the job reads 2"):
        job.read()


@pytest.mark.parametrize(
    ("ring", "expected"),
    [
        ("[", "topology: while parsing"),
        ("[]", "topology: expected nodes by name"),
        ("{n1: {}}", "topology.n1: expected a node with tokens"),
        ("{n1: {tokens: [x]}}", "topology.n1.tokens: expected a list of whole numbers"),
        ("{n1: {tokens: [1], joining: 3}}", "topology.n1.joining: expected true or false"),
        ("{n1: {tokens: [1], host: a}}", "topology.n1.host: unknown"),
        ("{n1: {tokens: [1]}, n2: {tokens: [1]}}", "topology.n2.tokens: 1 is n1's already"),
    ],
)
def test_a_file_that_is_no_ring_is_refused_at_the_start(
    tmp_path: Path, ring: str, expected: str
) -> None:
    """With every mistake in it, by node and option."""
    job = Job(tmp_path)
    (tmp_path / "ring.yaml").write_text(ring)

    with pytest.raises(ConfigError) as caught:
        job.open()
    assert expected in str(caught.value)

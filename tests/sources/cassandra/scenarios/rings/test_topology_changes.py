"""A ring, its replication and its level change, while a job runs and while it is stopped."""

import shutil
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from cassandra.murmur3 import murmur3

from headrace.plugins import ConfigError, Position
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.errors import TopologyError
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.schema.tables import KeyspaceSchema
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.logs.forged import insert
from helpers.logs.node_logs import batches, forged_nodes, open_all, source
from helpers.servers.agents import TOKEN, serving

pytestmark = pytest.mark.hot

ROWS = [insert(b"key %d" % i, b"value") for i in range(20)]
NODES = ("n1", "n2", "n3", "n4", "n5")
HINTS_S = 600
MINUTE_S = 60
HOURS_MS = 6 * 3_600_000
ROWS_EACH = 24
# Tokens by node, and copies of a row, before and after a change; the last one is undone.
QUARTER = 1 << 62
THREE = {"n1": -2 * QUARTER, "n2": -QUARTER, "n3": QUARTER}
FOUR = THREE | {"n4": 0}
FIVE = FOUR | {"n5": QUARTER + QUARTER // 2}
CHANGES = {
    "added": ((THREE, 3), (FOUR, 3)),
    "removed": ((FOUR, 3), (THREE, 3)),
    "replaced": ((FOUR, 3), ({"n1": -2 * QUARTER, "n2": -QUARTER, "n5": QUARTER, "n4": 0}, 3)),
    "moved": ((FOUR, 3), (FOUR | {"n2": QUARTER // 2}, 3)),
    "more copies and fewer again": ((FIVE, 3), (FIVE, 5), (FIVE, 3)),
}


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
        """Write a file with a ring of these nodes."""
        self.owns({node: 100 * i for i, node in enumerate(nodes)})

    def owns(self, tokens: Mapping[str, int], **more: str) -> None:
        """Write a file with a ring in which each node has a token, and *more*."""
        named = {node: {"tokens": [token], **more} for node, token in tokens.items()}
        (self.folder / "ring.yaml").write_bytes(msgspec.yaml.encode(named))

    def replicate(self, **replication: str) -> None:
        """Let a log contain another replication of the keyspace."""
        parts = self.source._parts  # noqa: SLF001 (as a log's change of the schema does)
        parts.built().deliveries.follow({"forged": KeyspaceSchema("forged", replication)})

    def open(self, **options: object) -> None:
        """Start, or restart from the committed position."""
        self.options |= options
        self.source = source(self.options, self.clock)
        self.readers = open_all(self.source, self.at)

    def add(self, raws: list[bytes], *nodes: str) -> None:
        """Let these nodes log mutations in a new segment; the others have an empty one."""
        self.log(dict.fromkeys(nodes, raws))

    def log(self, raws: Mapping[str, list[bytes]]) -> None:
        """Let each node log its mutations in a new segment."""
        self.segment_id += 1
        for node in NODES:
            content = segment([raws.get(node, [])], segment_id=self.segment_id).content
            write_segment(self.folder / node, content, segment_id=self.segment_id)

    def read(self, seconds: int = 10) -> int:
        """Read for a while; return the number of records."""
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


def copies(
    phase: int, tokens: Mapping[str, int], factor: int
) -> tuple[int, dict[str, list[bytes]]]:
    """Return rows and the copies that each node logs: enough for QUORUM, and no more."""
    keys = [b"phase %d key %d" % (phase, i) for i in range(ROWS_EACH)]
    ring = sorted((token, node) for node, token in tokens.items())
    logged: dict[str, list[bytes]] = {}
    for i, key in enumerate(keys):
        first = bisect_left(ring, (murmur3(key), ""))
        replicas = [ring[(first + n) % len(ring)][1] for n in range(factor)]
        for n in range(factor // 2 + 1):
            logged.setdefault(replicas[(i + n) % factor], []).append(insert(key))
    return len(keys), logged


@pytest.mark.parametrize("heard", ["early", "late"])
@pytest.mark.parametrize("change", CHANGES)
def test_no_gap_and_no_surplus_at_the_seam(tmp_path: Path, change: str, heard: str) -> None:
    """TP01, TP02: each row is published once, whether the job gets the new ring early or late.

    Early is before it has read what was written to the old ring, late is after it has read what was
    written to the new one.
    """
    job = Job(tmp_path)
    phases = CHANGES[change]

    def hear(phase: int) -> None:
        tokens, factor = phases[phase]
        job.owns(tokens)
        job.replicate(**{"class": "SimpleStrategy", "replication_factor": str(factor)})

    hear(0)
    written = published = job.read()
    for phase, (tokens, factor) in enumerate(phases):
        rows, logged = copies(phase, tokens, factor)
        written += rows
        job.log(logged)
        if heard == "late":
            published += job.read()
            hear(phase)
        elif phase + 1 < len(phases):
            hear(phase + 1)
        published += job.read()

    assert written == published
    assert written == job.books["mutations.agreed"]
    assert 0 == job.books["mutations.pending"]


def test_a_data_centre_is_added(tmp_path: Path) -> None:
    """TP06: before, while and after the second data centre gets copies each row comes once."""
    job = Job(tmp_path)
    east, west = ({"n1": 0, "n2": 100, "n3": 200}, {"n4": 50, "n5": 150})
    strategy = "NetworkTopologyStrategy"
    job.owns(east, dc="east")
    job.open(consistency="LOCAL_QUORUM", datacenter="east")
    job.replicate(**{"class": strategy, "east": "3"})
    job.add(ROWS[:5], "n1", "n2")
    published = job.read()
    named = {node: {"tokens": [token], "dc": "east"} for node, token in east.items()}
    named |= {node: {"tokens": [token], "dc": "west"} for node, token in west.items()}
    (tmp_path / "ring.yaml").write_bytes(msgspec.yaml.encode(named))
    job.add(ROWS[5:10], "n2", "n3")
    published += job.read()
    job.replicate(**{"class": strategy, "east": "3", "west": "2"})
    job.add(ROWS[10:15], "n1", "n3", "n4", "n5")
    job.add(ROWS[15:], "n4", "n5", "n1")  # One copy of the local data centre is not enough.

    assert 15 == published + job.read()
    assert 5 == job.books["mutations.pending"]
    job.add(ROWS[15:], "n2")
    assert 5 == job.read()
    assert 20 == job.books["mutations.agreed"]


def test_a_node_takes_the_place_of_another(tmp_path: Path) -> None:
    """TP02: what the old ring agreed on, and what the new ring does, is published once."""
    job = Job(tmp_path, n1=ROWS[:5], n2=ROWS[:5])
    assert 5 == job.read()
    job.add(ROWS[5:10], "n1", "n2")
    job.add(ROWS[10:15], "n3", "n4")
    job.ring("n2", "n3", "n4")

    assert 10 == job.read()

    job.add(ROWS[15:], "n1", "n2")
    assert 5 == job.read()  # It may have been logged under the old ring.
    assert 20 == job.books["mutations.agreed"]


def test_a_node_comes_into_the_ring(tmp_path: Path) -> None:
    """TP01: before, while and after the node joins each mutation is published once."""
    job = Job(tmp_path, n1=ROWS[:5], n2=ROWS[:5], n3=ROWS[:5])
    assert 5 == job.read()
    job.add(ROWS[5:10], "n1", "n3")
    job.add(ROWS[5:10], "n4")  # While it joins its copies do not count.
    assert 5 == job.read()

    job.ring("n1", "n2", "n3", "n4")
    job.add(ROWS[10:], "n1", "n2", "n3", "n4")

    assert 10 == job.read()
    assert 20 == job.books["mutations.agreed"]
    assert 0 == job.books["mutations.pending"]


@pytest.mark.parametrize("was_read", [True, False], ids=["read", "unread"])
def test_a_node_with_a_new_disk_takes_its_own_place(tmp_path: Path, *, was_read: bool) -> None:
    """TP02: the node keeps host id, address and tokens; its log starts from the beginning.

    While it has none, the other logs are read. What only the lost log had is one copy less, and no
    more than that; what was read of it counts.
    """
    job = Job(tmp_path, n1=ROWS[:5], n3=ROWS[:5])
    assert 5 == job.read()
    job.open(gaps="expire")
    job.log({"n1": ROWS[5:10], "n2": ROWS[8:10], "n3": ROWS[5:8]})
    published = job.read() if was_read else 0

    shutil.rmtree(tmp_path / "n3")
    published += job.read()
    lost = 0 if was_read else 3
    assert 5 - lost == published
    job.log({"n1": ROWS[10:12], "n2": ROWS[10:], "n3": ROWS[12:]})

    assert 10 == job.read()
    assert lost == job.books["mutations.pending"]
    job.add(ROWS[:10], "n3")  # As a repair or hints bring it.
    assert lost == job.read()
    assert (20, 0) == (job.books["mutations.agreed"], job.books["mutations.pending"])


def test_a_log_that_was_away_for_hours_is_taken_in(tmp_path: Path) -> None:
    """Pending mutations are published then, once; others are surplus; none expires."""
    job = Job(tmp_path)
    job.log({"n1": ROWS[:10], "n2": ROWS[:5], "n3": ROWS})
    with serving(tmp_path / "n3") as served:
        port = served.port
    nodes = {node: str(tmp_path / node) for node in NODES} | {"n3": {"url": served.url}}
    job.open(nodes=nodes, agent_token=TOKEN)
    published = [job.read()]
    for _ in range(3):
        job.clock.advance(HOURS_MS)
        published.append(job.read())
    job.add(ROWS[15:], "n2")  # Its hints for the third node are dropped after some time.
    job.clock.advance(HOURS_MS)
    with serving(tmp_path / "n3", port=port):
        published.append(job.read())
        assert [5, 0, 0, 0, 10] == published
        assert (15, 5, 0) == tuple(
            job.books[f"mutations.{fate}"] for fate in ("agreed", "pending", "expired")
        )
        assert 5 == job.books["entries.n3.surplus"]
        job.source.close()


@pytest.mark.parametrize("is_lost", [True, False])
def test_what_goes_while_no_agent_answers_may_be_a_gap(tmp_path: Path, *, is_lost: bool) -> None:
    """I10: segments that the node removed while no agent answered are a gap, unless they were read.

    The oldest are removed first. What has its copies elsewhere is published all the same.
    """
    job = Job(tmp_path)
    nodes: dict[str, object] = {node: str(tmp_path / node) for node in NODES}
    with serving(tmp_path / "n3") as served:
        port = served.port
        nodes["n3"] = {"url": served.url}
        job.open(nodes=nodes, agent_token=TOKEN, gaps="expire")
        job.add(ROWS[:5], "n1", "n3")
        published = job.read()
    job.add(ROWS[5:10], "n1", "n3")
    job.add(ROWS[10:], "n1", "n2", "n3")
    job.clock.advance(HOURS_MS)
    published += job.read()
    if is_lost:
        for path in (tmp_path / "n3").glob("CommitLog-*"):
            if str(job.segment_id) not in path.name:
                path.unlink()

    job.clock.advance(HOURS_MS)
    with serving(tmp_path / "n3", port=port):
        published += job.read()
        job.source.close()
    (state,) = job.at.values()
    assert isinstance(state, CdcState)
    assert [("n3", "possible")] * is_lost == [(gap.node, gap.kind) for gap in state.met_gaps]
    assert (15 if is_lost else 20) == published


def test_a_node_was_down_for_longer_than_hints_are_kept(tmp_path: Path) -> None:
    """At ALL what the node never gets expires and is counted; what arrives later is published."""
    job = Job(tmp_path)
    job.open(consistency="ALL", expiry_seconds=MINUTE_S, dedup_window_seconds=MINUTE_S)
    job.add(ROWS[:10], "n1", "n2")
    assert 0 == job.read(MINUTE_S + 20)

    job.add([*ROWS[:5], *ROWS[10:]], "n3")
    assert 5 == job.read()
    assert (5, 5) == (job.books["mutations.agreed"], job.books["mutations.expired"])
    job.add(ROWS[10:], "n1", "n2")
    assert 10 == job.read()


def test_a_ring_is_retired_after_the_hint_window(tmp_path: Path) -> None:
    """From then on copies of nodes that left do not count, also after a restart."""
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
    """TP02: before that its log is required; afterwards its copies have no effect."""
    job = Job(tmp_path)
    job.read()
    job.ring("n2", "n3", "n4")
    job.add(ROWS[:1], "n1", "n2")
    assert 1 == job.read()
    nodes = dict(job.options["nodes"]) if isinstance(job.options["nodes"], dict) else {}
    fewer = {node: path for node, path in nodes.items() if node != "n1"}
    with pytest.raises(ConfigError, match="does not list n1, whose copies still count"):
        job.open(nodes=fewer)

    job.open(nodes=nodes)
    job.read(HINTS_S + 60)
    job.open(nodes=fewer)
    job.add(ROWS[1:3], "n2", "n3")
    assert 2 == job.read()


def test_a_lower_level_publishes_what_waits(tmp_path: Path) -> None:
    """A job that waited at ALL is restarted at ONE, and publishes what waited (line 18)."""
    job = Job(tmp_path, n1=ROWS[:4])
    job.open(consistency="ALL")
    assert 0 == job.read()

    job.open(consistency="ONE")
    assert 4 == job.read()


def test_replication_that_a_log_tells_is_followed(tmp_path: Path) -> None:
    """After ALTER KEYSPACE one copy is enough; pending mutations are checked again."""
    job = Job(tmp_path, n1=ROWS[:4], n2=ROWS[:4], n3=ROWS[:4])
    job.open(consistency="ALL")
    assert 4 == job.read()
    job.add(ROWS[4:6], "n1", "n2")
    assert 0 == job.read()
    job.replicate(**{"class": "SimpleStrategy", "replication_factor": "2"})

    # Two of the three nodes are replicas of each token; both logged some of the rows.
    published = job.read()
    assert 0 < published + job.books["mutations.pending"] == 2


def test_a_ring_that_cannot_satisfy_the_level_stops_the_job(tmp_path: Path) -> None:
    """The error has the missing copies; a file that is not a ring changes nothing."""
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
        ("{n1: {tokens: [1], dc: 2026-99-99}}", "topology: month must be in 1..12"),
        ("{n1: &a {dc: *a}}", "topology: maximum recursion depth"),
        ("{n1: {tokens: [1]}, n1: {tokens: [2]}}", "topology.n1: is given twice"),
        ("{n1: {tokens: [1], tokens: [2]}}", "topology.n1.tokens: is given twice"),
    ],
)
def test_a_file_that_is_not_a_ring_is_refused_at_the_start(
    tmp_path: Path, ring: str, expected: str
) -> None:
    """The error has every mistake, by node and option."""
    job = Job(tmp_path)
    (tmp_path / "ring.yaml").write_text(ring)

    with pytest.raises(ConfigError) as caught:
        job.open()
    assert expected in str(caught.value)

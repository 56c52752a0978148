"""What leaves the memory of a split: by age, or because there is no room, and never silently."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.plugins import Batch, Demand, Position, parse_config
from headrace.plugins.records.encoded import EncodedRecords
from headrace.plugins.testing.doubles import DrivenClock, context
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.reading import pump
from headrace.sources.cassandra.reading.pump import Pump
from headrace.sources.cassandra.source import CassandraSource
from helpers.logs.forged import insert, mutation, update
from helpers.logs.node_logs import batches, forged_nodes, open_all, source
from helpers.recordings.corpora import recording
from helpers.settings.native_modules import long

pytestmark = pytest.mark.hot

NODES = ("node1", "node2", "node3")
HELD_BACK = 9  # Mutations of the recording that a killed node lost, permanently.
EXPIRY_S = 3600


class Job:
    """A source over the 5.0 ring, read to its end as often as is asked."""

    def __init__(
        self,
        folders: dict[str, Path],
        resume: Sequence[Position | None] = (None, None),
        *,
        is_bulk: bool = False,
        **options: object,
    ) -> None:
        """Open both splits."""
        self.clock = DrivenClock()
        given = {
            "nodes": {node: str(path) for node, path in folders.items()},
            "schema": str(recording("5.0-ring") / "schema.cql"),
            "splits": 2,
            "expiry_seconds": EXPIRY_S,
            "dedup_window_seconds": EXPIRY_S,
            **options,
        }
        used = replace(context(clock=self.clock), read_only=is_bulk)
        self.source = CassandraSource(parse_config(CassandraConfig, given), used)
        splits = self.source.plan()
        self.readers = [self.source.open(s, at) for s, at in zip(splits, resume, strict=True)]
        self.positions: dict[int, Position] = {}
        self.books: dict[int, Counter[str]] = {}

    def read(self) -> list[EncodedRecords]:
        """Return what all splits have until they are idle."""
        found = []
        for number, reader in enumerate(self.readers):
            for _ in range(200):
                batch = reader.read(Demand())
                if not isinstance(batch, Batch):
                    break
                self.positions[number] = batch.end
                self.books[number] = Counter(batch.end.books())
                found.append(batch.encode("avro"))
        return found

    def total(self) -> Counter[str]:
        """Return the books of both splits."""
        return sum(self.books.values(), Counter())

    def wait(self, seconds: int) -> None:
        """Let time pass, a look at the logs each five seconds: split time needs them."""
        for _ in range(0, seconds, 5):
            self.clock.advance(5_000)
            self.read()


def ring() -> dict[str, Path]:
    """Return the three nodes' directories."""
    return {node: recording("5.0-ring") / "segments" / node for node in NODES}


@pytest.mark.parametrize(
    ("policy", "published"),
    [long("drop", 0), ("publish", HELD_BACK)],
)
def test_an_expired_mutation_is_dropped_or_published_with_its_copies(
    policy: str, published: int
) -> None:
    """Line 20: either way it is in the books, and its bytes are read again from the log."""
    job = Job(ring(), expired=policy, consistency="ALL")
    job.read()
    assert HELD_BACK == job.total()["mutations.pending"]

    job.wait(EXPIRY_S - 10)
    assert HELD_BACK == job.total()["mutations.pending"]
    job.clock.advance(5_000)
    job.read()
    job.clock.advance(5_000)
    late = [record for encoded in job.read() for record in encoded.values]

    assert published == len(late)
    books = job.total()
    assert 0 == books["mutations.pending"] == books["bytes_lost"]
    assert published == books["mutations.expired_published"]
    assert HELD_BACK - published == books["mutations.expired"]


def test_pending_mutations_without_room_leave_with_their_bytes(tmp_path: Path) -> None:
    """Line 25: the oldest give way to quarantine, are counted, and memory stays bounded.

    What was quarantined can be sent again.
    """
    empty = {node: tmp_path / node for node in NODES[1:]}
    for folder in empty.values():
        folder.mkdir()
    job = Job({"node1": ring()["node1"], **empty}, records_max=1000)

    quarantined = [item for encoded in job.read() for item in encoded.quarantined]

    books = job.total()
    assert {"overflow"} == {item.code for item in quarantined}
    assert len(quarantined) == books["mutations.overflow"] > 0
    assert books["mutations.pending"] <= 1000
    assert books["mutations.first"] == books["mutations.pending"] + len(quarantined)
    assert 0 == books["bytes_lost"]
    assert all(item.content for item in quarantined)
    again = job.source.recover(quarantined[0])
    assert again is not None
    assert list(again.records())


@pytest.mark.long
def test_a_lower_level_publishes_what_was_pending_at_a_higher_one() -> None:
    """Line 18: after a load every pending record is judged again, and its bytes are read again."""
    strict = Job(ring(), consistency="ALL")
    strict.read()
    pending = strict.total()["mutations.pending"]
    positions = [strict.positions[number] for number in range(2)]

    lower = Job(ring(), positions, consistency="QUORUM")
    emitted = sum(len(encoded) for encoded in lower.read())

    assert HELD_BACK == pending == emitted
    assert 0 == lower.total()["mutations.pending"]


@pytest.mark.parametrize("policy", ["drop", "publish"])
def test_what_was_published_in_other_bytes_does_not_expire(tmp_path: Path, policy: str) -> None:
    """Line 20: what a stream wrote as one, and what it was written as, are compared again."""
    one, two = update(b"k", b"1"), update(b"k", b"2", at_us=1)
    both, other = mutation(one, two), insert(b"k", b"3", at_us=2)
    options = forged_nodes(tmp_path, {"n1": [both, other], "n2": [], "n3": []})
    clock = DrivenClock()
    ages = {"expiry_seconds": EXPIRY_S, "dedup_window_seconds": EXPIRY_S, "expired": policy}
    readers = open_all(source({**options, **ages, "splits": 1}, clock)).values()
    said, books = 0, Counter[str]()
    for second in range(0, EXPIRY_S + 60, 5):
        if second == EXPIRY_S // 2:  # Long after it was compared with what was published then.
            made = segment([[mutation(one), mutation(two), other]], segment_id=SEGMENT_ID + 1)
            for node in ("n2", "n3"):
                write_segment(tmp_path / node, made.content, segment_id=SEGMENT_ID + 1)
        for batch in batches(readers):
            said += sum(1 for _ in batch.records())
            books = Counter(batch.end.books())
        clock.advance(5_000)

    assert (3, 3, 1) == (said, books["mutations.agreed"], books["mutations.reencoded"])
    assert 0 == books["mutations.expired"] == books["mutations.expired_published"]


@pytest.mark.parametrize(
    ("complete_seconds", "seconds", "pending"), [(5, 10, 1), (600, 595, 0), (600, 620, 1)]
)
def test_what_all_replicas_have_logged_is_remembered_for_a_while(
    tmp_path: Path, complete_seconds: int, seconds: int, pending: int
) -> None:
    """Line 23: another copy is a repeat until then, and a mutation that waits a step afterwards."""
    row = insert(b"k")
    options = forged_nodes(tmp_path, {node: [row] for node in NODES})
    clock = DrivenClock()
    made = source({**options, "splits": 1, "complete_seconds": complete_seconds}, clock)
    readers = open_all(made).values()
    assert 1 == len([each for each in batches(readers) if list(each.records())])
    for _ in range(0, seconds, 5):
        clock.advance(5_000)
        assert not [each for each in batches(readers) if list(each.records())]

    again = segment([[row]], segment_id=SEGMENT_ID + 1).content
    write_segment(tmp_path / NODES[0], again, segment_id=SEGMENT_ID + 1)
    (late,) = batches(readers)

    assert pending == late.end.books()["mutations.pending"]


@pytest.mark.parametrize("is_bulk", [False, True])
def test_a_pass_of_bulk_work_has_room(*, is_bulk: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """N05: it ends when a split remembers a quarter too many; a worker's when a split is full."""
    monkeypatch.setattr(pump, "CHUNK_BYTES", 5_000)
    job = Job(ring(), is_bulk=is_bulk, records_max=1000)
    passed: list[int] = []
    run_pass = Pump.run_pass

    def counted(self: Pump, demand: Demand) -> None:
        run_pass(self, demand)
        passed.append(self.intake.liveliest)

    monkeypatch.setattr(Pump, "run_pass", counted)
    job.read()

    of_split = job.source.config.records_max // 2
    room = of_split // 4 if is_bulk else 0
    assert of_split + room < max(passed) < 1.05 * of_split + room

"""Recorded rings, read in random order while they grow, with a crash after every batch.

What is justified comes from what Cassandra's own reader says is in the logs, and from the raw bytes
at those places: nothing of the code under test.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import pytest

from corpora import recording
from headrace.plugins import Batch, Demand, EncodedPosition, Reader, Source
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra import codes
from headrace.sources.cassandra.batch import MutationBatch
from headrace.sources.cassandra.state import CdcState
from hot import is_compiled
from node_logs import source

NODES: Final = ("node1", "node2", "node3")
NEEDED: Final = {"ONE": 1, "QUORUM": 2, "ALL": 3}
ALL_RINGS: Final = ("4.1-ring", "5.0-ring", "6.0-v9-ring")
COMPILED: Final = is_compiled("headrace.sources.cassandra.intake")
# The interpreter needs minutes for all of them.
RINGS: Final = ALL_RINGS if COMPILED else ("5.0-ring",)
SEEDS: Final = range(2 if COMPILED else 1)
STEPS_MAX: Final = 10_000
SPLITS: Final = 2


class _Line(msgspec.Struct):
    """What this test needs of a line of the oracle."""

    segment: int
    position: int
    size: int
    cdc: bool


@dataclass(frozen=True)
class Truth:
    """Which nodes logged which mutation of a CDC table, and how many entries each node has."""

    nodes: dict[bytes, set[str]]
    entries: Counter[str]

    def agreed(self, level: str) -> set[bytes]:
        """Return the mutations that so many distinct nodes have."""
        return {raw for raw, nodes in self.nodes.items() if len(nodes) >= NEEDED[level]}


@cache
def truth(ring: str) -> Truth:
    """Return what the oracle and the bytes of the segments say."""
    folder = recording(ring)
    contents = {}
    owners = {}
    for node in NODES:
        for path in (folder / "segments" / node).glob("*.log"):
            number = int(path.stem.rpartition("-")[2])
            contents[number], owners[number] = path.read_bytes(), node
    nodes: defaultdict[bytes, set[str]] = defaultdict(set)
    entries: Counter[str] = Counter()
    with (folder / "oracle.jsonl").open("rb") as lines:
        for text in lines:
            line = msgspec.json.decode(text, type=_Line)
            if line.cdc:
                end = line.position - 4  # The checksum stands behind the mutation.
                raw = contents[line.segment][end - line.size : end]
                nodes[sha256(raw).digest()].add(owners[line.segment])
                entries[owners[line.segment]] += 1
    return Truth(dict(nodes), entries)


class GrowingLog:
    """A node's directory that shows one section after another of a recorded log."""

    def __init__(self, recorded: Path, folder: Path) -> None:
        """Copy the segments that have CDC data, but not yet their index files."""
        folder.mkdir()
        self._steps: list[tuple[Path, str]] = []
        for index in sorted(recorded.glob("*_cdc.idx")):
            log = index.with_name(index.name.replace("_cdc.idx", ".log"))
            content = log.read_bytes()
            (folder / log.name).write_bytes(content)
            target = folder / index.name
            self._steps += [(target, str(end)) for end in section_ends(content)]
            self._steps.append((target, index.read_text()))
        self._steps.reverse()

    def grow(self, steps: int) -> None:
        """Let so many more sections become durable, or segments complete."""
        for _ in range(min(steps, len(self._steps))):
            index, text = self._steps.pop()
            index.write_text(text)

    @property
    def is_whole(self) -> bool:
        """Whether all of it is there."""
        return not self._steps


def section_ends(content: bytes) -> Iterator[int]:
    """Yield where each section of a segment ends, by its chain of sync markers."""
    at = 18 + int.from_bytes(content[12:14], "big")
    while at + 8 <= len(content) and (following := int.from_bytes(content[at : at + 4], "big")):
        yield following
        at = following


class Job:
    """A job that forgets everything but what was committed whenever it crashes."""

    def __init__(self, options: dict[str, object], random: Random) -> None:
        """Begin without a state."""
        self.options = options
        self.random = random
        self.clock = DrivenClock()
        self.committed: dict[str, EncodedPosition] = {}
        self.published: Counter[bytes] = Counter()
        self.crashes = 0
        self.started: Source | None = None
        self.readers: dict[str, Reader] = {}

    def start(self) -> None:
        """Open all splits at what was committed."""
        self.started = made = source(self.options, self.clock)
        order = list(made.plan())
        self.random.shuffle(order)
        self.readers = {
            split.split_id: made.open(
                split,
                made.decode_position(self.committed[split.split_id])
                if split.split_id in self.committed
                else None,
            )
            for split in order
        }

    def crash(self) -> None:
        """Lose what is in memory."""
        assert self.started is not None
        self.started.close()
        self.crashes += 1
        self.start()

    def read(self) -> bool:
        """Read one batch of some split, publish and commit it, or lose it; then crash.

        Returns whether there was one.
        """
        order = list(self.readers.items())
        self.random.shuffle(order)
        for split, reader in order:
            self.clock.advance(100)
            bytes_max = self.random.choice([50_000, 200_000, 1 << 22])
            found = reader.read(Demand(bytes_max=bytes_max, linger_ms=1 << 30))
            if isinstance(found, Batch):
                if self.random.random() > 0.2:  # Else the crash comes before the sink has it.
                    self.published.update(mutations(found))
                    self.committed[split] = found.end.encode()
                self.crash()
                return True
        return False

    def books(self) -> Counter[str]:
        """Return the committed counters of all splits."""
        total: Counter[str] = Counter()
        for encoded in self.committed.values():
            total.update(CdcState.decode(encoded).counters)
        return total


def mutations(batch: Batch) -> Iterator[bytes]:
    """Yield the digests of a batch's mutations without decoding them."""
    assert isinstance(batch, MutationBatch)
    outbox = batch._outbox  # noqa: SLF001 (to decode thousands of them would take minutes)
    meta = memoryview(outbox.meta).tolist()
    for base in range(0, outbox.count * codes.MAIL_WIDTH, codes.MAIL_WIDTH):
        start, end = meta[base + codes.MAIL_START], meta[base + codes.MAIL_END]
        yield sha256(bytes(outbox.data[start:end])).digest()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("level", NEEDED)
@pytest.mark.parametrize("ring", RINGS)
def test_each_justified_mutation_is_published_once(
    tmp_path: Path, ring: str, level: str, seed: int
) -> None:
    """Read in any order, with a crash after every batch: all that agreed, once, nothing else."""
    random = Random(f"{ring} {level} {seed}")  # noqa: S311 (a test's dice)
    folder = recording(ring)
    logs = [GrowingLog(folder / "segments" / node, tmp_path / node) for node in NODES]
    job = Job(
        {
            "nodes": {node: str(tmp_path / node) for node in NODES},
            "schema": str(folder / "schema.cql"),
            "consistency": level,
            "splits": SPLITS,
            "segments_per_batch_max": random.choice([1, 16]),
        },
        random,
    )
    job.start()

    for _ in range(STEPS_MAX):
        random.choice(logs).grow(random.choice([0, 3, 10, 30]))
        moved = job.read()
        if not moved and all(log.is_whole for log in logs):
            break

    known = truth(ring)
    agreed = known.agreed(level)
    assert agreed == set(job.published)
    assert [] == [raw for raw, times in job.published.items() if times > 1]
    books = job.books()
    assert len(agreed) == books["mutations.agreed"]
    assert len(known.nodes) - len(agreed) == books["mutations.pending"]
    assert known.entries == {node: books[f"entries.{node}.read"] for node in NODES}
    for node in NODES:
        fates = ("first", "counted", "surplus", "repeat")
        assert known.entries[node] == sum(books[f"entries.{node}.{fate}"] for fate in fates)
    assert job.crashes > 10

"""Forged rings change, grow and shrink; what agrees is what a naive walk of the ring says.

One seed is one ring: its shape, its changes, the logs of its nodes, and the crashes of its job.
HEADRACE_SEEDS asks for other seeds than those that are always run (see CONTRIBUTING.md).
"""

from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import pytest

from headrace.connector.runtime.books.equations import SplitBooks, differences
from headrace.sources.cassandra.errors import TopologyError
from headrace.sources.cassandra.state.bookkeeping import BOOKKEEPING
from helpers.logs.forged_rings import Due, World
from helpers.logs.node_logs import source
from helpers.recordings.interleaved import GrowingLog, Job
from helpers.recordings.justified import Content
from helpers.sabotage.rules import judges_by_the_current_ring
from helpers.settings.seeds import is_soak, seeds

pytestmark = pytest.mark.soak

CHANGING: Final = 22  # Mutations wait while the ring changes.
USUAL: Final = (0, 2, 7)
REFUSED: Final = (2, 11, 13)  # Their first rings cannot all be read at their level.
SPLITS: Final = (1, 2, 4)
HEARD_S: Final = 11  # In split time; by then each split has committed a new ring.
CANONICAL_S: Final = 31
WINDOW_S: Final = 4_000
LONG_S: Final = 1_000_000
COMPLETE_S: Final = 2_000
EXPIRY_S: Final = 90


class Play:
    """A ring, and a job that reads it."""

    def __init__(self, seed: int, folder: Path) -> None:
        """Open the job over empty logs."""
        self.world = world = World(seed, folder)
        self.random = world.random
        self.nodes = folder / "nodes"
        self.nodes.mkdir()
        self.logs: dict[str, GrowingLog] = {}
        self.gone: set[str] = set()  # Nodes that the job no longer has.
        self.justified: set[Content] = set()
        self.forgets = self.random.random() < 0.5
        self.publishes = self.random.random() < 0.5
        options = {
            "schema": str(folder / "schema.cql"),
            "splits": self.random.choice(SPLITS),
            "segments_per_batch_max": self.random.choice([1, 2, 16]),
            "max_hint_window_seconds": WINDOW_S,
            "expiry_seconds": LONG_S,
            "dedup_window_seconds": LONG_S,
            "complete_seconds": COMPLETE_S if self.forgets else LONG_S,
            "expired": "publish" if self.publishes else "drop",
        }
        # Its own dice: how the job reads changes nothing in the ring.
        reading = Random(f"job {seed}")  # noqa: S311 (a test's dice)
        self.job = Job(options, reading, world.logs(), self.nodes, world.is_justified)
        self._tell()
        self.job.start()

    def _tell_ring(self) -> None:
        (self.world.folder / "ring.yaml").write_bytes(msgspec.yaml.encode(self.world.topology()))

    def _tell(self) -> None:
        """Write the job's options, with the ring in a file or with the nodes."""
        world, ring = self.world, self.world.topology()
        self._tell_ring()
        for name in sorted(world.ring.members.keys() - world.unread - self.logs.keys()):
            self.logs[name] = GrowingLog(self.nodes / name, [])
        names = [name for name in self.logs if name not in self.gone]
        self.random.shuffle(names)
        (world.folder / "schema.cql").write_text(world.schema())
        nodes: dict[str, dict[str, object]] = {n: {"path": str(self.nodes / n)} for n in names}
        self.by_file = nodes.keys() != ring.keys() or self.random.random() < 0.7
        if not self.by_file:
            nodes = {name: {**node, **ring[name]} for name, node in nodes.items()}
        topology = str(world.folder / "ring.yaml") if self.by_file else None
        self.job.options |= {**world.options(), "nodes": nodes, "topology": topology}

    def hear(self) -> None:
        """Give the job the current ring, while it runs or when it restarts."""
        world = self.world
        before = world.active[-1]
        world.active.append(world.ring)
        same = (before.copies, before.level) == (world.ring.copies, world.ring.level)
        known = world.ring.members.keys() - world.unread <= self.logs.keys()
        if self.by_file and same and known and self.random.random() < 0.5:
            self._tell_ring()
        else:
            self.restart()
        self.job.rest(HEARD_S)

    def restart(self, **options: object) -> None:
        """Crash, and restart with the current ring."""
        self.job.close()
        self.job.options |= options
        self._tell()
        self.job.start()

    def take_in(self, logged: Path) -> None:
        """Let the nodes log what is due, and read all of it, in any order."""
        for folder in sorted(logged.glob("*")):
            self.logs[folder.name].follow(folder)
        splits = self.random.sample(SPLITS, self.random.choice([0, 0, 1]))
        self.job.read_all(list(self.logs.values()), splits=splits)

    def settle(self) -> None:
        """Let time pass until only the last ring counts, and complete records are dropped."""
        world, job = self.world, self.job
        job.wait(WINDOW_S + 60)
        world.active = [world.ring]
        if self.forgets:
            nodes = job.durable.nodes
            world.forget({c for c in self.justified if world.holders(c) <= nodes[c]})
        if not self.publishes:  # Otherwise bytes of expired mutations may be in their logs only.
            self.gone |= self.logs.keys() - world.ring.members.keys()

    def waiting(self) -> set[Content]:
        """Return what was logged, and is not justified by what is durable."""
        nodes = self.job.durable.nodes
        self.job.durable.look()
        logged = {content for content, names in nodes.items() if names}
        self.justified |= {c for c in logged if self.world.is_justified(c, nodes[c])}
        return logged - self.justified

    def check(self) -> None:
        """Check that all that copies justify was published once, and nothing else."""
        waiting, job = self.waiting(), self.job
        assert ([], []) == (job.repeated, job.early)
        assert Counter(self.justified) == job.published
        assert len(waiting) == job.books()["mutations.pending"]
        self.check_books()

    def check_books(self) -> None:
        """Check that each entry, and each mutation, is counted once."""
        books = self.job.books()
        entries: Counter[str] = Counter()
        for (node, _), ends in self.world.places.items():
            entries[node] += len(ends)
        assert entries == Counter({n: books[f"entries.{n}.read"] for n in entries})
        assert [] == differences(SplitBooks("", books, {}, BOOKKEEPING))

    def expire(self) -> None:
        """Let all pending mutations expire; later copies make some of them agree late."""
        waiting, world, job = self.waiting(), self.world, self.job
        self.restart(expiry_seconds=EXPIRY_S, dedup_window_seconds=EXPIRY_S)
        job.wait(EXPIRY_S - HEARD_S)
        books = job.books()
        held = {c for c in waiting if world.holders(c) & job.durable.nodes[c]}
        reported = {
            name: books[f"mutations.{name}"] for name in ("pending", "expired", "not_replica")
        }
        if self.publishes:
            self.justified |= waiting
            assert {"pending": 0, "expired": 0, "not_replica": 0} == reported
        else:
            strays = len(waiting - held)
            assert {"pending": 0, "expired": len(held), "not_replica": strays} == reported
        assert Counter(self.justified) == job.published
        self.restart(expiry_seconds=LONG_S, dedup_window_seconds=LONG_S)
        late = self.random.sample(sorted(waiting, key=repr), len(waiting) // 2)
        logged = world.log(
            [
                Due(node, world.by_content[content])
                for content in late
                for node in sorted(world.holders(content))
            ]
        )
        self.take_in(logged)
        job.rest(HEARD_S)
        self.waiting()
        assert Counter(self.justified) == job.published
        assert [] == job.repeated
        self.check_books()


def let_it_be(seed: int, folder: Path) -> int:
    """Run the events of a seed, check what was published, and return the number of crashes."""
    play = Play(seed, folder)
    world, random = play.world, play.random
    phases = random.randint(1, 4)
    for phase in range(phases):
        if phase:
            world.change()
        is_late = phase > 0 and random.random() < 0.4
        if phase and (not is_late or world.ring.members.keys() - play.logs.keys()):
            play.hear()
            is_late = False
        play.take_in(world.write(random.randint(10, 40), is_last=phase == phases - 1))
        if is_late:
            play.hear()
        play.job.rest(CANONICAL_S)
        play.check()
        if random.random() < 0.3:
            play.settle()
            play.check()
    play.expire()
    play.job.close()
    return play.job.crashes


@pytest.mark.parametrize("seed", seeds(*USUAL))
def test_what_is_published_is_what_a_walk_of_the_ring_justifies(tmp_path: Path, seed: int) -> None:
    """Each mutation is published once, in any order of reading, by the ring it was written to."""
    assert let_it_be(seed, tmp_path)


def test_a_job_that_knows_only_the_ring_of_now_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Line 9: what was written to the previous ring does not have enough copies in this one."""
    judges_by_the_current_ring(monkeypatch)

    with pytest.raises(AssertionError):
        let_it_be(CHANGING, tmp_path)


@pytest.mark.parametrize("seed", seeds(*REFUSED))
def test_a_ring_that_cannot_satisfy_the_level_is_refused(tmp_path: Path, seed: int) -> None:
    """The refused rings are those that a walk finds too small, for every reason."""
    world = World(seed, tmp_path)
    assert world.refused or is_soak()
    for ring in world.refused[:3]:
        world.ring = ring
        (tmp_path / "schema.cql").write_text(world.schema())
        nodes = {n: {**node, "path": str(tmp_path / n)} for n, node in world.topology().items()}
        schema = str(tmp_path / "schema.cql")
        made = source({"nodes": nodes, "schema": schema, **world.options()})
        with pytest.raises(TopologyError):
            made.plan()

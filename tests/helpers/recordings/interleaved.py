"""Recorded logs that grow while a job reads them, in random order, crashing after every batch.

What is published is known by its bytes: nothing is decoded here.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final

from headrace.plugins import Batch, Demand, EncodedPosition, Reader, Source
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.batch import MutationBatch
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.logs.node_logs import source
from helpers.recordings.justified import Atom, Content, Durable, Logs

STEPS_MAX: Final = 10_000
_PLAN_STEPS: Final = 20  # Batches between two changes of the number of splits.
_READ_MS: Final = 100
_STEP_MS: Final = 9_000  # Split time stops when logs are not listed for longer than 10 s.
_MS: Final = 1_000


class GrowingLog:
    """A node's directory that shows one section after another of a recorded log.

    *states* are copies of the log's directory at several times; later ones contain the earlier
    ones.
    """

    def __init__(self, folder: Path, states: Sequence[Path]) -> None:
        """Start with an empty directory."""
        folder.mkdir()
        self._folder = folder
        self._states = list(reversed(states))
        self._steps: list[tuple[Path, str]] = []
        self._shown: dict[str, int] = {}

    def grow(self, steps: int) -> None:
        """Make *steps* sections durable, or complete segments."""
        for _ in range(steps):
            if not self._steps and self._states:
                self._steps = list(reversed(list(self._enter(self._states.pop()))))
            if self._steps:
                index, text = self._steps.pop()
                index.write_text(text)

    def grow_state(self) -> None:
        """Show all of a state: the current one if it is not complete, otherwise the next one."""
        self.grow(1)
        self.grow(len(self._steps))

    def follow(self, state: Path) -> None:
        """Append a state of the log after the others."""
        self._states.insert(0, state)

    @property
    def states_left(self) -> int:
        """The number of states that are still to come."""
        return len(self._states)

    @property
    def is_whole(self) -> bool:
        """Whether all of it is shown."""
        return not self._steps and not self._states

    def _enter(self, state: Path) -> Iterator[tuple[Path, str]]:
        """Copy the segments with CDC data; yield after each step of their index files."""
        for index in sorted(state.glob("*_cdc.idx")):
            log = index.with_name(index.name.replace("_cdc.idx", ".log"))
            content, text = log.read_bytes(), index.read_text()
            (self._folder / log.name).write_bytes(content)
            limit = len(content) if "COMPLETED" in text else int(text)
            shown = self._shown.get(log.name, 0)
            for end in section_ends(content):
                if shown < end <= limit:
                    yield self._folder / index.name, str(end)
            self._shown[log.name] = limit
            yield self._folder / index.name, text


def section_ends(content: bytes) -> Iterator[int]:
    """Yield the end of each section of a segment, by its chain of sync markers."""
    at = 18 + int.from_bytes(content[12:14], "big")
    while at + 8 <= len(content) and (following := int.from_bytes(content[at : at + 4], "big")):
        yield following
        at = following


class Job:
    """A job that loses everything but what was committed whenever it crashes.

    `published` counts the contents in the order of their emission; `repeated` are those whose atoms
    had all been emitted before, `early` those with too few durable copies when they were emitted.
    """

    def __init__(
        self,
        options: Mapping[str, object],
        random: Random,
        known: Logs,
        folder: Path,
        is_justified: Callable[[Content, Collection[str]], bool],
    ) -> None:
        """Start without a state; *known* has bytes by digest.

        *folder* has the nodes' directories. *is_justified* returns whether a content may be emitted
        that these nodes have logged.
        """
        self.options = dict(options)
        self.random = random
        self.known = known
        self.clock = DrivenClock()
        self.committed: dict[str, EncodedPosition] = {}
        self.published: Counter[Content] = Counter()
        self.repeated: list[Content] = []
        self.early: list[Content] = []
        self.crashes = 0
        self.readers: dict[str, Reader] = {}
        self.closed: Counter[str] = Counter()  # The books of earlier plans.
        self._said: set[Atom] = set()
        self._started: Source | None = None
        self._is_justified = is_justified
        self.durable = Durable(folder, known)

    def start(self) -> None:
        """Open all splits at the committed positions."""
        self._started = made = source(self.options, self.clock)
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

    def close(self) -> None:
        """Lose what is in memory, and close all files."""
        assert self._started is not None
        self._started.close()

    def resplit(self, count: int) -> None:
        """Crash, and continue at the committed positions with another number of splits."""
        self.close()
        states = {split: CdcState.decode(at) for split, at in self.committed.items()}
        was = self.readers.keys()
        self.options["splits"] = count
        made = source(self.options, self.clock)
        positions = made.resplit({split: states.get(split) for split in was})
        made.close()
        assert positions is not None
        self.committed = {split: at.encode() for split, at in positions.items() if at}
        for state in states.values():
            self.closed.update(state.counters)
        self.closed["mutations.passed_on"] += self.closed.pop("mutations.pending", 0)
        self.start()

    def read(self) -> bool:
        """Read one batch of some split, publish and commit it, or lose it; then crash.

        Returns whether there was one.
        """
        order = list(self.readers)
        self.random.shuffle(order)
        for split in order:
            self.clock.advance(_READ_MS)
            found = self._batch(split)
            if found is not None:
                if self.random.random() > 0.2:  # Otherwise it crashes before the sink gets it.
                    self._publish(split, found)
                self.close()
                self.crashes += 1
                self.start()
                return True
        return False

    def read_all(self, logs: Sequence[GrowingLog], *, splits: Sequence[int] = ()) -> None:
        """Let *logs* grow, each at its own pace, and read until nothing is left.

        After each 20 batches the number of splits changes to another one of *splits*.
        """
        left = list(splits)
        for step in range(1, STEPS_MAX):
            if left and step % _PLAN_STEPS == 0:
                self.resplit(left.pop(0))
            self.random.choice(logs).grow(self.random.choice([0, 3, 10, 30]))
            moved = self.read()
            if not moved and not left and all(log.is_whole for log in logs):
                return
        raise AssertionError("it goes on for ever")

    def rest(self, seconds: int) -> None:
        """Let split time pass and commit it; each batch is followed by a crash."""
        until = {split: time + seconds * _MS for split, time in self._times().items()}
        for _ in range(STEPS_MAX):
            if all(time >= until[split] for split, time in self._times().items()):
                return
            self.clock.advance(_STEP_MS)
            self.read()
        raise AssertionError("split time stands still")

    def wait(self, seconds: int) -> None:
        """Let time pass, without crashes."""
        for _ in range(0, seconds * _MS, _STEP_MS):
            self.clock.advance(_STEP_MS)
            for split in self.readers:
                found = self._batch(split)
                if found is not None:
                    self._publish(split, found)

    def books(self) -> Counter[str]:
        """Return the committed counters of all splits, with those of earlier plans."""
        total = self.closed.copy()
        for encoded in self.committed.values():
            total.update(CdcState.decode(encoded).counters)
        return total

    def _times(self) -> dict[str, int]:
        """Return the split time that each split has committed."""
        return {split: CdcState.decode(at).split_time_ms for split, at in self.committed.items()}

    def _batch(self, split: str) -> Batch | None:
        bytes_max = self.random.choice([50_000, 200_000, 1 << 22])
        found = self.readers[split].read(Demand(bytes_max=bytes_max, linger_ms=1 << 30))
        return found if isinstance(found, Batch) else None

    def _publish(self, split: str, batch: Batch) -> None:
        self.durable.look()
        for digest in mutations(batch):
            content = self.known.contents[digest]
            if not self._is_justified(content, self.durable.nodes[content]):
                self.early.append(content)
            if content <= self._said:
                self.repeated.append(content)
            self._said |= content
            self.published[content] += 1
        self.committed[split] = batch.end.encode()


def mutations(batch: Batch) -> Iterator[bytes]:
    """Yield the digests of a batch's mutations without decoding them."""
    assert isinstance(batch, MutationBatch)
    agreed = batch._agreed  # noqa: SLF001 (to decode thousands of them would take minutes)
    meta = memoryview(agreed.meta).tolist()
    for base in range(0, agreed.count * constants.AGREED_WIDTH, constants.AGREED_WIDTH):
        start, end = meta[base + constants.AGREED_START], meta[base + constants.AGREED_END]
        yield sha256(bytes(agreed.data[start:end])).digest()

"""The model with plans that change, streams, and data centres; `Everything` has all of it."""

from typing import ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from helpers.model.logs import Mutation
from helpers.model.machines.changes import HOMES, Changing, knows_the_ring
from helpers.model.machines.machine import PROCESSES_MAX, Machine, has_room, keys, numbers
from helpers.model.process import LEASE_MS
from helpers.model.ring import KEYS, ONE_CENTRE, TWO_CENTRES, Factors
from helpers.model.world import RECORDS_MAX

STREAMS_MAX: Final = 6  # In a schedule.
ROWS_STREAMED_MAX: Final = 12  # For a key.

counts: Final = st.sampled_from([1, 2, 3, 5])


class Replanned(Machine):
    """The number of splits changes."""

    @rule(splits=counts, arrives=st.booleans())
    def replan(self, splits: int, arrives: bool) -> None:  # noqa: FBT001 (drawn)
        """Restart the job with another number of splits."""
        self.world.splits = splits
        for process in list(self.world.running.values()):
            process.kill(arrives=arrives)
        self.world.start()

    @precondition(lambda self: 0 < len(self.world.running) < PROCESSES_MAX)
    @precondition(has_room)
    @rule(key=keys, splits=counts)
    def replan_beside(self, key: int, splits: int) -> None:
        """Start a process with another number of splits beside a running one."""
        self.world.ring.write(key, 2, self.replicas(key))
        self.sync_all()
        self.world.calm(1)
        self.world.splits = splits
        self.world.start()

    @precondition(lambda self: self.world.running)
    @precondition(has_room)
    @rule(which=numbers, splits=counts, hears=st.booleans())
    def sleep_through_a_plan(self, which: int, splits: int, hears: bool) -> None:  # noqa: FBT001 (drawn)
        """Pause a process amid its work until there is another plan, and resume it.

        Unless it *hears*, its store does not answer at once.
        """
        sleeper = self._process(which)
        for key in KEYS:
            self.world.ring.write(key, 1, self.replicas(key))
        self.sync_all()
        sleeper.step()
        with self.world.asleep(sleeper):
            for other in [each for each in self.world.running.values() if each != sleeper]:
                other.kill(arrives=True)
            self.world.splits = splits
            self.world.clock.advance(2 * LEASE_MS)
            self.world.start()
            self.world.calm(2)
        while sleeper.flying:
            sleeper.settle(0, "deliver")
        if not hears:
            sleeper.renewals.append("fails")
        sleeper.step()

    @precondition(has_room)
    @rule(key=keys, splits=counts)
    def replan_what_waits(self, key: int, splits: int) -> None:
        """Remove segments with pending copies, and restart with another number of splits."""
        self.world.ring.write(key, 2, self.replicas(key)[:1])
        for log in self.world.ring.nodes.values():
            log.roll(self.now_ms)
        self.world.calm(2)
        self.sleep()
        self.world.calm(3)
        self.replan(splits=splits, arrives=True)
        self.world.calm(2)

    @rule(splits=counts, faults=st.lists(st.sampled_from(["fails", "late", ""]), max_size=6))
    def fail_amid_a_plan(self, splits: int, faults: list[str]) -> None:
        """Let the store fail, or seem to, while a plan is put in force."""
        for process in list(self.world.running.values()):
            process.kill(arrives=False)
        self.world.splits = splits
        self.world.start(faults)


class Streaming(Machine):
    """Nodes receive whole data sets from others, and log them."""

    streamed: ClassVar[tuple[str, ...]] = ("publish", "suppress")

    def receive(self, node: str, key: int, size: int, form: int) -> None:
        """Let a node log all that any node has of a key, *size* rows at a time."""
        rows = sorted({row for m in self.world.ring.written if m.key == key for row in m.rows})
        rows = rows[-ROWS_STREAMED_MAX:]
        for at in range(0, len(rows), size):
            self.world.ring.log(Mutation(key, tuple(rows[at : at + size]), form), [node])

    def has_few_streams(self) -> bool:
        """Return whether there may be more streams: each takes long to compare."""
        nodes = self.world.ring.nodes.values()
        return sum(len(log.streams) for log in nodes) < STREAMS_MAX

    @precondition(has_few_streams)
    @rule(key=keys, turn=numbers, size=st.integers(1, 3), ends=st.booleans())
    def repair(self, key: int, turn: int, size: int, ends: bool) -> None:  # noqa: FBT001 (drawn)
        """Stream a key to a replica, as a repair does where streams are logged."""
        holders = self.replicas(key)
        node = holders[turn % len(holders)]
        log = self.world.ring.nodes[node]
        log.begin_stream(self.world.ring.rows, self.now_ms)
        self.receive(node, key, size, turn & 1)
        log.sync(self.now_ms)
        if ends:
            log.end_stream()

    @precondition(has_room)
    @precondition(has_few_streams)
    @rule(key=keys, size=st.integers(1, 2), passes=st.integers(0, 2))
    def repair_what_lies_unread(self, key: int, size: int, passes: int) -> None:
        """Stream rows before the logs with their writes were read that far."""
        first, *others = self.replicas(key)
        for _ in range(12):
            self.world.ring.write(key, 1, others)
        self.sync_all()
        log = self.world.ring.nodes[first]
        log.begin_stream(self.world.ring.rows, self.now_ms)
        self.receive(first, key, size, 1)
        log.sync(self.now_ms)
        self.world.calm(passes)

    @rule(turn=numbers)
    def end_streams(self, turn: int) -> None:
        """End all streams to a node."""
        nodes = list(self.world.ring.nodes.values())
        nodes[turn % len(nodes)].end_stream()


class Everything(Replanned, Streaming, Changing):
    """All that the others have, in one data centre and in two."""

    layouts: ClassVar[tuple[tuple[Factors, ...], ...]] = (ONE_CENTRE, TWO_CENTRES)
    rooms: ClassVar[tuple[int, ...]] = (RECORDS_MAX, RECORDS_MAX, 40)

    @precondition(knows_the_ring)
    @precondition(Streaming.has_few_streams)
    @rule(size=st.integers(1, 3), passes=st.integers(0, 1))
    def bootstrap(self, size: int, passes: int) -> None:
        """Let a joining node receive its data, and join."""
        tokens = dict(self.world.ring.version.tokens)
        new = next((node for node in HOMES if node not in tokens), None)
        if new is None or not self.world.ring.can_become(tokens={**tokens, new: HOMES[new]}):
            return
        log = self.world.ring.nodes[new]
        log.begin_stream(self.world.ring.rows, self.now_ms)
        for key in KEYS:
            self.receive(new, key, size, 1)
        log.sync(self.now_ms)
        self.world.calm(passes)
        log.end_stream()
        self.world.ring.change(self.now_ms, tokens={**tokens, new: HOMES[new]})

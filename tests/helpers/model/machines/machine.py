"""The model as a state machine for hypothesis: everything that can happen to a ring and a job."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from helpers.model.checks.absence import ABSENT_S
from helpers.model.logs import Mutation
from helpers.model.process import LEASE_MS, Process
from helpers.model.ring import KEYS, LEVELS_OF_CENTRES, ONE_CENTRE, TOKENS, Factors, Version
from helpers.model.world import World

PROCESSES_MAX: Final = 2
ROWS_MAX: Final = 150
REST_MS: Final = 4_900  # Less than a lease.
LONG_MS: Final = 130_000  # Longer than anything is remembered.

keys: Final = st.sampled_from(KEYS)
numbers: Final = st.integers(0, 63)
verdicts: Final = st.sampled_from(
    ["deliver", "deliver", "deliver", "retry", "reject", "miscount", "twice"]
)
nodes: Final = st.sampled_from(sorted(TOKENS))


def has_room(machine: "Machine") -> bool:
    """Return whether more may be written: a schedule's cost grows with the square of it."""
    return machine.world.ring.rows < ROWS_MAX


class Machine(RuleBasedStateMachine):
    """Rules change a `World`; after each rule the checks run."""

    levels: ClassVar[tuple[str, ...]] = LEVELS_OF_CENTRES
    layouts: ClassVar[tuple[tuple[Factors, ...], ...]] = (ONE_CENTRE,)
    disposals: ClassVar[tuple[str, ...]] = ("keep", "delete")
    policies: ClassVar[tuple[str, ...]] = ()
    streamed: ClassVar[tuple[str, ...]] = ()
    rooms: ClassVar[tuple[int, ...]] = ()
    returns: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        """Make a folder."""
        super().__init__()
        self.folder = Path(mkdtemp(prefix="headrace-model-"))
        self.world: World
        self.factors: tuple[Factors, ...] = ()  # That are possible; it starts with the first.

    @initialize(data=st.data(), expired=st.booleans())
    def begin(self, data: st.DataObject, expired: bool) -> None:  # noqa: FBT001 (drawn)
        """Choose a level, and what is done with segments and with expired mutations."""
        self.factors = data.draw(st.sampled_from(self.layouts))
        rings = [Version(tuple(TOKENS.items()), self.factors[0], level) for level in self.levels]
        first = data.draw(st.sampled_from([ring for ring in rings if ring.is_possible]))
        disposal = data.draw(st.sampled_from(self.disposals))
        more: dict[str, Any] = {"expired": "publish"} if expired else {}
        if self.policies:
            more["gaps"] = data.draw(st.sampled_from(self.policies))
        if self.streamed:
            more["streamed"] = data.draw(st.sampled_from(self.streamed))
        if self.returns:
            more["returned"] = data.draw(st.sampled_from(self.returns))
            more["absent_after_seconds"] = ABSENT_S
        if self.rooms:
            more["records_max"] = data.draw(st.sampled_from(self.rooms))
        self.world = World(self.folder, first, disposal=disposal, **more)
        self.world.start()

    @property
    def now_ms(self) -> int:
        """The time of the clock."""
        return self.world.clock.monotonic_ms()

    def replicas(self, key: int) -> Sequence[str]:
        """Return the replicas of a key."""
        return self.world.ring.replicas(key)

    # ---- the ring ----

    @precondition(has_room)
    @rule(key=keys, count=st.integers(1, 2), copies=st.integers(1, 3), turn=numbers)
    def write(self, key: int, count: int, copies: int, turn: int) -> None:
        """Write to some replicas of a key."""
        holders = self.replicas(key)
        chosen = [holders[(turn + i) % len(holders)] for i in range(copies)]
        self.world.ring.write(key, count, chosen)

    @precondition(has_room)
    @rule(key=keys, count=st.integers(1, 6))
    def write_and_read(self, key: int, count: int) -> None:
        """Write to all replicas, and let the job read it, as it normally does."""
        for _ in range(count):
            self.world.ring.write(key, 1, self.replicas(key))
        for log in self.world.ring.nodes.values():
            log.sync(self.now_ms, index=False)
        self.world.calm(1)
        self.sync_all()
        self.world.calm(1)

    @precondition(lambda self: self.world.running)
    @precondition(has_room)
    @rule(key=keys, first=numbers, second=numbers)
    def flood(self, key: int, first: int, second: int) -> None:
        """Write much between the copies of a mutation, and let time pass while it is read."""
        holders = self.replicas(key)
        mutation = self.world.ring.write(key, 1, [holders[first % len(holders)]])
        for _ in range(12):
            self.world.ring.write(key, 1, holders)
        self.world.ring.log(mutation, [holders[second % len(holders)]])
        self.sync_all()
        self.world.calm(1)
        self.world.clock.advance(LONG_MS)
        self.world.calm(1)

    @precondition(lambda self: self.world.running)
    @precondition(has_room)
    @rule(key=keys, turn=numbers)
    def repeat(self, key: int, turn: int) -> None:
        """Let one replica log a mutation several times that no other replica has."""
        node = self.replicas(key)[turn % 2]
        mutation = self.world.ring.write(key, 1, [node])
        self.world.ring.log(mutation, [node] * 3)
        self.sync_all()
        self.world.calm(2)

    @precondition(lambda self: self.world.ring.written)
    @rule(which=numbers, node=nodes)
    def copy(self, which: int, node: str) -> None:
        """Log the same bytes again, as hints and batches do: on any node, also twice on one."""
        self.world.ring.log(self._written(which), [node])

    @precondition(lambda self: self.world.ring.written)
    @rule(which=numbers)
    def complete(self, which: int) -> None:
        """Write a mutation to all replicas that do not have it."""
        mutation = self._written(which)
        have = {
            name
            for name, log in self.world.ring.nodes.items()
            if any(copy.mutation == mutation for copy in log.copies)
        }
        self.world.ring.log(mutation, [n for n in self.replicas(mutation.key) if n not in have])

    @precondition(lambda self: self.world.ring.written)
    @rule(which=st.lists(numbers, min_size=1, max_size=3), form=st.integers(1, 2), node=numbers)
    def repair_on_read(self, which: list[int], form: int, node: int) -> None:
        """Write the content of a key in other bytes to one or two replicas."""
        key = self._written(which[0]).key
        old = [m for m in map(self._written, which) if m.key == key]
        rows = tuple(sorted({row for mutation in old for row in mutation.rows}))
        holders = self.replicas(key)
        chosen = [holders[(node + i) % len(holders)] for i in range(1 + node % 2)]
        self.world.ring.log(Mutation(key, rows, form), chosen)

    @rule(node=nodes, index=st.booleans())
    def sync(self, node: str, index: bool) -> None:  # noqa: FBT001 (drawn)
        """Let a node sync its log; without *index* no reader knows of it yet."""
        self.world.ring.nodes[node].sync(self.now_ms, index=index)

    @rule()
    def sync_all(self) -> None:
        """Let all nodes sync."""
        for log in self.world.ring.nodes.values():
            log.sync(self.now_ms)

    @rule(node=nodes)
    def roll(self, node: str) -> None:
        """Let a node complete its segment."""
        self.world.ring.nodes[node].roll(self.now_ms)

    @rule(node=nodes, torn=st.booleans())
    def crash_node(self, node: str, torn: bool) -> None:  # noqa: FBT001 (drawn)
        """Crash and restart a node."""
        self.world.ring.nodes[node].crash(self.now_ms, torn=torn)

    # ---- the job ----

    @precondition(lambda self: self.world.running)
    @rule(which=numbers, passes=st.integers(1, 4))
    def work(self, which: int, passes: int) -> None:
        """Let one process run; the sink reports no results."""
        for _ in range(passes):
            self._process(which).step()

    @precondition(lambda self: self.world.running)
    @rule(passes=st.integers(1, 6))
    def calm(self, passes: int) -> None:
        """Run without failures for a while."""
        self.world.calm(passes)

    @precondition(lambda self: self._flying())
    @rule(
        which=numbers,
        index=numbers,
        verdict=verdicts,
    )
    def settle(self, which: int, index: int, verdict: str) -> None:
        """Let the sink report the result of a delivery, in any order."""
        flying = self._flying()
        flying[which % len(flying)].settle(index, verdict)

    @precondition(lambda self: self.world.running)
    @precondition(has_room)
    @rule(which=numbers, key=keys, fates=st.lists(st.tuples(numbers, verdicts), max_size=5))
    def deliver_badly(self, which: int, key: int, fates: list[tuple[int, str]]) -> None:
        """Have several deliveries of a key in flight, and let some of them fail."""
        process = self._process(which)
        for _ in range(12):
            self.world.ring.write(key, 1, self.replicas(key))
        self.sync_all()
        for _ in range(3):
            process.step()
        for index, verdict in fates:
            if process.flying:
                process.settle(index, verdict)

    @precondition(lambda self: self.world.running)
    @rule(which=numbers, arrives=st.booleans())
    def kill(self, which: int, arrives: bool) -> None:  # noqa: FBT001 (drawn)
        """Kill a process at once."""
        self._process(which).kill(arrives=arrives)

    @precondition(lambda self: len(self.world.running) == PROCESSES_MAX)
    @precondition(has_room)
    @rule(which=numbers)
    def wake_too_late(self, which: int) -> None:
        """Pause a process until another has its splits; it does not learn of that at once."""
        process = self._process(which)
        for key in KEYS:
            self.world.ring.write(key, 1, self.replicas(key))
        self.sync_all()
        process.step()
        with self.world.asleep(process):
            for _ in range(8):
                self.world.clock.advance(LEASE_MS // 3)
                self.world.calm(1)
        while process.flying:
            process.settle(0, "deliver")
        process.renewals.append("fails")
        process.step()

    @precondition(lambda self: self.world.running)
    @precondition(has_room)
    @rule(which=numbers)
    def hear_late(self, which: int) -> None:
        """Answer a renewal late, and the next ones not at all, while there is work."""
        process = self._process(which)
        for key in KEYS:
            self.world.ring.write(key, 2, self.replicas(key))
        self.sync_all()
        process.renewals.extend(["slow", "fails"])
        self.world.clock.advance(LEASE_MS // 3)
        process.step()
        self.world.clock.advance(LEASE_MS // 2)
        process.step()

    @precondition(lambda self: len(self.world.running) < PROCESSES_MAX)
    @rule()
    def start(self) -> None:
        """Start another process."""
        self.world.start()

    @precondition(lambda self: self.world.running)
    @rule(
        which=numbers, faults=st.lists(st.sampled_from(["fails", "late", "slow", ""]), max_size=4)
    )
    def break_store(self, which: int, faults: list[str]) -> None:
        """Let the store answer the next calls too late or not at all."""
        self._process(which).faults.extend(faults)

    @precondition(lambda self: self.world.running)
    @precondition(has_room)
    @rule(which=numbers, fault=st.sampled_from(["fails", "late"]))
    def fail_commits(self, which: int, fault: str) -> None:
        """Let the next commits fail, or seem to, after segments were read to their ends."""
        for _ in range(2):
            for key in KEYS:
                self.world.ring.write(key, 1, self.replicas(key))
            for log in self.world.ring.nodes.values():
                log.roll(self.now_ms)
        self._process(which).commits.extend([fault, fault])
        for _ in range(3):
            self.world.calm(1)
            self.world.clock.advance(1_000)

    @rule(proves=st.booleans())
    def prove(self, proves: bool) -> None:  # noqa: FBT001 (drawn)
        """Set whether a process can see that another one is dead: whether they share a machine."""
        self.world.proves_death = proves

    # ---- time ----

    @rule(ms=st.sampled_from([1, 900, 2_000, LEASE_MS // 3, LEASE_MS, 2 * LEASE_MS]))
    def wait(self, ms: int) -> None:
        """Let time pass without work."""
        self.world.clock.advance(ms)

    @rule(hours=st.integers(-30, 30))
    def set_wall(self, hours: int) -> None:
        """Set the wall clock."""
        for process in self.world.running.values():
            process.clock.wall_ahead_ms = hours * 3_600_000

    @rule()
    def sleep(self) -> None:
        """Suspend the machines for hours, with all processes."""
        self.world.clock.advance(4 * 3_600_000)

    @precondition(lambda self: self.world.running)
    @rule(ms=st.sampled_from([15_000, 50_000, LONG_MS]))
    def rest(self, ms: int) -> None:
        """Write nothing for a while; all logs are listed."""
        self._rest(ms)

    @precondition(lambda self: self.world.running)
    @precondition(has_room)
    @rule(key=keys, more=st.booleans())
    def come_late(self, key: int, more: bool) -> None:  # noqa: FBT001 (drawn)
        """Let copies of a mutation arrive after it expired."""
        first, *others = self.replicas(key)
        mutation = self.world.ring.write(key, 1, [first])
        self.sync_all()
        self._rest(LONG_MS)
        self.world.ring.log(mutation, others if more else others[:1])
        self.sync_all()
        self.world.calm(2)

    # ---- what must hold ----

    @invariant()
    def nothing_is_broken(self) -> None:
        """Raise what the checks have found."""
        if "world" in self.__dict__:
            self.world.checks.verify()

    def teardown(self) -> None:
        """Finish, and run the checks again."""
        try:
            if "world" in self.__dict__ and not self.world.checks.wrong:
                self.world.finish()
        finally:
            if "world" in self.__dict__:
                self.world.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _rest(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            self.world.calm(1)
            self.world.clock.advance(REST_MS)

    def _written(self, which: int) -> Mutation:
        written = self.world.ring.written
        return written[-1 - which % len(written)]

    def _process(self, which: int) -> Process:
        return list(self.world.running.values())[which % len(self.world.running)]

    def _flying(self) -> list[Process]:
        return [process for process in self.world.running.values() if process.flying]

"""Any order of writes, overflows, returns, requests, crashes and lost leases in mode realtime.

Source, pipeline, ledger and store are real, over a log on disk that inotify watches. Faults are
planted in them, and each is found.
"""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.connector.language.parser import MODES
from headrace.connector.runtime.modes import Modes
from headrace.connector.runtime.pipeline import Pipeline
from headrace.connector.stores import SplitState
from headrace.connector.stores.keyed.heads import Heads
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins.config.realtime_options import LOG, REALTIME
from headrace.plugins.stores.kept_modes import KeptModes, ModeOutcome
from helpers.logs.live_log import KEYS
from helpers.logs.realtime_rig import BUFFER_BYTES, RETURN_SECONDS, RealtimeRig
from helpers.model.machines.runs import EXAMPLES, run

SCHEDULES, STEPS = 2 * EXAMPLES, 25
SCRATCH = Path("/dev/shm")  # noqa: S108 (memory: each commit would wait for a disk)


class RealtimeMachine(RuleBasedStateMachine):
    """The rules; what must always hold are the invariants."""

    def __init__(self) -> None:
        """Start a worker over an empty log."""
        super().__init__()
        where = SCRATCH if SCRATCH.is_dir() else None
        self.folder = tempfile.TemporaryDirectory(prefix="headrace-realtime-", dir=where)
        self.rig = RealtimeRig(Path(self.folder.name))
        self.rig.passes(3)
        self.settled: set[int] = set()
        self.seen = 0
        self.is_latched = False
        self.is_owner = True
        self.asked = ""
        self.succeeded: set[int] = set()

    @rule(count=st.integers(1, 25), rolls=st.booleans(), syncs=st.booleans())
    def write(self, count: int, rolls: bool, syncs: bool) -> None:  # noqa: FBT001 (drawn)
        """Let a node append; what it does not sync is not durable."""
        self.rig.log.append(count)
        if syncs:
            self.rig.log.sync(rolls=rolls)

    @rule(count=st.integers(1, 12))
    def run(self, count: int) -> None:
        """Let the worker run."""
        for _ in range(count):
            self._pass()

    @rule()
    def hold(self) -> None:
        """Let the sink be away."""
        self.rig.hold()

    @rule()
    def let_go(self) -> None:
        """Let the sink be back."""
        self.rig.let_go()

    @rule(reported=st.integers(0, 4))
    def overflow(self, reported: int) -> None:
        """Write more than the buffer takes while the sink is away; it reports on some of it."""
        self.rig.hold()
        for _ in range(12):
            self.rig.write(10)
            self._pass()
        for _ in range(min(reported, len(self.rig.sink.held))):
            delivery, settle = self.rig.sink.held.popleft()
            settle(self.rig.sink.deliver(delivery))
        for _ in range(3):
            self._pass()

    @rule()
    def crash(self) -> None:
        """Kill the worker, and start another one."""
        self.rig.script.clear()
        self.rig.crash()
        self.rig.start()
        self.is_latched = False

    @rule(mode=st.sampled_from(MODES))
    def ask(self, mode: str) -> None:
        """Ask for a mode."""
        self.rig.ask(mode)
        self.asked = mode

    @rule(mode=st.none() | st.sampled_from(MODES))
    def lose(self, mode: str | None) -> None:
        """Let another worker have the splits for a while: what is under way is void."""
        self.rig.take("w2")
        self.is_owner = False
        if mode:
            self.ask(mode)
        for _ in range(3):
            self._pass()
        self.rig.take("w1")
        self.is_owner = True
        self._pass()

    @rule()
    def rest(self) -> None:
        """Let time pass in which the mode may return."""
        self.rig.clock.advance(RETURN_SECONDS * 500)

    def _pass(self) -> None:
        self.settled |= self.rig.committed_numbers()
        stats, overflows = self.rig.pipeline.stats, self.rig.modes.overflows
        read = stats.records_read
        self.rig.pipeline.run_pass()
        if self.is_latched:
            assert read == stats.records_read, "it was read although the buffer was full"
        self.is_latched |= self.rig.modes.overflows > overflows
        self.is_latched &= not all(run.ledger.empty for run in self.rig.pipeline.runs)
        self._check_published()
        self._check_answers()

    def _check_answers(self) -> None:
        realtime = bool(self.rig.modes.realtime)
        assert not (realtime and self.asked == LOG), "it was turned off, and is on"
        for change in self.rig.job_modes.changes("job") if self.asked else ():
            if change.outcome is ModeOutcome.SUCCEEDED and change.request not in self.succeeded:
                self.succeeded.add(change.request)
                assert self.is_owner, "one that is no owner answered"
                assert realtime is (change.asked == REALTIME), "it did not succeed"

    def _check_published(self) -> None:
        numbers = self.rig.numbers
        for number in numbers[self.seen :]:
            assert number not in self.settled, f"{number} was committed, and published again"
            assert number < self.rig.log.synced, f"{number} was published, and is not durable"
        self.seen = len(numbers)

    @invariant()
    def order(self) -> None:
        """Check that the changes of a key come for the first time in their order."""
        numbers = self.rig.numbers
        for key in range(KEYS):
            first = list(dict.fromkeys(n for n in numbers if n % KEYS == key))
            assert sorted(first) == first

    @invariant()
    def memory(self) -> None:
        """Check that what is read and not acknowledged fits the buffer, but for a section."""
        most = max(BUFFER_BYTES, self.rig.limits.outstanding_bytes_max)
        if self.rig.modes.realtime:
            most = BUFFER_BYTES
        held = sum(r.ledger.outstanding_bytes + r.read_bytes for r in self.rig.pipeline.runs)
        held += self.rig.cassandra.untaken_bytes()
        assert held <= most + self.rig.log.section_bytes_max

    def teardown(self) -> None:
        """In the end all that is durable was published, and each request is answered."""
        try:
            self.rig.let_go()
            for _ in range(400):
                if len(self.rig.committed_numbers()) == self.rig.log.synced:
                    break
                self._pass()
            durable = set(range(self.rig.log.synced))
            assert durable == set(self.rig.numbers), "something is lost"
            assert durable == self.rig.committed_numbers()
            self._pass()
            changes = self.rig.job_modes.changes("job")
            assert ModeOutcome.PENDING not in {change.outcome for change in changes}
            assert ModeOutcome.SUPERSEDED not in {change.outcome for change in changes[:1]}
        finally:
            self.rig.end()
            self.folder.cleanup()


@pytest.mark.soak
def test_any_order_of_events() -> None:
    """Nothing is lost, nothing committed is published again, and the buffer is bounded."""
    assert SCHEDULES <= run(RealtimeMachine, SCHEDULES, STEPS)


def test_a_stale_start_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A split that starts again from the place before the committed one publishes it again."""
    load, last = SqliteStore.load, dict[str, list[SplitState]]()

    def stale(self: SqliteStore, split: str, token: int) -> SplitState:
        state = load(self, split, token)
        if not state.seq:  # Of a new example.
            last.pop(split, None)
        states = last.setdefault(split, [])
        states.append(state)
        before = states[-2] if len(states) > 1 else state
        made: Any = {name: getattr(state, name) for name in state.__struct_fields__}
        return type(state)(**{**made, "position": before.position})

    monkeypatch.setattr(SqliteStore, "load", stale)
    with pytest.raises(AssertionError, match="published again"):
        run(RealtimeMachine, 100, STEPS)


def test_a_buffer_that_is_not_latched_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes changes again as soon as there is room."""

    def leaky(self: Pipeline, modes: Modes) -> None:
        check(self, modes)
        if self._held_bytes < modes.capacity_bytes:
            modes.is_full = False

    check = Pipeline._check_buffer  # noqa: SLF001 (where the fault is)
    monkeypatch.setattr(Pipeline, "_check_buffer", leaky)
    with pytest.raises(AssertionError, match="although the buffer was full"):
        run(RealtimeMachine, 100, STEPS)


def test_a_mode_that_is_written_without_the_fence_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that lost its splits answers in the name of their owner."""

    def unfenced(self: Heads, split: str, token: int, owner: str, modes: KeptModes) -> None:
        del token, owner
        self.update(split, lambda _: {"modes": modes})

    monkeypatch.setattr(Heads, "keep_modes", unfenced)
    with pytest.raises(AssertionError, match="no owner answered"):
        run(RealtimeMachine, 100, STEPS)

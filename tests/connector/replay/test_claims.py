"""A run in a store that machines share: all machines see it, and one at a time executes it."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import asdict, replace

from headrace.connector.foundation.processes import this_process
from headrace.connector.replay import claims
from headrace.connector.replay.claims import CLAIMS, WATCH_SECONDS, write
from headrace.connector.replay.delivery import ShardReport, Target, Work
from headrace.connector.replay.errors import RunBusyError, ShardFailedError
from headrace.connector.replay.execution import Begun, Ended, execute
from headrace.connector.replay.runs import Run, RunTable, ShardState
from headrace.connector.replay.shards import Shard, SourceSpec
from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.note_copy import NoteCopy
from helpers.stores.shared import Kept, shared_notes

RUN = "replay-1"
SHARDS = 120  # More than one write has.


class Machines:
    """Machines that share a run table; while one waits, the test may run something."""

    def __init__(self, folder: Path) -> None:
        """Start with a run of some shards."""
        self.kept = Kept(folder / "state.db")
        self.other = this_process()
        self.waited = 0.0
        self.meanwhile: Callable[[], None] = lambda: None
        spec = SourceSpec(given={}, directory="/")
        shards = [Shard(number=n, split=str(n), source=spec) for n in range(1, SHARDS + 1)]
        target = Target(directory=str(folder), path="out")
        run = Run(run=RUN, kind="replay", made_ms=0, target=target, facts={})
        self.folder = folder
        with closing(self.table()) as table:
            table.add(run, shards)

    def table(self) -> RunTable:
        """Return the run table as another machine opens it."""
        return RunTable(self.kept.path, opened=self._opened, pause=self._pause)

    def claimed(self, beat: int = 0, *, pid: int | None = None) -> None:
        """Let a process of another machine, or of this one, claim the run."""
        other = replace(self.other, boot="another") if pid is None else replace(self.other, pid=pid)
        with closing(self._opened()) as notes:
            row = json.dumps([json.dumps(asdict(other)), beat])
            write(notes, lambda notes: notes.put(CLAIMS, RUN, row))

    def _opened(self) -> NoteCopy:
        return shared_notes(self.kept)

    def _pause(self, seconds: float) -> None:
        self.waited += seconds
        self.meanwhile()


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    """Return some machines; each copy of the control store is compared with the store."""
    monkeypatch.setattr("headrace.connector.stores.note_copy.FRESH_SECONDS", 0.0)
    return Machines(tmp_path)


@pytest.fixture
def tables(machines: Machines) -> Iterator[tuple[RunTable, RunTable]]:
    """Return the run tables of two machines."""
    with ExitStack() as stack:
        made = [stack.enter_context(closing(machines.table())) for _ in range(2)]
        yield made[0], made[1]


def perform(works: Sequence[Work], *, begun: Begun, ended: Ended, bad: int = 0) -> None:
    """Execute shards, all but number *bad*."""
    for work in works:
        begun(work)
        problem = "lost" if work.shard.number == bad else ""
        ended(work, ShardReport(number=work.shard.number, delivered=1, problem=problem))


def test_another_machine_sees_a_run_and_continues(tables: tuple[RunTable, RunTable]) -> None:
    """Another machine sees which shards are done, and executes the others."""
    here, there = tables
    run = there.run(RUN)
    with pytest.raises(ShardFailedError, match=f"1 of {SHARDS} shards failed; the first: lost"):
        execute(here, here.run(RUN), partial(perform, bad=7))

    seen = {row.shard.number: (row.state, row.attempt) for row in there.shards(RUN)}
    assert SHARDS == len(seen)
    assert {7} == {number for number, (state, _) in seen.items() if state is not ShardState.PASS}
    states = execute(there, run, perform)

    assert {ShardState.PASS: SHARDS} == states
    assert [2] == [row.attempt for row in here.shards(RUN) if row.shard.number == 7]
    assert {ShardState.PASS} == {row.state for row in here.shards(RUN)}


def test_one_machine_at_a_time(machines: Machines, tables: tuple[RunTable, RunTable]) -> None:
    """A second process on the same machine is refused at once, and may run afterwards."""
    here, there = tables
    with here.executing(RUN), pytest.raises(RunBusyError), there.executing(RUN):
        pass
    with there.executing(RUN):
        pass

    assert 0 == machines.waited


def test_a_process_that_was_replaced_stores_nothing(
    machines: Machines, tables: tuple[RunTable, RunTable]
) -> None:
    """What it stores after another process took its run over is refused, and changes nothing."""
    here, there = tables
    with here.executing(RUN):
        here.begin(RUN, 1, 1)
        machines.claimed()
        with pytest.raises(RunBusyError):
            here.begin(RUN, 2, 1)
        with pytest.raises(RunBusyError):
            here.end(RUN, ShardReport(number=1), ShardState.PASS)

    states = [row.state for row in there.shards(RUN)]
    assert [ShardState.STARTED, ShardState.NOT_STARTED] == states[:2]


def test_who_beats_on_another_machine_is_left_alone(machines: Machines) -> None:
    """A process on another machine that renews its claim keeps its run."""
    machines.claimed()
    machines.meanwhile = lambda: machines.claimed(beat=int(machines.waited) // 10)

    with (
        closing(machines.table()) as table,
        pytest.raises(RunBusyError),
        table.executing(RUN),
    ):
        pass
    assert 10 == machines.waited


@pytest.mark.parametrize(("pid", "waited"), [(None, WATCH_SECONDS), (1 << 30, 0)])
def test_who_is_gone_is_replaced(machines: Machines, pid: int | None, waited: int) -> None:
    """A dead process loses its run: at once on its machine, elsewhere when its claim expired."""
    machines.claimed(pid=pid)

    with closing(machines.table()) as table, table.executing(RUN):
        assert waited == machines.waited


def test_who_was_taken_for_dead_stops(
    machines: Machines, tables: tuple[RunTable, RunTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process whose run was taken over starts no more shards."""
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.01)
    here, _ = tables

    def worked(works: Sequence[Work], *, begun: Begun, ended: Ended) -> None:
        machines.claimed()
        for _ in range(100):
            perform(works, begun=begun, ended=ended)

    with pytest.raises(RunBusyError):
        execute(here, here.run(RUN), worked)


def test_a_store_that_is_away(machines: Machines) -> None:
    """Without the store no shard is executed, and the error is the store's."""
    with closing(machines.table()) as table:
        machines.kept.memory.away = True
        with pytest.raises(StoreUnavailableError), table.executing(RUN):
            pass

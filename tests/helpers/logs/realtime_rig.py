"""A pipeline over the Cassandra source in mode realtime and one live log, pass by pass."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.connector.control.modes import JobModes
from headrace.connector.runtime.messages import Gain, SetModes
from headrace.connector.runtime.modes import Modes
from headrace.connector.runtime.splits.ownership import Lease
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.stores.kept_modes import ALL_LOGS
from headrace.plugins.testing.doubles import ChaosResult
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.jobs.rig import LEASE_MS, Rig
from helpers.logs.live_log import LiveLog
from helpers.logs.node_logs import source

if TYPE_CHECKING:
    from headrace.sources.cassandra.source import CassandraSource

BUFFER_BYTES = 4_000
RETURN_SECONDS = 30
MORE = BUFFER_BYTES // 50  # Changes that the buffer has no room for.


class RealtimeRig(Rig):
    """See the module. `numbers` are the changes that reached the sink, in order."""

    def __init__(self, folder: Path, **options: object) -> None:
        """Start a worker over an empty log; *options* are the source's."""
        folder.mkdir(exist_ok=True)
        super().__init__(folder / "state.db", batch_records_max=1_000)
        self.log = LiveLog(folder / "node")
        realtime = {
            "mode": "realtime",
            "realtime.buffer_bytes": BUFFER_BYTES,
            "realtime.return_after_seconds": RETURN_SECONDS,
        }
        self._options = self.log.source(**realtime | options)
        self._before: list[int] = []
        self._notes = open_notes(folder / "state.db")
        self.job_modes = JobModes(self._notes)
        self.start()

    def start(self) -> None:
        """Start a worker, with new leases."""
        self.cassandra: CassandraSource = source(self._options, self.clock, job="job")
        self.open({split.split_id: 0 for split in self.cassandra.plan()}, source=self.cassandra)
        self.heed()
        self.take("w1")

    def take(self, worker: str) -> None:
        """Claim all splits; those of this worker are given to its pipeline."""
        tokens = self.store.claim(worker, self.store.leases(), LEASE_MS)
        deadline_ms = self.clock.monotonic_ms() + (1 << 40)
        for split, token in tokens.items():
            if worker == "w1":
                lease = Lease(split, token, deadline_ms=deadline_ms, margin_ms=1_000)
                self.pipeline.command(Gain(lease))

    def ask(self, mode: str, node: str = ALL_LOGS) -> int:
        """Ask the worker for a mode; return the number of the request."""
        now_ms = self.clock.wall_ms()
        request = self.job_modes.ask("job", mode, node=node, places={}, now_ms=now_ms)
        self.heed()
        return request

    def heed(self) -> None:
        """Let the worker see what is asked for, as it does each second."""
        if asked := self._notes.board.wanted("job").modes:
            self.pipeline.command(SetModes(asked))

    def outcomes(self, request: int) -> dict[str, str]:
        """Return the outcome of a request, and its reason, for each log."""
        changes = [each for each in self.job_modes.changes("job") if each.request == request]
        return {each.node: f"{each.outcome} {each.reason}".strip() for each in changes}

    def end(self) -> None:
        """Close everything."""
        self.crash()
        self.store.close()
        self._notes.close()

    def crash(self) -> None:
        """End the worker as kill -9 does; what the sink holds never arrives."""
        self._before = self.numbers
        self.pipeline.close()
        self.cassandra.close()

    @property
    def modes(self) -> Modes:
        """The modes of the pipeline, which has some."""
        assert self.pipeline._modes is not None  # noqa: SLF001 (what is tested)
        return self.pipeline._modes  # noqa: SLF001 (likewise)

    @property
    def numbers(self) -> list[int]:
        """The changes that reached the sink."""
        return [*self._before, *map(_number_in, self.written())]

    def hold(self, deliveries: int = 10_000) -> None:
        """Let the sink report nothing of the next deliveries."""
        self.script.extend([ChaosResult.HOLD] * deliveries)

    def let_go(self) -> None:
        """Let it report all, and hold no more."""
        self.script.clear()
        self.sink.let_go()

    def write(self, count: int, **how: int) -> None:
        """Let the node write changes, and sync."""
        self.log.append(count, **how)
        self.log.sync()

    def settle(self) -> None:
        """Let passes come until all that is synced is committed."""
        self.until(lambda: len(self.committed_numbers()) == self.log.synced)

    def fall(self) -> None:
        """Let the buffer overflow while the sink reports nothing, and the sink report all."""
        self.hold()
        self.write(MORE)
        self.until(lambda: self.modes.is_full)
        self.let_go()
        self.settle()

    def returned_after_ms(self) -> int:
        """Let passes come until the mode is realtime; return how long that took."""
        began_ms = self.clock.monotonic_ms()
        self.until(lambda: bool(self.modes.realtime), passes_max=100_000)
        return self.clock.monotonic_ms() - began_ms

    def markers(self) -> Sequence[tuple[int, int]]:
        """Return up to where each split committed the log."""
        found = []
        for state in self.store.states():
            if state.position is None:
                return ()
            marker = CdcState.decode(state.position).markers["node"]
            found.append((marker.segment_id, marker.offset))
        return found

    def committed_numbers(self) -> set[int]:
        """Return the changes that all splits have committed."""
        end = min(self.markers(), default=(0, 0))
        return {number for number, place in enumerate(self.log.places) if place <= end}


@lru_cache(maxsize=1 << 16)  # All that was written is asked for after each pass.
def _number_in(value: bytes) -> int:
    """Return the number of the change in a message."""
    return int(bytes.fromhex(json.loads(value)["columns"]["v"]["value"][2:]))


@contextmanager
def rigs(folder: Path) -> Iterator[Callable[..., RealtimeRig]]:
    """Give what makes a rig in *folder* with options of the source; end all in the end."""
    made: list[RealtimeRig] = []

    def rig(**options: object) -> RealtimeRig:
        made.append(RealtimeRig(folder, **options))
        made[-1].passes(5)
        return made[-1]

    yield rig
    for each in made:
        each.end()

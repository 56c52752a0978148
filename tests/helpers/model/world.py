"""A ring, a job that reads it, and the processes that run the job, all driven by one clock."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from headrace.connector.control.gaps import Acceptance, Gaps
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins import HeadraceError, parse_config
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.ring.splits import names
from headrace.sources.cassandra.source import CassandraSource
from headrace.sources.cassandra.state.gaps import LogGapError
from helpers.model.checks.job import JobChecks
from helpers.model.checks.records import COMPLETE_S, EXPIRY_S, MEMORY_S
from helpers.model.process import JOB, LEASE_MS, Process
from helpers.model.ring import Ring, Version

SETTLED_MS: Final = 60_000  # More than a lease, and than other bytes wait for one another.
PASSES_MAX: Final = 2_000
_UNEXPECTED: Final = {"plugin_broken", "split_failed", "topology_unread", "streams_unread"}
SPLITS: Final = 2  # When a job starts.
RECORDS_MAX: Final = 200_000


class World:
    """See the module.

    `splits` is the number that a process asks for that starts now; all of them may remember
    *records_max*.
    """

    def __init__(
        self, folder: Path, first: Version, *, records_max: int = RECORDS_MAX, **more: object
    ) -> None:
        """Start no process; *more* are options of the source."""
        self.folder = folder
        self.clock = DrivenClock()
        self.ring = Ring(folder, first)
        self.splits = SPLITS
        self._records_max = records_max
        self.options: dict[str, object] = {
            "expiry_seconds": EXPIRY_S,
            "dedup_window_seconds": MEMORY_S,
            "complete_seconds": COMPLETE_S,
            **more,
        }
        self.running: dict[str, Process] = {}
        self.proves_death = True
        self.events: list[structlog.typing.EventDict] = []
        self.log = structlog.wrap_logger(structlog.ReturnLogger(), processors=[self._logged])
        store = SqliteStore.open(folder / "state.db", JOB)
        self.checks = JobChecks(
            self.ring,
            store.job_key(),
            names(SPLITS),
            options=more,
        )
        store.close()
        self._started = 0
        self._asleep: list[Process] = []

    def start(self, faults: Iterable[str] = ()) -> Process:
        """Start a process; *faults* are those of the store's first answers to it."""
        self._started += 1
        name = f"w{self._started}"
        options = {**self.ring.options(self._started), **self.options, "splits": self.splits}
        self.running[name] = process = Process(self, name, 1_000_000 * self._started, options)
        process.faults.extend(faults)
        process.begin()
        return process

    def config(self, options: Mapping[str, object]) -> CassandraConfig:
        """Return the configuration for *options*; it may have less room than options allow.

        Logs that are unreadable now are not waited for.
        """
        unreadable = [log for log in self.ring.nodes.values() if log.unreadable_ms is not None]
        for log in unreadable:
            log.named = True
        named = options.get("absent", ())
        assert isinstance(named, tuple)
        options = {**options, "absent": [*named, *(log.name for log in unreadable)]}
        return replace(parse_config(CassandraConfig, options), records_max=self._records_max)

    def accept(self, policy: str) -> None:
        """Stop all processes, and accept that lost segments are not waited for."""
        for process in list(self.running.values()):
            process.kill(arrives=False)
        with closing(open_notes(self.folder / "state.db")) as connection:
            gaps = Gaps(connection, dead=lambda _: True)
            names = [each.gap.name for each in gaps.of(JOB, CassandraSource) if each.gap.is_open]
            gaps.accept(Acceptance(job=JOB, names=names, policy=policy), CassandraSource)
        with closing(SqliteStore.open(self.folder / "state.db", JOB)) as store:
            for state in store.states():
                if state.position is not None:
                    self.checks.moved(state.split, state.position)
        self.start()

    def calm(self, passes: int, *, begins: bool = True) -> None:
        """Let all processes run that are not paused, and let the sink deliver.

        Without *begins* no process that has ended its run starts another.
        """
        for _ in range(passes):
            for process in [each for each in self.running.values() if each not in self._asleep]:
                process.step(begins=begins)
                while process.flying:
                    process.settle(0, "deliver")

    @contextmanager
    def asleep(self, process: Process) -> Iterator[None]:
        """Pause a process; the others continue."""
        self._asleep.append(process)
        yield
        self._asleep.remove(process)

    def finish(self) -> None:
        """End all failures, read all logs, and check what was promised."""
        now_ms = self.clock.monotonic_ms
        for log in self.ring.nodes.values():
            log.come_back()
            log.roll(now_ms())
        for process in self.running.values():
            process.faults.clear()
            process.renewals.clear()
            process.commits.clear()
            while process.flying:
                process.settle(0, "deliver")
        if not self.running:
            self.start()
        for _ in range(PASSES_MAX):
            if not (unread := self._unread()):
                break
            self.calm(1)
            if any(line.is_stopped for line in self.checks.committed):
                self.accept("expire")
        for what in unread:
            self.checks.complain(f"{what} was never read to its end")
        until_ms = now_ms() + SETTLED_MS
        while now_ms() < until_ms:
            self.calm(1)
            self.clock.advance(LEASE_MS // 2)
        self.checks.check_rings()
        self.checks.verify()
        self.checks.check_end()

    def _unread(self) -> list[str]:
        """Return the logs that no split has committed to the end."""
        return [
            f"{node}'s log, by {line.course.split},"
            for line in self.checks.committed
            for node, log in self.ring.nodes.items()
            if any(copy.counts and not line.covers(node, copy) for copy in log.copies)
        ]

    def close(self) -> None:
        """Stop all processes."""
        for process in list(self.running.values()):
            with suppress(HeadraceError):
                process.kill(arrives=False)

    def _logged(
        self, _logger: object, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.ProcessorReturnValue:
        self.events.append(event)
        is_gap = event.get("error_code") == LogGapError.code and self.options.get("gaps") == "fail"
        if event["event"] in _UNEXPECTED and not is_gap:
            self.checks.complain(f"{event}")
        return event

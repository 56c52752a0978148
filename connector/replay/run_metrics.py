"""The metrics of bulk work while it runs: served to Prometheus, or written to a file for it."""

import contextlib
import os
import resource
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace.connector.control.jobs import JobText
from headrace.connector.foundation.job_file import RuntimeConfig
from headrace.connector.obs.metrics import Metrics, metrics_address
from headrace.connector.replay.delivery import ShardReport, Work
from headrace.connector.replay.options import Metered
from headrace.connector.replay.runs import ShardState
from headrace.connector.runtime.telemetry import sender_of
from headrace.plugins import ConfigError, Problem, parse_config
from headrace.plugins.metrics import Measure, counter, exposition, gauge
from headrace.plugins.telemetry.spans import WorkTrace

_KIB: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPart:
    """A part of a comparison's side that was read, with times in ms since 1970, or the error."""

    side: str
    name: str
    records: int
    start_ms: int
    end_ms: int
    problem: str = ""


@dataclass(slots=True, kw_only=True)
class Measures:
    """The metrics of bulk work. `note` is called at each step, `trace` with each part that ended.

    The publisher of the metrics sets both.
    """

    note: Callable[[], None] = lambda: None
    trace: Callable[[WorkTrace], None] = lambda _: None

    @abstractmethod
    def measures(self) -> Iterable[Measure]:
        """Return the metrics. Any thread may call."""


@dataclass(slots=True)
class RunMeasures(Measures):
    """The metrics of a run: of this process, and the states of shards of all processes."""

    run: str
    states: Mapping[ShardState, int] = field(default_factory=dict)
    fates: Counter[str] = field(default_factory=Counter)
    size_bytes: int = 0
    cpu_seconds: float = 0

    def ended(self, work: Work, report: ShardReport) -> None:
        """Trace a shard that ended, from its start."""
        attributes: dict[str, str | int] = {
            "headrace.run": self.run,
            "headrace.split": work.shard.split,
            "headrace.shard": work.shard.number,
            "headrace.attempts": work.attempt,
            "headrace.records": report.delivered,
            "headrace.bytes": report.size_bytes,
        }
        start_ms = report.ended_ms - round(report.wall_seconds * 1_000)
        problem, _, _ = report.problem.partition(":")  # What follows may be anything.
        self.trace(WorkTrace("shard", start_ms, report.ended_ms, attributes, problem))

    def step(self, states: Mapping[ShardState, int], report: ShardReport | None = None) -> None:
        """Count a shard that started or ended."""
        self.states = states
        if report is not None:
            self.fates["delivered"] += report.delivered
            self.fates["rejected"] += report.rejected
            self.fates["quarantined"] += report.quarantined
            self.size_bytes += report.size_bytes
            self.cpu_seconds += report.cpu_seconds
        self.note()

    def measures(self) -> Iterable[Measure]:
        """Return the metrics."""
        run = {"run": self.run}
        shards = [({**run, "state": s.value}, float(self.states.get(s, 0))) for s in ShardState]
        fates = ("delivered", "rejected", "quarantined")
        return [
            gauge("headrace_run_shards", "Shards of a run by state.", shards),
            counter(
                "headrace_run_changes_total",
                "Changes of shards that ended.",
                [({**run, "fate": fate}, float(self.fates[fate])) for fate in fates],
            ),
            counter(
                "headrace_run_bytes_total", "Values of the same.", [(run, float(self.size_bytes))]
            ),
            counter(
                "headrace_run_cpu_seconds_total", "CPU of the same.", [(run, self.cpu_seconds)]
            ),
            _driver_memory(run),
        ]


@dataclass(slots=True)
class CompareMeasures(Measures):
    """The metrics of a comparison, of this process. *run* is the compared run, if it is one."""

    run: str = ""
    parts: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)

    def read(self, part: ReadPart) -> None:
        """Count and trace a part of a side that was read."""
        self.parts[part.side] += 1
        self.records[part.side] += part.records
        attributes: dict[str, str | int] = {
            **({"headrace.run": self.run} if self.run else {}),
            "headrace.side": part.side,
            "headrace.part": part.name,
            "headrace.records": part.records,
        }
        problem, _, _ = part.problem.partition(":")  # What follows may be anything.
        self.trace(WorkTrace("compare", part.start_ms, part.end_ms, attributes, problem))
        self.note()

    def measures(self) -> Iterable[Measure]:
        """Return the metrics."""
        run = {"run": self.run} if self.run else {}

        def by_side(found: Mapping[str, int]) -> list[tuple[Mapping[str, str], float]]:
            return [({**run, "side": side}, float(count)) for side, count in dict(found).items()]

        return [
            counter("headrace_compared_parts_total", "Parts that were read.", by_side(self.parts)),
            counter("headrace_compared_records_total", "Records of them.", by_side(self.records)),
            _driver_memory(run),
        ]


@dataclass(slots=True)
class CatchUpMeasures(Measures):
    """The metrics of catching up, of this process."""

    chunks: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    lag_bytes: Mapping[str, int] = field(default_factory=dict)
    held: Iterable[str] = ()

    def step(self, split: str, changes: int) -> None:
        """Count a chunk that was committed."""
        self.chunks[split] += 1
        self.changes[split] += changes
        self.note()

    def measures(self) -> Iterable[Measure]:
        """Return the metrics."""

        def by_split(found: Mapping[str, int]) -> list[tuple[Mapping[str, str], float]]:
            return [({"split": split}, float(count)) for split, count in dict(found).items()]

        held = dict.fromkeys(list(self.held), 1)
        return [
            gauge("headrace_catch_up_held", "1 for a split held by it.", by_split(held)),
            gauge(
                "headrace_catch_up_lag_bytes", "As it was found to lag.", by_split(self.lag_bytes)
            ),
            counter("headrace_catch_up_chunks_total", "Chunks committed.", by_split(self.chunks)),
            counter("headrace_catch_up_changes_total", "Changes of them.", by_split(self.changes)),
            _driver_memory({}),
        ]


def _driver_memory(labels: Mapping[str, str]) -> Measure:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
    doc = "The most memory that the driver has used."
    return gauge("headrace_driver_memory_bytes_max", doc, [(labels, float(used))])


@contextlib.contextmanager
def telling(given: Metered, text: JobText, of_run: Measures) -> Iterator[None]:
    """Serve and write the metrics of *of_run* by *given*; send them by the job's options.

    The file keeps the last values.

    Raises:
        ConfigError: the address is not valid, or the file cannot be written.
        MetricsAddressError: the address is taken.
        OtelMissingError: the job asks for OTLP, and the extra is not installed.

    """
    job = text.name
    with contextlib.ExitStack() as stack:
        runtime = parse_config(RuntimeConfig, text.runtime, place="runtime", name="runtime")
        sender = sender_of(runtime, job, stack, measures=of_run.measures)
        if sender is not None:
            of_run.trace = sender.add
        if given.metrics:
            address = metrics_address(given.metrics, key="--metrics")
            stack.enter_context(contextlib.closing(Metrics(address, of_run.measures, job)))
        if given.metrics_file:
            path = Path(given.metrics_file).absolute()
            of_run.note = lambda: _write(path, exposition(of_run.measures(), job=job))
            of_run.note()
            stack.callback(of_run.note)
        yield


def _write(path: Path, text: bytes) -> None:
    """Replace a file atomically: a reader never sees half of it."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_bytes(text)
        half.replace(path)
    except OSError as error:
        said = f"{path}: {error.strerror}"
        raise ConfigError([Problem("--metrics-file", said, "its folder must exist")]) from error

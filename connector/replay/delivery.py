"""The work of one task: reads a shard, encodes it for the target, delivers it, and reports.

Needs no Spark: a task calls `deliver`, and so does a test. Blocking.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, Self

import structlog

from headrace.connector.control.jobs import JobText
from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.configured import configured
from headrace.connector.foundation.confinement import Bounds
from headrace.connector.foundation.job_file import RuntimeConfig
from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.sending import Sending
from headrace.connector.replay.shards import (
    BATCH_RECORDS_MAX,
    Shard,
    SourceSpec,
    batches,
    beside_kept,
    inside,
    opened,
)
from headrace.connector.runtime.making import made_sink
from headrace.connector.runtime.schemas import check_options, encoder_of
from headrace.connector.serde import Encoder
from headrace.connector.stores.job import Job
from headrace.plugins import (
    Batch,
    Context,
    EncodedRecords,
    Encoding,
    HeadraceError,
    LogSearch,
    Origin,
    Sink,
    SinkOptions,
    Source,
    Writer,
)
from headrace.plugins.records.columns import Pieces

NOTES_MAX: Final = 20  # Notes of one shard.
_PROBLEM_CHARS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of changes: `path`, a folder of Parquet files in `format`, or the sink `sink`.

    With `lake`, the files belong to tables of that kind, in `catalog` or one in the folder.
    With `suffix`, records go to topics whose names end in it. `rate` bounds the changes per second
    of a run, or of one of its tasks; 0 means no bound. Paths are relative to `directory`.
    """

    directory: str
    path: str = ""
    format: str = "avro"
    sink: Mapping[str, Any] | None = None
    suffix: str = ""
    rate: float = 0
    lake: str = ""
    catalog: str = ""

    @property
    def folder(self) -> Path:
        """The folder of files."""
        return Path(self.directory) / self.path

    @classmethod
    def of_job(
        cls,
        text: JobText,
        *,
        folder: str = "",
        codec: str = "avro",
        suffix: str = "",
        instead: str = "leave --suffix out",
    ) -> Self:
        """Return *folder*, or the job's sink if *folder* is empty.

        *instead* tells users how to write to the sink without side topics.

        Raises:
            ConfigError: the sink's configuration is wrong. Raised here once, not by every shard.
            TargetUnwritableError: *folder* is not a folder.

        """
        if folder:
            from headrace.connector.replay.parquet import check_folder  # noqa: PLC0415 (an extra)

            made = cls(directory=str(text.directory), path=folder, format=codec)
            check_folder(made.folder)
            return made
        plugin, config = configured("sink", text.sink, text.bounds)
        if isinstance(config, SinkOptions):
            check_options(config)
        check_suffix(plugin, suffix, hint=f"give --to-folder, or {instead}")
        return cls(directory=str(text.directory), sink=dict(text.sink), suffix=suffix)

    def place(self) -> str:
        """Return the place of the output: the folder, or the sink as `describe` names it."""
        return self.describe() if self.sink is not None else str(self.folder)

    def describe(self) -> str:
        """Return a description for users."""
        if self.sink is None:
            kind = f"{self.lake} tables" if self.lake else "Parquet files"
            return f"{kind} in {self.path}"
        topics = f"topics that end in {self.suffix}" if self.suffix else "the live topics"
        return f"sink {self.sink.get('plugin')}, {topics}"


@dataclass(slots=True, kw_only=True)
class ShardReport:
    """The result of a shard: numbers of changes, CPU and wall seconds, its end; or the error.

    `notes` report damage and refused records of a shard that succeeded.
    """

    number: int
    changes: int = 0
    delivered: int = 0
    rejected: int = 0
    quarantined: int = 0
    size_bytes: int = 0
    cpu_seconds: float = 0
    wall_seconds: float = 0
    ended_ms: int = 0
    problem: str = ""
    is_halted: bool = False
    notes: list[str] = field(default_factory=list)
    books: Mapping[str, int] = field(default_factory=dict)


class Outlet(Protocol):
    """Takes a shard's records."""

    notes: list[str]

    @property
    def rejected(self) -> int:
        """The number of records that were refused permanently."""

    def encode(self, batch: Batch) -> EncodedRecords:
        """Return the batch's records in the target's form."""

    def take(self, encoded: EncodedRecords, batch: Batch) -> None:
        """Deliver records that were encoded from *batch*."""

    def finish(self) -> None:
        """Return when all records are durable."""


Halted = Callable[[float], bool]
"""Waits for a number of seconds, or until the work must end; returns whether it must."""


def never(seconds: float) -> bool:
    """Wait; the work must not end."""
    if seconds:  # Even sleep(0) would yield to other processes.
        time.sleep(seconds)
    return False


def deliver(
    shard: Shard, target: Target, *, run: str, attempt: int, halted: Halted = never
) -> ShardReport:
    """Deliver a shard. The report has an error of headrace, which is not raised.

    The work ends between two batches when it is *halted*; then `is_halted` is set in the report.
    """
    started, cpu = time.monotonic(), time.process_time()
    report = ShardReport(number=shard.number)
    try:
        with opened(shard, sparing=True) as source, _outlet(shard, target, run, attempt) as outlet:
            _pump(source, ShardDelivery(shard, outlet, report), target.rate, halted)
    except HeadraceError as error:
        report.problem = problem_of(error)
    report.cpu_seconds = time.process_time() - cpu
    report.wall_seconds = time.monotonic() - started
    report.ended_ms = time.time_ns() // 1_000_000
    return report


def problem_of(error: HeadraceError) -> str:
    """Return the description of *error* for a report."""
    return f"{error.code}: {error}"[:_PROBLEM_CHARS_MAX]


@dataclass(frozen=True, slots=True, eq=False)
class ShardDelivery:
    """The delivery of a shard into its outlet, and its report."""

    shard: Shard
    outlet: Outlet
    report: ShardReport

    def take(self, batch: Batch) -> None:
        """Deliver the records of *batch* that the shard selects."""
        outlet, report = self.outlet, self.report
        made = outlet.encode(batch)
        report.changes += len(made)
        for lost in made.quarantined:
            report.quarantined += 1
            if len(report.notes) < NOTES_MAX:
                report.notes.append(f"{lost.code}: {lost.place}: {lost.message}")
        encoded = self.shard.selection.apply(made)
        report.size_bytes += _size_of(encoded.values)
        outlet.take(encoded, batch)
        report.delivered += len(encoded)
        report.books = batch.end.books() if batch.has_end else report.books

    def finish(self) -> None:
        """Return when all taken records are durable. Raises as the outlet does."""
        self.outlet.finish()
        self.report.rejected = self.outlet.rejected
        self.report.delivered -= self.outlet.rejected
        self.report.notes += self.outlet.notes


def _pump(source: Source, delivery: ShardDelivery, rate: float, halted: Halted) -> None:
    started, report = time.monotonic(), delivery.report
    second = max(1, min(BATCH_RECORDS_MAX, int(rate))) if rate else BATCH_RECORDS_MAX
    for batch in batches(source, delivery.shard, records_max=second):
        delivery.take(batch)
        early = report.delivered / rate - (time.monotonic() - started) if rate else 0.0
        report.is_halted = halted(max(0.0, early))
        if report.is_halted:
            return
    delivery.finish()


def _size_of(values: Sequence[bytes]) -> int:
    return values.size_bytes if isinstance(values, Pieces) else sum(map(len, values))


@contextlib.contextmanager
def _outlet(shard: Shard, target: Target, run: str, attempt: int) -> Iterator[Outlet]:
    if target.sink is None:
        # Imported here because they need an extra.
        from headrace.connector.replay import parquet  # noqa: PLC0415
        from headrace.connector.replay.columns import arrow_schema  # noqa: PLC0415

        files = parquet.ParquetFiles(
            target.folder,
            name=parquet.attempt_name(run, shard.number, attempt)
            if target.lake
            else parquet.file_name(run, shard.number),
            encoder=Encoder(Encoding(codec=target.format), joined=True),
            schema=arrow_schema(shard.source.origin),
        )
        with contextlib.closing(files):
            yield files
        return
    with (
        inside(target.directory),
        _sink_of(shard, target.sink, run) as (sink, encoder),
        contextlib.closing(sending_of(shard, target, run, attempt, sink, encoder)) as sending,
    ):
        yield sending


def sending_of(  # noqa: PLR0913, PLR0917 (what is sent, for what, and by what)
    shard: Shard,
    target: Target,
    run: str,
    attempt: int,
    sink: Sink,
    encoder: Encoder,
    shared: Writer | None = None,
) -> Sending:
    """Return a sender of the records of a shard to *sink*; *shared* as in `Sending`.

    Raises:
        ConfigError: the sink has no side topics.

    """
    check_suffix(sink, target.suffix, hint="plan it again, with another sink or a folder")
    return Sending(
        sink,
        encoder,
        run=run,
        attempt=attempt,
        suffix=target.suffix,
        with_facts=shard.selection.by_record,
        shared=shared,
    )


class _KeptSink:
    """The sink and the encoder of the last framed shard of this process: both take some ms."""

    place: tuple[Mapping[str, Any], str, Origin] | None = None
    made: tuple[Sink, Encoder] | None = None

    @classmethod
    def forget(cls) -> None:
        """Forget a sink that was closed."""
        cls.place = cls.made = None


@contextlib.contextmanager
def _sink_of(shard: Shard, given: Mapping[str, Any], run: str) -> Iterator[tuple[Sink, Encoder]]:
    """Yield the sink and the encoder; those of a framed shard stay open for the next one."""
    if not shard.framed:
        with sink_and_encoder(given, run, shard.source.origin) as made:
            yield made
        return
    place = given, run, shard.source.origin
    if _KeptSink.made is None or _KeptSink.place != place:
        beside_kept.close()
        opened_now = beside_kept.enter_context(sink_and_encoder(*place))
        _KeptSink.place, _KeptSink.made = place, opened_now
        beside_kept.callback(_KeptSink.forget)
    with contextlib.ExitStack() as undo:
        undo.callback(beside_kept.close)  # After an error it is not used again.
        yield _KeptSink.made
        undo.pop_all()


def check_target(shard: Shard, target: Target, run: str) -> None:
    """Open and close everything that a task of *run* needs to deliver; sends nothing.

    Raises:
        HeadraceError: the error with which each shard would fail.

    """
    with _outlet(shard, target, run, 0):
        pass


def check_suffix(sink: Sink | type[Sink], suffix: str, *, hint: str) -> None:
    """Raise for side topics of a sink without topics: records would mix with its live ones.

    Raises:
        ConfigError: with *hint*.

    """
    if suffix and not sink.heeds_topics:
        raise bad_option("--suffix", f"the job's sink has no topics, so none with {suffix}", hint)


@contextlib.contextmanager
def sink_and_encoder(
    given: Mapping[str, Any], run: str, origin: Origin, bounds: Bounds | None = None
) -> Iterator[tuple[Sink, Encoder]]:
    """Create the sink of a section `sink`, and an encoder for it.

    *origin* is that of the source whose records are encoded, *bounds* are those of a sink that a
    statement created.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-replay-") as folder:
        job, context = sink_job(given, run, Path(folder), bounds=bounds)
        context = replace(context, origin=origin)
        sink: Sink = made_sink(job, context)
        with contextlib.closing(encoder_of(job, context, sink, origin)) as encoder:
            yield sink, encoder


def sink_job(
    given: Mapping[str, Any],
    name: str,
    folder: Path,
    runtime: RuntimeConfig | None = None,
    *,
    bounds: Bounds | None = None,
) -> tuple[Job, Context]:
    """Return a job with only the sink of a job file's section `sink`; its state is in *folder*."""
    plugin, config = configured("sink", given, bounds)
    context = Context(
        job=name,
        clock=SystemClock(),
        job_key=bytes(16),
        log=structlog.stdlib.get_logger().bind(job=name),
    )
    job = Job(
        name=name,
        directory=folder,
        state=folder / "state.db",
        source=plugin,  # Not used.
        source_config=None,
        sink=plugin,
        sink_config=config,
        runtime=runtime or RuntimeConfig(),
    )
    return job, context


@dataclass(frozen=True, slots=True)
class Work:
    """A shard, its target, and the run and the attempt."""

    shard: Shard
    target: Target
    run: str
    attempt: int

    def describe(self) -> str:
        """Return a description, for users of the engine."""
        return f"{self.run}: shard {self.shard.number} into {self.target.describe()}"

    def __call__(self) -> ShardReport:
        """Deliver the shard. The report has an error of headrace, which is not raised."""
        return self.unless(never)

    def unless(self, halted: Halted) -> ShardReport:
        """Deliver the shard, until it is *halted*; see `deliver`."""
        return deliver(self.shard, self.target, run=self.run, attempt=self.attempt, halted=halted)


@dataclass(frozen=True, slots=True)
class Search:
    """Indexes the logs of `source`, so that shards can skip parts of them."""

    job_description: ClassVar[str] = "index the logs"

    source: SourceSpec

    def __call__(self) -> int:
        """Index the logs; return the number of bytes that were new."""
        with inside(self.source.directory), contextlib.closing(self.source.open()) as source:
            return LogSearch.of(source).search()

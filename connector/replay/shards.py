"""One shard of bulk work: a split of a source, between two positions.

A shard is sent to the process that reads it, so it holds a source in the form of the job file: that
process resolves references to secrets. This module needs no Spark.
"""

import contextlib
import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeVar

import msgspec
import structlog

from headrace.connector.control.jobs import JobText
from headrace.connector.foundation.clock import SystemClock, ThreadWake
from headrace.connector.foundation.configured import configured
from headrace.connector.replay.errors import LogShortError, bad_option
from headrace.connector.replay.selection import Selection
from headrace.connector.runtime.failures.retry import Retry, call_with_retries
from headrace.connector.serde import Encoder
from headrace.connector.serde.encoder import joined
from headrace.plugins import (
    Batch,
    BulkReading,
    CloseReason,
    Context,
    Demand,
    Done,
    EncodedPosition,
    EncodedRecords,
    FactColumns,
    LogArchive,
    LogFraming,
    LogSearch,
    NumberPosition,
    Origin,
    Reader,
    RecordBatch,
    Source,
    Split,
)
from headrace.plugins.discovery import load

T = TypeVar("T")

BATCH_BYTES_MAX: Final = 960 * 1024  # Agreed mutations up to a MiB reuse memory still in the cache.
BATCH_RECORDS_MAX: Final = 20_000
LINGER_MS: Final = 60_000  # Bulk work has no reason to return early.
CACHE_SUFFIX: Final = ".index"  # The suffix of the folder beside a job's state.
NO_TOKEN: Final = 0  # Bulk work has no lease.
PUBLISH_MS_MAX: Final = 60_000
IDLE_READS: Final = 2  # Like a worker's: one read may make changes available to the next.


def plugin_of(given: Mapping[str, Any]) -> type[Source]:
    """Return the plugin that a job file's section `source` names.

    Raises:
        ConfigError: the plugin is unknown.
        MissingRequirementError: it cannot be imported.

    """
    plugin: type[Source] = load("sources", str(given.get("plugin", "")))
    return plugin


def origin_of(given: Mapping[str, Any]) -> Origin:
    """Return the origin that the plugin of a section `source` declares. Raises as `plugin_of`."""
    return plugin_of(given).origin


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """A source in the form of a job file. Relative paths are relative to `directory`.

    It may cache data in `cache`, a folder that all machines have; if empty, it does not cache.
    """

    given: Mapping[str, Any]
    directory: str
    job: str = "replay"
    cache: str = ""

    @classmethod
    def of_job(cls, text: JobText) -> Self:
        """Return the source of a job; its cache is beside the job's state."""
        cache = text.state.absolute().with_name(text.state.name + CACHE_SUFFIX)
        return cls(
            given=dict(text.source),
            directory=str(text.directory),
            job=text.name,
            cache=str(cache),
        )

    @property
    def origin(self) -> Origin:
        """The origin that its plugin declares. Raises as `open`."""
        return origin_of(self.given)

    def open(self, *, job_key: bytes = b"", splits: int = 0, read_only: bool = True) -> Source:
        """Create the source. Call it in `directory`.

        *splits*, if given, is the number of splits. Without *job_key*, it gets one of its own. A
        *read_only* source writes nothing.

        Raises:
            ConfigError: the plugin or its options are wrong.
            SecretUnavailableError: a secret that it refers to is missing here.

        """
        plugin, config = configured("source", self.given)
        context = Context(
            job=self.job,
            clock=SystemClock(),
            job_key=job_key or os.urandom(16),
            log=structlog.stdlib.get_logger().bind(job=self.job),
            read_only=read_only,
            cache=Path(self.cache) if self.cache else None,
        )
        made: Source = plugin(config, context)
        if splits and isinstance(made, BulkReading):
            made.cut(splits)
        return made

    def past_gaps(self) -> "SourceSpec":
        """Return a source that continues after gaps, if it has gaps."""
        plugin = plugin_of(self.given)
        if not issubclass(plugin, LogArchive):
            return self
        return replace(self, given=plugin.past_gaps(self.given))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A split of `source`, which has `splits` splits, after `resume` and up to `until`.

    Positions are encoded by the source. A `resume` of a job needs its `job_key`. After the end,
    split time advances by `elapsed_ms`. The logs are already framed into `framed`, if there is one.
    """

    number: int
    split: str
    source: SourceSpec
    splits: int = 0
    selection: Selection = field(default_factory=Selection)
    resume: EncodedPosition | None = None
    until: EncodedPosition | None = None
    elapsed_ms: int = 0
    job_key: bytes = field(default=b"", repr=False)
    framed: str = ""


class OverShards(Protocol):
    """Runs a task for each of some shards whose logs are framed, several at once."""

    def __call__(
        self, make: Callable[[Shard], Callable[[], T]], of: Sequence[Shard]
    ) -> Sequence[T]:
        """Return the results of the tasks that *make* makes of *of*, in order.

        Each of *of* has a split of its own. *make* runs in the task. Shards may differ in their
        source if its logs are the same.

        Raises:
            ShardFailedError: a task died every time.

        """


@contextlib.contextmanager
def opened(shard: Shard, *, read_only: bool = True, sparing: bool = False) -> Iterator[Source]:
    """Yield the shard's source, bounded by the shard, and close it at the end.

    *sparing* also skips, if it can, parts without changes that the shard selects. The source of a
    shard that was framed stays open for the next one of the same plan, until `close_kept`.
    """
    if shard.framed:
        with (
            inside(shard.source.directory),
            _Kept.of(shard, read_only=read_only, sparing=sparing) as source,
        ):
            LogFraming.of(source).read_framed(Path(shard.framed))
            yield source
        return
    with (
        inside(shard.source.directory),
        contextlib.closing(_bounded(shard, read_only=read_only)) as source,
    ):
        if sparing:
            spare(source, shard.selection)
        yield source


def _bounded(shard: Shard, *, read_only: bool) -> Source:
    source = shard.source.open(job_key=shard.job_key, splits=shard.splits, read_only=read_only)
    with contextlib.ExitStack() as undo:
        undo.callback(source.close)
        until = None if shard.until is None else source.decode_position(shard.until)
        if until is not None or shard.selection.tokens:
            BulkReading.of(source).limit(
                until=until, tokens=shard.selection.tokens, elapsed_ms=shard.elapsed_ms
            )
        undo.pop_all()
    return source


beside_kept: Final = contextlib.ExitStack()
"""Objects that stay open from one framed shard to the next; `close_kept` closes them, too."""


class _Kept:
    """The source of the last framed shard of this process: opening one takes some ms."""

    plan: tuple[Shard, bool] | None = None
    source: Source | None = None

    @classmethod
    @contextlib.contextmanager
    def of(cls, shard: Shard, *, read_only: bool, sparing: bool) -> Iterator[Source]:
        """Yield the source of *shard*; after an error it is not used again."""
        plan = replace(shard, number=0, split="", resume=None, framed=""), read_only
        if cls.source is None or cls.plan != plan:
            close_kept()
            cls.plan, cls.source = plan, _bounded(shard, read_only=read_only)
            if sparing:
                spare(cls.source, shard.selection)
        with contextlib.ExitStack() as undo:
            undo.callback(close_kept)
            yield cls.source
            undo.pop_all()


def close_kept() -> None:
    """Close the source that a framed shard left open, and its sink. Safe to call twice."""
    source, _Kept.source = _Kept.source, None
    with beside_kept:
        if source is not None:
            source.close()


@cache
def keep_modules() -> None:
    """Exclude imported modules from the garbage collection that Spark runs after each task."""
    gc.collect()
    gc.freeze()


def spare(source: Source, selection: Selection) -> None:
    """Make *source* skip parts that are known to have no changes of a *selection*."""
    is_narrow = selection.tables or selection.from_us is not None or selection.to_us is not None
    if is_narrow and isinstance(source, LogSearch):
        source.spare(selection.tables, selection.from_us, selection.to_us)


def batches(
    source: Source,
    shard: Shard,
    *,
    records_max: int = BATCH_RECORDS_MAX,
    position_due: bool = False,
) -> Iterator[Batch]:
    """Yield all batches of the shard's split, of about *records_max* records; the last has an end.

    With *position_due* each has one.

    Raises:
        HeadraceError: the source cannot be read.

    """
    # Framed shards were planned before; a plan of many splits takes a while.
    split = split_of(shard, [Split(shard.split)] if shard.framed else source.plan())
    demand = Demand(
        records_max=records_max,
        bytes_max=BATCH_BYTES_MAX,
        linger_ms=LINGER_MS,
        position_due=position_due,
    )
    yield from _read(source, split, shard, demand)


def split_of(shard: Shard, planned: Sequence[Split]) -> Split:
    """Return the split of *shard* among those *planned*.

    Raises:
        ConfigError: it is not among them.

    """
    split = next((s for s in planned if s.split_id == shard.split), None)
    if split is None:
        hint = "the configuration of the source has changed since the plan: plan again"
        raise bad_option("split", f"the source has no split {shard.split!r}", hint)
    return split


def encode_with_retries(encoder: Encoder, batch: Batch) -> EncodedRecords:
    """Encode *batch*; wait, up to a bound, until its schemas have been published."""
    encode = partial(encoder.encode, batch, token=NO_TOKEN)
    return call_with_retries(encode, Retry(PUBLISH_MS_MAX), SystemClock(), _unwoken())


@cache
def _unwoken() -> ThreadWake:
    """Return a wait that is never woken; each takes a pipe."""
    return ThreadWake()


def encoded_changes(encoder: Encoder, batch: Batch) -> EncodedRecords:
    """Return the batch's changes encoded; only the live stream sends control records."""
    made = encode_with_retries(encoder, batch)
    notices = len(batch.notices())
    if not notices:
        return made
    count = len(made) - notices  # They are last.
    return msgspec.structs.replace(
        made,
        keys=made.keys[:count],
        values=made.values[:count],
        headers=made.headers[:count],
        tables=made.tables[:count],
        topics=made.topics and made.topics[:count],
    )


def changes_with_facts(encoder: Encoder, batch: Batch) -> EncodedRecords:
    """Return the same with the facts of each change, and its name if it has one.

    Transforms that depend on records lose them: then each change is encoded alone.
    """
    made = encoded_changes(encoder, batch)
    known = made.facts
    if known is not None and len(known.timestamps_us) == len(made):
        first = next(iter(() if known.ids else batch.records()), None)
        if first is None or "mutation" not in first.value:
            return made
    facts = FactColumns()
    parts: list[EncodedRecords] = []
    for record in batch.records() if len(made) else ():
        alone = RecordBatch(batch.split, NumberPosition(0), 0, [record])
        parts.append(encode_with_retries(encoder, alone))
        for _ in range(len(parts[-1])):
            facts.add(
                record.timestamp_us,
                record.operation,
                index=record.value.get("index", 0),
                mutation=record.value.get("mutation", b""),
                origin=record.origin,
            )
    return msgspec.structs.replace(
        joined(parts, made.quarantined, made.omitted), facts=facts.facts()
    )


def reader_of(source: Source, split: Split, shard: Shard) -> Reader:
    """Open the *split* of *shard* at the start of the shard."""
    resume = None if shard.resume is None else source.decode_position(shard.resume)
    return source.open(split, resume)


def _read(source: Source, split: Split, shard: Shard, demand: Demand) -> Iterator[Batch]:
    reader = reader_of(source, split, shard)
    idle, left = 0, False
    try:
        while idle < IDLE_READS:
            came = reader.read(demand)
            if isinstance(came, Batch):
                idle = 0
                yield came
            elif isinstance(came, Done):
                return
            else:
                idle += 1
                left = came.more
        if left:
            raise short_of(shard)
    finally:
        reader.close(CloseReason.FINISHED)


def short_of(shard: Shard) -> LogShortError:
    """Return the error of a *shard* whose logs cannot be read completely."""
    return LogShortError("the rest cannot be read", place=f"split {shard.split}")


@contextlib.contextmanager
def inside(directory: str) -> Iterator[None]:
    """Run the block in *directory*, to which the paths of a job are relative.

    Raises:
        ConfigError: it does not exist: in a cluster it must be on every machine.

    """
    before = Path.cwd()
    try:
        os.chdir(directory)
    except OSError as error:
        hint = "the job's directory must be at the same path on every machine"
        raise bad_option("directory", f"{directory}: {error.strerror}", hint) from error
    try:
        yield
    finally:
        os.chdir(before)

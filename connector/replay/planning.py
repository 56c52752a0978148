"""Plans the shards of bulk work. Runs on the driver: lists files and opens no segment."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace.connector.control.jobs import JobText
from headrace.connector.control.runs.options import ICEBERG, IntoFolder, ReplayOptions
from headrace.connector.foundation.offered import located
from headrace.connector.replay.delivery import Target
from headrace.connector.replay.errors import ArchiveGapError, bad_option
from headrace.connector.replay.options import check_lake
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, SourceSpec, inside, plugin_of, spare
from headrace.plugins import (
    Backlog,
    BulkReading,
    CheckResult,
    ConfigError,
    EncodedPosition,
    Finding,
    LogArchive,
    Problem,
    RetriableError,
    Source,
    Split,
    Tables,
)
from headrace.plugins.config.command_line import flag_of
from headrace.plugins.errors import meant

SHARD_BYTES: Final = 128 * 1024 * 1024  # The part of each log for one shard.
SHARDS_MIN: Final = 4
SHARDS_MAX: Final = 256  # Each reads all logs.
STRETCHES_MAX: Final = 16_384  # Each reads other parts of the logs.
_ROW_BYTES: Final = 300  # The size of an entry, for estimates.
_US_PER_MS: Final = 1_000

_Part = tuple[str, EncodedPosition | None, EncodedPosition | None]  # A split, its start, its end.


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The positions between which to read, as `ALTER DATA_SOURCE … SET POSITION` takes them.

    If `until` is empty, the end is the end of the logs at the time of planning.
    """

    after: str = ""
    until: str = ""


@dataclass(frozen=True, slots=True)
class Planned:
    """Shards, and facts known before they are read. The number of rows is an estimate."""

    shards: Sequence[Shard]
    size_bytes: int
    files: int
    rows: int
    findings: Sequence[Finding]

    @property
    def refusals(self) -> Sequence[Finding]:
        """Findings that a user must accept before a replay."""
        return [f for f in self.findings if f.result is CheckResult.FAILED]


def planned(  # noqa: PLR0913 (what is read, and how it is divided)
    spec: SourceSpec,
    selection: Selection,
    *,
    bounds: Bounds | None = None,
    shards: int = 0,
    least_bytes: int = 0,
    by_place: bool = False,
) -> Planned:
    """Divide the work into *shards*, by default as many as its size needs.

    With *least_bytes* of all logs for each they are fewer, but not fewer than `SHARDS_MIN`.

    Each shard reads all logs for a part of the ring. With *by_place*, if the source supports it,
    each reads a part of the log for the whole ring.

    Raises:
        ConfigError: the source is wrong, or cannot be read in this way.
        MissingRequirementError: the source is missing.

    """
    at = bounds or Bounds()
    with inside(spec.directory):
        size, files, logs, until = _size_and_end(spec, at, selection)
        count = shards or _count(size, logs, STRETCHES_MAX if by_place else SHARDS_MAX)
        if least_bytes:
            count = min(count, max(SHARDS_MIN, size // least_bytes))
        parts = _stretches(spec, at, until, size // count + 1) if by_place else []
        count = 1 if parts else count
        source = spec.open(splits=count)
        try:
            position = None if until is None else source.decode_position(until)
            if position is not None or selection.tokens:
                BulkReading.of(source).limit(until=position, tokens=selection.tokens)
            splits = source.plan()
            check_tables(source, selection.tables)
            if not parts:
                parts = [
                    (split.split_id, _located(source, split, at.after, required=True), until)
                    for split in splits
                ]
            findings = _flaws(source, selection)
        finally:
            source.close()
    if not splits:
        raise bad_option("--token-range", "no split of the source has such tokens")
    made = [
        Shard(
            number=number,
            split=split,
            source=spec,
            splits=count,
            selection=selection,
            resume=begin,
            until=end,
        )
        for number, (split, begin, end) in enumerate(parts, start=1)
    ]
    rows = size // _ROW_BYTES // max(1, logs) * len(splits) // max(count, len(splits))
    return Planned(made, size, files, rows, findings)


def planned_replay(
    text: JobText,
    given: ReplayOptions,
    selection: Selection,
    *,
    called: Callable[[str], str] = flag_of,
) -> tuple[Target, Planned]:
    """Return the target of a replay, and its plan; *called* formats names of options.

    Raises:
        ConfigError: options are wrong, or do not fit the job.
        LakeMissingError: the library of a lake is missing.
        TargetUnwritableError: the folder is not a folder.

    """
    spec = SourceSpec.of_job(text)
    if given.accept_gaps:
        spec = spec.past_gaps()
    target = Target.of_job(
        text,
        folder=given.to_folder,
        codec=given.format or "avro",
        suffix=given.topics_suffix,
        instead=called("into_live"),
    )
    target = in_lake(replace(target, rate=given.rate), given, called=called)
    bounds = Bounds(after=given.after, until=given.until)
    return target, planned(spec, selection, bounds=bounds, shards=given.shards or 0)


def check_archive(plan: Planned, given: ReplayOptions, place: str, accept: str) -> None:
    """Raise ArchiveGapError if segments are missing; *accept* names the option that permits it."""
    if plan.refusals and not given.accept_gaps:
        raise ArchiveGapError(
            "; ".join(finding.message for finding in plan.refusals[:5]),
            place=place,
            hint=f"mend the archive, or say {accept}",
        )


def in_lake(target: Target, given: IntoFolder, *, called: Callable[[str], str] = flag_of) -> Target:
    """Return *target* with the lake that the options name.

    Raises:
        ConfigError: they do not fit together.
        LakeMissingError: its library is missing.

    """
    if given.catalog and given.lake != ICEBERG:
        hint = f"give {called('lake')} {ICEBERG}"
        raise bad_option(called("catalog"), "is of Iceberg tables", hint)
    if not given.lake:
        return target
    if not target.path:
        raise bad_option(called("lake"), "is of files in a folder", f"give {called('to_folder')}")
    check_lake(given.lake)
    return replace(target, lake=given.lake, catalog=given.catalog)


def _stretches(
    spec: SourceSpec, bounds: Bounds, until: EncodedPosition | None, size_bytes: int
) -> list[_Part]:
    """Return parts of about *size_bytes* of a source with one log; none if it has no parts."""
    source = spec.open(splits=1)
    try:
        if not isinstance(source, LogArchive):
            return []
        if until is not None:
            BulkReading.of(source).limit(until=source.decode_position(until))
        split = source.plan()[0]
        after = _located(source, split, bounds.after, required=True)
        position = None if after is None else source.decode_position(after)
        return [
            (split.split_id, None if begin is None else begin.encode(), end.encode())
            for begin, end in source.stretches(position, size_bytes)
        ]
    finally:
        source.close()


def check_tables(source: Source, named: Collection[str]) -> None:
    """Raise for tables that the source does not have: they would have no changes.

    Raises:
        ConfigError: it has all these tables.

    """
    if not isinstance(source, Tables):
        return
    known = source.tables()
    problems = []
    for name in sorted(set(named) - set(known)):
        hint = meant(name, known, f"there are {', '.join(sorted(known)[:8])}")
        problems.append(Problem("tables", f"{name[:96]!r} is not a table of the source", hint))
    if problems:
        raise ConfigError(problems)


def _size_and_end(
    spec: SourceSpec, bounds: Bounds, selection: Selection
) -> tuple[int, int, int, EncodedPosition | None]:
    """Return bytes, files and logs between the bounds, and the end, if the source takes one."""
    source = spec.open()
    try:
        split = source.plan()[0]
        until = _located(source, split, bounds.until or "latest", required=bool(bounds.until))
        after = _located(source, split, bounds.after, required=True)
        position = None if after is None else source.decode_position(after)
        if until is not None and (bounds.until or isinstance(source, BulkReading)):
            BulkReading.of(source).limit(until=source.decode_position(until))
        else:
            until = None
        spare(source, selection)
        backlog = all_in_all(source.backlog(split, position))
    finally:
        source.close()
    size = sum(part.size_bytes for part in backlog)
    return size, sum(part.files for part in backlog), len(backlog), until


def all_in_all(backlog: Sequence[Backlog]) -> Sequence[Backlog]:
    """Return *backlog*: bulk work needs all of it.

    Raises:
        RetriableError: a part cannot be read now.

    """
    for part in backlog:
        if part.problem:
            raise RetriableError(part.problem, place=" ".join(part.partition.values()))
    return backlog


def _located(
    source: Source, split: Split, target: str, *, required: bool
) -> EncodedPosition | None:
    if not target:
        return None
    try:
        position = located(source, split, None, target)
    except ConfigError:
        if required:
            raise
        return None
    return None if position is None else position.encode()


def _flaws(source: Source, selection: Selection) -> Sequence[Finding]:
    if not isinstance(source, LogArchive):
        return ()
    return source.flaws(from_ms=_ms(selection.from_us), to_ms=_ms(selection.to_us))


def _count(size_bytes: int, logs: int, most: int) -> int:
    wanted = -(-size_bytes // (SHARD_BYTES * max(1, logs)))
    return min(most, max(SHARDS_MIN, wanted))


def _ms(time_us: int | None) -> int | None:
    return None if time_us is None else time_us // _US_PER_MS


def by_log(spec: SourceSpec) -> Sequence[SourceSpec]:
    """Return a source for each log of *spec*, which takes all changes of that log.

    Raises:
        NotOfferedError: the source has no logs.

    """
    archive = LogArchive.of_class(plugin_of(spec.given))
    return [replace(spec, given=given) for given in archive.log_by_log(spec.given)]

"""Reads `headrace.segments` and `headrace.table` for Spark. Imports pyspark.

The driver plans and opens no segment; a task reads a split as a worker does, and passes whole Arrow
batches to Spark.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.connector.control.jobs import job_text, table_source
from headrace.connector.control.runs.options import SHARDS_BOUND
from headrace.connector.replay.columns import arrow_schema, spark_schema
from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.frames.mistakes import check_options
from headrace.connector.replay.frames.segment_partition import (
    AVRO,
    MUTATIONS,
    NO_MESSAGES,
    SegmentPartition,
)
from headrace.connector.replay.frames.typed_columns import spark_schema as typed_spark_schema
from headrace.connector.replay.framing.framed_shards import framing_of
from headrace.connector.replay.framing.shared_blocks import SharedFraming
from headrace.connector.replay.planning import Bounds, by_log, planned
from headrace.connector.replay.selection import (
    Selection,
    names_in,
    operations_in,
    time_us,
    token_range,
)
from headrace.connector.replay.shards import SourceSpec, inside, plugin_of
from headrace.plugins import HeadraceError, LogArchive, LogFraming, TypedColumns
from headrace.plugins.discovery import load, names
from headrace.plugins.errors import meant
from headrace.plugins.records.columns import TableType

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS: Final = (
    "path",
    "job",
    "plugin",
    "agreement",
    "table",
    "tables",
    "operations",
    "from",
    "to",
    "after",
    "until",
    "token_range",
    "shards",
    "shard_bytes",
    "format",
    "cache",
)
CACHE: Final = ".headrace"  # In the folder of an archive; nothing is written to a node's folder.
SHARD_BYTES_MIN: Final = 32 * 1024 * 1024
"""Of all logs, for a task: with less, Spark's own work for it takes longer than the task."""
FORMATS: Final = (AVRO, "json", NO_MESSAGES, MUTATIONS)
_NODE_BY_NODE: Final = "none"
_KEY_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options of a frame ask for, besides its source."""

    format: str
    shards: int
    shard_bytes: int
    agreed: bool
    bounds: Bounds
    selection: Selection

    @classmethod
    def of(cls, source: str, options: Mapping[str, str]) -> "Asked":
        """Read the options of *source*; opens nothing.

        Raises:
            ConfigError: with the unknown ones, or what is wrong with one.

        """
        check_options(source, options, (*OPTIONS, *folder_options()))
        return cls(
            format=format_of(options),
            shards=shards_of(options),
            shard_bytes=shard_bytes_of(options),
            agreed=is_agreed(options),
            bounds=Bounds(after=options.get("after", ""), until=options.get("until", "")),
            selection=Selection(
                tables=names_in(options.get("table") or options.get("tables"), "tables"),
                operations=operations_in(options.get("operations"), "operations"),
                from_us=time_us(options["from"], "from") if "from" in options else None,
                to_us=time_us(options["to"], "to") if "to" in options else None,
                tokens=(token_range(options["token_range"]),) if "token_range" in options else (),
            ),
        )


class SegmentReader(DataSourceReader):
    """Plans on the driver, reads in the tasks.

    It has no `pushFilters`: Spark 4.2 reuses a reader that took filters for the later queries of
    the same frame, which then miss rows. Options limit what is read.
    """

    def __init__(self, options: Mapping[str, str], spec: SourceSpec | None = None) -> None:
        """Check the options. They name the source, unless *spec* does; its columns are typed.

        Raises:
            ConfigError: with all mistakes found.

        """
        self._asked = asked = Asked.of("headrace.segments", options)
        self._spec = spec or spec_of(options)
        self._target = target_of(self._spec, options)
        self.selection = asked.selection

    def partitions(self) -> Sequence[SegmentPartition]:
        """Return a partition for each shard. Spark calls it once, on the driver."""
        asked = self._asked
        specs = [self._spec] if asked.agreed else by_log(self._spec)
        has_logs = issubclass(plugin_of(self._spec.given), LogFraming)
        shards = [
            shard
            for spec in specs
            for shard in planned(
                spec,
                self.selection,
                bounds=asked.bounds,
                shards=asked.shards,
                least_bytes=asked.shard_bytes if asked.agreed and has_logs else 0,
                by_place=not asked.agreed,
            ).shards
        ]
        shared = None
        if asked.agreed:
            key = os.urandom(_KEY_BYTES)  # A task continues in blocks from a position.
            shards = [replace(shard, job_key=key) for shard in shards]
            framing = framing_of(shards)
            shared = None if framing is None else SharedFraming.of(framing)
        return [SegmentPartition(shard, asked.format, self._target, shared) for shard in shards]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield a shard's changes. Spark calls it in a task, once for each attempt."""
        assert isinstance(partition, SegmentPartition)  # noqa: S101 (made above)
        yield from partition.batches()


def columns_of(
    source: str,
    options: Mapping[str, str],
    spec_in: Callable[[Mapping[str, str]], SourceSpec] | None = None,
) -> str:
    """Return the columns of a frame of *source*, as DDL; *spec_in* finds its source in *options*.

    Raises:
        ConfigError: with all mistakes found.

    """
    Asked.of(source, options)
    return schema_of((spec_in or spec_of)(options), options)


def schema_of(spec: SourceSpec, options: Mapping[str, str]) -> str:
    """Return the columns of a reader with these options, as DDL."""
    target = target_of(spec, options)
    if target is None:
        return spark_schema(arrow_schema(spec.origin))
    return typed_spark_schema(target, spec.origin)


def target_of(spec: SourceSpec, options: Mapping[str, str]) -> TableType | None:
    """Return the types of the one table that *options* select; None when they select none.

    Raises:
        ConfigError: the table is unknown, or the options do not ask for its changes alone.

    """
    table = options.get("table")
    if table is None:
        return None
    if options.get("format") == MUTATIONS or options.get("tables"):
        hint = "typed columns are those of the changes of one table"
        raise bad_option("table", "cannot be used with `tables` or mutations", hint)
    with inside(spec.directory), contextlib.closing(spec.open()) as source:
        return TypedColumns.of(source).table_type(table)


def folder_options() -> Sequence[str]:
    """Return the options that only sources of folders have."""
    return sorted({name for archive in archives().values() for name in archive.folder_options})


def shards_of(options: Mapping[str, str]) -> int:
    """Return the option `shards`; 0, the default, means as many as the size needs.

    Raises:
        ConfigError: it is not a number, or out of range.

    """
    text = options.get("shards")
    if text is None:
        return 0
    if not text.isdecimal() or not 1 <= int(text) <= SHARDS_BOUND:
        hint = "leave it out for as many as the size needs"
        raise bad_option("shards", f"expected 1 to {SHARDS_BOUND}, found {text[:48]!r}", hint)
    return int(text)


def shard_bytes_of(options: Mapping[str, str]) -> int:
    """Return the option `shard_bytes`.

    Raises:
        ConfigError: it is not a number, or 0.

    """
    text = options.get("shard_bytes", str(SHARD_BYTES_MIN))
    if not text.isdecimal() or not int(text):
        hint = "1 for as many tasks as `shards` says"
        raise bad_option("shard_bytes", f"expected at least 1, found {text[:48]!r}", hint)
    return int(text)


def is_agreed(options: Mapping[str, str]) -> bool:
    """Return whether the copies of all nodes are compared, from the option `agreement`.

    Raises:
        ConfigError: it has another value than `none`.

    """
    given = options.get("agreement")
    if given not in (None, _NODE_BY_NODE):
        hint = "leave it out to get each change once"
        raise bad_option("agreement", f"expected {_NODE_BY_NODE}, found {given!r}", hint)
    return given is None


def format_of(options: Mapping[str, str]) -> str:
    """Return the option `format`.

    Raises:
        ConfigError: it is not a format, or it is `none` without typed columns.

    """
    given = options.get("format", AVRO)
    if given not in FORMATS or (given == NO_MESSAGES and "table" not in options):
        hint = "it is for a `table` only"
        if given not in FORMATS:
            hint = meant(given, FORMATS, f"there are {', '.join(FORMATS)}")
        raise bad_option("format", f"{given!r} is not possible here", hint)
    return given


def spec_of(options: Mapping[str, str]) -> SourceSpec:
    """Return the source that *options* name: a job's, or folders of segments.

    Raises:
        ConfigError: neither is given, or the job file is wrong.

    """
    if "job" in options:
        text = job_text(Path(options["job"]).absolute(), options.get("name"))
        return SourceSpec.of_job(text)
    if "path" not in options:
        hint = "load() the folder that has a folder for each node; or give the path of a job file"
        raise bad_option("path", "is required, or `job`", hint)
    folder = Path(options["path"]).absolute()
    plugin, archive = archive_of(options.get("plugin"))
    found = archive.of_folder(folder, options)
    cache = options.get("cache", str(folder / CACHE) if found.is_archive else "")
    return SourceSpec(given={"plugin": plugin, **found.options}, directory=str(folder), cache=cache)


def table_spec(options: Mapping[str, str]) -> SourceSpec:
    """Return the source of the current rows of a job's table.

    Raises:
        ConfigError: the job or the table is not given, or the job file is wrong.

    """
    table = options.get("table", "")
    if "job" not in options or not table:
        raise bad_option("table", "`job` and `table` are required", "a job file, and ks.table")
    text = job_text(Path(options["job"]).absolute())
    given = table_source(text, table)
    return SourceSpec(given=given, directory=str(text.directory), job=text.name)


def archive_of(plugin: str | None) -> tuple[str, type[LogArchive]]:
    """Return the source that reads folders of logs: *plugin*, or the only one that is installed.

    Raises:
        ConfigError: it is not installed, or there are several.
        NotOfferedError: it has no logs.

    """
    if plugin is not None:
        return plugin, LogArchive.of_class(load("sources", plugin))
    found = archives()
    if len(found) != 1:
        said = f"is required: {len(found)} sources read folders of logs"
        raise bad_option("plugin", said, f"there are {', '.join(found) or 'none'}")
    ((name, archive),) = found.items()
    return name, archive


def archives() -> Mapping[str, type[LogArchive]]:
    """Return the installed sources that read folders of logs, by name."""
    found = {}
    for name in names("sources"):
        with contextlib.suppress(HeadraceError):  # Skips one that cannot be imported.
            plugin = load("sources", name)
            if issubclass(plugin, LogArchive):
                found[name] = plugin
    return found

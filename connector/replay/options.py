"""The options of the commands of bulk work, and the checks of their combinations.

Imports no extra, because help needs none.
"""

import shlex
from collections.abc import Collection
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from headrace.connector.control.runs import options as runs
from headrace.connector.control.runs.options import (
    DELTA,
    ICEBERG,
    SHARDS,
    SHARDS_BOUND,
    Bounded,
    Chosen,
    IntoFolder,
)
from headrace.connector.replay.errors import LakeMissingError, bad_option
from headrace.connector.serde.transforms.chain import Chain
from headrace.plugins import ConfigError, Problem, Sink, SinkOptions, option
from headrace.plugins.config.command_line import flag_of
from headrace.plugins.errors import install_hint

CHUNK_BYTES: Final = 128 * 1024 * 1024  # From all logs together; a killed driver repeats a chunk.
LAG_BYTES: Final = 1024 * 1024 * 1024
_LAKE_MODULES: Final = {DELTA: "deltalake", ICEBERG: "pyiceberg"}
INITIAL, ALWAYS = "initial", "always"
_INT64_MAX: Final = (1 << 63) - 1
KEYS_MAX: Final = 100_000
_HEX: Final = "hex:"
_FORMATS: Final = ("avro", "json")  # Formats of values that can be read back.


@dataclass(frozen=True, kw_only=True)
class OfJob:
    """Options of every command. These classes have no slots, because some have several bases."""

    job: str = option("The job file.", name="job_file")
    job_name: str | None = option(
        "The job, instead of the one in the file.", default=None, name="job"
    )

    @property
    def called(self) -> str:
        """The arguments that name the job in other commands, quoted for a shell."""
        named = f" --job {shlex.quote(self.job_name)}" if self.job_name else ""
        return f"{self.job}{named}"


@dataclass(frozen=True, kw_only=True)
class OnSpark(OfJob):
    """The engine of the work."""

    master: str | None = option(
        "The master of Spark; default: local[*]; `none`: without Spark.", default=None
    )


@dataclass(frozen=True, kw_only=True)
class OfRun(OfJob):
    """The run."""

    run: str = option("The run.")


@dataclass(frozen=True, kw_only=True)
class Metered:
    """The publication of metrics during the work."""

    metrics: str | None = option(
        "Serve /metrics at this host:port while the run lasts.", default=None
    )
    metrics_file: str | None = option("Write the metrics to this file at each step.", default=None)


@dataclass(frozen=True, kw_only=True)
class Selected(Chosen):
    """The selection of changes."""

    tables: str | None = option("Only these: keyspace.table, separated by commas.", default=None)
    since: str | None = option("Written at or after this time (UTC).", default=None, name="from")
    before: str | None = option("Written before this time (UTC).", default=None, name="to")
    keys_file: str | None = option("A file with a key per line, as JSON.", default=None)


@dataclass(frozen=True, kw_only=True)
class PlanOptions(runs.ReplayOptions, Selected, OfJob):
    """Of `headrace replay plan`."""

    json: bool = option("Print the plan as JSON.", default=False)

    def __post_init__(self) -> None:
        """Raise if options name several targets of a plan."""
        self.check_target(flag_of)


@dataclass(frozen=True, kw_only=True)
class RunOptions(Metered, OfRun, OnSpark):
    """Of `headrace replay run`."""


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(Metered, OfRun, OnSpark):
    """Of `headrace replay verify`."""


@dataclass(frozen=True, kw_only=True)
class IndexOptions(OnSpark):
    """Of `headrace replay index`."""


@dataclass(frozen=True, kw_only=True)
class StatusOptions(OfJob):
    """Of `headrace replay status`."""

    run: str | None = option("The run; without it, all.", default=None)
    json: bool = option("As JSON.", default=False)
    report: str = option("Write a page about the run, with charts, to this file.", default="")


@dataclass(frozen=True, kw_only=True)
class CatchUpOptions(Metered, OnSpark):
    """Of `headrace replay catch-up`."""

    split: tuple[str, ...] = option("These splits, regardless of their lag.", default=())
    lag_bytes: int = option(
        "Without --split: splits with more to read than this; default: 1 GiB.",
        default=LAG_BYTES,
        minimum=0,
        maximum=_INT64_MAX,
    )
    until: str = option("Read up to this position; default: latest.", default="")
    chunk_bytes: int = option(
        "Commit when about this much of all logs was read; default: 128 MiB.",
        default=CHUNK_BYTES,
        minimum=1,
        maximum=_INT64_MAX,
    )
    watch: bool = option("Check repeatedly, until SIGTERM.", default=False)
    plan: bool = option("Only print which splits lag.", default=False)


@dataclass(frozen=True, kw_only=True)
class BackfillOptions(Metered, IntoFolder, Bounded, OnSpark):
    """Of `headrace backfill`."""

    tables: tuple[str, ...] = option("The tables.")
    mode: str = option(
        "initial: continue the last run, if it is not complete; always: read everything again.",
        default=INITIAL,
        choices=(INITIAL, ALWAYS),
    )
    plan: bool = option("Print the plan without executing it.", default=False)
    shards: int = option(
        "The number of token ranges.", default=SHARDS, minimum=1, maximum=SHARDS_BOUND
    )


@dataclass(frozen=True, kw_only=True)
class SeedOptions(Metered, OfJob):
    """Of `headrace seed`."""

    history: str | None = option("The history; by default the sink of the job file.", default=None)
    shards: int = option(
        "The number of token ranges.", default=SHARDS, minimum=1, maximum=SHARDS_BOUND
    )
    rate: float = option("Rows per second; 0: no bound.", default=0, minimum=0)


@dataclass(frozen=True, kw_only=True)
class ReconcileOptions(Metered, runs.ReconcileOptions, Selected, OnSpark):
    """Of `headrace reconcile`."""

    report: str = option("The folder of the report.", default="")
    repair: bool = option(
        "Plan a run into the live topics that sends what is missing or stale there.", default=False
    )


def keys_in(path: Path) -> frozenset[bytes]:
    """Return the keys in the file at *path*.

    A line is the key of a message: `hex:` and hexadecimal digits or, if keys are JSON or text, the
    key itself.

    Raises:
        ConfigError: the file cannot be read, or has no keys or too many.

    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise bad_option("--keys-file", f"{path}: {error}") from error
    found = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.add(bytes.fromhex(line[len(_HEX) :]) if line.startswith(_HEX) else line.encode())
        except ValueError as error:
            raise bad_option("--keys-file", f"{path}: line {number}: not hexadecimal") from error
    if not 0 < len(found) <= KEYS_MAX:
        hint = f"1 to {KEYS_MAX} keys; `--token-range` for more"
        raise bad_option("--keys-file", f"{path} has {len(found)} keys", hint)
    return frozenset(found)


def check_comparable(sink: Sink, tables: Collection[str]) -> None:
    """Raise if a sink's messages of *tables* cannot be compared with logs.

    Raises:
        ConfigError: it has all options that prevent it.

    """
    problems = []
    codec = sink.encoding().codec
    if codec not in _FORMATS:
        hint = "messages in other formats cannot be read back"
        said = f"expected {' or '.join(_FORMATS)}, found {codec}"
        problems.append(Problem("sink.format", said, hint))
    if not sink.keeps_keys:
        hint = "`headrace verify --sink` counts its changes, of a job that a worker ran"
        problems.append(Problem("sink.plugin", "keeps no keys, by which rows are compared", hint))
    options = sink.config if hasattr(sink, "config") else None
    chain = Chain(options) if isinstance(options, SinkOptions) else None
    for name in chain.of_keys() if chain is not None else ():
        hint = "messages are compared by the keys of the job's source"
        problems.append(Problem(f"sink.transforms.{name}", "changes keys", hint))
    if problems:
        raise ConfigError(problems)
    if chain is not None:
        chain.check_topics({table: sink.topic_of(table) for table in tables})


def check_lake(kind: str) -> None:
    """Raise LakeMissingError if the library of this kind of lake is not installed."""
    module = _LAKE_MODULES[kind]
    if find_spec(module) is None:
        raise LakeMissingError(f"{module} is not installed", hint=install_hint(kind))

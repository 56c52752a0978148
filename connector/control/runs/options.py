"""The options of bulk work that statements and commands share: those of WITH, and flags.

Imports no extra, because help needs none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from headrace.connector.control.entries import ENGINES
from headrace.connector.stores.asked_runs import RunKind
from headrace.plugins import ConfigError, Problem, option

DELTA, ICEBERG = "delta", "iceberg"
LAKE_KINDS: Final = (DELTA, ICEBERG)
SHARDS: Final = 64  # Shards of a table, by default.
SHARDS_BOUND: Final = 100_000  # Each is a row of the state file, and a task.
BUCKETS_BOUND: Final = 1 << 20  # Each is a sum in memory, for each side and slice of time.
YEAR_SECONDS: Final = 366 * 24 * 3_600
SIDE_SUFFIX: Final = ".replay"


@dataclass(frozen=True, kw_only=True)
class Bounded:
    """The range of tokens to read. These classes have no slots: some have several bases."""

    token_range: str | None = option(
        "Only tokens after START up to END, as START:END.", default=None
    )


@dataclass(frozen=True, kw_only=True)
class Chosen(Bounded):
    """The selection of changes, besides their tables and times."""

    operations: str | None = option("Only these, separated by commas.", default=None)
    after: str = option("Logged after this position.", default="")
    until: str = option("Logged up to this position.", default="")


@dataclass(frozen=True, kw_only=True)
class IntoFolder:
    """Files instead of a sink."""

    to_folder: str = option("Write Parquet files here.", default="", writes=True)
    lake: str | None = option(
        "The format of the tables in that folder.", default=None, choices=LAKE_KINDS
    )
    catalog: str = option("A catalog of pyiceberg, for iceberg.", default="")
    suffix: str = option("Suffix of the topics' names; by default the live topics.", default="")
    rate: float = option("Changes per second, of all tasks; 0: no bound.", default=0, minimum=0)


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(IntoFolder, Chosen):
    """Options of a replay."""

    shards: int | None = option(
        "Divide the work into N shards, not by its size.",
        default=None,
        minimum=1,
        maximum=SHARDS_BOUND,
    )
    suffix: str = option(f"Suffix of the topics' names; default: {SIDE_SUFFIX}.", default="")
    format: str | None = option(
        "Format of values in those files; default: avro.", default=None, choices=("avro", "json")
    )
    into_live: bool = option("Into the topics of the job itself.", default=False)
    accept_gaps: bool = option("Also where segments are missing.", default=False)

    def __post_init__(self) -> None:
        """Raise ConfigError if options name several targets."""
        self.check_target(str)

    def check_target(self, called: Callable[[str], str]) -> None:
        """Raise ConfigError if options name several targets; *called* formats names of options."""
        places = {
            "to_folder": self.to_folder,
            "suffix": self.suffix,
            "into_live": self.into_live,
        }
        one, *others = [called(name) for name, value in places.items() if value] or [""]
        if others:
            raise ConfigError([Problem(one, f"contradicts {others[0]}", "give one of them")])
        if self.format and not self.to_folder:
            hint = f"give {called('to_folder')}"
            raise ConfigError([Problem(called("format"), "is of files in a folder", hint)])

    @property
    def topics_suffix(self) -> str:
        """The suffix of topic names; empty for the topics of the job itself."""
        return "" if self.into_live else self.suffix or SIDE_SUFFIX


@dataclass(frozen=True, kw_only=True)
class ReconcileOptions(Chosen):
    """Options of a comparison of logs, topics and tables."""

    buckets: int = option(
        "The number of sums that are compared for each table.",
        default=1_024,
        minimum=1,
        maximum=BUCKETS_BOUND,
    )
    grace: int = option(
        "Seconds before now that are left out.", default=60, minimum=0, maximum=YEAR_SECONDS
    )
    no_table: bool = option("Compare logs and topic only.", default=False)
    table_shards: int = option(
        "The number of token ranges of each table.", default=SHARDS, minimum=1, maximum=SHARDS_BOUND
    )
    plain_keys: bool = option("Keys as they are, not hashed.", default=False)


@dataclass(frozen=True, kw_only=True)
class OnEngine:
    """The engine of a run of a statement."""

    engine: str | None = option(
        "The engine of the run: the process of its job, or Spark; by default the engine of its "
        "source.",
        default=None,
        choices=ENGINES,
    )


@dataclass(frozen=True, kw_only=True)
class AskedSnapshot(IntoFolder, OnEngine):
    """Options of a snapshot, by a statement."""


@dataclass(frozen=True, kw_only=True)
class AskedReplay(ReplayOptions, OnEngine):
    """Options of a replay, by a statement."""


@dataclass(frozen=True, kw_only=True)
class AskedReconcile(ReconcileOptions, OnEngine):
    """Options of a comparison, by a statement."""

    repair: bool = option(
        "Send what is missing or stale into the live topics, after the comparison.", default=False
    )


OF_KIND: Final[Mapping[RunKind, type]] = {
    RunKind.SNAPSHOT: AskedSnapshot,
    RunKind.REPLAY: AskedReplay,
    RunKind.RECONCILE: AskedReconcile,
}
"""The options of WITH, of each kind of run."""

OF_VERB: Final[Mapping[str, type]] = {
    "SNAPSHOT": AskedSnapshot,
    "BACKFILL": AskedSnapshot,
    "REPLAY": AskedReplay,
    "RECONCILE": AskedReconcile,
}
"""The options of WITH, by the first word of a statement."""

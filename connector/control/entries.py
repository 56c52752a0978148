"""Sinks and sources as the catalogue stores them, and the options of a source."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.connector.language.parser import parse_statement
from headrace.connector.language.statements import NO_TABLE, CreateSource, TableName
from headrace.plugins import ConfigError, Problem, declared_options, option, parse_config

NAME_KEY: Final = "name"
CLASS_KEY: Final = "connector.class"
TASKS_KEY: Final = "tasks.max"
START_KEY: Final = "start"
TABLE_KEY: Final = "table"
SNAPSHOT_KEY: Final = "snapshot"
NEVER, INITIAL, ONLY = "never", "initial", "only"
ENGINE_KEY: Final = "engine"
WORKER, SPARK = "worker", "spark"
ENGINES: Final = (WORKER, SPARK)
OBJECT_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,48}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteOptions:
    """Options of CREATE DATA_SOURCE."""

    job: str | None = option(
        "The job that runs this source; by default that of the other sources of its sink, or, "
        "without a table, one of its own name.",
        default=None,
    )
    cluster: str | None = option(
        "The cluster to read: a name among `clusters` of the worker's file; by default "
        "its `source`.",
        default=None,
    )
    start: str | None = option(
        "Where a new source starts: earliest, latest, a time, or a place as in SET "
        "POSITION; by default at its job's position.",
        default=None,
    )
    engine: str | None = option(
        "The engine of its job: a process of the worker, or Spark in micro-batches; by default "
        "the engine that the worker was started with.",
        default=None,
        choices=ENGINES,
    )
    tasks_max: int | None = option(
        "Accepted for Kafka Connect's clients: the tasks are the splits of the job's source.",
        name=TASKS_KEY,
        default=None,
        minimum=1,
    )
    snapshot: str = option(
        "Whether to send the rows that the table has when the source is created: never, "
        "initially, beside live changes, or only these rows.",
        default=NEVER,
        choices=(NEVER, INITIAL, ONLY),
    )
    snapshot_ranges: int = option(
        "Ranges of tokens of a snapshot; one that is interrupted is read again.",
        name="snapshot.ranges",
        default=64,
        minimum=1,
        maximum=4096,
    )
    snapshot_parallel: int = option(
        "Ranges of a snapshot that are read at the same time.",
        name="snapshot.parallel",
        default=2,
        minimum=1,
        maximum=16,
    )
    snapshot_page_rows: int = option(
        "The number of rows in a page that a node returns.",
        name="snapshot.page.rows",
        default=1_000,
        minimum=1,
        maximum=100_000,
    )
    snapshot_rate: float = option(
        "Rows of a snapshot in a second, of all ranges together; 0: no bound.",
        name="snapshot.rate",
        default=0,
        minimum=0,
    )

    def __post_init__(self) -> None:
        """Check names."""
        problems = [
            Problem(key, "is not a valid name", "use letters, digits, _ and -")
            for key, name in (("job", self.job), ("cluster", self.cluster))
            if name is not None and not OBJECT_NAME.fullmatch(name)
        ]
        if problems:
            raise ConfigError(problems)


_OF_ROUTES: Final = frozenset(declared_options(RouteOptions))


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnOptions(RouteOptions):
    """The keys of every source's connector config; one without a table has its plugin's, too."""

    name: str = option("The connector's name.")
    connector_class: str = option("The class of the source.", name=CLASS_KEY)
    sink: str = option("The data sink for the changes.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorOptions(OwnOptions):
    """All keys of the connector config of a source of a table."""

    keyspace: str = option("The table's keyspace.")
    table: str = option("The table whose changes are captured.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkEntry:
    """A sink; `statement` is the CREATE statement, in canonical form, that creates it."""

    name: str
    plugin: str
    statement: str
    config: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEntry:
    """A source; `name` is the name of its connector, by default `cdc.shop.orders`.

    `job` is empty if the statement named none; its route then says which job runs it.
    """

    name: str
    sink: str
    job: str
    statement: str
    config: Mapping[str, str] = field(repr=False)

    @property
    def options(self) -> RouteOptions:
        """Return the options in its config that every source has."""
        return parse_config(RouteOptions, route_options(self.config))

    @property
    def start(self) -> str:
        """Return the start position of the source, if the statement has one."""
        return self.options.start or ""

    @property
    def cluster(self) -> str:
        """Return the cluster that it reads, if it is not the worker's first one."""
        return self.options.cluster or ""

    @property
    def snapshot(self) -> str:
        """Return its option about snapshots of its table."""
        return self.options.snapshot if SNAPSHOT_KEY in self.config else NEVER

    @property
    def word(self) -> str:
        """Return the word after DATA_SOURCE."""
        statement = parse_statement(self.statement)
        assert isinstance(statement, CreateSource)  # noqa: S101 (the formatter wrote it)
        return statement.word

    @property
    def table(self) -> TableName:
        """Return the table, or `NO_TABLE`."""
        if TABLE_KEY not in self.config:
            return NO_TABLE
        return TableName(self.config["keyspace"], self.config[TABLE_KEY])

    @property
    def table_text(self) -> str:
        """Return `keyspace.table`, or an empty string for a source without a table."""
        table = self.table
        return "" if table == NO_TABLE else f"{table.keyspace}.{table.name}"


def route_options(config: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a connector config that every source can have."""
    return {key: value for key, value in config.items() if key in _OF_ROUTES}


def own_options(config: Mapping[str, str]) -> dict[str, str]:
    """Return the plugin's options from the connector config of a source without a table."""
    known = declared_options(OwnOptions)
    return {key: value for key, value in config.items() if key not in known}

"""The statements as values: what the parser makes, the formatter writes, the control executes.

Names are as stored (folded to lower case unless they were quoted); nothing is checked here.
"""

from dataclasses import dataclass

# Option names and values in the order given. Values are texts, as in a connector config.
Options = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TableName:
    """A table; *keyspace* is None where the statement left it out."""

    keyspace: str | None
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSink:
    """`CREATE DATA_SINK`."""

    name: str
    uri: str
    options: Options = ()
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSink:
    """`DROP DATA_SINK`."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DescribeSinks:
    """`DESCRIBE DATA_SINKS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeSink:
    """`DESCRIBE DATA_SINK`: the statement that makes it again, or its connector config."""

    name: str
    as_config: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSource:
    """`CREATE DATA_SOURCE`; *word* names the kind of source: `cdc`."""

    word: str
    table: TableName
    sink: str
    options: Options = ()
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSource:
    """`DROP DATA_SOURCE`."""

    word: str
    table: TableName
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DescribeSources:
    """`DESCRIBE DATA_SOURCES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeSource:
    """`DESCRIBE DATA_SOURCE`: the statement that makes it again, or its connector config."""

    word: str
    table: TableName
    as_config: bool = False


Statement = (
    CreateSink
    | DropSink
    | DescribeSinks
    | DescribeSink
    | CreateSource
    | DropSource
    | DescribeSources
    | DescribeSource
)

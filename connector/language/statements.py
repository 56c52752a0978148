"""The statements as values. The parser makes them, the formatter writes them, `control` runs them.

Names are as stored (folded to lower case unless they were quoted); nothing is checked here.
"""

from enum import StrEnum
from typing import Final

import msgspec

# Option names and values in the order given. Values are strings, as in a connector config.
Options = tuple[tuple[str, str], ...]
# The same of an ALTER, where None removes the option.
Changes = tuple[tuple[str, str | None], ...]


class TableName(msgspec.Struct, frozen=True):
    """A table; *keyspace* is None if the statement has none."""

    keyspace: str | None
    name: str


NO_TABLE: Final = TableName(None, "")
"""The table of a source without a table."""


class SourceName(msgspec.Struct, frozen=True):
    """A source, as statements name it: *word* is its kind, such as `cdc`.

    Without a table *word* is the name of the source itself.
    """

    word: str
    table: TableName


class CreateSink(msgspec.Struct, frozen=True, kw_only=True):
    """`CREATE DATA_SINK`."""

    name: str
    uri: str
    options: Options = ()
    if_not_exists: bool = False


class AlterSink(msgspec.Struct, frozen=True, kw_only=True):
    """`ALTER DATA_SINK`; *uri* is None if it does not change."""

    name: str
    uri: str | None = None
    options: Changes = ()
    if_exists: bool = False


class DropSink(msgspec.Struct, frozen=True, kw_only=True):
    """`DROP DATA_SINK`."""

    name: str
    if_exists: bool = False


class ValidateSink(msgspec.Struct, frozen=True, kw_only=True):
    """`VALIDATE DATA_SINK`: checks whether the sink could write to its target; writes nothing."""

    name: str


class DescribeSinks(msgspec.Struct, frozen=True):
    """`DESCRIBE DATA_SINKS`."""


class DescribeSink(msgspec.Struct, frozen=True, kw_only=True):
    """`DESCRIBE DATA_SINK`: the statement that would create it, or its connector config."""

    name: str
    as_config: bool = False


class CreateSource(SourceName, frozen=True, kw_only=True):
    """`CREATE DATA_SOURCE`."""

    sink: str
    options: Options = ()
    if_not_exists: bool = False


class AlterSource(SourceName, frozen=True, kw_only=True):
    """`ALTER DATA_SOURCE … WITH`; *sink* is None if it does not change."""

    sink: str | None = None
    options: Changes = ()
    if_exists: bool = False


class SetPosition(SourceName, frozen=True, kw_only=True):
    """`ALTER DATA_SOURCE … SET POSITION`; *split* is None for all splits.

    A dry run changes nothing, and reports what would be read again or skipped.
    """

    position: str
    split: str | None = None
    dry_run: bool = False


class SetMode(SourceName, frozen=True, kw_only=True):
    """`ALTER DATA_SOURCE … SET MODE`; *node* is empty for all logs.

    *wait* is how long the response waits for the outcome; empty to return at once.
    """

    mode: str
    node: str = ""
    wait: str = ""


class DropSource(SourceName, frozen=True, kw_only=True):
    """`DROP DATA_SOURCE`."""

    if_exists: bool = False


class DescribeSources(msgspec.Struct, frozen=True):
    """`DESCRIBE DATA_SOURCES`."""


class DescribeSource(SourceName, frozen=True, kw_only=True):
    """`DESCRIBE DATA_SOURCE`: the statement that would create it, or its connector config."""

    as_config: bool = False


class Verb(StrEnum):
    """An action on a source."""

    PAUSE = "PAUSE"
    RESUME = "RESUME"
    STOP = "STOP"
    RESTART = "RESTART"


class SteerSource(SourceName, frozen=True, kw_only=True):
    """`PAUSE`, `RESUME`, `STOP` or `RESTART DATA_SOURCE`."""

    verb: Verb


POLICIES: Final = ("EXPIRE", "ASSUME")
"""Policies for mutations that need copies in a gap; the first is the default."""

TOKEN_COLUMN: Final = "token()"  # noqa: S105 (of the ring)
"""The name of the partition key's token in conditions of SNAPSHOT."""


class SnapshotSource(SourceName, frozen=True, kw_only=True):
    """`SNAPSHOT DATA_SOURCE`: sends the rows of its table; *where* bounds tokens, or is a key.

    `BACKFILL` is another word for it.
    """

    where: "tuple[Condition, ...]" = ()
    options: Options = ()


class Bulk(StrEnum):
    """A bulk operation on the logs of a source, in a range of time."""

    REPLAY = "REPLAY"
    RECONCILE = "RECONCILE"


class BulkSource(SourceName, frozen=True, kw_only=True):
    """`REPLAY` or `RECONCILE DATA_SOURCE`: changes written from *since* on and before *before*."""

    verb: Bulk
    since: "Literal | None" = None
    before: "Literal | None" = None
    options: Options = ()


class SteerRun(msgspec.Struct, frozen=True, kw_only=True):
    """`PAUSE`, `RESUME` or `STOP RUN`, by its name; a snapshot is a run."""

    verb: Verb
    name: str


class DropRun(msgspec.Struct, frozen=True, kw_only=True):
    """`DROP RUN`: forgets a run that is over, or failed."""

    name: str


class AcceptGap(msgspec.Struct, frozen=True, kw_only=True):
    """`ACCEPT GAP`: a job continues after it; *policy* is one of `POLICIES`."""

    gap: str
    job: str
    policy: str


class RedriveLetters(msgspec.Struct, frozen=True, kw_only=True):
    """`REDRIVE DEAD_LETTERS`, or only the one with *number*."""

    job: str
    number: int | None = None


class PreviewSource(SourceName, frozen=True, kw_only=True):
    """`PREVIEW DATA_SOURCE`: shows the next changes, without consuming them."""

    limit: int | None = None


class Subject(StrEnum):
    """The subject of SHOW."""

    STATUS = "STATUS"
    LAG = "LAG"
    SPLITS = "SPLITS"
    OFFSETS = "OFFSETS"
    ERRORS = "ERRORS"
    MODE = "MODE"
    MODE_CHANGES = "MODE CHANGES"
    SNAPSHOTS = "SNAPSHOTS"
    RUNS = "RUNS"


class Show(msgspec.Struct, frozen=True, kw_only=True):
    """`SHOW`, of all sources or of one."""

    subject: Subject
    source: SourceName | None = None


class CreateCdc(msgspec.Struct, frozen=True, kw_only=True):
    """`CREATE CDC`: a history of a table's changes; *include* is empty if it is omitted."""

    name: str
    table: TableName
    include: tuple[str, ...] = ()
    options: Options = ()
    if_not_exists: bool = False


class AlterCdc(msgspec.Struct, frozen=True, kw_only=True):
    """`ALTER CDC`; *include* is empty if it does not change."""

    name: str
    include: tuple[str, ...] = ()
    options: Changes = ()
    if_exists: bool = False


class DropCdc(msgspec.Struct, frozen=True, kw_only=True):
    """`DROP CDC`; with *purge* its stored changes are deleted, too."""

    name: str
    if_exists: bool = False
    purge: bool = False


class DescribeCdc(msgspec.Struct, frozen=True, kw_only=True):
    """`DESCRIBE CDC`, of one or of all."""

    name: str | None = None


class Comparison(StrEnum):
    """How a SELECT compares a column with a value."""

    AT_LEAST = ">="
    AFTER = ">"
    AT_MOST = "<="
    BEFORE = "<"
    EQUAL = "="
    IN = "IN"


class Moment(msgspec.Struct, frozen=True):
    """A time in a SELECT: the text in `TO_DATE('…')` or, without it, `NOW()` less *ago*."""

    given: str | None
    ago: str = ""


TIME_HINT: Final = "write '2026-01-31T12:00:00Z', ms since 1970, or NOW() - '15m'"
"""Of an error about a time: how one is written."""

Literal = str | int | float | bool | Moment


class Condition(msgspec.Struct, frozen=True):
    """A part of WHERE. *column* is that of a table, or a function such as `cdc_time()`.

    Only IN has several values.
    """

    column: str
    comparison: Comparison
    values: tuple[Literal, ...]


class SelectCdc(msgspec.Struct, frozen=True, kw_only=True):
    """`SELECT … FROM name`: changes of a history.

    *columns* are all if empty. *scopes* are those of a hint; None without a hint. With *as_json*
    the answer is one document for each change. With *source_level* the newest images are those of a
    read of the source at that consistency level.
    """

    name: str
    columns: tuple[str, ...] = ()
    as_json: bool = False
    scopes: tuple[str, ...] | None = None
    where: tuple[Condition, ...] = ()
    descending: bool = False
    limit: int | None = None
    after: str = ""
    source_level: str = ""


class TailCdc(msgspec.Struct, frozen=True, kw_only=True):
    """`TAIL`: changes that arrived since *since* or after the token *after*, once they are final.

    *wait* is how long a response waits for changes to arrive. A shell repeats the statement.
    """

    name: str
    as_json: bool = False
    since: Literal | None = None
    after: str = ""
    limit: int | None = None
    wait: str = ""


class PollCdc(msgspec.Struct, frozen=True, kw_only=True):
    """`POLL`: ranges of time up to now, one after the other, each *safety* after its end.

    It is the loop of Phoenix's users; *every* is the pause between two ranges.
    """

    name: str
    every: str
    safety: str
    as_json: bool = False
    since: Literal | None = None


HistoryStatement = CreateCdc | AlterCdc | DropCdc | DescribeCdc | SelectCdc | TailCdc | PollCdc

Statement = (
    CreateSink
    | AlterSink
    | DropSink
    | ValidateSink
    | DescribeSinks
    | DescribeSink
    | CreateSource
    | AlterSource
    | SetPosition
    | SetMode
    | DropSource
    | DescribeSources
    | DescribeSource
    | SteerSource
    | SnapshotSource
    | BulkSource
    | SteerRun
    | DropRun
    | AcceptGap
    | RedriveLetters
    | PreviewSource
    | Show
    | HistoryStatement
)


def is_question(statement: Statement) -> bool:
    """Return whether *statement* changes nothing."""
    if isinstance(statement, SetPosition):
        return statement.dry_run
    described = DescribeSinks | DescribeSink | DescribeSources | DescribeSource | DescribeCdc
    asked = ValidateSink | PreviewSource | Show | SelectCdc | TailCdc | PollCdc
    return isinstance(statement, described | asked)

"""The statements as values: what the parser makes, the formatter writes, the control executes.

Names are as stored (folded to lower case unless they were quoted); nothing is checked here.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

# Option names and values in the order given. Values are strings, as in a connector config.
Options = tuple[tuple[str, str], ...]
# The same of an ALTER, where None takes the option away.
Changes = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class TableName:
    """A table; *keyspace* is None where the statement left it out."""

    keyspace: str | None
    name: str


NO_TABLE: Final = TableName(None, "")
"""What a source reads that has no table."""


@dataclass(frozen=True, slots=True)
class SourceName:
    """One source, as statements name it: *word* is its kind, `cdc`.

    Without a table *word* is the name of the source itself.
    """

    word: str
    table: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSink:
    """`CREATE DATA_SINK`."""

    name: str
    uri: str
    options: Options = ()
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSink:
    """`ALTER DATA_SINK`; *uri* is None where it stays as it is."""

    name: str
    uri: str | None = None
    options: Changes = ()
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSink:
    """`DROP DATA_SINK`."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateSink:
    """`VALIDATE DATA_SINK`: asks what the sink writes to whether it could; writes nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class DescribeSinks:
    """`DESCRIBE DATA_SINKS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeSink:
    """`DESCRIBE DATA_SINK`: the statement that makes it again, or its connector config."""

    name: str
    as_config: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSource(SourceName):
    """`CREATE DATA_SOURCE`."""

    sink: str
    options: Options = ()
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSource(SourceName):
    """`ALTER DATA_SOURCE … WITH`; *sink* is None where it stays the same."""

    sink: str | None = None
    options: Changes = ()
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPosition(SourceName):
    """`ALTER DATA_SOURCE … SET POSITION`; *split* is None for all splits.

    A dry run changes nothing, and tells what would be read again or passed over.
    """

    position: str
    split: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMode(SourceName):
    """`ALTER DATA_SOURCE … SET MODE`; *node* is empty for all logs.

    *wait* is how long an answer waits for the outcome; it is empty where it does not.
    """

    mode: str
    node: str = ""
    wait: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSource(SourceName):
    """`DROP DATA_SOURCE`."""

    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DescribeSources:
    """`DESCRIBE DATA_SOURCES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeSource(SourceName):
    """`DESCRIBE DATA_SOURCE`: the statement that makes it again, or its connector config."""

    as_config: bool = False


class Verb(StrEnum):
    """What a source can be asked to do."""

    PAUSE = "PAUSE"
    RESUME = "RESUME"
    STOP = "STOP"
    RESTART = "RESTART"


@dataclass(frozen=True, slots=True, kw_only=True)
class SteerSource(SourceName):
    """`PAUSE`, `RESUME`, `STOP` or `RESTART DATA_SOURCE`."""

    verb: Verb


POLICIES: Final = ("EXPIRE", "ASSUME")
"""What becomes of mutations that need the copies of a gap; the first is the default."""

TOKEN_COLUMN: Final = "token()"  # noqa: S105 (of the ring)
"""What a condition of SNAPSHOT calls the token of the partition key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSource(SourceName):
    """`SNAPSHOT DATA_SOURCE`: sends what its table holds; *where* bounds tokens, or is a key.

    `BACKFILL` is another word for it.
    """

    where: "tuple[Condition, ...]" = ()
    options: Options = ()


class Bulk(StrEnum):
    """What is done with the logs of a source, in a range of time."""

    REPLAY = "REPLAY"
    RECONCILE = "RECONCILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkSource(SourceName):
    """`REPLAY` or `RECONCILE DATA_SOURCE`: changes written from *since* on and before *before*."""

    verb: Bulk
    since: "Literal | None" = None
    before: "Literal | None" = None
    options: Options = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SteerRun:
    """`PAUSE`, `RESUME` or `STOP RUN`, by its name; a snapshot is a run."""

    verb: Verb
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRun:
    """`DROP RUN`: forgets a run that is over, or failed."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptGap:
    """`ACCEPT GAP`: a job continues behind it; *policy* is one of `POLICIES`."""

    gap: str
    job: str
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveLetters:
    """`REDRIVE DEAD_LETTERS`, or only the one with *number*."""

    job: str
    number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewSource(SourceName):
    """`PREVIEW DATA_SOURCE`: the next changes, which stay where they are; None is the default."""

    limit: int | None = None


class Subject(StrEnum):
    """What SHOW shows."""

    STATUS = "STATUS"
    LAG = "LAG"
    SPLITS = "SPLITS"
    OFFSETS = "OFFSETS"
    ERRORS = "ERRORS"
    MODE = "MODE"
    MODE_CHANGES = "MODE CHANGES"
    SNAPSHOTS = "SNAPSHOTS"
    RUNS = "RUNS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """`SHOW`, of all sources or of one."""

    subject: Subject
    source: SourceName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateCdc:
    """`CREATE CDC`: a history of a table's changes; *include* is empty where it was left out."""

    name: str
    table: TableName
    include: tuple[str, ...] = ()
    options: Options = ()
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterCdc:
    """`ALTER CDC`; *include* is empty where it stays the same."""

    name: str
    include: tuple[str, ...] = ()
    options: Changes = ()
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropCdc:
    """`DROP CDC`; with *purge* what it has kept goes, too."""

    name: str
    if_exists: bool = False
    purge: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeCdc:
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


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in a SELECT: the text in `TO_DATE('…')` or, without it, `NOW()` less *ago*."""

    given: str | None
    ago: str = ""


Literal = str | int | float | bool | Moment


@dataclass(frozen=True, slots=True)
class Condition:
    """A part of WHERE. *column* is that of a table, or a function such as `cdc_time()`.

    Only IN has several values.
    """

    column: str
    comparison: Comparison
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectCdc:
    """`SELECT … FROM name`: changes of a history.

    *columns* are all if empty. *scopes* is what a hint asks for; None where there is none. With
    *as_json* the answer is one document for each change. With *source_level* the newest images are
    those of a read of the source at that consistency level.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TailCdc:
    """`TAIL`: what arrived since *since* or behind the token *after*, as soon as it is final.

    *wait* is how long an answer waits for something to arrive. A shell repeats it.
    """

    name: str
    as_json: bool = False
    since: Literal | None = None
    after: str = ""
    limit: int | None = None
    wait: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollCdc:
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
    """Say whether *statement* changes nothing."""
    if isinstance(statement, SetPosition):
        return statement.dry_run
    described = DescribeSinks | DescribeSink | DescribeSources | DescribeSource | DescribeCdc
    asked = ValidateSink | PreviewSource | Show | SelectCdc | TailCdc | PollCdc
    return isinstance(statement, described | asked)

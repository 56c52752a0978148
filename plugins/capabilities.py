"""The capabilities that a source may offer besides the methods that `Source` requires.

A source offers a capability by inheriting its class. The framework only checks whether the source
is an instance of that class. `of` is for requests of users: it raises NotOfferedError.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec
from msgspec.structs import replace

from headrace.plugins.check_results import Finding, LogSpace, Nearness, TableWarning
from headrace.plugins.config.realtime_options import RealtimeOptions
from headrace.plugins.contract import Demand, Source, Split
from headrace.plugins.errors import ConfigError, HeadraceError, Problem
from headrace.plugins.positions import Position, TokenRange
from headrace.plugins.records.batches import Batch
from headrace.plugins.records.columns import TableType, TypedChanges
from headrace.plugins.records.record import Document, Quarantined
from headrace.plugins.traces import Trace

Options = Mapping[str, Any]  # Any: a job file's section `source`, unparsed.


class NotOfferedError(ConfigError):
    """A user asked a source for a capability that it does not offer."""

    code = "not_offered"


class Capability(ABC):
    """A feature that a source may offer."""

    refusal: ClassVar[Problem]
    """The message for a user who uses it with a source that does not offer it; `cannot …`."""

    @classmethod
    def of(cls, source: Source) -> Self:
        """Return *source*, which must offer this. Raises NotOfferedError."""
        if isinstance(source, cls):
            return source
        raise cls._refused(type(source))

    @classmethod
    def of_class(cls, source: type[Source]) -> type[Self]:
        """Return *source*, whose instances must offer this. Raises NotOfferedError."""
        if issubclass(source, cls):
            return source
        raise cls._refused(source)

    @classmethod
    def _refused(cls, source: type[Source]) -> NotOfferedError:
        said = f"{source.__name__} {cls.refusal.message}: it does not offer {cls.__name__}"
        return NotOfferedError([replace(cls.refusal, message=said)])


class Relocation(Capability):
    """Its positions can be moved: `SET POSITION`, the option `start`, and offsets over REST."""

    refusal = Problem("position", "can begin at `earliest` only")

    @abstractmethod
    def locate(self, split: Split, position: Position | None, target: str) -> Position | None:
        """Return *position* moved to *target*, of `ALTER DATA_SOURCE … SET POSITION`.

        *target* is `earliest`, `latest`, a time in ISO 8601, or in the source's own notation. None
        is the start of a new split.

        Raises:
            ConfigError: the place is unknown; the problem's key is `position`.

        """

    @classmethod
    def check_place(cls, target: str) -> None:
        """Raise ConfigError if `locate` can never accept *target*, with any logs.

        Raises:
            ConfigError: the problem's key is `position`.

        """

    @classmethod
    def first_position(cls) -> Position | None:
        """Return the position of a split that has read nothing, if its parts can be moved."""
        return None


class TokenRanges(Capability):
    """Its splits are ranges of tokens: `headrace splits` and published states show them."""

    refusal = Problem("source", "has splits that are not ranges of tokens")

    @classmethod
    @abstractmethod
    def token_range(cls, split_id: str) -> TokenRange | None:
        """Return the tokens of a split; None if *split_id* is not the name of a split."""


class Resplitting(Capability):
    """Its splits can be replaced by others while the job continues."""

    refusal = Problem("splits", "cannot continue with other splits")

    @abstractmethod
    def resplit(
        self, states: Mapping[str, Position | None]
    ) -> Mapping[str, Position | None] | None:
        """Return the start of each split of `plan`, from the states of another plan's splits.

        *states* has all splits of that plan, as committed; None: nothing was committed. The books
        of the new positions open with the mutations pending in the old ones. Returns None if these
        splits cannot replace those.
        """

    @abstractmethod
    def follow(self, splits: Sequence[str]) -> None:
        """Use these splits instead of the configured ones. Called before `open`.

        Another worker planned them. If they are not splits of this source, nothing changes.
        """

    @abstractmethod
    def sized(self, workers: int) -> Sequence[str] | None:
        """Return the splits for this number of workers, if the configuration does not set them.

        Returns None if the configuration determines the result of `plan`. Called on any thread; no
        I/O.
        """

    @abstractmethod
    def retire(self, splits: Sequence[str]) -> None:
        """Forget these splits of the job: others have their positions. Safe to repeat."""


class News(msgspec.Struct, frozen=True):
    """The splits whose readers may have something to return; `more` can be read at once.

    `is_still` returns, at little cost, whether another look would find nothing new; while it
    returns True, the framework looks less often. It may fail. `readable` returns the file
    descriptor, if any, that becomes readable when `is_still` may no longer be True.
    """

    splits: Collection[str]
    more: bool = False
    is_still: Callable[[], bool] | None = None
    readable: Callable[[], int | None] | None = None


class SharedReading(Capability):
    """Its readers share one reading of the logs: a look finds which of them have something new.

    The framework looks once per tick. It reads from the readers of these splits, and from all of
    them before a commit.
    """

    refusal = Problem("source", "cannot look for all splits at once")

    @abstractmethod
    def look(self, demand: Demand) -> News:
        """Read the new part of the logs. Return which readers may have something to return.

        Each other reader would return Idle, with `end_may_wait`. The next reads return the data. A
        split stays in the result until its reader was read. Raises as `Reader.read` does.
        """


class Realtime(SharedReading):
    """Its logs can be read as they are written: option `mode`.

    `look` then reads only the logs in its demand. All calls are on the thread of the readers. A
    position describes a log by a partition of one key, whose value is its name.
    """

    refusal = Problem("mode", "is read at each tick only")
    config: RealtimeOptions

    @abstractmethod
    def written_logs(self) -> Collection[str]:
        """Return the logs that are read now and report when they are written."""

    @abstractmethod
    def silent_logs(self) -> Collection[str]:
        """Return the logs that are read now and do not report writes; they are read each tick."""

    @abstractmethod
    def follow_writes(self, logs: Collection[str]) -> None:
        """Make *logs*, and no others, report from now on when they are written."""

    @abstractmethod
    def is_written(self, logs: Collection[str]) -> bool:
        """Return whether more of *logs* may be durable than when they were read."""

    @abstractmethod
    def descriptor(self) -> int | None:
        """Return the file descriptor that is readable when `is_written` is to be called.

        None: call it at short intervals.
        """

    @abstractmethod
    def unread_bytes(self, logs: Collection[str]) -> int:
        """Return the size of the durable and unread part of *logs*, in bytes, by names and sizes.

        A log that cannot be read now counts as empty.
        """

    @abstractmethod
    def untaken_bytes(self) -> int:
        """Return the size of data that was read and not yet returned by a reader."""

    @abstractmethod
    def buffer_bytes(self) -> int:
        """Return the buffer size that suits the logs."""


class Locality(Capability):
    """It knows which parts it can read locally, so that each worker gets splits near to it."""

    refusal = Problem("source", "cannot tell what is near")

    @abstractmethod
    def nearness(self) -> Nearness:
        """Return which parts of the planned splits are near. Called before `open`."""


class JobTraces(Capability):
    """Jobs leave notes beside the data they read: `headrace forget`, and a check at the start.

    The notes say which data a job still needs: only other data may be disposed of.
    """

    refusal = Problem("source", "leaves no notes beside what it reads")

    @abstractmethod
    def traces(self, *, everywhere: bool = True) -> Sequence[Trace]:
        """Return the notes of this job, of each state that it ever had.

        A place that cannot be reached now is an error or, without *everywhere*, is left out.
        """

    @abstractmethod
    def forget(self, traces: Sequence[Trace]) -> None:
        """Remove notes of a removed job: the data it needed may now be disposed of."""

    @abstractmethod
    def reserve(self, splits: Sequence[str]) -> None:
        """Write the notes of splits that have positions but did not run yet. Safe to repeat.

        The framework calls it for a forked job before the job that it left disposes of data.
        """


class Recovery(Capability):
    """Quarantined changes can be made into records later: `headrace dlq redrive`."""

    refusal = Problem("source", "cannot recover what was quarantined")

    @abstractmethod
    def recover(self, lost: Quarantined) -> Batch | None:
        """Make records of a quarantined change; None if that is still impossible."""


class Tables(Capability):
    """It knows its tables, and can do without some of them for a while.

    If it declares the option `tables_missing`, this option is `wait` when its `tables` are defined
    by statements.
    """

    refusal = Problem("tables", "does not know its tables")

    @abstractmethod
    def tables(self) -> Sequence[str]:
        """Return the names of the tables that it delivers."""

    @abstractmethod
    def missing_tables(self) -> Mapping[str, Problem]:
        """Return the tables it waits for, and why. Called after `plan`, on any thread; no I/O."""


class TableChecks(Capability):
    """It can report which changes of a table will be missing; CREATE DATA_SOURCE prints them."""

    refusal = Problem("tables", "cannot check tables")

    @abstractmethod
    def check_tables(self, tables: Sequence[str]) -> Sequence[TableWarning]:
        """Return which changes of *tables*, of a statement that creates sources, will be missing.

        Called instead of `plan`, on a read-only source. May block for a few seconds. A table that
        does not exist yet is a warning as well, although the source waits for it.

        Raises:
            HeadraceError: the source cannot determine it now.

        """


class PartialReading(Capability):
    """It continues with the other parts while some parts cannot be read."""

    refusal = Problem("source", "is read as a whole")

    @abstractmethod
    def unreadable(self) -> Mapping[str, Problem]:
        """Return the parts that cannot be read now, and why, while the others are read.

        The hint says how this affects the published changes. Called on any thread; no I/O.
        """

    @abstractmethod
    def unread(self) -> Sequence[HeadraceError]:
        """Return the errors of the parts that could not be read at the last attempt.

        The rest was read; a run until idle ends with these errors. May also be called after all
        readers are closed.
        """


class LogSpaces(Capability):
    """It knows the disk space of its logs: `headrace status`."""

    refusal = Problem("source", "does not know its disks")

    @abstractmethod
    def log_spaces(self) -> Sequence[LogSpace]:
        """Return the space of each log whose disk can be queried without a network.

        Called after `plan`. A log that cannot be read now is left out.
        """


class BulkReading(Capability):
    """It can be read in parts, up to a position: a replay with bounds, or in many tasks."""

    refusal = Problem("source", "cannot be read in part", "leave out what bounds the work")

    @abstractmethod
    def cut(self, parts: int) -> None:
        """Use *parts* splits instead of the configured ones. Called once, before other methods."""

    @abstractmethod
    def limit(
        self,
        *,
        until: Position | None = None,
        tokens: Sequence[tuple[int, int]] = (),
        elapsed_ms: int = 0,
    ) -> None:
        """Limit reading: up to *until*, and to keys in *tokens*.

        A range of tokens excludes its first and includes its second; `plan` leaves out splits
        without any of them. Called once, before `plan` and `open`. Where age matters, *elapsed_ms*
        pass at the end of the part, regardless of the clock.

        Raises:
            ConfigError: the source cannot be read up to a position.

        """


class MicroBatches(BulkReading):
    """It can be read step by step: `headrace run --engine spark` and `headrace replay catch-up`."""

    refusal = Problem(
        "source",
        "cannot be read in micro-batches",
        "`headrace run` without --engine reads every source",
    )

    @abstractmethod
    def ahead(self, position: Position | None, size_bytes: int) -> Position:
        """Return the end of a part of about *size_bytes* that starts at *position*.

        The part is at most what is durable now, and not empty if anything can be read. Found by
        names and sizes, without opening files. `describe` shows the whole result, `moved` restores
        it from that, and `limit` accepts it.
        """

    @abstractmethod
    def divide(
        self, split: Split, position: Position | None, parts: int
    ) -> Mapping[str, Position | None]:
        """Return the start of each of *parts* parts, or of 1, of *split*, which is at *position*.

        They are splits of the same source after `cut` into that many times as many splits. They are
        read separately and in parallel; `reunite` makes one position of their ends.

        Raises:
            ConfigError: with this configuration, only a worker can read the source.

        """

    @abstractmethod
    def reunite(
        self,
        split: Split,
        position: Position | None,
        begun: Mapping[str, Position | None],
        ended: Mapping[str, Position],
    ) -> Position:
        """Return the position of *split* after its parts were read from *begun* to *ended*.

        Its books continue from those of *position*, as if one reader had read all of it.
        """


class LogSearch(Capability):
    """It can find parts of its logs that a selection does not need: `headrace replay index`."""

    refusal = Problem("source", "has no logs that can be indexed")

    @abstractmethod
    def search(self) -> int:
        """Build the index for `spare`, which skips parts of the logs, in the context's `cache`.

        Searches only new parts. Returns the number of bytes searched. Blocking.
        """

    @abstractmethod
    def spare(self, tables: Collection[str], from_us: int | None, to_us: int | None) -> None:
        """Skip the parts that, by the index of `search`, have no changes of these tables and times.

        Empty and None mean all; *to_us* is excluded. Other changes may still be read. Called before
        `open`.
        """


class LogFraming(BulkReading):
    """Its logs can be read once for many splits: first parts of logs, then the splits' blocks.

    Both steps run in other processes, after `cut` and `limit` with the same arguments.
    """

    refusal = Problem("source", "has no logs that can be read once for many splits")

    @abstractmethod
    def log_parts(self, positions: Sequence[Position | None], size_bytes: int) -> Sequence[bytes]:
        """Divide the logs into parts of about *size_bytes*, for `frame`.

        They start at the earliest of *positions*: one per split, or one for all. Found by names and
        sizes; empty if the logs can only be read for single splits.
        """

    @abstractmethod
    def frame(
        self, log_parts: Sequence[bytes], splits: Sequence[str]
    ) -> Iterator[tuple[str, bytes]]:
        """Read parts once. Yield the blocks that *splits* need of them, each with its split.

        Memory is bounded for parts of any size. Blocking.
        """

    @abstractmethod
    def read_framed(self, file: Path) -> None:
        """Read one split from *file*, which has all its blocks in any order. Called before `open`.

        When its reader is closed, another split can follow, with its own file. Records, positions
        and counters are those of a reader of the logs.

        Raises:
            HeadraceError: blocks are missing.

        """


class TypedColumns(Capability):
    """Its changes can be rows with the columns of their table: in Spark and lakehouse tables."""

    refusal = Problem(
        "table", "has no typed columns of its tables", "leave it out, or name it in `tables`"
    )

    @abstractmethod
    def table_type(self, table: str) -> TableType:
        """Return the types of the columns that `Batch.typed` makes for changes of *table*.

        Raises:
            ConfigError: the source does not have the table; the problem's key is `table`.

        """

    @abstractmethod
    def typed_values(
        self, target: TableType, values: Sequence[Document], schema_texts: Mapping[bytes, str]
    ) -> TypedChanges:
        """Return the result of `Batch.typed` for values in `cep44`.

        *schema_texts* has the text of each schema, by id.
        """


class FolderLogs(msgspec.Struct, frozen=True):
    """Options of a source that reads a folder; `is_archive` if the folder has one for each log."""

    options: Options
    is_archive: bool


class LogArchive(Capability):
    """It reads logs that are kept in folders, with several copies of the same changes.

    The class methods change options: a job file's section `source`, unparsed.
    """

    refusal = Problem("source", "cannot be read log by log", "only a source with logs can")
    folder_options: ClassVar[tuple[str, ...]] = ()
    """The options that a user of `headrace.segments` may give beside a folder."""

    @classmethod
    @abstractmethod
    def of_folder(cls, folder: Path, options: Mapping[str, str]) -> FolderLogs:
        """Return the options of a source that reads the logs in *folder*, with a user's *options*.

        Raises:
            ConfigError: the folder does not exist; the problem's key is `path`.

        """

    @classmethod
    @abstractmethod
    def log_by_log(cls, options: Options) -> Sequence[Options]:
        """Return, for each log, the options of a source that reads only this log."""

    @classmethod
    @abstractmethod
    def any_copy(cls, options: Options) -> Options:
        """Return options with which a single copy of a change is enough."""

    @classmethod
    @abstractmethod
    def past_gaps(cls, options: Options) -> Options:
        """Return options with which the source continues after a missing part of a log."""

    @abstractmethod
    def flaws(self, *, from_ms: int | None = None, to_ms: int | None = None) -> Sequence[Finding]:
        """Return what is missing from the logs, or duplicated in them; does not read them.

        The times, since 1970, limit when it was written.
        """

    @abstractmethod
    def stretches(
        self, position: Position | None, size_bytes: int
    ) -> Sequence[tuple[Position | None, Position]]:
        """Divide a single log after *position* into parts of about *size_bytes*.

        Each part is its start and end, for `open` and `limit`; together they are the whole log.
        Found by names and sizes; empty if there are several logs.
        """


class TableReading(Capability):
    """It can also read the current rows of a table: snapshots, `headrace backfill`, `reconcile`.

    The class methods get a job file's section `source`, unparsed.
    """

    refusal = Problem("source", "has no tables that can be read")

    @classmethod
    @abstractmethod
    def table_problem(cls, options: Options) -> Problem | None:
        """Return why tables cannot be read with these options; None if they can."""

    @classmethod
    @abstractmethod
    def of_table(cls, options: Options, table: str, *, page_rows: int = 0) -> Options:
        """Return the section `source` of a job that reads *table*, including its `plugin`.

        It reads *page_rows* per page; 0 means its default.
        """


class RowReading(Capability):
    """It can read single rows of its table now: `LATEST FROM SOURCE` in a SELECT of a history.

    It also finds a partition, for its snapshot.

    A source with options of `TableReading.of_table` offers it.
    """

    refusal = Problem("latest", "cannot read single rows")

    @abstractmethod
    def rows(self, keys: Sequence[Document], level: str) -> Batch:
        """Return the current rows with *keys*, as changes; no change for a missing row.

        *level* is the consistency level of the reads.

        Each key has the columns of the primary key by name, with values as in `SELECT JSON`.
        Without clustering columns it means the static columns of the partition.
        """

    @abstractmethod
    def token_of(self, key: Document) -> int | None:
        """Return the token of the partition with this *key*, whose columns are as in `rows`.

        None: the table has no rows of it.
        """


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a cluster is to be read, in the settings of the service `cdc` of CEP-44's Sidecar."""

    watermark_seconds: int
    max_commit_logs: int
    max_watermarker_size: int
    datacenter: str | None


class SidecarService(Capability):
    """It can be configured by the service `cdc` of CEP-44's Sidecar."""

    refusal = Problem("source", "cannot be configured by services", "define the job by statements")

    @classmethod
    @abstractmethod
    def of_service(cls, options: Options, settings: ServiceSettings) -> Options:
        """Return a job file's section `source`, changed to match the *settings* of the service.

        Raises:
            ConfigError: that is impossible; the problem's key is that of the service.

        """

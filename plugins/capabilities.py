"""What a source may offer besides what `Source` requires of every source.

A source offers a capability by inheriting its class. The framework asks in one way: whether the
source is an instance of that class. `of` is for what a user asked for: it raises NotOfferedError.
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

Options = Mapping[str, Any]  # Any: a job file's section `source`, as it was written.


class NotOfferedError(ConfigError):
    """A user asked a source for a capability that it does not offer."""

    code = "not_offered"


class Capability(ABC):
    """Something that a source may offer."""

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
        """Return *position* moved to *target*, as `ALTER DATA_SOURCE … SET POSITION` gives it.

        *target* is `earliest`, `latest`, a time in ISO 8601, or in the source's own notation. None
        is where a new split begins.

        Raises:
            ConfigError: the place is unknown; the problem's key is `position`.

        """

    @classmethod
    def check_place(cls, target: str) -> None:
        """Refuse a *target* that `locate` can never take, with any logs.

        Raises:
            ConfigError: the problem's key is `position`.

        """

    @classmethod
    def first_position(cls) -> Position | None:
        """Return the position of a split that has read nothing, if parts of it can be moved."""
        return None


class TokenRanges(Capability):
    """Its splits are ranges of tokens: `headrace splits` and published states show them."""

    refusal = Problem("source", "has splits that are not ranges of tokens")

    @classmethod
    @abstractmethod
    def token_range(cls, split_id: str) -> TokenRange | None:
        """Return the tokens of a split; None if this is not a name of a split."""


class Resplitting(Capability):
    """Its splits can be replaced by others while the job continues."""

    refusal = Problem("splits", "cannot continue with other splits")

    @abstractmethod
    def resplit(
        self, states: Mapping[str, Position | None]
    ) -> Mapping[str, Position | None] | None:
        """Return where each split of `plan` begins, from the states of another plan's splits.

        *states* has all splits of that plan, as committed; None: nothing was committed. The books
        of the new positions open with what waits in the old ones. Returns None if these splits
        cannot replace those.
        """

    @abstractmethod
    def follow(self, splits: Sequence[str]) -> None:
        """Use these splits instead of those of the configuration. Called before `open`.

        Another worker planned them. If they are not splits of this source, nothing changes.
        """

    @abstractmethod
    def sized(self, workers: int) -> Sequence[str] | None:
        """Return the splits for this number of workers, if the configuration does not set them.

        None: the configuration sets what `plan` returns. Called on any thread; no I/O.
        """

    @abstractmethod
    def retire(self, splits: Sequence[str]) -> None:
        """Forget these splits of the job: others have their positions. Safe to repeat."""


class News(msgspec.Struct, frozen=True):
    """Of which splits the readers may have something to return; `more` can be read at once.

    `is_still` says without much work whether another look would find nothing new; where there is
    one, and it says so, the source is asked at longer intervals. It may fail. `readable` returns
    the file descriptor that is readable when it says no more so, if there is one.
    """

    splits: Collection[str]
    more: bool = False
    is_still: Callable[[], bool] | None = None
    readable: Callable[[], int | None] | None = None


class SharedReading(Capability):
    """Its readers share what is read: one look tells which of them have something new.

    The framework looks once a tick. It asks the readers of these splits, and all of them before a
    commit.
    """

    refusal = Problem("source", "cannot look for all splits at once")

    @abstractmethod
    def look(self, demand: Demand) -> News:
        """Read what is new; return which readers may have something to return.

        Each other one would return Idle, asked with `end_may_wait`. What was read is returned by
        the next reads. A split stays among the news until its reader was asked. Raises as
        `Reader.read` does.
        """


class Realtime(SharedReading):
    """Its logs can be read as they are written: option `mode`.

    `look` then reads only the logs that its demand names. All calls come on the thread of the
    readers. A position describes a log by a partition of one key, whose value is its name.
    """

    refusal = Problem("mode", "is read at each tick only")
    config: RealtimeOptions

    @abstractmethod
    def written_logs(self) -> Collection[str]:
        """Return the logs that are read now and that tell when they are written to."""

    @abstractmethod
    def silent_logs(self) -> Collection[str]:
        """Return the logs that are read now and do not tell: they are read at each tick."""

    @abstractmethod
    def follow_writes(self, logs: Collection[str]) -> None:
        """Have *logs* tell from now on when they are written to, and no others."""

    @abstractmethod
    def is_written(self, logs: Collection[str]) -> bool:
        """Return whether something may have become durable in *logs* since they were read."""

    @abstractmethod
    def descriptor(self) -> int | None:
        """Return the file descriptor that is readable when `is_written` is to be asked.

        None: it is to be asked at short intervals.
        """

    @abstractmethod
    def unread_bytes(self, logs: Collection[str]) -> int:
        """Return what is durable in *logs* and was not read, in bytes, by names and sizes.

        Nothing of a log that cannot be read now.
        """

    @abstractmethod
    def untaken_bytes(self) -> int:
        """Return the size of what was read and not yet returned by a reader."""

    @abstractmethod
    def buffer_bytes(self) -> int:
        """Return the size of the buffer that suits the logs."""


class Locality(Capability):
    """It knows what it can read locally, so that each worker gets the splits near to it."""

    refusal = Problem("source", "cannot tell what is near")

    @abstractmethod
    def nearness(self) -> Nearness:
        """Return what is near of the planned splits. Called before `open`."""


class JobTraces(Capability):
    """Jobs leave notes beside what they read: `headrace forget`, and a check at the start.

    The notes say what a job still needs: only other data may be disposed of.
    """

    refusal = Problem("source", "leaves no notes beside what it reads")

    @abstractmethod
    def traces(self, *, everywhere: bool = True) -> Sequence[Trace]:
        """Return the notes that this job left beside what it reads, of each state it ever had.

        A place that cannot be reached now is an error, or left out unless *everywhere*.
        """

    @abstractmethod
    def forget(self, traces: Sequence[Trace]) -> None:
        """Remove notes of a job that was removed: what it needed may now be disposed of."""

    @abstractmethod
    def reserve(self, splits: Sequence[str]) -> None:
        """Leave the notes of splits that have positions but did not run yet. Safe to repeat.

        The framework calls it for a forked job before the job that it left disposes of anything.
        """


class Recovery(Capability):
    """What was quarantined can be made into records later: `headrace dlq redrive`."""

    refusal = Problem("source", "cannot recover what was quarantined")

    @abstractmethod
    def recover(self, lost: Quarantined) -> Batch | None:
        """Make records of what could not be made into records before; None if it still cannot."""


class Tables(Capability):
    """It knows which tables it delivers, and can do without some of them for a while.

    If it declares the option `tables_missing`, this option is `wait` when its `tables` come from
    statements.
    """

    refusal = Problem("tables", "does not know its tables")

    @abstractmethod
    def tables(self) -> Sequence[str]:
        """Return the names of the tables that it delivers."""

    @abstractmethod
    def missing_tables(self) -> Mapping[str, Problem]:
        """Return the tables it waits for, and why. Called after `plan`, on any thread; no I/O."""


class TableChecks(Capability):
    """It can find out what it will not deliver of a table; CREATE DATA_SOURCE prints this."""

    refusal = Problem("tables", "cannot check tables")

    @abstractmethod
    def check_tables(self, tables: Sequence[str]) -> Sequence[TableWarning]:
        """Return what it will not deliver of *tables*, on which a statement is to create sources.

        Called instead of `plan`, on a read-only source. May block for a few seconds. A table that
        does not exist yet is a warning as well, although the source waits for it.

        Raises:
            HeadraceError: the source cannot find out now.

        """


class PartialReading(Capability):
    """It continues with the other parts while some of them cannot be read."""

    refusal = Problem("source", "is read as a whole")

    @abstractmethod
    def unreadable(self) -> Mapping[str, Problem]:
        """Return the parts that cannot be read now, and why, while the others are read.

        The hint says what this means for what is published. Called on any thread; no I/O.
        """

    @abstractmethod
    def unread(self) -> Sequence[HeadraceError]:
        """Return why parts of it could not be read at the last attempt.

        The rest was read; a run until idle ends with these errors. May also be called after all
        readers are closed.
        """


class LogSpaces(Capability):
    """It knows how much of their disks its logs take: `headrace status`."""

    refusal = Problem("source", "does not know its disks")

    @abstractmethod
    def log_spaces(self) -> Sequence[LogSpace]:
        """Return the space of each log whose disk can be asked; without a network.

        Called after `plan`. A log that cannot be read now is left out.
        """


class BulkReading(Capability):
    """It can be read in parts, up to a position: a replay with bounds, or in many tasks."""

    refusal = Problem("source", "cannot be read in part", "leave out what bounds the work")

    @abstractmethod
    def cut(self, parts: int) -> None:
        """Use *parts* splits in place of those configured. Called once, before everything else."""

    @abstractmethod
    def limit(
        self,
        *,
        until: Position | None = None,
        tokens: Sequence[tuple[int, int]] = (),
        elapsed_ms: int = 0,
    ) -> None:
        """Read only a part: nothing after *until*, and only keys in *tokens*.

        A range of tokens excludes its first and includes its second; `plan` leaves out splits
        without any of them. Called once, before `plan` and `open`. Where age matters, *elapsed_ms*
        pass at the end of the part, for any time of the clock.

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
        """Return the end of a part of about *size_bytes* that begins at *position*.

        At most what is durable now, and not empty if there is anything to read. Found by names and
        sizes, without opening files. `describe` shows the whole result, `moved` restores it from
        that, and `limit` takes it.
        """

    @abstractmethod
    def divide(
        self, split: Split, position: Position | None, parts: int
    ) -> Mapping[str, Position | None]:
        """Return where *parts* parts of *split*, or 1, begin, by name; *split* is at *position*.

        They are the splits of the same source after `cut` into that many times as many. They are
        read separately and in parallel; `reunite` makes one position of their ends.

        Raises:
            ConfigError: only a worker can read this source as it is configured.

        """

    @abstractmethod
    def reunite(
        self,
        split: Split,
        position: Position | None,
        begun: Mapping[str, Position | None],
        ended: Mapping[str, Position],
    ) -> Position:
        """Return the position of *split*, whose parts were read from *begun* to *ended*.

        Its books continue from those of *position*, as if one reader had read all of it.
        """


class LogSearch(Capability):
    """It can find which parts of its logs a selection does not need: `headrace replay index`."""

    refusal = Problem("source", "has no logs that can be indexed")

    @abstractmethod
    def search(self) -> int:
        """Build the index that lets `spare` skip parts of the logs, in the context's `cache`.

        Searches only what is new; returns the number of these bytes. Blocking.
        """

    @abstractmethod
    def spare(self, tables: Collection[str], from_us: int | None, to_us: int | None) -> None:
        """Skip, as far as `search` found, the parts without changes of these tables and times.

        Empty and None mean all; *to_us* is excluded. Other changes may come. Called before `open`.
        """


class LogFraming(BulkReading):
    """Its logs can be read once for many splits: parts of logs first, then splits of what they had.

    Both steps run in other processes, after `cut` and `limit` with the same arguments.
    """

    refusal = Problem("source", "has no logs that can be read once for many splits")

    @abstractmethod
    def log_parts(self, positions: Sequence[Position | None], size_bytes: int) -> Sequence[bytes]:
        """Cut what the logs hold into parts of about *size_bytes*, for `frame`.

        From the earliest of *positions* on, of which there is one for each split, or one for all.
        Found by names and sizes; empty if the logs can be read for single splits only.
        """

    @abstractmethod
    def frame(
        self, log_parts: Sequence[bytes], splits: Sequence[str]
    ) -> Iterator[tuple[str, bytes]]:
        """Read parts once; yield blocks of what *splits* need of them, each with its split.

        Memory is bounded for parts of any size. Blocking.
        """

    @abstractmethod
    def read_framed(self, file: Path) -> None:
        """Read one split from *file*, which holds all its blocks, in any order. Before `open`.

        When its reader is closed, another split can follow with a file of its own. Records,
        positions and counters are those of a reader of the logs.

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
        """Return which typed columns the changes of *table* have: those that `Batch.typed` makes.

        Raises:
            ConfigError: the table is not one of it; the problem's key is `table`.

        """

    @abstractmethod
    def typed_values(
        self, target: TableType, values: Sequence[Document], schema_texts: Mapping[bytes, str]
    ) -> TypedChanges:
        """Return what `Batch.typed` does, of values in `cep44`.

        *schema_texts* has the text of each schema, by id.
        """


class FolderLogs(msgspec.Struct, frozen=True):
    """Options of a source that reads a folder; `is_archive` if the folder has one for each log."""

    options: Options
    is_archive: bool


class LogArchive(Capability):
    """It reads logs that are kept in folders, with several copies of the same changes.

    The class methods change options: a job file's section `source`, as it was written.
    """

    refusal = Problem("source", "cannot be read log by log", "only a source with logs can")
    folder_options: ClassVar[tuple[str, ...]] = ()
    """The options that a user of `headrace.segments` may give beside a folder."""

    @classmethod
    @abstractmethod
    def of_folder(cls, folder: Path, options: Mapping[str, str]) -> FolderLogs:
        """Return the options of a source that reads the logs in *folder*, with these of a user.

        Raises:
            ConfigError: the folder does not exist; the problem's key is `path`.

        """

    @classmethod
    @abstractmethod
    def log_by_log(cls, options: Options) -> Sequence[Options]:
        """Return options for each log, of a source that reads this log alone."""

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
        """Return what is missing from the logs, or is in them twice; does not read them.

        The times, since 1970, bound when it was written.
        """

    @abstractmethod
    def stretches(
        self, position: Position | None, size_bytes: int
    ) -> Sequence[tuple[Position | None, Position]]:
        """Cut what a single log holds after *position* into parts of about *size_bytes*.

        Each part is its begin and end, as `open` and `limit` take them; together they are the whole
        log. Found by names and sizes; empty if there are several logs.
        """


class TableReading(Capability):
    """It can also read what a table holds now: snapshots, `headrace backfill`, `reconcile`.

    The class methods get a job file's section `source`, as it was written.
    """

    refusal = Problem("source", "has no tables that can be read")

    @classmethod
    @abstractmethod
    def table_problem(cls, options: Options) -> Problem | None:
        """Return why tables cannot be read with these options; None if they can."""

    @classmethod
    @abstractmethod
    def of_table(cls, options: Options, table: str, *, page_rows: int = 0) -> Options:
        """Return the section `source` of a job that reads *table*, with its `plugin`.

        It asks for *page_rows* at a time; 0: as many as it is made for.
        """


class RowReading(Capability):
    """It can read single rows of its table now: `LATEST FROM SOURCE` in a SELECT of a history.

    It also finds a partition, for a snapshot of it.

    A source that `TableReading.of_table` describes offers it.
    """

    refusal = Problem("latest", "cannot read single rows")

    @abstractmethod
    def rows(self, keys: Sequence[Document], level: str) -> Batch:
        """Return what the table holds of these rows, as changes; nothing of a row that is gone.

        *level* is the consistency level of the reads.

        Each key has the columns of the primary key by name, with values as `SELECT JSON` shows
        them. Without clustering columns it means the static columns of the partition.
        """

    @abstractmethod
    def token_of(self, key: Document) -> int | None:
        """Return the token of the partition with this key, whose columns *key* has, as in `rows`.

        None: the table holds nothing of it.
        """


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a cluster is to be read, as the service `cdc` of CEP-44's Sidecar says."""

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
        """Return a job file's section `source`, changed as the service says.

        Raises:
            ConfigError: it cannot be done; the problem's key is that of the service.

        """

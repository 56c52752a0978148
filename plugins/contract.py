"""The rules a source or a sink obeys.

The data plane is synchronous and pull-based: the framework asks a reader for batches and hands
them to a writer, on one thread per source object. Every call has a deadline; none may sleep.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from headrace.plugins.codecs import Encoding
from headrace.plugins.columns import TableType, TypedChanges
from headrace.plugins.context import Context
from headrace.plugins.errors import ConfigError, HeadraceError, Problem
from headrace.plugins.findings import Backlog, CheckResult, Failure, Finding, Nearness
from headrace.plugins.measures import Measure
from headrace.plugins.positions import EncodedPosition, NumberPosition, Position
from headrace.plugins.records import Batch, Delivery, Document, Quarantined, Stored
from headrace.plugins.traces import Trace


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a source with an order and a position of its own; *split_id* names it for ever."""

    split_id: str
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """How much a reader may return at once. It stops at the first bound it reaches.

    With `commit_due` a position in which nothing but time moved on is worth a batch, too. Unless
    `position_due` a batch with `more` behind it may lack its end, and is then committed with a
    later one: before a reader says that there is nothing now, or ever, it has given an end. One
    that owes an end may be asked for no more than that, with `records_max` 0.
    """

    records_max: int = 5_000
    bytes_max: int = 4 * 1024 * 1024
    linger_ms: int = 100
    commit_due: bool = True
    position_due: bool = True


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing now: everything durable was read. Ask again after the tick.

    With `more` there is something left that cannot be read yet: a run until idle waits for it.
    """

    more: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing ever again: a bounded source has ended."""


class CloseReason(StrEnum):
    """Why a reader is closed."""

    FINISHED = "finished"
    HANDED_OVER = "handed_over"
    LEASE_LOST = "lease_lost"
    FAILED = "failed"


class Reader(ABC):
    """Reads one split. All readers of one source object are called on one thread."""

    @abstractmethod
    def read(self, demand: Demand) -> Batch | Idle | Done:
        """Return the next batch; a batch without records moves the position all the same."""

    def release(self, position: Position) -> None:
        """Forget what lies before *position*, which is durable. Repeated until it returns (R1)."""

    def close(self, reason: CloseReason) -> None:
        """Give back files and memory. Safe to call twice."""


class Source(ABC):
    """A configured source. `word` follows DATA_SOURCE; `config_class` declares the options."""

    word: ClassVar[str] = ""
    config_class: ClassVar[type]

    def __init__(self, config: Any, context: Context) -> None:  # noqa: ANN401 (a config_class)
        """Keep both; connect to nothing yet."""
        self.config = config
        self.context = context

    @abstractmethod
    def plan(self) -> Sequence[Split]:
        """Return all splits. The same configuration gives the same splits."""

    @abstractmethod
    def open(self, split: Split, resume: Position | None) -> Reader:
        """Start after *resume*, or at the source's start when None."""

    @classmethod
    def decode_position(cls, encoded: EncodedPosition) -> Position:
        """Read what `Position.encode` wrote, also by an older version of this plugin."""
        return NumberPosition.decode(encoded)

    def recover(self, lost: Quarantined) -> Batch | None:  # noqa: ARG002 (for those that override)
        """Make records of what could not be made into records before; None if that cannot be."""
        return None

    @classmethod
    def first_position(cls) -> Position | None:
        """Return the position of a split that has read nothing, if it can be moved; else None."""
        return NumberPosition(0)

    def resplit(
        self,
        states: Mapping[str, Position | None],  # noqa: ARG002 (for those that override this)
    ) -> Mapping[str, Position | None] | None:
        """Return where each split of `plan` begins, from where those of another plan stand.

        *states* has all splits of that plan, as committed; None has committed nothing. The books of
        the new positions open with what waits in the old ones. Returns None if these splits cannot
        take the place of those.
        """
        return None

    def follow(self, splits: Sequence[str]) -> bool:
        """Have these splits instead of those of the configuration, before anything is opened.

        Somebody else planned them. Returns False if that cannot be: they are no splits of this.
        """
        return {split.split_id for split in self.plan()} == set(splits)

    def sized(self, workers: int) -> Sequence[str] | None:  # noqa: ARG002 (for those that override this)
        """Return the splits that suit so many workers, where the configuration leaves it open.

        None: `plan` is what is configured. Called on any thread: it only reckons.
        """
        return None

    def nearness(self) -> Nearness:
        """Return what is near, of the splits that are planned; before anything is opened."""
        return Nearness()

    def read_until(self, position: Position) -> None:
        """Let no reader go beyond *position*, which `Position.meeting` made; before any opens.

        Sources whose positions meet have it.
        """
        raise NotImplementedError

    def retire(self, splits: Sequence[str] | None = None) -> None:
        """Forget the job, or of it these splits: others have their positions. Safe to repeat."""

    def backlog(
        self,
        split: Split,  # noqa: ARG002 (for those that override this)
        position: Position | None,  # noqa: ARG002
    ) -> Sequence[Backlog]:
        """Return what is left to read after *position*; nothing if that cannot be told."""
        return ()

    def locate(self, split: Split, position: Position | None, target: str) -> Position | None:  # noqa: ARG002 (for those that override this)
        """Return *position* moved to *target*, as `ALTER DATA_SOURCE … SET POSITION` gives it.

        That is `earliest`, `latest`, a time in ISO 8601, or the source's own notation. None is
        where a new split begins.

        Raises:
            ConfigError: there is no such place; the problem's key is `position`.

        """
        if target == "earliest":
            return None
        raise ConfigError([Problem("position", f"this source knows no position {target[:48]!r}")])

    @classmethod
    def check_place(cls, target: str) -> None:
        """Refuse what can be no *target* of `locate`, whatever there is to read.

        Raises:
            ConfigError: the problem's key is `position`.

        """

    def limit(
        self,
        *,
        until: Position | None = None,
        tokens: Sequence[tuple[int, int]] = (),
        elapsed_ms: int = 0,  # noqa: ARG002 (for those that override this)
    ) -> None:
        """Read a part only: nothing behind *until*, and of the keys those in *tokens*.

        A range of tokens goes from after its first up to and with its second; `plan` leaves out
        the splits that hold none. Called once, before `plan` and `open`, for bulk work. Where age
        matters, *elapsed_ms* pass at the end of the part, whatever the clock says.

        Raises:
            ConfigError: the source cannot.

        """
        if until is not None or tokens:
            hint = "leave out what bounds the work"
            raise ConfigError([Problem("source", "this source cannot be read in part", hint)])

    def ahead(self, position: Position | None, size_bytes: int) -> Position:  # noqa: ARG002 (likewise)
        """Return where a part of about *size_bytes* ends that begins at *position*.

        At most what is durable now, and something if there is anything: found by names and sizes,
        without opening what is read. `describe` says all of it, `moved` makes it again from that,
        and `limit` takes it.

        Raises:
            ConfigError: the source cannot be read part by part.

        """
        hint = "`headrace run` without --engine reads every source"
        said = "this source cannot be read in micro-batches"
        raise ConfigError([Problem("source", said, hint)])

    def stretches(
        self,
        position: Position | None,  # noqa: ARG002 (likewise)
        size_bytes: int,  # noqa: ARG002 (likewise)
    ) -> Sequence[tuple[Position | None, Position]]:
        """Cut what a single log holds behind *position* into parts of about *size_bytes*.

        Each is where it begins and ends, as `open` and `limit` take it; together they give what is
        logged. Found by names and sizes, like `ahead`; none where the source is not read so.
        """
        return ()

    def search(self) -> int:
        """Find what lets `spare` pass over parts of the logs, and keep it in the context's `cache`.

        Returns how many bytes were searched: those that are new. Blocking.
        """
        return 0

    def spare(self, tables: Collection[str], from_us: int | None, to_us: int | None) -> None:
        """Pass over, as far as `search` found it, what has no change of these tables and times.

        Nothing and None are all; *to_us* is left out. Other changes may come. Called before `open`.
        """

    def divide(
        self,
        split: Split,
        position: Position | None,
        parts: int,  # noqa: ARG002 (likewise)
    ) -> Mapping[str, Position | None]:
        """Return where parts of *split*, which stands at *position*, begin, by name: so many or 1.

        They are splits of the same source when it is cut into that many times as many. Each is
        read by itself, at the same time as the others; `reunite` makes one position of their ends.

        Raises:
            ConfigError: only a worker can read this source as it is configured.

        """
        return {split.split_id: position}

    def reunite(
        self,
        split: Split,  # noqa: ARG002 (likewise)
        position: Position | None,  # noqa: ARG002
        begun: Mapping[str, Position | None],  # noqa: ARG002
        ended: Mapping[str, Position],
    ) -> Position:
        """Return where *split* stands, whose parts were read from where they *begun* to their ends.

        Its books go on from those of *position*, as if one reader had read all of it.
        """
        (only,) = ended.values()
        return only

    def table_type(self, table: str) -> TableType:
        """Return which typed columns the changes of *table* have: those that `Batch.typed` makes.

        Raises:
            ConfigError: it has no such table, or no typed columns; the problem's key is `table`.

        """
        said = f"this source has no typed columns of {table}"
        raise ConfigError([Problem("table", said, "leave it out, or name it in `tables`")])

    def typed_values(
        self, target: TableType, values: Sequence[Document], texts: Mapping[bytes, str]
    ) -> TypedChanges:
        """Return what `Batch.typed` does, of values in `cep44`; *texts* are of schemas, by id."""
        raise NotImplementedError(f"{type(self).__name__} has no typed columns of {target.table}")

    def tables(self) -> Sequence[str] | None:
        """Return the names of the tables that it has changes of; None where that is not known."""
        return None

    def flaws(
        self,
        *,
        from_ms: int | None = None,  # noqa: ARG002 (for those that override this)
        to_ms: int | None = None,  # noqa: ARG002
    ) -> Sequence[Finding]:
        """Return what is missing from what there is to read, or there twice; reads none of it.

        The times, since 1970, are those between which something was written.
        """
        return ()

    def traces(self, *, everywhere: bool = True) -> Sequence[Trace]:
        """Return the notes that this job left beside what it reads, of each state it ever had.

        Where a place cannot be asked now that is an error, or it is left out unless *everywhere*.
        """
        del everywhere
        return ()

    def forget(self, traces: Sequence[Trace]) -> None:
        """Remove notes of a job that is gone: what it needed may go from now on."""
        del traces

    def unread(self) -> Sequence[HeadraceError]:
        """Return why parts of it could not be read when they were tried last.

        The rest was read: a run that was to take all there is ends with these errors. Called when
        all readers are closed, too.
        """
        return ()

    def lacking(self) -> Mapping[str, Problem]:
        """Return the tables it waits for, and why, after `plan`; on any thread, it only reckons."""
        return {}

    def unreadable(self) -> Mapping[str, Problem]:
        """Return the parts that cannot be read now, and why, while the others are read.

        The hint says what follows for what is published. On any thread, it only reckons.
        """
        return {}

    def measures(self) -> Sequence[Measure]:
        """Return what an operator wants to know now; on any thread, while readers read."""
        return ()

    def close(self) -> None:
        """Give back what the readers shared. Safe to call twice."""


class Settle(Protocol):
    """The sink's verdict on one delivery; called once, from any thread.

    *delivered* and the failures add up to the delivery; otherwise all of it is retried (R6).
    """

    def __call__(self, delivered: int, failures: Sequence[Failure] = ()) -> None:
        """Report."""


class Writer(ABC):
    """Writes deliveries in the order given."""

    @abstractmethod
    def submit(self, delivery: Delivery, settle: Settle) -> None:
        """Take *delivery* and return soon; *settle* follows now or later.

        Raises:
            RetriableError: nothing of the delivery was taken; it is submitted again.
            FatalError: the split stops.

        """

    @abstractmethod
    def drain(self, deadline_ms: int) -> bool:
        """Wait until all is settled, or *deadline_ms* of the clock; say whether all is."""

    def close(self) -> None:
        """Give back connections. What is unsettled stays unsettled. Safe to call twice."""


class TransactionalWriter(Writer):
    """Writes one split so that nothing of it is seen without the state that covers it.

    What was submitted since the last commit is seen once that state is committed with it, or
    never. A writer whose call raised FencedError is of no more use: whoever goes on first claims
    the split anew.
    """

    place: str
    """Where the entries are kept, for messages."""
    window_ms: int
    """What was begun must be committed within so long, or it is dropped."""
    awaited: str = ""
    """What `begin` waited for when it returned None, for messages."""

    @abstractmethod
    def begin(self, deadline_ms: int) -> Mapping[str, bytes] | None:
        """Keep out every earlier writer of the split, drop what is uncommitted, read the entries.

        Returns the entries as committed last, or None if they cannot be read yet, at *deadline_ms*
        by the clock at the latest: call it again.

        Raises:
            FencedError: a later writer of the split has begun.

        """

    @abstractmethod
    def commit(self, entries: Mapping[str, bytes | None], deadline_ms: int) -> bool:
        """Replace *entries* (None removes one), and let all that was submitted be seen, at once.

        Call it when everything submitted is settled. False: the outcome is not known by
        *deadline_ms*; call it again with the same, and nothing else meanwhile.

        Raises:
            AbortedError: nothing was committed, and what was submitted is dropped: `begin` again.
            FencedError: a later writer has begun, or the outcome cannot be learned here.

        """


class Sink(ABC):
    """A configured sink. `schemes` are the URI schemes of CREATE DATA_SINK that mean it."""

    schemes: ClassVar[tuple[str, ...]] = ()
    config_class: ClassVar[type]
    heeds_topics: ClassVar[bool] = False
    """Whether its writers send a record where `EncodedRecords.topics` says."""

    def __init__(self, config: Any, context: Context) -> None:  # noqa: ANN401 (a config_class)
        """Keep both; connect to nothing yet."""
        self.config = config
        self.context = context

    def encoding(self) -> Encoding:
        """Say in what form the writer wants its records."""
        return Encoding()

    def topic_of(self, table: str) -> str:
        """Return where a table's records go, by which subjects of schemas are named."""
        return table

    def check(self) -> Sequence[Finding]:
        """Ask what it writes to whether it could: connection, rights, places, sizes.

        Writes and makes nothing. Returns within seconds; what is wrong is found, not raised.
        """
        return [Finding("check", CheckResult.UNKNOWN, "this sink cannot be asked")]

    def parts(self, tables: Sequence[str], suffix: str = "") -> Sequence[str]:
        """Return the parts of what was written of *tables*; each is read back by itself.

        With *suffix* of what went to topics of that ending.

        Raises:
            ConfigError: what this sink wrote cannot be read back.

        """
        del tables, suffix
        hint = "`headrace replay verify` compares folders of files"
        raise ConfigError([Problem("sink", "what this sink wrote cannot be read back", hint)])

    def read_back(self, part: str) -> Iterator[Sequence[Stored]]:
        """Yield what is in *part*, in its order, up to what is its end now."""
        raise NotImplementedError(f"{type(self).__name__} has no part {part}")

    @abstractmethod
    def open(self) -> Writer:
        """Connect, or start connecting.

        Raises:
            MissingRequirementError: what it writes to cannot be reached or written.

        """

    @property
    def is_transactional(self) -> bool:
        """Whether every split is to be written by a writer of its own, exactly once."""
        return False

    def open_split(self, split: str) -> TransactionalWriter:
        """Return the writer of *split*, for a sink that is transactional; see `open`."""
        raise NotImplementedError(split)

    @classmethod
    def config_of_uri(cls, host: str, path: str) -> Mapping[str, str]:
        """Turn a sink URI's middle into options; its query keys are options as they stand."""
        return {"path": f"{host}{path}"}


# What the entry-point group `headrace.commands` holds: takes the arguments after the command's
# name, returns the exit status. `headrace --help` shows the first line of its docstring.
CommandMain = Callable[[Sequence[str]], int]

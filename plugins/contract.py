"""The rules for sources and sinks.

The data plane is synchronous and pull-based: the framework reads batches from a reader and passes
them to a writer, on one thread per source object. Every call has a deadline; none may sleep.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Protocol

import msgspec

from headrace.plugins.bookkeeping import NO_COUNTERS, Bookkeeping
from headrace.plugins.check_results import Backlog, CheckResult, Failure, Finding
from headrace.plugins.config.options import declared_options
from headrace.plugins.context import Context
from headrace.plugins.errors import ConfigError, Problem
from headrace.plugins.metrics import Measure
from headrace.plugins.origin import NO_ORIGIN, Origin
from headrace.plugins.positions import EncodedPosition, NumberPosition, Position
from headrace.plugins.records.batches import Batch, Delivery
from headrace.plugins.records.codecs import Encoding
from headrace.plugins.records.record import Stored


class Split(msgspec.Struct, frozen=True):
    """A part of a source with its own order and position; *split_id* never changes."""

    split_id: str
    description: str = ""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """How much a reader may return at once. It stops at the first limit it reaches.

    With `commit_due` the reader also returns a batch if only the time in its position changed.
    Without `position_due` a batch with `more` may have no end; it is committed with a later batch.
    A reader returns an end before it returns Idle or Done, unless `end_may_wait`: then no batch
    needs one, and a reader of which only the position moved may return Idle. The framework reads
    with `position_due` before each commit. It may request only the missing end, with `records_max`
    0. With `logs` only these are read; see `Realtime`.
    """

    records_max: int = 5_000
    bytes_max: int = 4 * 1024 * 1024
    linger_ms: int = 100
    commit_due: bool = True
    position_due: bool = True
    end_may_wait: bool = False
    logs: Collection[str] | None = None


class Idle(msgspec.Struct, frozen=True):
    """Nothing to read now: everything durable was read. Read again after the tick.

    With `more` some data cannot be read yet; a run until idle waits for it.
    """

    more: bool = False


class Done(msgspec.Struct, frozen=True):
    """The end of a bounded source: there is nothing more to read."""


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
        """Return the next batch; a batch without records also moves the position."""

    def release(self, position: Position) -> None:
        """Forget data before *position*, which is durable. Repeated until it returns (R1)."""

    def close(self, reason: CloseReason) -> None:
        """Release files and memory. Safe to call twice."""


class Source(ABC):
    """A configured source. `word` follows DATA_SOURCE; `config_class` declares the options."""

    word: ClassVar[str] = ""
    config_class: ClassVar[type]
    bookkeeping: ClassVar[Bookkeeping] = NO_COUNTERS
    """The counters of `Position.books`, and the equations that they must satisfy."""
    stages: ClassVar[Sequence[str]] = ()
    """What its changes come to from when they could be read until they are returned, in order; see
    `Batch.stage_times`. The framework measures how long each takes."""
    origin: Origin = NO_ORIGIN
    """Which fields its changes have besides those that every change has; an object may set it."""

    def __init__(self, config: Any, context: Context) -> None:  # noqa: ANN401 (a config_class)
        """Keep both arguments; connect to nothing yet."""
        self.config = config
        self.context = context

    @abstractmethod
    def plan(self) -> Sequence[Split]:
        """Return all splits. The same configuration gives the same splits."""

    @abstractmethod
    def open(self, split: Split, resume: Position | None) -> Reader:
        """Start reading after *resume*; None is the start of the source."""

    def gives_up(self, split_id: str) -> bool:  # noqa: ARG002 (for overrides)
        """Return whether the configuration dropped a split that `plan` does not return.

        Then the job continues without it, and its position is forgotten. Otherwise something is
        missing, and the job stops: `plan_changed`.
        """
        return False

    @classmethod
    def decode_position(cls, encoded: EncodedPosition) -> Position:
        """Decode the result of `Position.encode`, also of an older version of this plugin."""
        return NumberPosition.decode(encoded)

    def backlog(
        self,
        split: Split,  # noqa: ARG002 (for overrides)
        position: Position | None,  # noqa: ARG002
    ) -> Sequence[Backlog]:
        """Return the unread data after *position*; empty if this is unknown."""
        return ()

    def measures(self) -> Sequence[Measure]:
        """Return the current metrics. Called on any thread, while readers read."""
        return ()

    def close(self) -> None:
        """Release the resources that the readers shared. Safe to call twice."""


class Settle(Protocol):
    """Reports the sink's result for one delivery. Called once, from any thread.

    *delivered* has the indexes of the records that arrived, as reported by the sink; a sink that
    writes all at once passes `range(len(encoded))`. With those of the failures they must be the
    indexes of the delivery, each once; otherwise the whole delivery is retried (R6).
    """

    def __call__(self, delivered: Collection[int], failures: Sequence[Failure] = ()) -> None:
        """Report the result."""


class Writer(ABC):
    """Writes deliveries in the order given."""

    @abstractmethod
    def submit(self, delivery: Delivery, settle: Settle) -> None:
        """Take *delivery* and return soon; *settle* is called now or later.

        Raises:
            RetriableError: nothing of the delivery was taken; it is submitted again.
            FatalError: the split stops.

        """

    @abstractmethod
    def drain(self, deadline_ms: int) -> bool:
        """Wait until all deliveries are settled. Return whether they are.

        *deadline_ms* is the latest time to return, on the clock of the context.
        """

    def hurry(self, *, hurries: bool) -> None:
        """Send records at once from now on or, without *hurries*, after collecting more."""

    def close(self) -> None:
        """Close connections. Unsettled deliveries stay unsettled. Safe to call twice."""


class TransactionalWriter(Writer):
    """Writes one split so that its records become visible only with the state that covers them.

    Records submitted since the last commit become visible when that state is committed with them,
    or never. After FencedError a writer cannot be used again: the worker that continues must first
    claim the split again.
    """

    place: str
    """Where the entries are kept, for messages."""
    window_ms: int
    """A transaction must be committed within this time, or it is dropped."""
    renewal: str = "give the sink another place"
    """How a user removes the entries, for hints."""
    awaited: str = ""
    """The thing that `begin` waited for when it returned None, for messages."""

    @abstractmethod
    def begin(self, deadline_ms: int) -> Mapping[str, bytes] | None:
        """Fence every earlier writer of the split, drop uncommitted records, read the entries.

        Returns the entries of the last commit, by *deadline_ms* at the latest. None: they cannot be
        read yet; call it again.

        Raises:
            FencedError: a later writer of the split has started.

        """

    @abstractmethod
    def commit(self, entries: Mapping[str, bytes | None], deadline_ms: int) -> bool:
        """Replace *entries* (None removes one) and make submitted records visible, atomically.

        Call it when everything submitted is settled. False: the outcome was unknown at
        *deadline_ms*; call it again with the same entries, and call nothing else before that.

        Raises:
            AbortedError: nothing was committed, and the submitted records are dropped: `begin`
                again.
            FencedError: a later writer has started, or the outcome cannot be determined.

        """


class Sink(ABC):
    """A configured sink. `schemes` are its URI schemes in CREATE DATA_SINK."""

    schemes: ClassVar[tuple[str, ...]] = ()
    config_class: ClassVar[type]
    heeds_topics: ClassVar[bool] = False
    """Whether its writers send a record where `EncodedRecords.topics` says."""
    keeps_keys: ClassVar[bool] = True
    """Whether records that are read back have their keys."""

    def __init__(self, config: Any, context: Context) -> None:  # noqa: ANN401 (a config_class)
        """Keep both arguments; connect to nothing yet."""
        self.config = config
        self.context = context

    def encoding(self) -> Encoding:
        """Return the encoding of records that the writer expects."""
        return Encoding()

    def topic_of(self, table: str) -> str:
        """Return the topic of a table's records; subjects of schemas are named after it."""
        return table

    def check(self) -> Sequence[Finding]:
        """Check whether the sink could write: connection, rights, places, sizes.

        It writes and creates nothing. It returns within seconds; problems are returned, not raised.
        """
        return [Finding("check", CheckResult.UNKNOWN, "this sink cannot be asked")]

    def parts(self, tables: Sequence[str], suffix: str = "") -> Sequence[str]:
        """Return the parts of the written records of *tables*; each is read back separately.

        With *suffix*, only those in topics whose names end with it.

        Raises:
            ConfigError: the records of this sink cannot be read back.

        """
        del tables, suffix
        raise ConfigError([Problem("sink", "what this sink wrote cannot be read back")])

    def read_back(self, part: str) -> Iterator[Sequence[Stored]]:
        """Yield the records of *part*, in order, up to its current end."""
        raise NotImplementedError(f"{type(self).__name__} has no part {part}")

    @abstractmethod
    def open(self) -> Writer:
        """Connect, or start connecting.

        Raises:
            MissingRequirementError: the target cannot be reached or written.

        """

    @property
    def is_transactional(self) -> bool:
        """Return whether each split has its own writer and is written exactly once."""
        return False

    def home(self) -> str | None:
        """Name the place of the states of splits, exactly once, after opening a writer of any.

        Processes that return the same name may open the writers of a split, one after another. The
        empty name is that of any process on any machine. None: tasks of Spark may not do so.
        """
        return None

    def open_split(self, split: str) -> TransactionalWriter:
        """Return the writer of *split*, for a transactional sink; see `open`."""
        raise NotImplementedError(split)

    @classmethod
    def config_of_uri(cls, host: str, path: str) -> Mapping[str, str]:
        """Convert the host and path of a sink URI to options; its query keys are already options.

        By default, a sink with the option `path` takes both as that. The URI is already unescaped;
        `path` starts with a slash, unless it is empty.

        Raises:
            ConfigError: the URI does not have what the sink needs.

        """
        if not host and not path:
            return {}
        if "path" in declared_options(cls.config_class):
            return {"path": f"{host}{path}"}
        said = f"this sink takes nothing from {host}{path} in its URI"
        hint = f"write {cls.schemes[0]}:// and give each option with AND"
        raise ConfigError([Problem("uri", said, hint)])


class Signal(msgspec.Struct, frozen=True):
    """A message that requests something from a job.

    `origin` is unique and stays the same when the message is read again.
    """

    origin: str
    key: bytes | None
    value: bytes | None


class Signals(ABC):
    """Reads the messages with requests to a job. Used by one thread."""

    @abstractmethod
    def take(self, seconds: float) -> Sequence[Signal]:
        """Return the available messages in order. Blocks up to *seconds* for the first.

        Raises:
            MissingRequirementError: messages cannot be read now. Call it again.

        """

    @abstractmethod
    def done(self, signal: Signal) -> None:
        """Note that *signal* was executed: a later process does not get it again.

        If a process dies before, or loses its part of the messages, it is read again.
        """

    @abstractmethod
    def close(self) -> None:
        """Release its resources. Safe to repeat."""


class SignalChannel(ABC):
    """A sink through which users can also send signals to a job inherits this."""

    @abstractmethod
    def signals(self) -> Signals | None:
        """Return the reader of signals; None if the options name no place for them.

        Raises:
            ConfigError: the client rejects the value of an option.

        """


# An entry of the group `headrace.commands`: takes the arguments after the command's name, returns
# the exit status. `headrace --help` shows the first line of its docstring.
CommandMain = Callable[[Sequence[str]], int]

"""What a store is: everything durable the framework keeps of a job, and the values it keeps.

A store belongs to one thread; a second thread opens a second store. Every write of a split's state
is conditional on the fencing token (R7): a store accepts nothing from an owner that was replaced.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, ClassVar, Final, Self

from headrace.plugins.errors import FatalError, HeadraceError, RetriableError
from headrace.plugins.positions import EncodedPosition, TokenRange
from headrace.plugins.records.record import Document, Headers, RecordSchema
from headrace.plugins.stores.control_store import ALL_JOBS, Notes, Publications, Seen

QUARANTINE_BYTES_MAX: Final = 256 * 1024 * 1024


class StateLostError(FatalError):
    """A split that is known to have state has none any more: nothing may be guessed from here."""

    code = "state_lost"


class StoreUnavailableError(RetriableError):
    """The store did not answer, or could not write; what it holds is what it held before."""

    code = "store_unavailable"


class PlanChangedError(FatalError):
    """The source plans splits that can not take the place of the registered ones."""

    code = "plan_changed"
    exit_status = 2


class QuarantineFullError(FatalError):
    """The quarantine reached its bound: the split stops rather than lose bytes or grow."""

    code = "quarantine_full"


@dataclass(frozen=True, slots=True)
class TableCounts:
    """What became of one table's changes (I3): cut is the sum of the other four fates.

    Of those delivered some may have come twice: in the window that a former owner had not
    committed, beside a former owner that may live on as a zombie, and in what was sent again.
    """

    cut: int = 0
    delivered: int = 0
    filtered: int = 0
    dead_lettered: int = 0
    quarantined: int = 0
    window: int = 0
    zombie: int = 0
    resend: int = 0

    def __add__(self, other: "TableCounts") -> "TableCounts":
        """Add field by field."""
        return TableCounts(*map(add, self.numbers, other.numbers))

    @property
    def numbers(self) -> tuple[int, int, int, int, int, int, int, int]:
        """All of them, in order."""
        fates = self.cut, self.delivered, self.filtered, self.dead_lettered, self.quarantined
        return *fates, self.window, self.zombie, self.resend

    @property
    def fates(self) -> Mapping[str, int]:
        """What became of the changes."""
        return {
            "cut": self.cut,
            "delivered": self.delivered,
            "filtered": self.filtered,
            "dead_lettered": self.dead_lettered,
            "quarantined": self.quarantined,
        }

    @property
    def repeats(self) -> Mapping[str, int]:
        """How many may have come twice, by cause."""
        return {"window": self.window, "zombie": self.zombie, "resend": self.resend}


Counters = Mapping[str, TableCounts]


def add_counters(first: Counters, second: Counters) -> dict[str, TableCounts]:
    """Add table by table."""
    none = TableCounts()
    return {t: first.get(t, none) + second.get(t, none) for t in {**first, **second}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A worker process. `pid` and `started` say which process, within `boot` and `pid_space`."""

    worker: str
    host: str
    boot: str
    pid_space: str
    pid: int
    started: int


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker as the store knows it; `beat` grows while it lives.

    `places` are those that it reads without a network, `handover_targets` the workers to which it
    is handing splits over. One that `wants` splits is to have these, and no others, as long as it
    lives.
    `silent_ms` is how long ago `beat` grew, as far as the store can tell.
    """

    owner: Owner
    beat: int
    places: tuple[str, ...] = ()
    handover_targets: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()
    silent_ms: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow:
    """A split's lease. `owner` is None when free; `beat` grows with each claim and renewal.

    `rate` is how many bytes a second were read of the split last; it stays when the owner goes.
    """

    split: str
    owner: str | None
    token: int
    beat: int
    lease_ms: int
    problem: str = ""
    rate: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitState:
    """The committed state of a split; `position` is None before the first commit."""

    split: str
    plan: int
    token: int
    seq: int
    position: EncodedPosition | None
    counters: Counters


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A change that did not reach the sink, with its bytes.

    `kind` is `quarantined` (it could not be made into a record) or `dead_letter` (the sink
    rejected it permanently). `stage` is where it failed, in Kafka Connect's words.
    """

    kind: str
    table: str
    place: str
    code: str
    message: str
    key: bytes | None = field(default=None, repr=False)
    content: bytes = field(default=b"", repr=False)
    headers: Headers = field(default=(), repr=False)
    stage: str = ""
    origin: Document = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeptLoss:
    """A loss as kept: its number, since when (ms since 1970), and whether a topic has it too."""

    number: int
    split: str
    lost_ms: int
    sent: bool
    loss: Loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Replace the state of *split*, if its plan, token, owner and `previous` are as given (I2).

    `tokens` are those of the split, for a store that publishes states by range of tokens.
    """

    split: str
    plan: int
    token: int
    owner: str
    previous: int
    seq: int
    position: EncodedPosition
    counters: Counters
    losses: Sequence[Loss] = ()
    tokens: TokenRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan generation: which splits a job has.

    When another has taken its place, `books` has the source's own counters and `counters` the
    framework's, of all its splits, as of its end.
    """

    number: int
    splits: tuple[str, ...]
    books: Mapping[str, int] = field(default_factory=dict)
    counters: Counters = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plans:
    """The plan in force; the one that is to take its place, if there is one; and those before."""

    in_force: Plan
    announced: Plan | None = None
    ended: Sequence[Plan] = ()

    @classmethod
    def of(cls, in_force: Plan, kept: Sequence[Plan]) -> Self:
        """Sort the plans that a store has *kept* by whether they were before or come next."""
        return cls(
            in_force,
            next((plan for plan in kept if plan.number > in_force.number), None),
            [plan for plan in kept if plan.number < in_force.number],
        )


@dataclass(frozen=True, slots=True)
class Successor:
    """What takes a plan's place: where its splits begin (None: at the start), the old books."""

    positions: Mapping[str, EncodedPosition | None]
    books: Mapping[str, int]
    counters: Counters


Succeed = Callable[[Sequence[SplitState]], Successor]


class Store(ABC):
    """The durable state of one job.

    Any call may raise StoreUnavailableError: then nothing was done, as far as can be known, and it
    can be repeated.
    """

    config_class: ClassVar[type]

    @classmethod
    @abstractmethod
    def open_job(
        cls,
        config: Any,  # noqa: ANN401 (a config_class)
        job: str,
        *,
        create: bool = True,
        quarantine_bytes_max: int = QUARANTINE_BYTES_MAX,
    ) -> Self:
        """Connect, and make what is missing, unless *create* is False.

        Raises:
            MissingRequirementError: the store cannot be used from here.

        """

    @classmethod
    @abstractmethod
    def open_notes(
        cls,
        config: Any,  # noqa: ANN401 (a config_class)
        *,
        create: bool = True,
        space: str = ALL_JOBS,
    ) -> Notes:
        """Open the notes of all jobs, as `open_job`. Another thread may close them.

        Those of another *space* are others, with a version of their own.
        """

    @abstractmethod
    def job_key(self) -> bytes:
        """Return the job's 16 secret random bytes, made once."""

    @abstractmethod
    def register(self, splits: Sequence[str]) -> int:
        """Make the job's splits known and return the plan generation.

        Raises:
            PlanChangedError: a registered split is missing from *splits*.
            StateLostError: a registered split has no lease or no head.

        """

    @abstractmethod
    def plans(self) -> Plans:
        """Return the job's plans; of a job that is not registered one without splits."""

    @abstractmethod
    def announce(self, splits: Sequence[str], *, after: int) -> None:
        """Let everybody see that *splits* are to take the place of plan *after*, if it is in force.

        What was announced before stays: of two that announce at once, one does.
        """

    @abstractmethod
    def replan(self, owner: str, tokens: Mapping[str, int], succeed: Succeed) -> None:
        """Put the announced plan in force, all of it or nothing, also when the process is killed.

        *tokens* are those of all splits in force, which *owner* has claimed. *succeed* is given
        their states, which no worker can change any more. Heads and leases of the new splits carry
        a token above all of those. Losses of the old ones are kept; the worker with the first
        of the new splits sends them.

        Raises:
            LeaseLostError: another worker claimed a split, or put a plan in force. Read again.

        """

    @abstractmethod
    def enroll(self, owner: Owner, places: Sequence[str] = ()) -> None:
        """Add a worker, which reads *places* without a network."""

    @abstractmethod
    def dismiss(self, worker: str) -> None:
        """Remove a worker and free the leases it still holds."""

    @abstractmethod
    def workers(self) -> Sequence[WorkerRow]:
        """Return all workers of the job."""

    @abstractmethod
    def leases(self) -> Sequence[LeaseRow]:
        """Return the leases of all registered splits, by name."""

    @abstractmethod
    def claim(self, owner: str, rows: Sequence[LeaseRow], lease_ms: int) -> Mapping[str, int]:
        """Take the leases that are still as *rows* show them; return the new tokens.

        A new token is greater than that of the lease and of the head, and is written to both
        before this returns: from then on the former owner cannot commit. The beat of the worker
        *owner* moves before: if it does not change for a lease time, all its leases have expired.
        """

    @abstractmethod
    def renew(
        self, owner: str, tokens: Mapping[str, int], rates: Mapping[str, int] | None = None
    ) -> frozenset[str]:
        """Renew the worker and its leases; return the splits whose lease another took.

        *rates* are the bytes a second of splits; of the others they stay.
        """

    @abstractmethod
    def offer(self, worker: str, handover_targets: Sequence[str]) -> None:
        """Let other workers see that splits are being handed over to *handover_targets* only."""

    @abstractmethod
    def want(self, worker: str, splits: Sequence[str]) -> None:
        """Let other workers see that *worker*, which is enrolled, is to have *splits*."""

    @abstractmethod
    def release(self, owner: str, split: str, token: int, problem: str = "") -> None:
        """Free a lease; *problem* stays visible until the next claim."""

    @abstractmethod
    def load(self, split: str, token: int) -> SplitState:
        """Return the state of a claimed split.

        Raises:
            LeaseLostError: the head carries a higher token.
            StateLostError: the head or one of its chunks is missing.

        """

    @abstractmethod
    def commit(self, commits: Sequence[Commit]) -> Mapping[str, HeadraceError]:
        """Replace the states of several splits, each whole or not at all; say why some were not.

        Raises:
            StoreUnavailableError: what became of them is not known. Repeat all: a commit that was
                applied after all is recognised.

        """

    @abstractmethod
    def put_schemas(self, schemas: Sequence[RecordSchema]) -> None:
        """Keep schemas under their ids; a known id is left as it is."""

    @abstractmethod
    def schema(self, schema_id: bytes) -> RecordSchema | None:
        """Return a schema, or None when the id is unknown."""

    @abstractmethod
    def schemas(self) -> Sequence[RecordSchema]:
        """Return all schemas, of whichever job."""

    @abstractmethod
    def publications(self) -> Publications:
        """Return the queue of the job's schemas, over the same connection."""

    @abstractmethod
    def losses(self, numbers: Sequence[int] | None = None) -> Iterator[KeptLoss]:
        """Return what was quarantined or dead-lettered, or of it *numbers*, oldest first."""

    @abstractmethod
    def unsent_losses(self, splits: Sequence[str], *, bytes_max: int) -> Sequence[KeptLoss]:
        """Return the oldest losses of *splits* that are not in the topic for dead letters yet.

        At least one, if there is any, and then as many as fit into *bytes_max*.
        """

    @abstractmethod
    def mark_losses_sent(self, numbers: Sequence[int]) -> None:
        """Note that they are in the topic for dead letters."""

    @abstractmethod
    def remove_losses(self, numbers: Sequence[int]) -> None:
        """Forget them: they were delivered after all, or are not wanted."""

    @abstractmethod
    def states(self) -> Sequence[SplitState]:
        """Return the committed state of every split, without claiming anything."""

    # What other processes read and write while no worker runs the job.

    @abstractmethod
    def reposition(
        self, positions: Mapping[str, EncodedPosition | None], *, busy: Collection[str] = ()
    ) -> None:
        """Give splits other positions, each whole or not at all; None: it starts over.

        Their former owners cannot commit any more (I2).

        Raises:
            LeaseLostError: one of the workers *busy* owns one of them, or claimed it meanwhile;
                or other splits are made of it.

        """

    @abstractmethod
    def become_copy(self, of: str, *, busy: Collection[str]) -> bool:
        """Continue from what the job *of* has committed, which stays; forget what this one had.

        The counters of this one start over (I3). Returns False, having done nothing, while one of
        the workers *busy* owns a split of the other.
        """

    @abstractmethod
    def begin_beside(self, job: str) -> None:
        """Start over, with the secret key of *job*; forget what this one had."""

    @abstractmethod
    def see(self, rows: Sequence[Seen]) -> None:
        """Replace what workers saw, except of splits that others own; the times are the store's."""

    @abstractmethod
    def seen(self) -> Mapping[str, Seen]:
        """Return what was seen of each split, and of the whole job under the empty name."""

    @abstractmethod
    def report(self, problem: str) -> None:
        """Keep why the job as a whole cannot run; an empty text says that it can."""

    @abstractmethod
    def problem(self) -> str:
        """Return what was reported last."""

    @abstractmethod
    def close(self) -> None:
        """Give back the connection. Safe to call twice."""

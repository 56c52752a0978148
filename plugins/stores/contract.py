"""The values that the framework keeps for a job, and the errors of stores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Final, Self

import msgspec

from headrace.plugins.errors import FatalError, RetriableError
from headrace.plugins.positions import EncodedPosition, TokenRange
from headrace.plugins.records.record import Document, Headers
from headrace.plugins.stores.kept_modes import KeptModes

QUARANTINE_BYTES_MAX: Final = 256 * 1024 * 1024


class StateLostError(FatalError):
    """The state of a split no longer exists: the framework must not guess."""

    code = "state_lost"


class StoreUnavailableError(RetriableError):
    """The store did not answer, or could not write; its content is unchanged."""

    code = "store_unavailable"


class PlanChangedError(FatalError):
    """The source plans splits that cannot replace the registered ones."""

    code = "plan_changed"
    exit_status = 2


class QuarantineFullError(FatalError):
    """The quarantine reached its limit: the split stops rather than lose bytes or grow."""

    code = "quarantine_full"


class TableCounts(msgspec.Struct, frozen=True):
    """The counts of one table's changes (I3): cut is the sum of the other four fates.

    Some of the delivered ones may be repeated: in the window that a former owner had not committed,
    beside a former owner that may live on as a zombie, and in resent batches.
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
        """All counts, in order."""
        fates = self.cut, self.delivered, self.filtered, self.dead_lettered, self.quarantined
        return *fates, self.window, self.zombie, self.resend

    @property
    def fates(self) -> Mapping[str, int]:
        """The number of changes by fate."""
        return {
            "cut": self.cut,
            "delivered": self.delivered,
            "filtered": self.filtered,
            "dead_lettered": self.dead_lettered,
            "quarantined": self.quarantined,
        }

    @property
    def repeats(self) -> Mapping[str, int]:
        """The number of possible repeats, by cause."""
        return {"window": self.window, "zombie": self.zombie, "resend": self.resend}


Counters = Mapping[str, TableCounts]


def add_counters(first: Counters, second: Counters) -> dict[str, TableCounts]:
    """Add table by table."""
    found = dict(first)
    for table, counts in second.items():
        known = found.get(table)
        found[table] = counts if known is None else known + counts
    return found


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process. `pid` and `started` identify it within `boot` and `pid_space`."""

    worker: str
    host: str
    boot: str
    pid_space: str
    pid: int
    started: int


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker as recorded in the store; `beat` grows while it lives.

    `places` are those that it reads without a network, `handover_targets` the workers to which it
    is handing splits over. A worker that `wants` splits is to have these, and no others, as long as
    it lives. `silent_ms` is how long ago `beat` grew, as far as the store knows.
    """

    owner: Owner
    beat: int
    places: tuple[str, ...] = ()
    handover_targets: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()
    silent_ms: int = field(default=0, compare=False)


class LeaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """A split's lease. `owner` is None when free; `beat` grows with each claim and renewal.

    `rate` is the last read rate of the split in bytes per second; it stays when the owner goes.
    """

    split: str
    owner: str | None
    token: int
    beat: int
    lease_ms: int
    problem: str = ""
    rate: int = 0


class SplitState(msgspec.Struct, frozen=True, kw_only=True):
    """The committed state of a split; `position` is None before the first commit.

    `modes` is None if no owner had a log in mode realtime or was asked for a mode.
    """

    split: str
    plan: int
    token: int
    seq: int
    position: EncodedPosition | None
    counters: Counters
    modes: KeptModes | None = None


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


class KeptLoss(msgspec.Struct, frozen=True):
    """A stored loss: its number, since when (ms since 1970), and whether a topic has it too.

    *name* is that of its row in the store.
    """

    number: int
    split: str
    name: str
    lost_ms: int
    sent: bool
    loss: Loss


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """Replace the state of *split*, if its plan, token, owner and `previous` match (I2).

    `tokens` are those of the split, for a store that publishes states by token range.
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


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan generation: the splits of a job.

    After it was replaced, `books` has the source's own counters and `counters` the framework's, of
    all its splits, at its end.
    """

    number: int
    splits: tuple[str, ...]
    books: Mapping[str, int] = msgspec.field(default_factory=dict)
    counters: Counters = msgspec.field(default_factory=dict)


class Plans(msgspec.Struct, frozen=True):
    """The plan in force, the announced plan that will replace it, if any, and earlier ones."""

    in_force: Plan
    announced: Plan | None = None
    ended: Sequence[Plan] = ()

    @classmethod
    def of(cls, in_force: Plan, kept: Sequence[Plan]) -> Self:
        """Divide the plans that a store has *kept* into earlier ones and the next one."""
        return cls(
            in_force,
            next((plan for plan in kept if plan.number > in_force.number), None),
            [plan for plan in kept if plan.number < in_force.number],
        )


class Successor(msgspec.Struct, frozen=True):
    """The data for replacing a plan: the starts of its splits (None: the beginning), old books."""

    positions: Mapping[str, EncodedPosition | None]
    books: Mapping[str, int]
    counters: Counters


Succeed = Callable[[Sequence[SplitState]], Successor]

"""A transactional sink in memory, whose commits fail, are late or are fenced as a test says."""

import os
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from headrace.plugins import (
    AbortedError,
    Context,
    Delivery,
    Disposition,
    Failure,
    FencedError,
    MissingRequirementError,
    Settle,
    SinkOptions,
    TransactionalWriter,
    option,
)
from headrace.plugins.testing.doubles import ChaosConfig, ChaosResult, ChaosSink, ChaosWriter

Pair = tuple[bytes | None, bytes]


class Outcome(Enum):
    """The outcome of the next commit, or of the next reading of the entries."""

    DONE = "done"
    LATE = "late"
    """It is not answered in time; the next call finds it committed."""
    ABORTED = "aborted"
    DEAD = "dead"
    """It was committed, but the producer fails and cannot report it."""


class TransactionalSink(ChaosSink):
    """Deliveries fail as the script says; committed records are in `seen`.

    `reused` are splits that continued after their writer was fenced, without a new claim. For that,
    set `token_of`, which returns the token of a split's lease.
    """

    def __init__(self, config: ChaosConfig, context: Context) -> None:
        """Start without records."""
        super().__init__(config, context)
        self.seen: list[Pair] = []
        self.entries: dict[str, dict[str, bytes]] = {}
        self.epochs: dict[str, int] = {}
        self.outcomes: deque[Outcome] = deque()
        self.token_of: Callable[[str], int] = lambda _: 0
        self.reused: list[str] = []
        self._fenced: dict[str, int] = {}

    def began(self, split: str) -> None:
        """Record a writer that starts with the token of a fenced writer."""
        if self._fenced.get(split) == self.token_of(split):
            self.reused.append(split)

    def fenced(self, split: str) -> None:
        """Record that a writer was fenced."""
        self._fenced[split] = self.token_of(split)

    @property
    def is_transactional(self) -> bool:
        """Return True."""
        return True

    def open_split(self, split: str) -> "MemoryTransactions":
        """Return a writer of *split*."""
        return MemoryTransactions(self, split)


class MemoryTransactions(TransactionalWriter):
    """Writes one split into its sink's memory."""

    place = "memory"
    window_ms = 60_000

    def __init__(self, sink: TransactionalSink, split: str) -> None:
        """Fence no writer yet."""
        self._sink = sink
        self._split = split
        self._epoch = 0
        self._dead = False
        self._broken = False
        self._pending: list[Pair] = []

    def begin(self, deadline_ms: int) -> Mapping[str, bytes] | None:
        """Fence earlier writers; answer late if that is the next outcome."""
        del deadline_ms
        self._check()
        if not self._epoch:
            self._sink.began(self._split)
            self._epoch = self._sink.epochs[self._split] = self._sink.epochs.get(self._split, 0) + 1
        self._pending.clear()
        self._broken = False
        if self._sink.outcomes and self._sink.outcomes[0] is Outcome.LATE:
            self._sink.outcomes.popleft()
            return None
        return dict(self._sink.entries.get(self._split, {}))

    def submit(self, delivery: Delivery, settle: Settle) -> None:
        """Add a delivery to the transaction, or fail it."""
        self._check()
        if self._broken:
            raise AbortedError("broken")
        encoded = delivery.encoded
        script = self._sink.config.script
        result = script.popleft() if script else ChaosResult.DELIVER
        failed = {
            ChaosResult.RETRY_LAST: Disposition.RETRY,
            ChaosResult.REJECT_FIRST: Disposition.REJECT,
            ChaosResult.FATAL_FIRST: Disposition.FATAL,
        }.get(result)
        pairs = list(zip(encoded.keys, encoded.values, strict=True))
        if failed is None:
            self._pending += pairs
            if result is ChaosResult.HOLD:  # In the transaction already, and not settled.
                self._sink.held.append((delivery, settle))
            else:
                settle(range(len(pairs)))
            return
        self._pending += pairs[1:]
        self._broken = failed is not Disposition.REJECT
        settle(range(1, len(pairs)), [Failure(0, failed, "chaos", "as the test says")])

    def commit(self, entries: Mapping[str, bytes | None], deadline_ms: int) -> bool:
        """Apply the next outcome."""
        del deadline_ms
        self._check()
        outcome = self._sink.outcomes.popleft() if self._sink.outcomes else Outcome.DONE
        if self._broken or outcome is Outcome.ABORTED:
            self._broken = True
            raise AbortedError("as the test says")
        if outcome is Outcome.LATE:
            return False
        kept = self._sink.entries.setdefault(self._split, {})
        for name, content in entries.items():
            kept.pop(name, None)
            if content is not None:
                kept[name] = content
        self._sink.seen += self._pending
        self._pending.clear()
        if outcome is Outcome.DEAD:
            self._dead = True
            self._check()
        return True

    def drain(self, deadline_ms: int) -> bool:
        """Say whether nothing is held."""
        del deadline_ms
        return not self._sink.held

    def _check(self) -> None:
        if self._dead or self._epoch not in (0, self._sink.epochs.get(self._split, 0)):
            self._dead = True
            self._sink.fenced(self._split)
            raise FencedError("a later writer has begun")


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultConfig(SinkOptions):
    """The options of a sink that stores positions."""

    number: str = option("Which vault.")
    shut: str = option("A file; while it is there, nobody is let in.", default="")


@dataclass
class Vault:
    """The contents of a vault: what consumers see, and the states of the jobs' splits."""

    seen: list[Pair] = field(default_factory=list)
    kept: dict[str, tuple[dict[str, dict[str, bytes]], dict[str, int]]] = field(
        default_factory=dict
    )


VAULTS: defaultdict[str, Vault] = defaultdict(Vault)


class VaultSink(TransactionalSink):
    """`vault://number`: exactly once, in the memory of this process."""

    schemes = ("vault",)
    config_class = VaultConfig  # type: ignore[assignment]  # It has other options.

    def __init__(self, config: VaultConfig, context: Context) -> None:
        """Continue with the contents of the vault."""
        super().__init__(ChaosConfig(), context)
        vault = VAULTS[config.number]
        self.seen = vault.seen
        self.entries, self.epochs = vault.kept.setdefault(context.job, ({}, {}))
        self._shut = Path(config.shut)

    def open(self) -> ChaosWriter:
        """Open, unless the vault is shut."""
        if self._shut.is_file():
            raise MissingRequirementError("the vault is shut")
        return super().open()

    def home(self) -> str:
        """Name this process."""
        return f"process {os.getpid()}"

    @classmethod
    def config_of_uri(cls, host: str, path: str) -> dict[str, str]:
        """Parse the host as the number."""
        del path
        return {"number": host}

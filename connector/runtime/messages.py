"""The messages between the control thread and the data thread of a worker."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.connector.runtime.splits.ownership import Lease
from headrace.plugins import HeadraceError
from headrace.plugins.stores.kept_modes import AskedMode


@dataclass(frozen=True, slots=True)
class Gain:
    """Start to run a split."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Lose:
    """Drop a split at once: another worker owns it."""

    split: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """Drain, commit and give back a split."""

    split: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Hand over all splits, then end."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop or resume reading; batches in flight settle and are committed."""

    paused: bool


@dataclass(frozen=True, slots=True)
class SetModes:
    """Read logs in the requested modes."""

    asked: Mapping[str, AskedMode]


Command = Gain | Lose | HandOver | Stop | Pause | SetModes


@dataclass(frozen=True, slots=True)
class Closed:
    """A split that the pipeline no longer runs; its lease is given back, unless it was lost."""

    split: str
    token: int
    error: HeadraceError | None


@dataclass(frozen=True, slots=True)
class Idled:
    """After `commands` commands everything was read, settled and committed.

    `for_ever` says that the source of no split will ever have more.
    """

    commands: int
    for_ever: bool

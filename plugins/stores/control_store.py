"""What a store keeps beside the states of splits: notes of all jobs, and what workers saw of one.

Notes are small: statements, and what is wanted of jobs. They are read whole, and replaced by
a process that has seen the newest version.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.plugins.stores.contract import Store

ALL_JOBS: Final = "all"
"""The space of the notes that workers and the command service share."""
NoteKey = tuple[str, str]
"""The kind of a note, and its name among those of its kind."""


class Observed(StrEnum):
    """What a split, or a connector, is doing."""

    UNASSIGNED = "UNASSIGNED"
    """No live process owns it."""
    RUNNING = "RUNNING"
    """Data flows, or there is nothing to read: by progress, not by intention."""
    STALLED = "STALLED"
    """It should be flowing and is not; the reason says why."""
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    RESTARTING = "RESTARTING"
    """It failed, and is tried again; the reason says why it failed."""
    FAILED = "FAILED"
    """It failed, and is not tried again by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the worker `worker` saw of a split, or of the whole job. Times are since 1970.

    A store ignores the row of a split whose lease another worker has: the owner knows better.
    """

    split: str
    state: Observed
    generation: int
    worker: str = ""
    reason: str = ""
    attempt: int = 0
    next_attempt_ms: int | None = None
    since_ms: int = 0
    seen_ms: int = 0


class PublicationState(StrEnum):
    """How far a publication has come."""

    QUEUED = "queued"
    PUBLISHED = "published"
    REFUSED = "refused"
    MOVED = "moved"
    """Refused under this subject, and queued under another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """One half (`part`: key or value) of a table's schema under a subject."""

    subject: str
    schema_id: bytes
    part: str
    text: str
    state: PublicationState = PublicationState.QUEUED
    number: int | None = None
    guid: bytes | None = None
    problem: str = ""


class Publications(ABC):
    """The durable queue of a job's schemas on their way to a schema store. For one thread.

    Apart from the schemas themselves, which are kept whether or not they are published.
    """

    @abstractmethod
    def enqueue(self, publications: Sequence[Publication]) -> None:
        """Queue those that are not known yet, or with another text; what was of that is void."""

    @abstractmethod
    def settle(self, publication: Publication) -> None:
        """Replace what is known of a publication, unless its text is another by now."""

    @abstractmethod
    def all(self) -> Sequence[Publication]:
        """Return all, in the order in which they were queued."""


class Notes(ABC):
    """The notes of all jobs in a store. For one thread.

    Any call may raise StoreUnavailableError: then what became of it is not known.
    """

    @property
    @abstractmethod
    def place(self) -> str:
        """Where they are, as errors name it."""

    @abstractmethod
    def version(self) -> int:
        """Return how often they were replaced."""

    @abstractmethod
    def rows(self) -> tuple[int, Mapping[NoteKey, str]]:
        """Return all of them as of one version, and that version."""

    @abstractmethod
    def replace(self, seen: int, changes: Mapping[NoteKey, str | None]) -> bool:
        """Write *changes*, None removes, if *seen* is still the version, which then grows by one.

        All of it or nothing. Returns False if another process was faster.
        """

    def grouped(self) -> AbstractContextManager[None]:
        """Make one write of what the block writes, here and in the stores of `store`.

        Only a backend on this machine can; with another one each write counts for itself.
        """
        return nullcontext()

    def check(self) -> None:  # noqa: B027 (nothing to check by default)
        """Raise StateLostError if what was opened was removed or replaced since."""

    @abstractmethod
    def store(self, job: str) -> "Store":
        """Return the store of a job over the same connection, which stays with the notes."""

    @abstractmethod
    def close(self) -> None:
        """Give back the connection. Safe to call twice."""

"""The driver of the suites of stores, and steps that they share."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins.positions import EncodedPosition
from headrace.plugins.stores.contract import (
    QUARANTINE_BYTES_MAX,
    Commit,
    LeaseRow,
    Loss,
    Owner,
    TableCounts,
)

LEASE_MS: Final = 1_000
COUNTS: Final = {"ks.t": TableCounts(cut=5, delivered=3, dead_lettered=1, quarantined=1)}
LOSS: Final = Loss(
    kind="dead_letter",
    table="ks.t",
    place="node a, byte 7",
    code="too_large",
    message="is too large",
    key=b"\0k",
    content=b"12345",
    headers=(("h", b"\1"),),
    stage="KAFKA_PRODUCE",
    origin={"segment": 7},
)


class StoreDriver(ABC):
    """What the suite must know about a store."""

    job: str
    """A job that the store holds nothing of yet."""

    @abstractmethod
    def open(self, job: str, *, quarantine_bytes_max: int = QUARANTINE_BYTES_MAX) -> Store:
        """Connect again, as another process would."""

    @abstractmethod
    def open_notes(self) -> NoteCopy:
        """Connect again to the notes of all jobs."""

    @abstractmethod
    def set_head_token(self, split: str, token: int) -> None:
        """Set the token in the head of a split of `job`, behind the store's back."""

    @abstractmethod
    def remove(self, what: str, split: str) -> None:
        """Remove the `lease`, the `head` or the `chunks` of a split, behind the store's back.

        Or, of its head, only the `position`.
        """


def owner(worker: str = "w1") -> Owner:
    """Return a worker's identity."""
    return Owner(worker=worker, host="h", boot="b", pid_space="p", pid=1, started=2**62)


def lease(store: Store, split: str = "a") -> LeaseRow:
    """Return a lease as it stands."""
    return next(row for row in store.leases() if row.split == split)


def claim(store: Store, worker: str = "w1", split: str = "a") -> int:
    """Claim a lease and return the token."""
    return store.claim(worker, [lease(store, split)], LEASE_MS)[split]


def commit_of(  # noqa: PLR0913 (each with its default)
    token: int,
    *,
    split: str = "a",
    worker: str = "w1",
    previous: int = 0,
    seq: int = 1,
    head: bytes = b"head",
    chunks: Mapping[str, bytes] | None = None,
    kept: Iterable[str] = (),
    losses: Sequence[Loss] = (),
) -> Commit:
    """Return a commit."""
    return Commit(
        split=split,
        plan=1,
        token=token,
        owner=worker,
        previous=previous,
        seq=seq,
        position=EncodedPosition(head, chunks or {}, frozenset(kept)),
        counters=COUNTS,
        losses=losses,
    )


def registered(driver: StoreDriver) -> Store:
    """Return a store of a job with splits a and b."""
    store = driver.open(driver.job)
    assert 1 == store.register(["a", "b"])
    return store


def commit(store: Store, wanted: Commit) -> None:
    """Commit; it must be accepted."""
    assert {} == store.commit([wanted])

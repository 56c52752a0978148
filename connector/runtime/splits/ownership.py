"""A lease on a split, and the changes of leases in one step of the lease holder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import structlog


class Lease(msgspec.Struct, eq=False):
    """A split held by this process. The control thread renews it, the data thread checks it.

    `deadline_ms` is on the boot clock; nothing is submitted in the last `margin_ms`. `former` is
    the worker from which it was taken over, which had not given it back; it has `ended` for
    certain, or only fell silent. An `adopted` split should be another worker's, which did not
    claim it.
    """

    split: str
    token: int
    deadline_ms: int
    margin_ms: int
    since_ms: int = 0
    former: str | None = None
    ended: bool = False
    adopted: bool = False

    def allows(self, now_ms: int) -> bool:
        """Whether a batch may be submitted at *now_ms* (I2)."""
        return now_ms < self.deadline_ms - self.margin_ms


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of leases in one step of the lease holder.

    `hand_over` has the target of each split. `late` are those that were renewed after submissions
    had to stop.
    """

    gained: Sequence[Lease] = ()
    lost: Sequence[str] = ()
    hand_over: Mapping[str, str] = field(default_factory=dict)
    late: Sequence[str] = ()


def tell_ownership(log: structlog.stdlib.BoundLogger, changes: Changes) -> None:
    """Log changes of leases; the data thread logs those that it gives back."""
    for lease in changes.gained:
        if lease.former is None:
            log.info("split_claimed", split=lease.split, token=lease.token)
        else:
            log.info("split_taken_over", split=lease.split, token=lease.token, former=lease.former)
    for split, target in changes.hand_over.items():
        log.info("split_offered", split=split, target=target)
    for split in changes.late:
        log.warning("lease_renewed_late", split=split)
    for split in changes.lost:
        log.warning("split_lost", split=split)

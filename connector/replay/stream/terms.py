"""Exactly once: under which terms tasks commit splits, and what they note with a commit.

The driver hands the terms over with the orders of a batch. The note is in the same transaction as
the records, so an attempt that comes later sees what became of its batch.
"""

from typing import Self

import msgspec

from headrace.connector.stores import Counters, TableCounts
from headrace.connector.stores.kept_state import KeptState


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """What a task must know of a split before it commits it.

    `checkpoint` is the id of the checkpoint, `key` the digest of the job's key, `token` that of the
    driver's lease, `moved` how often the position was set by command. `first` is the number of the
    split's last commit before batch 0, `seq` that of the state that the driver found. `is_kept`
    says that the sink had that state. `home` is where the driver has the states, see `Sink.home`.
    """

    checkpoint: str
    key: str
    token: int
    moved: int
    first: int
    seq: int
    is_kept: bool
    home: str


class BatchNote(msgspec.Struct, frozen=True, kw_only=True):
    """What a task notes of a commit: which batch of which checkpoint, and the end of that.

    `read` are the split's counters in the checkpoint at that end, `delivered` those of what this
    batch delivered, `losses` names the file of what it could not deliver, if there is any.
    """

    checkpoint: str
    batch: int
    end: str
    read: dict[str, TableCounts]
    delivered: dict[str, TableCounts]
    losses: str = ""

    @classmethod
    def of(cls, kept: KeptState | None, checkpoint: str) -> Self | None:
        """Return the note of a state, if a task of *checkpoint* committed it."""
        if kept is None or not kept.note:
            return None
        note = msgspec.json.decode(kept.note, type=cls)
        return note if note.checkpoint == checkpoint else None

    def text(self) -> str:
        """Return what `of` reads."""
        return msgspec.json.encode(self).decode()


class Settled(msgspec.Struct, frozen=True):
    """What a part delivered, and the name of the file of what it could not deliver, if any."""

    counters: Counters
    losses: str = ""

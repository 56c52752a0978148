"""Exactly once: the terms under which tasks commit splits, and their notes in commits.

The driver sends the terms with the orders of a batch. The note is in the same transaction as the
records, so a later attempt sees the outcome of its batch.
"""

from typing import Self

import msgspec

from headrace.connector.stores import Counters, TableCounts
from headrace.connector.stores.kept_state import KeptState


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """The data that a task needs to commit a split.

    `checkpoint` is the id of the checkpoint, `key` the digest of the job's key, `token` that of the
    driver's lease, `moved` how often a command has set the position. `first` is the number of the
    split's last commit before batch 0, `seq` that of the state that the driver found. `is_kept`
    says that the sink had that state. `home` is the driver's place of the states, see `Sink.home`.
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
    """A task's note in a commit: the batch, its checkpoint, and its end.

    `read` are the split's counters in the checkpoint at that end, `delivered` those of the records
    that this batch delivered, `losses` names the file of its losses, if there are any.
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
        """Return the text that `of` reads."""
        return msgspec.json.encode(self).decode()


class Settled(msgspec.Struct, frozen=True):
    """The result of a part: its deliveries, and the name of the file of its losses, if any."""

    counters: Counters
    losses: str = ""

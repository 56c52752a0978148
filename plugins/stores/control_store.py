"""The part of a store beside the states of splits: notes of all jobs, and workers' observations.

Notes are small: statements, and target states of jobs. They are read whole, and replaced by a
process that has seen the newest version.
"""

from enum import StrEnum
from typing import Final

import msgspec

ALL_JOBS: Final = "all"
"""The space of the notes that workers and the command service share."""
NoteKey = tuple[str, str]
"""The kind of a note, and its name among those of its kind."""


class Observed(StrEnum):
    """The state of a split, or a connector."""

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


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker `worker` observed of a split, or of the whole job. Times are since 1970.

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
    """The state of a publication."""

    QUEUED = "queued"
    PUBLISHED = "published"
    REFUSED = "refused"
    MOVED = "moved"
    """Refused under this subject, and queued under another."""


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """One half (`part`: key or value) of a table's schema under a subject."""

    subject: str
    schema_id: bytes
    part: str
    text: str
    state: PublicationState = PublicationState.QUEUED
    number: int | None = None
    guid: bytes | None = None
    problem: str = ""

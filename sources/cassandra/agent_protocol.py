"""What the agent of a node and those who read its log say to each other: paths, bodies, bounds."""

import builtins
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec

from headrace.sources.cassandra.manifest import Stored
from headrace.sources.cassandra.streams import Stream

SEGMENTS_PATH: Final = "/v1/segments"
ENTRIES_PATH: Final = "/v1/entries"
COPIES_PATH: Final = "/v1/copies"
HOLD_PATH: Final = "/v1/hold"
NEEDS_PATH: Final = "/v1/needs"
MESSAGING_HEADER: Final = "Headrace-Messaging"
RANGE_BYTES_MAX: Final = 4 * 1024 * 1024  # Of one answer.
COPY_BYTES_MAX: Final = 32 * 1024 * 1024  # Of the mutations in one answer.
NEEDS_BYTES_MAX: Final = 1024 * 1024  # Of one request.
SPLITS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class AgentAccess:
    """With what a reader comes to the agents: what they ask for, and files in PEM."""

    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None


class Listed(msgspec.Struct, frozen=True):
    """A segment of the node; `limit` is its durable offset, -1 when it is final.

    `told` is as in `SegmentInfo`.
    """

    id: int
    name: str
    limit: int
    missing: bool
    bytes: int
    modified_ms: float
    unwatched: bool = False
    told: int = 0


class Listing(msgspec.Struct, frozen=True):
    """All segments with CDC data, by ascending id, and the streams that the node received."""

    segments: list[Listed]
    streams: list[Stream] = []


# What tells jobs of one name in different stores apart; it becomes part of a file's name.
Store = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{1,64}\Z")]


class Need(msgspec.Struct, frozen=True):
    """What a split needs: all after its marker, older `segments`, and `copies` in others.

    The marker is in an `incarnation` of the log, of which the split knows what is `listed`.
    """

    job: str
    store: Store
    split: str
    segment: int
    offset: int
    segments: list[int]
    copies: dict[int, list[tuple[int, int]]] = {}
    incarnation: int = 0
    listed: Stored = ()


class Needs(msgspec.Struct, frozen=True):
    """Splits of a job."""

    job: str
    store: Store
    splits: list[str]


class Noted(msgspec.Struct, frozen=True):
    """A note of what a split needs: of which state, up to which segment, and how old it is."""

    job: str
    store: str
    split: str
    segment: int
    age_seconds: float


class Notes(msgspec.Struct, frozen=True):
    """The notes of a job."""

    notes: list[Noted]


class Entries(msgspec.Struct, frozen=True):
    """Of which entries of a segment a reader wants what; see `entries.Wanted`.

    From `begin` in the file on, of about `bytes` there.
    """

    begin: int
    bytes: int
    key: Annotated[builtins.bytes, msgspec.Meta(min_length=16, max_length=16)]
    full: bool
    ranges: list[tuple[int, int]]
    passed: frozenset[builtins.bytes]
    kept: frozenset[builtins.bytes] | None


class Places(msgspec.Struct, frozen=True):
    """Places of mutations in a segment: position of the entry's end, and length."""

    segment: int
    places: list[tuple[Annotated[int, msgspec.Meta(ge=0)], Annotated[int, msgspec.Meta(ge=0)]]]


class HoldFigures(msgspec.Struct, frozen=True):
    """How much is held of a node's log, how much more can be, and how long that lasts.

    `retention_seconds`, at the rate of writing of late, is None while that is not known; `full`:
    something is not held now.
    """

    held_bytes: int
    held_segments: int
    cdc_raw_bytes: int
    room_bytes: int
    retention_seconds: float | None
    full: bool


class Refusal(msgspec.Struct, frozen=True):
    """Why a request was not answered."""

    code: str
    message: str

"""What the agent of a node and those who read its log say to each other: paths, bodies, bounds."""

from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec

SEGMENTS_PATH: Final = "/v1/segments"
NEEDS_PATH: Final = "/v1/needs"
RANGE_BYTES_MAX: Final = 4 * 1024 * 1024  # Of one answer.
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
    """A segment of the node; `limit` is its durable offset, -1 when it is final."""

    id: int
    name: str
    limit: int
    missing: bool
    bytes: int
    modified_ms: float


class Listing(msgspec.Struct, frozen=True):
    """All segments with CDC data, by ascending id."""

    segments: list[Listed]


# What tells jobs of one name in different stores apart; it becomes part of a file's name.
Store = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{1,64}\Z")]


class Need(msgspec.Struct, frozen=True):
    """What a split needs from now on: all after its marker, and older segments of copies."""

    job: str
    store: Store
    split: str
    segment: int
    offset: int
    segments: list[int]


class Needs(msgspec.Struct, frozen=True):
    """Splits of a job."""

    job: str
    store: Store
    splits: list[str]


class Refusal(msgspec.Struct, frozen=True):
    """Why a request was not answered."""

    code: str
    message: str

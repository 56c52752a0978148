"""The protocol between the agent of a node and its readers: paths, bodies, limits."""

import builtins
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from headrace.plugins import ConfigError, Problem
from headrace.sources.cassandra.commitlog.manifest import Stored
from headrace.sources.cassandra.errors import AgentUnavailableError, AgentUntrustedError
from headrace.sources.cassandra.logs.pins import Noted
from headrace.sources.cassandra.logs.repair_streams import Stream

if TYPE_CHECKING:
    import ssl  # Its import is slow, and most jobs use no agent over TLS.

VERSION: Final = 2
VERSION_CODE: Final = "agent_version"
_ROOT: Final = f"/v{VERSION}"
SEGMENTS_PATH: Final = f"{_ROOT}/segments"
ENTRIES_PATH: Final = f"{_ROOT}/entries"
MUTATIONS_PATH: Final = f"{_ROOT}/mutations"
COPIES_PATH: Final = f"{_ROOT}/copies"
HOLD_PATH: Final = f"{_ROOT}/hold"
NEEDS_PATH: Final = f"{_ROOT}/needs"
MESSAGING_HEADER: Final = "Headrace-Messaging"
MARK_HEADER: Final = "ETag"  # Of a listing: a different one has a different mark.
SEEN_HEADER: Final = "If-None-Match"
WAIT_HEADER: Final = "Prefer"
WAIT_SECONDS: Final = 5  # For a listing with another mark.
REQUEST_SECONDS_MAX: Final = 10.0
END_HEADER: Final = "Headrace-End"  # The entries of a final segment end with this response.
RANGE_BYTES_MAX: Final = 4 * 1024 * 1024  # Of one response.
SPAN_BYTES_MAX: Final = 16 * 1024 * 1024  # Of a segment whose entries are in one response.
COPY_BYTES_MAX: Final = 32 * 1024 * 1024  # Of the mutations in one response.
ANSWER_BYTES_MAX: Final = 72 * 1024 * 1024  # A response of entries may end with a long one.
NEEDS_BYTES_MAX: Final = 1024 * 1024  # Of one request.
SPLITS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class AgentAccess:
    """The credentials of a reader for agents: a token, and files in PEM."""

    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None


class Listed(msgspec.Struct, frozen=True):
    """A segment of the node; `limit` is its durable offset, -1 when it is final.

    `indexed` and `durable_ms` are as in `SegmentInfo`, the latter by the node's clock.
    """

    id: int
    name: str
    limit: int
    missing: bool
    bytes: int
    modified_ms: float
    unwatched: bool = False
    indexed: int = 0
    durable_ms: int = 0


class Listing(msgspec.Struct, frozen=True):
    """All segments with CDC data, by ascending id, and the streams that the node received."""

    segments: list[Listed]
    streams: list[Stream] = []


# Distinguishes jobs of one name in different stores; part of a file's name.
Store = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{1,64}\Z")]


class Need(msgspec.Struct, frozen=True):
    """The needs of a split: everything after its marker, older `segments`, and `copies` in others.

    The marker is in a `generation` of the log; `listed` is the manifest of the split.
    """

    job: str
    store: Store
    split: str
    segment: int
    offset: int
    segments: list[int]
    copies: dict[int, list[tuple[int, int]]] = {}
    generation: int = msgspec.field(default=0, name="incarnation")  # The name in requests.
    listed: Stored = ()


class Needs(msgspec.Struct, frozen=True):
    """Splits of a job."""

    job: str
    store: Store
    splits: list[str]


class Notes(msgspec.Struct, frozen=True):
    """The pins of a job."""

    notes: list[Noted]


class Entries(msgspec.Struct, frozen=True):
    """A request for entries of a segment; see `framing_sessions.Wanted`.

    It starts at `begin` in the file, and covers about `bytes` there.
    """

    begin: int
    bytes: int
    key: Annotated[builtins.bytes, msgspec.Meta(min_length=16, max_length=16)]
    full: bool
    ranges: list[tuple[int, int]]
    passed: frozenset[builtins.bytes]
    kept: frozenset[builtins.bytes] | None


class Place(msgspec.Struct, frozen=True):
    """The place of a mutation in a segment: position of the entry's end, and length."""

    segment: int
    position: Annotated[int, msgspec.Meta(ge=0)]
    length: Annotated[int, msgspec.Meta(ge=0)]


class Refusal(msgspec.Struct, frozen=True):
    """Why a request was rejected."""

    code: str
    message: str


def tls(access: AgentAccess) -> "ssl.SSLContext":
    """Return the TLS context that checks the agents' certificates. Raises ConfigError."""
    import ssl  # noqa: PLC0415 (see above)

    try:
        context = ssl.create_default_context(cafile=access.ca)
        if access.certificate is not None:
            context.load_cert_chain(access.certificate, access.key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError([Problem("agent_ca", f"cannot be used: {error}")]) from error
    return context


def no_answer(error: Exception, url: str) -> Callable[[], AgentUnavailableError]:
    """Return a function for the error when a new connection to *url* got no response.

    An agent that rejects our certificate sends no reason: it closes the connection.
    """
    import ssl  # noqa: PLC0415 (see above)

    said = f"{type(error).__name__}: {error}"
    broke_off = isinstance(error, ConnectionResetError | BrokenPipeError)
    if isinstance(error, ssl.SSLError) or (broke_off and url.startswith("https:")):
        hint = "do agent_ca, agent_certificate and agent_key fit its TLS options?"
        return partial(AgentUntrustedError, said, place=url, hint=hint)
    hint = "is `headrace agent` running there?"
    return partial(AgentUnavailableError, said, place=url, hint=hint)

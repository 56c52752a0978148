"""Queries of a history: a range of arrivals, and the wanted parts of its changes."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from headrace.connector.history import arrival
from headrace.connector.history.errors import QueryError
from headrace.connector.history.images import KEPT
from headrace.connector.history.store.contract import GONE
from headrace.plugins import Document, Operation, Problem

LIMIT_MAX: Final = 10_000
READS_MAX: Final = 100  # The limit of a page whose newest images are read from the source.
_TOKEN: Final = re.compile(r"([0-9a-f]{16})([<>])")

# Phoenix's names for events, in `event_type`; a deletion of many rows is an addition of ours.
EVENT_TYPES: Final[Mapping[Operation, str]] = {
    Operation.INSERT: "upsert",
    Operation.UPDATE: "upsert",
    Operation.DELETE: "delete",
    Operation.DELETE_RANGE: "range_delete",
    Operation.DELETE_PARTITION: "partition_delete",
}

# The same for expired values.
_TTL_TYPES: Final[Mapping[Operation, str]] = {
    Operation.UPDATE: "ttl_update",
    Operation.DELETE: "ttl_delete",
}
_NAMES: Final = [
    (each.lower(), (EVENT_TYPES if number < GONE else _TTL_TYPES)[each])
    for number, each in enumerate(KEPT)
]
OPERATION_NAMES: Final = tuple(
    dict.fromkeys(name for both in zip(*_NAMES, strict=True) for name in both)
)
"""What `op` shows, and then the other values of `event_type`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Changes that arrived from *from_ms* to before *to_ms*; without it, all that exist.

    *scopes* are images, or None for those that the history includes. *key* has values of primary
    key columns, in their JSON form. *operations*, from `operations_of`, and *partitions* are the
    wanted ones, or all if empty. The write time is from *written_from_us* to before
    *written_to_us*. *after* is the token of a page, *until* the arrival after the last one.
    """

    from_ms: int
    to_ms: int | None = None
    scopes: frozenset[str] | None = None
    partitions: frozenset[int] = frozenset()
    key: Document = field(default_factory=dict)
    operations: frozenset[int] = frozenset()
    written_from_us: int | None = None
    written_to_us: int | None = None
    descending: bool = False
    limit: int = 100
    after: str = ""
    until: int | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A change as a query returns it; values are JSON values (`json_values`).

    For Arrow, they are Arrow values (`frames.values`).

    `key` has the primary key columns that the change names. An image that was not requested is
    None, and so is the post image of a deletion. `partial` says that columns of the images may be
    missing, because the history did not see all of the row's past: an unknown column is absent, a
    null column is None. `derived` is a row that the deletion of a range or a partition removed. A
    change that is not `effective` had only older values than the row. An `expired` event was not
    written by a client: a row disappeared, or lost values, at the time `written_us`.

    Python does not search it for cycles (`gc`): with thousands of events that takes as long as
    making them.
    """

    arrival: int
    partition_id: int
    key: Document
    operation: Operation
    written_us: int
    change: Document | None = None
    pre: Document | None = None
    post: Document | None = None
    latest: Document | None = None
    partial: bool = False
    derived: bool = False
    static: bool = False
    effective: bool = True
    expired: bool = False

    @property
    def time_ms(self) -> int:
        """Return the time of arrival in ms since 1970."""
        return arrival.ms_of(self.arrival)

    @property
    def sequence(self) -> int:
        """Return the number among the changes that arrived in the same millisecond."""
        return arrival.sequence_of(self.arrival)

    @property
    def token(self) -> str:
        """Return the token to continue after the event, in ascending order."""
        return Place(self.arrival, descending=False).token()

    def json_document(self) -> Document:
        """Return the event with Phoenix's names."""
        images = {
            "pre_image": self.pre,
            "change_image": self.change,
            "post_image": self.post,
            "latest_image": self.latest,
        }
        made = {name: image for name, image in images.items() if image is not None}
        types = _TTL_TYPES if self.expired else EVENT_TYPES
        return {"event_type": types[self.operation], **made}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The events of one answer.

    `token` continues after the last of them; it is empty at the end of the range. `may_come` is the
    first arrival that a change may still receive.
    """

    events: list[Event]
    token: str
    may_come: int

    @property
    def safe_until_ms(self) -> int:
        """Return the time in ms before which no more changes can arrive."""
        return arrival.ms_of(self.may_come)


class Place(NamedTuple):
    """The arrival after which a page continues."""

    arrival: int
    descending: bool

    def token(self) -> str:
        """Return the text for `of`."""
        return f"{self.arrival:016x}{'<' if self.descending else '>'}"

    @classmethod
    def of(cls, token: str, *, descending: bool) -> "Place":
        """Read a token. Raises QueryError."""
        found = _TOKEN.fullmatch(token)
        if not found or (found[2] == "<") != descending:
            what = "is not a token of this query" if found else "is not a token"
            hint = "give the `next_token` of the page before, and the same ORDER BY"
            raise QueryError([Problem("after", f"{token[:32]!r} {what}", hint)])
        return cls(int(found[1], 16), descending)


def operations_of(names: Iterable[str], key: str) -> frozenset[int]:
    """Return the numbers of operations named by `op` or `event_type`, in any case.

    Raises QueryError, which refers to *key*.
    """
    wanted = [name.lower() for name in names]
    for name in wanted:
        if name not in OPERATION_NAMES:
            hint = f"there are {', '.join(OPERATION_NAMES)}"
            raise QueryError([Problem(key, f"{name[:32]!r} is not an operation", hint)])
    return frozenset(n for n, own in enumerate(_NAMES) if not {*own}.isdisjoint(wanted))

"""Selects the entries and changes for `inspect`: by table, token and place in the log.

Separate because it only decides; it does no input or output.
"""

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from headrace.plugins.errors import HeadraceError, meant
from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.log import Span
from headrace.sources.cassandra.mutation.changes import Mutation
from headrace.sources.cassandra.native import ops
from headrace.sources.cassandra.schema.tables import Schema

TOKEN_MIN: Final = -(1 << 63)
TOKEN_MAX: Final = (1 << 63) - 1
_PLACE: Final = re.compile(r"(\d{1,19})(?::(\d{1,10}))?")
_RANGE: Final = re.compile(r"(-?\d{1,19})?:(-?\d{1,19})?")


class SelectionError(HeadraceError):
    """A malformed option of the selection."""

    code = "inspect_option"
    exit_status = 2


class Place(NamedTuple):
    """A place in a node's log: a segment's id, and a logical position in it."""

    segment_id: int
    position: int


START: Final = Place(0, 0)
END: Final = Place((1 << 63) - 1, END_OFFSET)


class TokenRange(NamedTuple):
    """The tokens after *start* up to and including *end*, wrapping round if *end* is not larger."""

    start: int
    end: int

    def has(self, token: int) -> bool:
        """Return whether *token* is in the range; from a token to itself is the whole ring."""
        if self.start < self.end:
            return self.start < token <= self.end
        return token > self.start or token <= self.end


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The selected part: everything, except as limited. *first* is exclusive, *last* inclusive.

    `tables` has names `keyspace.table` and whole keyspaces; None is every table.
    """

    tables: Collection[str] | None = None
    ranges: Sequence[TokenRange] = ()
    first: Place = START
    last: Place = END

    def span(self, segment_id: int) -> Span | None:
        """Return the part of a segment to read, or None."""
        if not self.first.segment_id <= segment_id <= self.last.segment_id:
            return None
        after = self.first.position if segment_id == self.first.segment_id else 0
        until = self.last.position if segment_id == self.last.segment_id else END_OFFSET
        return Span(after, until)

    def has(self, mutation: Mutation) -> bool:
        """Return whether a part of *mutation* is selected."""
        if not any(self.has_table(update.table.qualified) for update in mutation.updates):
            return False
        span = self.span(mutation.segment_id)
        if span is None or not span.after < mutation.position <= span.until:
            return False
        key = mutation.updates[0].key
        token = ops.token(key, 0, len(key)) if self.ranges else 0
        return not self.ranges or any(span.has(token) for span in self.ranges)

    def has_table(self, qualified: str) -> bool:
        """Return whether changes of the table `keyspace.table` are selected."""
        if self.tables is None:
            return True
        return qualified in self.tables or qualified.partition(".")[0] in self.tables


def table_names(given: Sequence[str], schema: Schema | None) -> frozenset[str] | None:
    """Return the names in *given*, each a comma-separated list of `ks.table`, `ks.*` and `ks`.

    Without a schema every name is accepted: the log will describe the tables.

    Raises:
        SelectionError: *schema* does not have a name.

    """
    if not given:
        return None
    names = [name.strip().removesuffix(".*") for part in given for name in part.split(",")]
    if schema is None:
        return frozenset(names)
    known = {table.qualified for table in schema.tables.values()}
    known |= {table.keyspace for table in schema.tables.values()} | set(schema.keyspaces)
    for name in names:
        if name not in known:
            raise SelectionError(
                f"{name!r} is not in the schema",
                place="--tables",
                hint=meant(name, known, "give keyspace.table or keyspace"),
            )
    return frozenset(names)


def token_range(text: str) -> TokenRange:
    """Parse `START:END`; an empty side is the end of the ring.

    Raises:
        SelectionError: *text* is not two tokens.

    """
    match = _RANGE.fullmatch(text)
    if match is None:
        raise _malformed("--token-range", text, "START:END, two tokens of the ring")
    start, end = (TOKEN_MIN if side is None else int(side) for side in match.groups())
    if not TOKEN_MIN <= min(start, end) <= max(start, end) <= TOKEN_MAX:
        raise _malformed("--token-range", text, f"tokens from {TOKEN_MIN} to {TOKEN_MAX}")
    return TokenRange(start, end)


def place(option: str, text: str, default: int) -> Place:
    """Parse `SEGMENT` or `SEGMENT:POSITION`; *default* is the default position.

    Raises:
        SelectionError: *text* is not a place.

    """
    match = _PLACE.fullmatch(text)
    if match is None:
        raise _malformed(option, text, "SEGMENT or SEGMENT:POSITION, as the output has them")
    return Place(int(match[1]), default if match[2] is None else int(match[2]))


def _malformed(option: str, text: str, expected: str) -> SelectionError:
    return SelectionError(f"expected {expected}, found {text!r}", place=option)

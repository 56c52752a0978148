"""The token ring of a job: its parts, their owners, and parts that are not read. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from headrace.connector.control.console.paging import Document
from headrace.connector.control.status import SplitStatus
from headrace.connector.foundation.states import Observed, worst
from headrace.plugins import Source, TokenRanges

ARCS_MAX: Final = 64  # More of them cannot be distinguished.
LOWEST: Final = -(1 << 63)
TOKENS: Final = 1 << 64
NOT_COVERED: Final = "NOT COVERED"


class _Piece(msgspec.Struct, frozen=True):
    """Tokens from *first* up to, without, *behind*; *split* is None for a hole."""

    first: int
    behind: int
    split: SplitStatus | None


def ring_of(splits: Sequence[SplitStatus], source: type[Source]) -> Document | None:
    """Return the ring in at most `ARCS_MAX` arcs; None if the splits are not ranges of tokens.

    `read_share` is the share of the tokens whose split is RUNNING; `states` has how many splits, or
    holes, are in each state.
    """
    pieces = list(_pieces(splits, source))
    if not pieces:
        return None
    size = -(-len(pieces) // ARCS_MAX)
    running = sum(
        piece.behind - piece.first
        for piece in pieces
        if piece.split is not None and piece.split.state is Observed.RUNNING
    )
    arcs = [_arc(pieces[at : at + size]) for at in range(0, len(pieces), size)]
    states = Counter(piece.split.state.value if piece.split else NOT_COVERED for piece in pieces)
    share = running / TOKENS
    return {"splits": len(splits), "read_share": share, "states": dict(states), "arcs": arcs}


def tokens_of(split: str, source: type[Source]) -> tuple[int, int] | None:
    """Return the first token of a split and the one after its last, if it has tokens."""
    if not issubclass(source, TokenRanges) or (found := source.token_range(split)) is None:
        return None
    return found.first, found.behind


def _pieces(splits: Sequence[SplitStatus], source: type[Source]) -> Iterator[_Piece]:
    """Yield the splits by their tokens, and the holes between them."""
    known = [(t, split) for split in splits if (t := tokens_of(split.split, source))]
    if not known:
        return
    at = LOWEST
    for (first, behind), split in sorted(known, key=lambda each: each[0]):
        if first > at:
            yield _Piece(at, first, None)
        yield _Piece(first, behind, split)
        at = max(at, behind)
    if at < LOWEST + TOKENS:
        yield _Piece(at, LOWEST + TOKENS, None)


def _arc(pieces: Sequence[_Piece]) -> Document:
    splits = [piece.split for piece in pieces if piece.split is not None]
    is_covered = len(splits) == len(pieces)
    states = Counter(split.state.value for split in splits)
    return {
        "from": pieces[0].first,
        "to": pieces[-1].behind,
        "splits": len(splits),
        "state": worst(split.state for split in splits).value if is_covered else NOT_COVERED,
        "states": dict(states),
        "workers": sorted({split.worker for split in splits if split.worker}),
    }

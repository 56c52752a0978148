"""The books of a job as they are committed: read from its store, decoded by its source."""

from collections.abc import Mapping, Sequence

from headrace.connector.runtime.books import SplitBooks
from headrace.connector.stores import SplitState, Store
from headrace.plugins import Position, Source


def committed_books(
    store: Store, source: Source, *, thorough: bool = False
) -> Sequence[SplitBooks]:
    """Return the books of every split as they are committed, after those of earlier plans.

    With *thorough* each position is also held against its books, which takes time.
    """
    ended = [
        SplitBooks(f"plan {plan.number}", plan.books, plan.counters) for plan in store.plans().ended
    ]
    return [*ended, *books_of(store.states(), source, thorough=thorough)]


def books_of(
    states: Sequence[SplitState], source: type[Source] | Source, *, thorough: bool = False
) -> Sequence[SplitBooks]:
    """Return the books of states; see `committed_books`."""
    books = []
    for state in states:
        if state.position is None:
            books.append(SplitBooks(state.split, {}, state.counters))
            continue
        position = source.decode_position(state.position)
        books.append(
            SplitBooks(
                state.split,
                position.books(),
                state.counters,
                _span(position),
                position.contradictions() if thorough else (),
            )
        )
    return books


def _span(position: Position) -> Sequence[str]:
    began = {tuple(part.items()): offset for part, offset in position.began()}
    return [
        f"{' '.join(part.values()) or 'all'} from {_place(began.get(tuple(part.items())))} "
        f"to {_place(offset)}"
        for part, offset in position.describe()
    ]


def _place(offset: Mapping[str, int | str] | None) -> str:
    return "the beginning" if offset is None else ":".join(str(part) for part in offset.values())

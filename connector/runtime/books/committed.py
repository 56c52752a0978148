"""The committed books of a job: read from its store, decoded by its source."""

import time
from collections.abc import Mapping, Sequence

from headrace.connector.runtime.books.equations import SplitBooks, differences, total
from headrace.connector.runtime.failures.retry import PAUSE_FIRST_MS
from headrace.connector.stores import SplitState, StoreUnavailableError
from headrace.connector.stores.keyed.store import Store
from headrace.plugins import Clock, Position, Source


def committed_books(
    store: Store, source: type[Source] | Source, *, thorough: bool = False
) -> Sequence[SplitBooks]:
    """Return the committed books of every split, preceded by those of earlier plans.

    With *thorough* each position is also compared with its books, which takes time.
    """
    return [*_ended(store, source), *books_of(store.states(), source, thorough=thorough)]


def _ended(store: Store, source: type[Source] | Source) -> list[SplitBooks]:
    """Return the books of earlier plans."""
    return [
        SplitBooks(f"plan {plan.number}", plan.books, plan.counters, source.bookkeeping)
        for plan in store.plans().ended
    ]


class KeptBooks:
    """The committed books of one job. Each look reads only those that changed."""

    def __init__(self) -> None:
        """Start without books."""
        self._stamps: dict[str, int] = {}
        self._splits: dict[str, tuple[SplitBooks, Sequence[str]]] = {}
        self._found: tuple[Sequence[SplitBooks], Sequence[str]] | None = None

    def look(
        self, store: Store, source: type[Source]
    ) -> tuple[Sequence[SplitBooks], Sequence[str]]:
        """Return the result of `committed_books`, and its `books_differences`.

        Both are the same objects as before if nothing changed.
        """
        ended = _ended(store, source)
        stamps, changed = store.changed_states(self._stamps)
        known = self._found and self._found[0][: len(ended)]
        if known == ended and not changed and stamps.keys() == self._stamps.keys():
            assert self._found is not None  # noqa: S101 (it is known)
            return self._found
        self._stamps = {}  # If the read fails, the next one reads everything.
        made = {books.split: (books, differences(books)) for books in books_of(changed, source)}
        self._splits = {split: made.get(split) or self._splits[split] for split in stamps}
        books = [*ended, *(each for each, _ in self._splits.values())]
        lines = [line for each in ended for line in differences(each)]
        lines += [line for _, found in self._splits.values() for line in found]
        lines += differences(total(books))
        self._stamps, self._found = stamps, (books, lines)
        return self._found


def closing_books(
    store: Store, source: Source, clock: Clock, within_ms: int
) -> Sequence[SplitBooks]:
    """Return the final books of a run; retry *within_ms* if the store is unavailable. Blocks."""
    until_ms = clock.monotonic_ms() + within_ms
    while True:
        try:
            return committed_books(store, source)
        except StoreUnavailableError:
            if clock.monotonic_ms() >= until_ms:
                raise
        time.sleep(PAUSE_FIRST_MS / 1000)


def books_of(
    states: Sequence[SplitState], source: type[Source] | Source, *, thorough: bool = False
) -> Sequence[SplitBooks]:
    """Return the books in *states*; see `committed_books`."""
    books = []
    for state in states:
        if state.position is None:
            books.append(SplitBooks(state.split, {}, state.counters, source.bookkeeping))
            continue
        position = source.decode_position(state.position)
        books.append(
            SplitBooks(
                state.split,
                position.books(),
                state.counters,
                source.bookkeeping,
                _span(position),
                position.contradictions() if thorough else (),
                position.gaps(),
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

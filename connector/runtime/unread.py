"""Parts of a source that cannot be read now, such as the log of a node: told to the store.

Each has a row beside those of the splits. It is told again while it is so: several workers tell of
the same parts, and a row counts as long as the worker lives that wrote it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from headrace.connector.runtime.watch import REFRESH_MS
from headrace.connector.states import Observed
from headrace.connector.stores import Seen, Store
from headrace.plugins import Source

ROW_MARK: Final = "~unread "  # Before a part's name, where rows of splits have the split's.


@dataclass(frozen=True, slots=True)
class UnreadPart:
    """A part that cannot be read since `since_ms`, and what follows."""

    name: str
    since_ms: int
    reason: str


class Unread:
    """What one run has told of it. For the control thread."""

    def __init__(self, source: Source, worker: str, generation: int) -> None:
        """Have told nothing yet."""
        self._source = source
        self._worker = worker
        self._generation = generation
        self._told: Mapping[str, str] = {}
        self._told_ms = -REFRESH_MS

    def look(self, store: Store, now_ms: int) -> None:
        """Tell what changed, and now and then what is still so."""
        problems = self._source.unreadable()
        now = {part: f"{why.message}; {why.hint}" for part, why in problems.items()}
        if not (now or self._told):
            return
        if now == self._told and now_ms - self._told_ms < REFRESH_MS:
            return
        rows = [self._row(part, Observed.STALLED, reason) for part, reason in now.items()]
        rows += [self._row(part, Observed.UNASSIGNED, "") for part in self._told if part not in now]
        store.see(rows)
        self._told, self._told_ms = now, now_ms

    def _row(self, part: str, state: Observed, reason: str) -> Seen:
        return Seen(
            split=f"{ROW_MARK}{part}",
            state=state,
            generation=self._generation,
            worker=self._worker,
            reason=reason,
        )


def unread_parts(rows: Mapping[str, Seen], workers: Collection[str]) -> list[UnreadPart]:
    """Return the parts that *workers*, who live, said they cannot read."""
    return [
        UnreadPart(split.removeprefix(ROW_MARK), row.since_ms, row.reason)
        for split, row in sorted(rows.items())
        if split.startswith(ROW_MARK) and row.state is Observed.STALLED and row.worker in workers
    ]

"""Classifies changes and rows in which two sides differ. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from headrace.connector.replay.comparing.messages import ChangeRow
from headrace.connector.replay.comparing.rows import CellState, RowState, Span
from headrace.connector.rows.folding import NEVER

Key = tuple[str, bytes]  # The table, and a message's key.


class Difference(StrEnum):
    """The kind of a difference in a change or a row."""

    MISSING = "missing"
    """The logs agree on it, or the table has it; the topic does not have it."""
    STALE = "stale"
    """As MISSING, but the topic has only older changes of its key."""
    EXPIRED = "expired"
    """As MISSING, but its time to live is over, so no reader misses it."""
    EXTRA = "extra"
    """The topic has it; the logs do not agree on it, or the table does not have it."""
    UNDER_REPLICATED = "under_replicated"
    """Some logs have it, but too few."""


REPAIRABLE: Final = (Difference.MISSING, Difference.STALE)


@dataclass(frozen=True, slots=True)
class Found:
    """A change that differs between logs and topic."""

    difference: Difference
    row: ChangeRow


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A row that differs between topic and table, and the columns in which it differs.

    Without columns, one side does not have the row. `behind_us` are the write times of values that
    the topic does not have, if they are known.
    """

    difference: Difference
    row: RowState
    columns: tuple[str, ...] = ()
    behind_us: frozenset[int] = field(default=frozenset(), repr=False)
    since_us: int = 0
    """The newest write time that both sides have of it."""


def classified(
    agreed: Mapping[bytes, ChangeRow],
    logged: Mapping[bytes, ChangeRow],
    stored: Mapping[bytes, ChangeRow],
    *,
    now_s: int,
    is_whole: bool = True,
) -> list[Found]:
    """Return the differences between what was *agreed* and *stored*.

    *logged* are the changes in any log. Unless *is_whole*, only a part of the logs was read, and a
    change that no log has may be in another part. All are by content; ordered by table, time and
    name.
    """
    newest: dict[Key, int] = {}
    for row in stored.values():
        place = row.table, row.key
        newest[place] = max(newest.get(place, row.time_us), row.time_us)
    found = []
    for content, row in agreed.items():
        if content not in stored:
            found.append(Found(_why_missing(row, newest.get((row.table, row.key)), now_s), row))
    for content, row in stored.items():
        if content in logged and content not in agreed:
            found.append(Found(Difference.UNDER_REPLICATED, row))
        elif content not in agreed and is_whole:
            found.append(Found(Difference.EXTRA, row))
    for content, row in logged.items():
        if content not in agreed and content not in stored:
            found.append(Found(Difference.UNDER_REPLICATED, row))
    return sorted(found, key=lambda f: (f.row.table, f.row.time_us, f.row.name, f.row.content))


def _why_missing(row: ChangeRow, newest_us: int | None, now_s: int) -> Difference:
    if row.expires_s is not None and row.expires_s <= now_s:
        return Difference.EXPIRED
    if newest_us is not None and newest_us < row.time_us:
        return Difference.STALE
    return Difference.MISSING


def differing_rows(
    in_table: Mapping[bytes, RowState],
    in_topic: Mapping[bytes, RowState],
    span: Span,
    *,
    now_s: int,
    is_touched: Callable[[Key], bool],
) -> list[FoundRow]:
    """Return the rows in which the topic, folded, differs from the table.

    Values of either side from after the *span* are ignored. So are rows of *touched* keys that the
    table does not have: they may have been deleted. Ordered by table and name.
    """
    found = []
    for name in sorted(in_table.keys() | in_topic.keys()):
        table, topic = in_table.get(name), in_topic.get(name)
        one = table or topic
        assert one is not None  # noqa: S101 (it is in one of them)
        made = _RowPair(table, topic, span, now_s).difference(
            touched=is_touched((one.table, one.key))
        )
        if made is not None:
            found.append(made)
    return sorted(found, key=lambda f: (f.row.table, f.row.name))


@dataclass(frozen=True, slots=True)
class _RowPair:
    """A row in the table and in the topic."""

    table: RowState | None
    topic: RowState | None
    span: Span
    now_s: int

    def difference(self, *, touched: bool) -> FoundRow | None:
        """Return the difference, if there is one."""
        columns: dict[str, Difference] = {}
        for name in sorted({*_cells(self.table), *_cells(self.topic)}):
            difference = self._column(name)
            if difference is not None and (difference in REPAIRABLE or not touched):
                columns[name] = difference
        worst = self._worst(set(columns.values()), touched=touched)
        row = self.table or self.topic
        if worst is None or row is None:
            return None
        times = [_cells(self.table)[n].time_us for n, d in columns.items() if d in REPAIRABLE]
        behind = frozenset(time_us for time_us in times if time_us is not None)
        since_us = self.topic.newest_us if self.topic else 0
        return FoundRow(worst, row, tuple(columns), behind, since_us)

    def _worst(self, found: set[Difference], *, touched: bool) -> Difference | None:
        shown_in_topic = self.topic is not None and self.topic.shown
        if found & set(REPAIRABLE):
            return Difference.STALE if self.topic is not None else Difference.MISSING
        for difference in (Difference.EXTRA, Difference.EXPIRED):
            if difference in found:
                return difference
        if self.span.from_us is not None or touched or self._has_expired():
            return None  # The write time of a row without values is unknown.
        if self.table is not None and not shown_in_topic:
            is_newer = self.topic is not None and self.topic.deleted_us > self.table.newest_us
            return None if self._is_recent() or is_newer else Difference.MISSING
        if self.table is None and shown_in_topic and not self._is_recent():
            return Difference.EXTRA
        return None

    def _is_recent(self) -> bool:
        """Return whether there are values after the span, which alone may show the row."""
        rows = [row for row in (self.table, self.topic) if row is not None]
        return any(self.span.is_recent(row.newest_us) for row in rows)

    def _has_expired(self) -> bool:
        cells = _cells(self.topic).values()
        return any(c.expires_s is not None and c.expires_s <= self.now_s for c in cells)

    def _column(self, name: str) -> Difference | None:
        known = _cells(self.topic).get(name)  # May be a deletion.
        table, topic = self._living(_cells(self.table).get(name)), self._living(known)
        if (table is None and topic is None) or not self._counts(table, known):
            return None
        if table is None:
            assert topic is not None  # noqa: S101 (one of them is there)
            return Difference.EXPIRED if self._is_over(topic) else Difference.EXTRA
        if topic is not None and _same(table, topic):
            return None
        if self._is_over(table) or (topic is not None and self._is_over(topic)):
            return Difference.EXPIRED
        deleted_us = NEVER if self.topic is None else self.topic.deleted_us
        topic_us = deleted_us if known is None else max(known.time_us or NEVER, deleted_us)
        if table.time_us is not None and topic_us > table.time_us:
            return Difference.EXTRA
        return Difference.MISSING if topic is None else Difference.STALE

    def _counts(self, *cells: CellState | None) -> bool:
        """Return whether the write times of a column's values are compared."""
        times = [c.time_us for c in cells if c is not None and c.time_us is not None]
        return not any(map(self.span.is_recent, times)) and (
            not times or any(map(self.span.counts, times))
        )

    def _living(self, cell: CellState | None) -> CellState | None:
        return cell if cell is not None and cell.lives(self.span.at_s) else None

    def _is_over(self, cell: CellState) -> bool:
        """Return whether a compared value has expired meanwhile."""
        return cell.expires_s is not None and cell.expires_s <= self.now_s + 1


def _cells(row: RowState | None) -> Mapping[str, CellState]:
    return {} if row is None else row.cells


def _same(one: CellState, other: CellState) -> bool:
    is_timed = one.time_us is not None and other.time_us is not None
    return one.content == other.content and (not is_timed or one.time_us == other.time_us)


def unexplained(found: Sequence[FoundRow], changes: Sequence[Found]) -> Iterator[FoundRow]:
    """Yield the rows whose differences do not follow from differing changes."""
    times: dict[Key, list[int]] = defaultdict(list)
    for change in changes:
        times[change.row.table, change.row.key].append(change.row.time_us)
    for each in found:
        known = times.get((each.row.table, each.row.key), [])
        follows = (
            each.behind_us <= set(known)
            if each.behind_us
            else any(us >= each.since_us for us in known)
        )
        if not (known and follows):
            yield each

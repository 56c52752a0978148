"""The effects of a batch, whose statements Cassandra merges before it logs them."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import total_ordering
from typing import Any, Final

from headrace.sources.cassandra.mutation.ordering import sort_key
from headrace.sources.cassandra.schema.tables import TableSchema
from helpers.recordings.effects import STATIC, Effect, text


class Batch:
    """The effects of a batch on one partition of a table, as one mutation holds them."""

    def __init__(self, table: TableSchema, effects: Iterable[Effect]) -> None:
        """Order clustering values as *table* does."""
        self._table = table.qualified
        self._columns = table.clustering
        self._effects = list(effects)

    def left(self, positions: Mapping[str, Sequence[bytes]]) -> list[Effect]:
        """Return the merged effects: the newest of each place, and what is newer than deletions.

        *positions* has the bytes of clustering values by table and string, as `Stated` found them.
        """
        self._positions = positions
        newest: dict[tuple[str, ...], Effect] = {}
        others = []
        for effect in self._effects:
            kind = {"removed": "element"}.get(effect.kind, effect.kind)
            if kind.startswith("list") or kind == "range":
                others.append(effect)
                continue
            place = (kind, *effect[1:4], *effect.at)
            known = newest.get(place, effect)
            newest[place] = max(known, effect, key=lambda e: e.timestamp_us or 0)
        ranges = [effect for effect in others if effect.kind == "range"]
        listed = [effect for effect in others if effect.kind != "range"]
        kept = [*newest.values(), *listed, *self._parted(ranges)]
        wide = [e for e in kept if e.kind in {"partition", "range"}]
        of_rows: dict[str, list[Effect]] = {}
        for effect in kept:
            if effect.kind in {"delete", "clear"}:
                of_rows.setdefault(effect.clustering, []).append(effect)
        return [
            e
            for e in kept
            if not any(self._deleted(d, e) for d in (*wide, *of_rows.get(e.clustering, ())))
        ]

    def _parted(self, ranges: Sequence[Effect]) -> Iterator[Effect]:
        """Yield ranges that do not overlap, each with the newest deletion there, longest first."""
        edges: dict[Any, tuple[object, object]] = {(_LAST,): (None, None)}
        for effect in ranges:
            for is_end, side in enumerate(map(json.loads, effect.at)):
                values = None if side is None else side["values"]
                edge = self._edge(side, is_end=bool(is_end))
                after = edge[-1] == _LAST
                edges[edge] = (
                    None if values is None else {"values": values, "inclusive": not after},
                    None if values is None else {"values": values, "inclusive": after},
                )
        ordered = sorted(edges)
        open_range: Effect | None = None
        for edge, following in zip(ordered, [*ordered[1:], None], strict=True):
            covering = [e for e in ranges if following and self._spans(e, edge, following)]
            newest = max(covering, key=lambda e: e.timestamp_us or 0, default=None)
            if open_range and (not newest or newest.timestamp_us != open_range.timestamp_us):
                yield open_range._replace(at=(open_range.at[0], text(edges[edge][1])))
                open_range = None
            if newest and not open_range:
                open_range = newest._replace(at=(text(edges[edge][0]), ""))

    def _spans(self, effect: Effect, start: Any, end: Any) -> bool:  # noqa: ANN401 (a sort key)
        first, last = map(json.loads, effect.at)
        return bool(
            self._edge(first, is_end=False) <= start and end <= self._edge(last, is_end=True)
        )

    def _edge(self, side: Any, *, is_end: bool) -> Any:  # noqa: ANN401 (JSON; a sort key)
        if side is None:
            return (_LAST if is_end else _FIRST,)
        return (*self._position(side["values"]), _LAST if side["inclusive"] == is_end else _FIRST)

    def _position(self, values: Sequence[object]) -> tuple[Any, ...]:
        keys = []
        for column, raw in zip(
            self._columns, self._positions[self._table + text(values)], strict=False
        ):
            key = sort_key(column.type, raw)
            keys.append((1, _Backwards(key) if column.descending else key))
        return tuple(keys)

    def _deleted(self, deletion: Effect, effect: Effect) -> bool:
        # A deletion is kept beside another one of the same time, except for ranges.
        older = (effect.timestamp_us or 0) - (effect.kind not in {"clear", "delete"})
        if deletion is effect or older >= (deletion.timestamp_us or 0):
            return False
        if deletion.kind == "partition" or effect.kind in {"range", "partition"}:
            return deletion.kind == "partition"
        if deletion.kind == "range":
            return effect.clustering != STATIC and self._inside(deletion, effect)
        inner = effect.kind in {"element", "removed"} or effect.kind.startswith("list")
        covers = deletion.kind == "delete" or (inner and effect.at[0] == deletion.at[0])
        return covers and deletion.clustering == effect.clustering

    def _inside(self, deletion: Effect, effect: Effect) -> bool:
        start, end = map(json.loads, deletion.at)
        named = json.loads(effect.clustering)
        at = self._position([named[column.name] for column in self._columns])
        return bool(self._edge(start, is_end=False) < at < self._edge(end, is_end=True))


_FIRST: Final = (0,)  # Before every value, and after every one: the bound of a prefix.
_LAST: Final = (2,)


@total_ordering
@dataclass(frozen=True)
class _Backwards:
    """A key with the reverse order."""

    key: Any

    def __lt__(self, other: "_Backwards") -> bool:
        return bool(other.key < self.key)

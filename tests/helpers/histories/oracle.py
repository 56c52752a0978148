"""The rows of recorded tables by the source's own fold, which shares no code with the history's."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from headrace.connector.history.query import Event
from headrace.sources.cassandra.mutation.changes import Change
from headrace.sources.cassandra.mutation.folding import Fold
from headrace.sources.cassandra.schema.tables import ColumnKind, TableSchema
from helpers.recordings.batches import recorded_batches


@lru_cache
def changes(name: str) -> Mapping[str, Sequence[Change]]:
    """Return the changes of each table of a recording, in the order in which they agreed."""
    found: dict[str, list[Change]] = {}
    for batch in recorded_batches(name):
        for record in batch.records():
            change = record._change  # type: ignore[attr-defined]  # noqa: SLF001 (what it is of)
            found.setdefault(change.table.qualified, []).append(change)
    return found


class Oracle:
    """The rows of a table by the source's own fold, which shares no code with the history's."""

    def __init__(self, table: TableSchema) -> None:
        """Start with an empty table."""
        self._table = table
        self._folds: dict[object, Fold] = {}

    def add(self, change: Change) -> None:
        """Apply a change."""
        self._folds.setdefault(change.key, Fold(self._table)).add(change)

    def rows(self, change: Change, at_s: int) -> list[str]:
        """Return the keys and images of the rows of a change's partition, as text."""
        fold = self._folds.get(change.key)
        keys = [c.name for c in (*self._table.partition_key, *self._table.clustering)]
        regular = [c.name for c in self._table.columns if c.kind is ColumnKind.REGULAR]
        return [
            json.dumps([{n: row[n] for n in keys}, {n: row[n] for n in regular}])
            for row in ([] if fold is None else fold.rows(at_s))
            if all(row[name] is not None for name in keys)
        ]

    def image(self, change: Change, event: Event, at_s: int) -> dict[str, Any]:
        """Return what SELECT JSON shows at *at_s* of the row, or static columns, of a change."""
        fold = self._folds.get(change.key)
        rows = [] if fold is None else list(fold.rows(at_s))
        kind = ColumnKind.STATIC if event.static else ColumnKind.REGULAR
        columns = [c.name for c in self._table.columns if c.kind is kind]
        mine = [row for row in rows if event.static or event.key.items() <= row.items()]
        image = {name: mine[0][name] for name in columns} if mine else {}
        is_nothing = event.static and not any(value is not None for value in image.values())
        return {} if is_nothing else image

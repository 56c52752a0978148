"""Queries return the changes of a range in their order, each once, with the images of their rows."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.history.query import Event, Query
from headrace.connector.history.reading import History
from headrace.plugins import Operation
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.mutation.changes import Change
from headrace.sources.cassandra.mutation.folding import Fold
from headrace.sources.cassandra.schema.tables import ColumnKind, TableSchema
from helpers.histories.kept import Kept, fill, of_table
from helpers.recordings.batches import recorded_batches

RECORDINGS = ("4.0-random", "4.1-ops", "5.0-ops", "5.0-random", "5.0-types", "6.0-v9-random")
PER_COMMIT = 50
WIDE = (Operation.DELETE_RANGE, Operation.DELETE_PARTITION)


@lru_cache
def changes(name: str) -> Mapping[str, Sequence[Change]]:
    """Return the changes of each table of a recording, in the order in which they agreed."""
    found: dict[str, list[Change]] = {}
    for batch in recorded_batches(name):
        for record in batch.records():
            change = record._change  # type: ignore[attr-defined]  # noqa: SLF001 (what it is of)
            found.setdefault(change.table.qualified, []).append(change)
    return found


def kept(folder: Path, name: str, table: str, **options: str) -> Kept:
    """Return the history of a recorded table, with several commits in a millisecond."""
    made = Kept(folder, table, DrivenClock(), **{"seed": "empty", "retention": "9d"} | options)
    batches = [of_table(batch, table) for batch in recorded_batches(name)]
    fill(made, batches, per_commit=PER_COMMIT, step_ms=0)
    made.clock.advance(60_000)
    return made


def everything(history: History, query: Query | None = None) -> list[Event]:
    """Return the events of all pages."""
    wanted = query or Query(from_ms=0, limit=1_000)
    return [event for page in history.pages(wanted) for event in page.events]


class Oracle:
    """The rows of a table by the source's own fold, which shares no code with the history's."""

    def __init__(self, table: TableSchema) -> None:
        """Start with an empty table."""
        self._table = table
        self._folds: dict[object, Fold] = {}

    def add(self, change: Change) -> None:
        """Apply a change."""
        self._folds.setdefault(change.key, Fold(self._table)).add(change)

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


@pytest.mark.parametrize("name", RECORDINGS)
def test_images_are_what_select_shows(name: str, tmp_path: Path) -> None:
    """Before and after each change of recorded random workloads, and now; and each comes once."""
    count = 0
    for number, (table, mine) in enumerate(changes(name).items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        made = kept(folder, name, table)
        now_s = made.clock.wall_ms() // 1_000
        history = made.history()
        events = everything(history)
        history.close()
        oracle, last = Oracle(mine[0].table), Oracle(mine[0].table)
        for change in mine:
            last.add(change)
        assert len(mine) == len(events)
        for change, event in zip(mine, events, strict=True):
            at_s = event.time_ms // 1_000
            pre = oracle.image(change, event, at_s)
            oracle.add(change)
            assert (change.operation, change.timestamp_us) == (event.operation, event.written_us)
            if event.operation in WIDE:
                continue
            assert pre == event.pre, (event.key, event.operation)
            if event.operation is not Operation.DELETE:
                assert oracle.image(change, event, at_s) == event.post
            assert last.image(change, event, now_s) == event.latest
            assert not event.partial
            count += 1
    assert count > 100

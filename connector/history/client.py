"""Change history in Python: `headrace.history.connect(path).select(…)`.

A selection is read page by page when it is iterated, and again each time: as events, or as an Arrow
table, from which pandas and polars make data frames.
"""

import datetime as dt
import importlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.history.arrival import us_of
from headrace.connector.history.config import CHANGE, SCOPES
from headrace.connector.history.durations import duration_ms
from headrace.connector.history.errors import FramesMissingError
from headrace.connector.history.following import WAIT_MS_MAX, tail
from headrace.connector.history.query import Event, Query, operations_of
from headrace.connector.history.reading import History
from headrace.connector.history.store.places import opened
from headrace.plugins import ConfigError, Problem
from headrace.plugins.errors import install_hint

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from headrace.connector.history.frames.layout import Layout

Time = dt.datetime | dt.timedelta | str | int
"""A moment, or how long ago: a time of Python, ISO 8601, a duration such as `15m`, or ms."""

PAGE_EVENTS = 1_000


def connect(path: str | Path) -> "Client":
    """Open the history at *path*, as DESCRIBE CDC shows it: a file, or a name in a store.

    Raises:
        HistoryMissingError: it does not exist.
        HistoryFileError: it cannot be used.

    """
    clock = SystemClock()
    return Client(History(opened(str(path), clock), frozenset((CHANGE,)), clock))


class Client:
    """An open history; for one thread at a time. As a context manager it closes itself."""

    def __init__(self, history: History) -> None:
        """Read *history*."""
        self._history = history

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the history."""
        self.close()

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        self._history.close()

    def select(  # noqa: PLR0913 (each is a part of a query)
        self,
        since: Time,
        until: Time | None = None,
        *,
        include: Iterable[str] = (CHANGE,),
        key: Mapping[str, str | int | bool] | None = None,
        operations: Iterable[str] = (),
        partitions: Iterable[int] = (),
        descending: bool = False,
        limit: int | None = None,
    ) -> "Selection":
        """Return the changes that arrived at or after *since* and before *until*.

        *include* names images: change, pre, post, latest; *operations* are values of `op` or types
        of events, such as ttl_delete. Nothing is read yet.

        Raises:
            ConfigError: an image, a time or an operation does not exist.

        """
        wanted = frozenset(include)
        if unknown := wanted.difference(SCOPES):
            what = f"image {min(unknown)!r} is unknown"
            raise ConfigError([Problem("include", what, f"there are {', '.join(SCOPES)}")])
        now_ms = self._history.clock.wall_ms()
        query = Query(
            from_ms=_ms(since, now_ms, "since"),
            to_ms=None if until is None else _ms(until, now_ms, "until"),
            scopes=wanted,
            partitions=frozenset(partitions),
            key=dict(key or {}),
            operations=operations_of(operations, "operations"),
            descending=descending,
            limit=PAGE_EVENTS if limit is None else min(limit, PAGE_EVENTS),
        )
        return Selection(self._history, query, limit)

    def tail(
        self, since: Time | None = None, *, include: Iterable[str] = (CHANGE,), after: str = ""
    ) -> Iterator[tuple[Event, str]]:
        """Yield each final change, and a token to continue after it. Endless.

        It starts at *since*, after the token *after*, or now. Blocking.
        """
        now_ms = self._history.clock.wall_ms()
        from_ms = 0 if after else (now_ms if since is None else _ms(since, now_ms, "since"))
        query = Query(from_ms=from_ms, scopes=frozenset(include), after=after, limit=PAGE_EVENTS)
        while True:
            page = tail(self._history, query, wait_ms=WAIT_MS_MAX, pause=time.sleep)
            for event in page.events:
                yield event, event.token
            query = replace(query, after=page.token)


@dataclass(frozen=True, slots=True)
class Selection:
    """The events of a query; each iteration reads them again."""

    history: History
    query: Query
    limit: int | None

    def __iter__(self) -> Iterator[Event]:
        """Yield the events in order. Raises as `History.select`."""
        for events in self._pages(self.history, self.query):
            yield from events

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """Yield the rows of `arrow` in batches, one per page. Raises as `arrow`."""
        yield from self._batches(*self.plan())

    def _batches(self, layout: "Layout", query: Query) -> "Iterator[pa.RecordBatch]":
        history = self.history
        typed = History(history.file, history.include, history.clock, layout.shape)
        for events in self._pages(typed, query):
            yield layout.batch(events)

    def arrow(self) -> "pa.Table":
        """Return an Arrow table, whose images are structs with the columns of the table.

        Raises:
            FramesMissingError: pyarrow is not installed.

        """
        layout, query = self.plan()
        return _module("pyarrow").Table.from_batches(self._batches(layout, query), layout.schema)

    def pandas(self) -> "pd.DataFrame":
        """Return a pandas data frame, made from `arrow`.

        Raises:
            FramesMissingError: pyarrow or pandas is not installed.

        """
        _module("pyarrow")
        _module("pandas")
        return self.arrow().to_pandas()

    def plan(self) -> "tuple[Layout, Query]":
        """Return the columns of these events, and a query fixed to the current changes.

        Raises as `History.select`, and as `arrow`.
        """
        _module("pyarrow")
        from headrace.connector.history.frames.layout import Layout  # noqa: PLC0415 (imports it)

        query = self.history.fixed(self.query)  # Before the schemas, which then suffice.
        schemas = self.history.file.schemas()
        scopes = self.history.scopes_of(query)
        return Layout.of([schemas[number] for number in sorted(schemas)], scopes), query

    def _pages(self, history: History, query: Query) -> Iterator[list[Event]]:
        """Yield the events of each page, up to the limit."""
        left = self.limit
        for page in history.pages(query):
            events = page.events if left is None else page.events[:left]
            if events:
                yield events
            if left is not None:
                left -= len(events)
                if not left:
                    return


def _module(name: str) -> Any:  # noqa: ANN401 (a module of an extra)
    """Import a module for frames. Raises FramesMissingError."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        said = f"{name} cannot be imported: {error}"
        raise FramesMissingError(said, hint=install_hint("pandas")) from error


def _ms(given: Time, now_ms: int, key: str) -> int:
    match given:
        case dt.timedelta():
            return now_ms - given // dt.timedelta(milliseconds=1)
        case int():
            return given
        case dt.datetime():
            at = given
        case str():
            try:
                at = dt.datetime.fromisoformat(given)
            except ValueError:
                return now_ms - duration_ms(given, key)
    return us_of(at) // 1_000

"""Change history in Python: `headrace.history.connect(path).select(…)`.

A selection is read page by page when it is iterated, as often as it is: as events, or as a table of
Arrow, of which pandas and polars make data frames.
"""

import datetime as dt
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.history.arrival import us_of
from headrace.connector.history.config import CHANGE, SCOPES
from headrace.connector.history.durations import duration_ms
from headrace.connector.history.file import HistoryFile
from headrace.connector.history.following import WAIT_MS_MAX, tail
from headrace.connector.history.query import Event, Query
from headrace.connector.history.reading import History
from headrace.plugins import ConfigError, Operation, Problem

if TYPE_CHECKING:
    import pyarrow as pa

Time = dt.datetime | dt.timedelta | str | int
"""A moment, or how long ago: a time of Python, ISO 8601, a duration such as `15m`, or ms."""

PAGE_EVENTS = 1_000


def connect(path: str | Path) -> "Client":
    """Open the history in the file at *path*, which DESCRIBE CDC shows.

    Raises:
        HistoryMissingError: there is none.
        HistoryFileError: it cannot be used.

    """
    return Client(History(HistoryFile.opened(Path(path)), frozenset((CHANGE,)), SystemClock()))


class Client:
    """An open history; for one thread at a time. A context manager closes it."""

    def __init__(self, history: History) -> None:
        """Read *history*."""
        self._history = history

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
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
        operations: Iterable[Operation | str] = (),
        partitions: Iterable[int] = (),
        descending: bool = False,
        limit: int | None = None,
    ) -> "Selection":
        """Return the changes that arrived from *since* on and before *until*.

        *include* names images: change, pre, post, latest. The selection reads nothing yet.

        Raises:
            ConfigError: an image, a time or an operation does not exist.

        """
        wanted = frozenset(include)
        if unknown := wanted.difference(SCOPES):
            what = f"there is no image {min(unknown)!r}"
            raise ConfigError([Problem("include", what, f"there are {', '.join(SCOPES)}")])
        now_ms = self._history.clock.wall_ms()
        query = Query(
            from_ms=_ms(since, now_ms, "since"),
            to_ms=None if until is None else _ms(until, now_ms, "until"),
            scopes=wanted,
            partitions=frozenset(partitions),
            key=dict(key or {}),
            operations=frozenset(map(_operation, operations)),
            descending=descending,
            limit=PAGE_EVENTS if limit is None else min(limit, PAGE_EVENTS),
        )
        return Selection(self._history, query, limit)

    def tail(
        self, since: Time | None = None, *, include: Iterable[str] = (CHANGE,), after: str = ""
    ) -> Iterator[tuple[Event, str]]:
        """Yield each change, as soon as it is final, and the token to continue behind it. Endless.

        It begins at *since*, behind the token *after*, or now. Blocking.
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
        """Yield them in their order. Raises as `History.select`."""
        left = self.limit
        for page in self.history.pages(self.query):
            events = page.events if left is None else page.events[:left]
            yield from events
            if left is not None:
                left -= len(events)
                if not left:
                    return

    def arrow(self) -> "pa.Table":
        """Return a table of Arrow: the columns of SELECT, with images as JSON. Needs pyarrow."""
        import pyarrow as pa  # noqa: PLC0415 (an extra)

        events = list(self)
        at_ms = pa.array([event.time_ms for event in events], pa.timestamp("ms", "UTC"))
        written = pa.array([event.written_us for event in events], pa.timestamp("us", "UTC"))
        columns: dict[str, Any] = {
            "cdc_time": at_ms,
            "seq": pa.array([event.sequence for event in events], pa.int32()),
            "partition_id": pa.array([event.partition_id for event in events], pa.int32()),
        }
        for name in self.history.key_columns():
            columns[name] = _key_column(pa, [event.key.get(name) for event in events])
        columns |= {
            "op": pa.array([event.operation.lower() for event in events], pa.string()),
            "write_time": written,
        }
        for image in SCOPES:
            if image in (self.query.scopes or ()):
                found = (getattr(event, image) for event in events)
                columns[image] = pa.array(map(_json, found), pa.string())
        for flag in ("partial", "derived", "static", "effective"):
            columns[flag] = pa.array([getattr(event, flag) for event in events], pa.bool_())
        return pa.table(columns)


def _json(image: object) -> str | None:
    return None if image is None else json.dumps(image, ensure_ascii=False)


def _key_column(pa: Any, values: list[Any]) -> Any:  # noqa: ANN401 (pyarrow and its arrays)
    """Return a column of the key: numbers and booleans as such, everything else as text."""
    present = [value for value in values if value is not None]
    for kind, made in ((bool, pa.bool_()), (int, pa.int64()), (float, pa.float64())):
        if present and all(type(value) is kind for value in present):
            try:
                return pa.array(values, made)
            except OverflowError:  # A varint.
                break
    texts = [v if v is None or isinstance(v, str) else _json(v) for v in values]
    return pa.array(texts, pa.string())


def _operation(given: Operation | str) -> Operation:
    try:
        return Operation(given.upper())
    except ValueError:
        hint = f"there are {', '.join(each.lower() for each in Operation)}"
        what = f"{given[:32]!r} is not an operation"
        raise ConfigError([Problem("operations", what, hint)]) from None


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

"""`headrace.history` for Spark: the changes of a history, with images of their rows.

Imports pyspark. A frame is as of its load: its range of arrivals ends there, and its columns are
those of the schemas up to there. Tasks read parts of this range, page by page.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.history.client import connect
from headrace.connector.history.config import CHANGE, LATEST
from headrace.connector.history.frames.layout import Layout
from headrace.connector.history.query import Query
from headrace.connector.history.reading import History
from headrace.connector.history.store.places import opened, whole_place
from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.frames.mistakes import check_options
from headrace.connector.replay.frames.segment_reader import shards_of
from headrace.connector.replay.selection import names_in

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS: Final = (
    "path",
    "since",
    "until",
    "include",
    "key",
    "operations",
    "partitions",
    "shards",
)
CHANGES_PER_TASK: Final = 50_000  # Seconds of work; a task takes 0.1 s to start.


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of all queries of a frame."""

    path: str
    query: Query
    layout: Layout

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Plan":
        """Fix the range that *options* select.

        Raises:
            ConfigError: it has all mistakes found; or as `History.select`.
            HistoryMissingError: the history does not exist.

        """
        check_options("headrace.history", options, OPTIONS)
        if "path" not in options:
            raise bad_option("path", "is required", "load() the file that DESCRIBE CDC shows")
        if "since" not in options:
            hint = "a time, or how long ago: 2026-01-31T12:00:00Z, 15m"
            raise bad_option("since", "is required", hint)
        include = names_in(options.get("include"), "include") or {CHANGE}
        if LATEST in include:
            hint = "take the post image of the newest change of each key"
            raise bad_option("include", "a frame is as of its load, `latest` is not", hint)
        shards_of(options)
        path = whole_place(options["path"])
        with connect(path) as client:
            selection = client.select(
                options["since"],
                options.get("until"),
                include=include,
                key=_key(options.get("key")),
                operations=names_in(options.get("operations"), "operations"),
                partitions=_numbers(options.get("partitions")),
            )
            layout, query = selection.plan()
        if not layout.keys:
            hint = "load() again when the job of the history has committed changes"
            raise bad_option("path", "has had no change yet: its columns are unknown", hint)
        return cls(path, query, layout)

    def history(self) -> History:
        """Open the history; the caller closes it."""
        clock = SystemClock()
        store = opened(self.path, clock)
        return History(store, frozenset((CHANGE,)), clock, self.layout.shape)


@dataclass(frozen=True, slots=True)
class HistoryPartition(InputPartition):
    """The work of one task."""

    query: Query


class HistoryReader(DataSourceReader):
    """Divides the range on the driver, reads its parts in the tasks.

    It has no `pushFilters`, for the reason of `SegmentReader`.
    """

    def __init__(self, plan: Plan, shards: int) -> None:
        """Read *plan* in *shards* tasks, by default as many as the number of changes needs."""
        self._plan = plan
        self._shards = shards

    def partitions(self) -> Sequence[HistoryPartition]:
        """Return a partition for each part of the range. Spark calls it for each query.

        Raises:
            HistoryTruncatedError: retention has reached the range.

        """
        query = self._plan.query
        with closing(self._plan.history()) as history:
            size = CHANGES_PER_TASK
            if self._shards:
                size = max(1, -(-history.count(query) // self._shards))
            return [HistoryPartition(part) for part in history.divided(query, size)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the changes of a part, a page at a time. Spark calls it once for each attempt.

        Raises as `History.select`.
        """
        assert isinstance(partition, HistoryPartition)  # noqa: S101 (made above)
        with closing(self._plan.history()) as history:
            for page in history.pages(partition.query, settles=False):
                if page.events:
                    yield self._plan.layout.batch(page.events)


def _key(text: str | None) -> Mapping[str, Any]:
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, str | int | bool])
    except msgspec.DecodeError as error:
        hint = 'an object of JSON with columns of the primary key: {"id": 7}'
        raise bad_option("key", f"expected columns, found {text[:48]!r}", hint) from error


def _numbers(text: str | None) -> frozenset[int]:
    try:
        return frozenset(map(int, names_in(text, "partitions")))
    except ValueError as error:
        hint = "numbers with commas in between: 0,3"
        raise bad_option("partitions", f"expected numbers, found {text!r}", hint) from error

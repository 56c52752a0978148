"""The options of the sink `history`."""

import re
from dataclasses import dataclass
from typing import Final

from headrace import plugins
from headrace.connector.history.durations import duration_ms
from headrace.connector.history.store.places import table_parts, whole_place
from headrace.connector.serde.image_fields import POST, PRE

CHANGE: Final = "change"
LATEST: Final = "latest"
SNAPSHOT: Final = "snapshot"
TTL_EVENTS: Final = "ttl_events"  # One of the scopes that are stored.
SCOPES: Final = (CHANGE, PRE, POST, LATEST)
BUCKETS_MAX: Final = 1024
FILES_MAX: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryConfig(plugins.SinkOptions):
    """Options of the history sink; `CREATE CDC` sets `path`, `table` and `include`."""

    path: str = plugins.option(
        "The file of the history, on a local disk; created if it does not exist. "
        "`worker.yaml#NAME` is a history in tables of the Cassandra that `store` in a worker's or "
        "job's file beside this one names.",
        writes=True,
    )
    table: str = plugins.option("The table whose changes are kept: keyspace.table.")
    include: tuple[str, ...] = plugins.option(
        "What queries return of each change unless they say otherwise: change, and images of its "
        "row: pre, post, latest. Images are kept from when one of them is first included.",
        default=(CHANGE,),
    )
    buckets: int = plugins.option(
        "How many buckets the partition keys are divided into; it cannot be changed.",
        default=8,
        minimum=1,
        maximum=BUCKETS_MAX,
    )
    files: int = plugins.option(
        "How many files on a local disk have the buckets, each some of them: several workers that "
        "write at once then wait less for each other. It cannot be changed.",
        default=1,
        minimum=1,
        maximum=FILES_MAX,
    )
    retention: str = plugins.option(
        "How long changes are kept after their arrival: 90s, 15m, 12h, 7d.", default="7d"
    )
    seed: str = plugins.option(
        "What the images know of rows that were there before: `none`, so images have only columns "
        "that were seen since; `empty`, if the table has no rows when its history begins; "
        "`snapshot`, if `headrace seed` reads them.",
        default="none",
        choices=("none", "empty", SNAPSHOT),
    )
    expand_deletes: bool = plugins.option(
        "Besides the deletion of a range or a partition, keep a DELETE of each row it removes.",
        default=False,
    )
    ttl_events: bool = plugins.option(
        "Also keep an event, with its images, for each row that loses values because their time to "
        "live ended.",
        default=False,
    )

    def __post_init__(self) -> None:
        """Refuse options that cannot be applied."""
        plugins.SinkOptions.__post_init__(self)
        problems = []
        unknown = [name for name in self.include if name not in SCOPES]
        if unknown or not self.include:
            what = f"expected some of {', '.join(SCOPES)}; found {', '.join(self.include)[:64]!r}"
            problems.append(plugins.Problem("include", what))
        if not re.fullmatch(r"[^.]+\.[^.]+", self.table):
            problems.append(plugins.Problem("table", "expected keyspace.table"))
        if not self.path.strip("/") or self.path.endswith("/"):
            problems.append(plugins.Problem("path", f"{self.path!r} names no file"))
        if self.no_file and "/" in table_parts(self.path)[0]:
            what = "a file whose store keeps a history is in the folder of the job"
            problems.append(plugins.Problem("path", what, "worker.yaml#NAME"))
        if self.files > 1 and self.no_file:
            problems.append(plugins.Problem("files", "a history in tables has no files"))
        elif self.files > self.buckets:
            what = f"expected at most {self.buckets}, one for each bucket; found {self.files}"
            problems.append(plugins.Problem("files", what))
        if self.ttl_events and LATEST not in self.scopes:
            hint = "INCLUDE one of pre, post and latest"
            what = "needs the states of rows, which are kept for images"
            problems.append(plugins.Problem(TTL_EVENTS, what, hint))
        if self.transforms:
            what = "a history keeps changes as they are, without transforms"
            problems.append(plugins.Problem("transforms", what))
        if problems:
            raise plugins.ConfigError(problems)
        duration_ms(self.retention, "retention")

    @property
    def place(self) -> str:
        """Return the place in a form that is valid from any folder."""
        return whole_place(self.path)

    @property
    def no_file(self) -> bool:
        """Return whether the history is in tables."""
        return bool(table_parts(self.path)[1])

    @property
    def scopes(self) -> frozenset[str]:
        """Return what is stored: changes, and for pre or post images all that both need."""
        kept = SCOPES if not {PRE, POST}.isdisjoint(self.include) else (CHANGE, *self.include)
        return frozenset((*kept, TTL_EVENTS) if self.ttl_events else kept)

    @property
    def retention_ms(self) -> int:
        """Return how long changes are kept, in ms."""
        return duration_ms(self.retention, "retention")

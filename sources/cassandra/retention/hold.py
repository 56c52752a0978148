"""One job's needs of one node's log; `disposal` removes what no job needs.

Every job that reads a `cdc_raw` directory leaves its markers beside it, so two jobs, even of
different stores, cannot remove segments that the other needs (I5). Blocking file I/O.
"""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from headrace.plugins import option
from headrace.sources.cassandra.commitlog.manifest import Stored
from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.logs import pins
from headrace.sources.cassandra.logs.pins import HoldError, Need, Pending
from headrace.sources.cassandra.retention.disposal import Disposal, SegmentRetention
from headrace.sources.cassandra.state.cdc_state import Marker
from headrace.sources.cassandra.state.gaps import START

_STORE_CHARS: Final = 8
_EVERYTHING: Final = "everything"  # What the note says that `register_all` leaves.
STOP: Final = "stop_holding"
DROP: Final = "drop_oldest"
_MS: Final = 1_000


class Hold:
    """The needs of one job in one node's directory."""

    def __init__(
        self, folder: Path, job: str, *, store: str = "", retention: SegmentRetention | None = None
    ) -> None:
        """Change no file yet. Pins are in *folder*; *store* is the job's `store_mark`.

        Without *retention*, this object disposes of nothing.
        """
        self._retention = retention
        self._job = job
        self._store = store
        self._folder = folder
        self._noted: dict[str, object] = {}
        self._splits: list[str] = []

    def register_all(self, splits: Iterable[str]) -> None:
        """Write a pin that needs everything for each split of the job that has none yet."""
        self._splits = list(splits)
        names = {self._name(split): split for split in self._splits}
        with self._telling():
            for name in pins.write_new(self._folder, list(names), pins.everything(self._job)):
                # What it says next is noted, also if it is as before, unless it is the same.
                self._noted[names[name]] = _EVERYTHING

    def register(self, split: str, marker: Marker, pending: Pending, listed: Stored = ()) -> None:
        """Pin what *split* needs from now on: everything after *marker*, and the *pending* copies.

        It knows the segments that are *listed*, and needs all others.

        Raises:
            HoldError: the folder cannot be written though segments may be disposed of.

        """
        # Usually nothing is pending; a job has a pin for each split and log.
        said: object = (marker.segment_id, marker.offset == END_OFFSET)
        if marker == START and not listed:
            said = _EVERYTHING
        if not pending and self._noted.get(split) == said:
            return
        need = Need.of(self._job, split, marker, pending, listed)
        if pending:
            said = need.says()
            if self._noted.get(split) == said:
                return
        with self._telling():
            pins.write(self._folder, self._name(split), msgspec.json.encode(need))
            self._noted[split] = said

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Raise HoldError if the folder cannot be written though segments may be disposed of."""
        try:
            yield
        except OSError as error:
            if self._keeps_all:  # The directory is read-only for us: other jobs maintain it.
                return
            raise HoldError(str(error), place=str(self._folder)) from error

    def withdraw(self, splits: Iterable[str]) -> None:
        """Remove the pins of *splits*: the job was removed."""
        gone = set(splits)
        self._splits = [split for split in self._splits if split not in gone]
        for split in gone:
            with contextlib.suppress(OSError):  # Then its segments stay, which is safe.
                (self._folder / self._name(split)).unlink(missing_ok=True)

    def dispose(self) -> int:
        """Dispose of segments that no split of any job needs. Return their number.

        I5: if a node was set up again, our pins were removed too, and only one split has written
        its pin again since.
        """
        if not self._keeps_all:
            self.register_all(self._splits)
        return 0 if self._retention is None else self._retention.dispose()

    def tick(self) -> None:
        """Maintain the files if it is time; see `SegmentRetention.tick`."""
        if self._retention is not None:
            self._retention.tick()

    @property
    def _keeps_all(self) -> bool:
        return self._retention is None or self._retention.keeps_all

    def _name(self, split: str) -> str:
        return pins.name_of(self._job, split, self._store)


def store_mark(job_key: bytes) -> str:
    """Return a mark that distinguishes equal job names in different stores; it hides the key."""
    return sha256(job_key).hexdigest()[:_STORE_CHARS]


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldOptions:
    """How long segments are held, and how many."""

    hold_retention_seconds: int = option(
        "The minimum age of a finished segment before it is removed.",
        default=0,
        minimum=0,
        name="hold.retention_seconds",
    )
    hold_bytes_max: int | None = option(
        "The most bytes that are held; default: what hold.min_free leaves.",
        default=None,
        minimum=1,
        name="hold.bytes_max",
    )
    hold_min_free: int = option(
        "This much of the disk is kept free of held segments.",
        default=5 * 1024**3,
        minimum=0,
        name="hold.min_free",
        unit="bytes",
    )
    hold_full: str = option(
        "At these bounds: stop_holding (Cassandra's own limit counts again), or drop_oldest.",
        default=STOP,
        choices=(STOP, DROP),
        name="hold.full",
    )

    def disposing(self, archive: Path | None = None) -> Disposal:
        """Return how finished segments are deleted, or archived."""
        return Disposal(
            keep=False,
            archive=archive,
            retention_ms=self.hold_retention_seconds * _MS,
            bytes_max=self.hold_bytes_max,
            min_free=self.hold_min_free,
            drop_oldest=self.hold_full == DROP,
        )

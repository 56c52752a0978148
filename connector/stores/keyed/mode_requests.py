"""The last requests for a mode of a job's logs, over a backend."""

import json
from collections.abc import Callable, Sequence
from typing import Final

from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.keyed.rows import JobRows, pack
from headrace.plugins.stores.kept_modes import ModeRequest
from headrace.plugins.stores.key_values import Change, Key, Partition

KEPT_MAX: Final = 100
TRIES_MAX: Final = 10  # Of requests that come at the same time.
_LAST: Final = "last"

Requests = Sequence[ModeRequest]


class ModeRequests:
    """One row, oldest first. What became of those that still count is with the splits."""

    def __init__(self, rows: JobRows) -> None:
        """Look at nothing yet."""
        self._rows = rows
        self._key = Key(Partition(json.dumps(["modes", rows.name])), _LAST)

    def all(self) -> Requests:
        """Return all that are kept."""
        return self._read()[1]

    def update(self, updated: Callable[[Requests], Requests]) -> None:
        """Replace them by what *updated* makes of them; the oldest are dropped."""
        for _ in range(TRIES_MAX):
            stamp, found = self._read()
            change = Change(
                partition=self._key.partition,
                expected={_LAST: stamp},
                rows={_LAST: pack(list(updated(found))[-KEPT_MAX:])},
            )
            if self._rows.values.change([change])[0]:
                return
        raise StoreUnavailableError("others ask for modes all the time", place=self._rows.name)

    def _read(self) -> tuple[int | None, Requests]:
        entry = self._rows.values.row(self._key)
        if entry is None:
            return None, ()
        return entry.stamp, self._rows.unpack(list[ModeRequest], self._key, entry)

"""The last requests for a mode of a job's logs, over a backend."""

import json
from collections.abc import Callable, Sequence
from typing import Final

from headrace.connector.stores.keyed.rows import JobRows
from headrace.plugins.stores.kept_modes import ModeRequest
from headrace.plugins.stores.key_values import Key, Partition

KEPT_MAX: Final = 100
_LAST: Final = "last"

Requests = Sequence[ModeRequest]


class ModeRequests:
    """One row, oldest first. The outcomes of valid requests are stored with the splits."""

    def __init__(self, rows: JobRows) -> None:
        """Read nothing yet."""
        self._rows = rows
        self._key = Key(Partition(json.dumps(["modes", rows.name])), _LAST)

    def all(self) -> Requests:
        """Return all stored requests."""
        _, found = self._rows.row(list[ModeRequest], self._key) or (0, ())
        return found

    def update(self, updated: Callable[[Requests], Requests]) -> None:
        """Replace the requests by the result of *updated*; drop the oldest."""

        def last(found: Requests | None) -> list[ModeRequest]:
            return list(updated(found or ()))[-KEPT_MAX:]

        self._rows.replace(self._key, list[ModeRequest], last, "the requests for modes")

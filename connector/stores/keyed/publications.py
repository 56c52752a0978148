"""The queue of a job's schemas for publication in a schema store, over a backend."""

import json
import time
from collections.abc import Callable, Sequence
from functools import partial

from headrace.connector.stores import Publication
from headrace.connector.stores.keyed.rows import JobRows, PublicationRow
from headrace.plugins.stores.key_values import Key


class Publications:
    """The durable queue of a job's schemas for publication. For one thread.

    The schemas themselves are stored separately, whether or not they are published.
    """

    def __init__(self, rows: JobRows) -> None:
        """Read nothing yet."""
        self._rows = rows

    def enqueue(self, publications: Sequence[Publication]) -> None:
        """Queue unknown publications, and those with another text, which replace the known ones."""
        now_us = time.time_ns() // 1_000
        for number, each in enumerate(publications):
            self._replace(each, partial(_queued, each, now_us + number))

    def settle(self, publication: Publication) -> None:
        """Replace a stored publication, unless its text has changed."""

        def settled(row: PublicationRow | None) -> PublicationRow | None:
            if row is None or row.publication.text != publication.text:
                return None
            return PublicationRow(publication, row.queued_us)

        self._replace(publication, settled)

    def all(self) -> Sequence[Publication]:
        """Return all, in the order of the queue."""
        found = self._rows.scan(PublicationRow, [self._rows.publications]).values()
        return [row.publication for _, row in sorted(found, key=lambda each: each[1].queued_us)]

    def _replace(
        self, each: Publication, row: Callable[[PublicationRow | None], PublicationRow | None]
    ) -> None:
        name = json.dumps([each.subject, each.schema_id.hex(), each.part])
        key = Key(self._rows.publications, name)
        self._rows.replace(key, PublicationRow, row, f"publication {name}")


def _queued(each: Publication, now_us: int, row: PublicationRow | None) -> PublicationRow | None:
    if row is not None and row.publication.text == each.text:
        return None
    return PublicationRow(each, row.queued_us if row else now_us)

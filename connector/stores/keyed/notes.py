"""What workers saw of a job, and its queue of schemas, over a backend."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from headrace.connector.stores import Publication, Seen
from headrace.connector.stores.keyed.rows import JobRows, PublicationRow, pack
from headrace.plugins.stores.key_values import Key

_SPLIT: Final = "/"  # Before the name of a split among what was seen; the job's is empty.


class Publications:
    """The durable queue of a job's schemas on their way to a schema store. For one thread.

    Apart from the schemas themselves, which are kept whether or not they are published.
    """

    def __init__(self, rows: JobRows) -> None:
        """Look at nothing yet."""
        self._rows = rows

    def enqueue(self, publications: Sequence[Publication]) -> None:
        """Queue those that are not known yet, or with another text; what was of that is void."""
        now_us = time.time_ns() // 1_000
        for number, each in enumerate(publications):
            self._replace(each, partial(_queued, each, now_us + number))

    def settle(self, publication: Publication) -> None:
        """Replace what is known of a publication, unless its text is another by now."""

        def settled(row: PublicationRow | None) -> PublicationRow | None:
            if row is None or row.publication.text != publication.text:
                return None
            return PublicationRow(publication, row.queued_us)

        self._replace(publication, settled)

    def all(self) -> Sequence[Publication]:
        """Return all, in the order in which they were queued."""
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


def see(rows: JobRows, noted: Sequence[Seen], owners: Mapping[str, str | None]) -> None:
    """Do what `Store.see` promises; *owners* have the splits that a worker may own."""
    now_ms = time.time_ns() // 1_000_000
    ours = [row for row in noted if owners.get(row.split) in {None, row.worker}]
    keys = [Key(rows.seen, _SPLIT + row.split) for row in ours]
    before = rows.read(Seen, keys)
    found: dict[Key, bytes | None] = {}
    for key, each in zip(keys, ours, strict=True):
        _, last = before.get(key, (0, None))
        since_ms = last.since_ms if last is not None and last.state is each.state else now_ms
        found[key] = pack(replace(each, since_ms=since_ms, seen_ms=now_ms))
    if found:
        rows.values.put(found)


def of_split(key: Key) -> bool:
    """Say whether it is that of a row with what was seen of a split, not of the job."""
    return key.name.startswith(_SPLIT) and key.name != _SPLIT


def seen(rows: JobRows) -> Mapping[str, Seen]:
    """Do what `Store.seen` promises."""
    found = [
        rows.unpack(Seen, key, entry)
        for key, entry in rows.values.scan([rows.seen]).items()
        if key.name.startswith(_SPLIT)
    ]
    return {each.split: each for each in found}

"""The notes of all jobs, what workers saw of one, and its queue of schemas, over a backend."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from headrace.connector.stores import Publication, Seen, StoreUnavailableError
from headrace.connector.stores.keyed.rows import (
    PROBLEM,
    JobRows,
    PublicationRow,
    notes_in,
    pack,
    unpack,
)
from headrace.plugins.stores.control_store import NoteKey
from headrace.plugins.stores.key_values import Change, Entry, Key, KeyValues, Partition

if TYPE_CHECKING:
    from headrace.connector.stores.keyed.store import Store

TRIES_MAX: Final = 10  # Of notes that another process replaces meanwhile.
_VERSION: Final = "version"
_SPLIT: Final = "/"  # Before the name of a split among what was seen; the job's is empty.


class Notes:
    """The notes of all jobs in one space: one partition with one version. For one thread.

    Any call may raise StoreUnavailableError: then what became of it is not known.
    """

    def __init__(self, values: KeyValues, space: str, store: "Callable[[str], Store]") -> None:
        """Own *values*; *store* returns that of a job over the same connection, not to close."""
        self._values = values
        self._partition = Partition(json.dumps(["notes", space]))
        self._version_key = Key(self._partition, _VERSION)
        self.store = store
        self.grouped = values.grouped
        """Makes one write of what a block writes, also in the stores of `store`, if it can."""
        self.check = values.check
        self._last: tuple[int | None, int] = (None, 0)  # The stamp and the version seen last.

    @property
    def place(self) -> str:
        """Where they are, as errors name it."""
        return self._values.place

    def version(self) -> int:
        """Return how often they were replaced."""
        return self._seen(self._values.read([self._version_key]))

    def rows(self) -> tuple[int, Mapping[NoteKey, str]]:
        """Return all of them as of one version, and that version."""
        for _ in range(TRIES_MAX):
            found = self._values.scan([self._partition])
            version = self._seen(found)
            if version == self.version():  # Else it was replaced between two pages.
                rows = {key: row for key, row in found.items() if key != self._version_key}
                return version, notes_in(rows, self._values)
        raise StoreUnavailableError("the notes change all the time")

    def replace(self, seen: int, changes: Mapping[NoteKey, str | None]) -> bool:
        """Write *changes*, None removes, if *seen* is still the version, which then grows by one.

        All of it or nothing. Returns False if another process was faster.
        """
        if self._last[1] != seen and self.version() != seen:
            return False
        rows = {
            json.dumps(key): None if text is None else pack(text) for key, text in changes.items()
        }
        change = Change(
            partition=self._partition,
            expected={_VERSION: self._last[0]},
            rows={**rows, _VERSION: pack(seen + 1)},
        )
        applied = self._values.change([change])[0]
        if applied is None:
            raise StoreUnavailableError("whether the notes were replaced is not known")
        if applied:
            self._last = change.stamp, seen + 1
        return applied

    def _seen(self, rows: Mapping[Key, Entry]) -> int:
        """Take the version that is among *rows*."""
        key = self._version_key
        entry = rows.get(key)
        if entry is None:
            self._last = (None, 0)
        elif entry.stamp != self._last[0]:  # Each write has a stamp of its own.
            self._last = (entry.stamp, unpack(int, key, entry, self._values))
        return self._last[1]

    def close(self) -> None:
        """Give back the connection. Safe to call twice."""
        self._values.close()


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


def seen(rows: JobRows) -> Mapping[str, Seen]:
    """Do what `Store.seen` promises."""
    found = [
        rows.unpack(Seen, key, entry)
        for key, entry in rows.values.scan([rows.seen]).items()
        if key.name != PROBLEM
    ]
    return {each.split: each for each in found}
